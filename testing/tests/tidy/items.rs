//! Public items, and what they say of themselves.

use syn::visit::{self, Visit};
use syn::{Attribute, Visibility};

use super::exceptions;
use super::hold;
use super::modules::MODULES;
use super::source::{Source, TREE};

#[derive(Default)]
struct Public {
    file: String,
    items: usize,
    without: Vec<String>,
    /// Methods of traits, by the name of the trait.
    traits: Vec<(String, usize)>,
}

impl Public {
    fn item(&mut self, public: &Visibility, attributes: &[Attribute], name: &syn::Ident) {
        if matches!(public, Visibility::Public(_)) {
            self.items += 1;
            let documented = attributes.iter().any(|a| a.path().is_ident("doc"));
            if !documented {
                self.without.push(format!("{}:{}: {name}", self.file, name.span().start().line));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Public {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item::{Const, Enum, Fn, Mod, Static, Struct, Trait, Type, Union};
        match item {
            // Modules in files of their own tell of themselves there.
            Mod(i) if i.content.is_some() => {
                if is_test(&i.attrs) {
                    return;
                }
                self.item(&i.vis, &i.attrs, &i.ident);
            }
            Const(i) => self.item(&i.vis, &i.attrs, &i.ident),
            Enum(i) => self.item(&i.vis, &i.attrs, &i.ident),
            Fn(i) => self.item(&i.vis, &i.attrs, &i.sig.ident),
            Static(i) => self.item(&i.vis, &i.attrs, &i.ident),
            Struct(i) => self.item(&i.vis, &i.attrs, &i.ident),
            Trait(i) => {
                self.item(&i.vis, &i.attrs, &i.ident);
                let methods = i.items.iter().filter(|i| matches!(i, syn::TraitItem::Fn(_))).count();
                self.traits.push((i.ident.to_string(), methods));
            }
            Type(i) => self.item(&i.vis, &i.attrs, &i.ident),
            Union(i) => self.item(&i.vis, &i.attrs, &i.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.item(&item.vis, &item.attrs, &item.sig.ident);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.item(&item.vis, &item.attrs, &item.ident);
    }
}

/// Whether a condition on what follows speaks of tests; exact enough for modules inside a file.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("cfg") && quote_of(a).contains("test"))
}

fn quote_of(attribute: &Attribute) -> String {
    match &attribute.meta {
        syn::Meta::List(list) => list.tokens.to_string(),
        _ => String::new(),
    }
}

fn public(source: &Source) -> Public {
    let file = syn::parse_file(&source.text).unwrap_or_else(|e| panic!("{}: {e}", source.path));
    let mut public = Public { file: source.path.clone(), ..Public::default() };
    public.visit_file(&file);
    public
}

/// Whether a file belongs to what is shipped as a library or a program.
fn is_shipped(path: &str) -> bool {
    let in_tests = |part: &str| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs");
    path.contains("/src/") && !path.split('/').any(in_tests) && !path.starts_with("testing/")
}

#[test]
fn every_public_item_is_documented() {
    let mut found = Vec::new();
    for source in TREE.rust.iter().filter(|s| is_shipped(&s.path) && !MODULES.test_files.contains(&s.path)) {
        found.extend(public(source).without);
    }
    hold("docs", exceptions::WITHOUT_DOCS, &found);
}

/// Holds nothing: says how much of the engine is open.
#[test]
fn public_items_of_the_engine_are_counted() {
    let shipped: Vec<&str> = MODULES.all.iter().map(|m| m.file.as_str()).collect();
    let mut count = 0;
    for source in TREE.rust.iter().filter(|s| shipped.contains(&s.path.as_str())) {
        let public = public(source);
        count += public.items;
        for (name, methods) in public.traits.iter().filter(|(_, methods)| *methods > 9) {
            println!("trait {name}: {methods} methods ({})", source.path);
        }
    }
    println!("public items of the engine: {count}");
}
