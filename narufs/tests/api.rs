//! The public API as the committed list has it: `narufs/api.txt`, which `make api` writes anew.

use quote::ToTokens;
use std::collections::BTreeSet;
use std::path::Path;
use syn::{Fields, ImplItem, Item, Type, UseTree, Visibility};

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/api.txt");

/// Names that the crate's root shows.
fn shown(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => shown(&path.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| shown(tree, names)),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("the root renames nothing and shows no whole module"),
    }
}

fn is_pub(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Tokens as one writes them.
fn words(tokens: impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        ("# [", "#["),
        (" ::", "::"),
        (":: ", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" ,", ","),
        (",)", ")"),
        (" :", ":"),
        ("& ", "&"),
        ("[ ", "["),
        (" ]", "]"),
        (" ;", ";"),
        ("-> &", "-> &"),
    ] {
        words = words.replace(from, to);
    }
    words.replace("->", " -> ").replace("  ", " ").replace("  ", " ")
}

fn marks(attributes: &[syn::Attribute]) -> String {
    let told =
        attributes.iter().filter(|a| a.path().is_ident("non_exhaustive") || a.path().is_ident("derive"));
    told.map(|a| words(a) + " ").collect()
}

fn fields(name: &str, fields: &Fields, all_public: bool, list: &mut BTreeSet<String>) {
    for (n, field) in fields.iter().enumerate().filter(|(_, field)| all_public || is_pub(&field.vis)) {
        let field_name = field.ident.as_ref().map_or(n.to_string(), ToString::to_string);
        list.insert(format!("{name}.{field_name}: {}", words(&field.ty)));
    }
}

fn self_name(ty: &Type) -> Option<String> {
    let ty = match ty {
        Type::Reference(reference) => &*reference.elem,
        ty => ty,
    };
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

fn of_item(item: &Item, names: &BTreeSet<String>, list: &mut BTreeSet<String>) {
    match item {
        Item::Struct(item) if is_pub(&item.vis) && names.contains(&item.ident.to_string()) => {
            list.insert(format!("{}struct {}{}", marks(&item.attrs), item.ident, words(&item.generics)));
            fields(&item.ident.to_string(), &item.fields, false, list);
        }
        Item::Enum(item) if is_pub(&item.vis) && names.contains(&item.ident.to_string()) => {
            list.insert(format!("{}enum {}{}", marks(&item.attrs), item.ident, words(&item.generics)));
            for variant in &item.variants {
                let name = format!("{}::{}", item.ident, variant.ident);
                fields(&name, &variant.fields, true, list);
                list.insert(name);
            }
        }
        Item::Type(item) if is_pub(&item.vis) && names.contains(&item.ident.to_string()) => {
            list.insert(format!("type {}{} = {}", item.ident, words(&item.generics), words(&item.ty)));
        }
        Item::Impl(item) => {
            let Some(name) = self_name(&item.self_ty).filter(|name| names.contains(name)) else {
                // Of a type of another crate, for one of these: a conversion.
                if let Some((_, of, _)) = &item.trait_
                    && names.iter().any(|name| words(of).contains(&format!("<{name}>")))
                {
                    list.insert(format!("impl {} for {}", words(of), words(&item.self_ty)));
                }
                return;
            };
            if let Some((_, of, _)) = &item.trait_ {
                list.insert(format!("impl {} for {}", words(of), words(&item.self_ty)));
                return;
            }
            for part in &item.items {
                match part {
                    ImplItem::Fn(f) if is_pub(&f.vis) => {
                        list.insert(format!("{name}::{}", words(&f.sig)));
                    }
                    ImplItem::Const(c) if is_pub(&c.vis) => {
                        list.insert(format!("{name}::const {}: {}", c.ident, words(&c.ty)));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn sources(dir: &Path, files: &mut Vec<syn::File>) {
    for entry in std::fs::read_dir(dir).expect("there") {
        let path = entry.expect("read").path();
        if path.is_dir() {
            sources(&path, files);
        } else {
            files.push(syn::parse_file(&std::fs::read_to_string(&path).expect("text")).expect("Rust"));
        }
    }
}

/// What a program can name of the crate, a line for each.
fn api() -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let root = std::fs::read_to_string(source.join("lib.rs")).expect("text");
    let mut names = BTreeSet::new();
    for item in &syn::parse_file(&root).expect("Rust").items {
        match item {
            Item::Use(item) if is_pub(&item.vis) => shown(&item.tree, &mut names),
            Item::Mod(item) => assert!(!is_pub(&item.vis), "modules are shown by their items"),
            _ => {}
        }
    }
    let mut files = Vec::new();
    sources(&source, &mut files);
    let mut list = BTreeSet::new();
    files.iter().flat_map(|file| &file.items).for_each(|item| of_item(item, &names, &mut list));
    list
}

#[test]
fn the_public_api_changes_only_with_its_list() {
    let api: String = api().into_iter().map(|line| line + "\n").collect();
    if std::env::var_os("NARUFS_API_WRITE").is_some() {
        std::fs::write(LIST, &api).expect("written");
    }
    let list = std::fs::read_to_string(LIST).expect("the list is committed");
    for line in list.lines().filter(|line| !api.lines().any(|l| l == *line)) {
        println!("gone: {line}");
    }
    for line in api.lines().filter(|line| !list.lines().any(|l| l == *line)) {
        println!("new: {line}");
    }
    assert!(api == list, "the public API has changed: if that is meant, `make api` writes its list anew");
}

#[test]
fn nothing_of_the_engine_shows() {
    for line in api() {
        assert!(!line.contains("engine") && !line.contains("Arc"), "{line}");
    }
}
