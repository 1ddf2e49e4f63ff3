//! The engine's modules: their order, their files, and what a path in them means.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::source::{Source, TREE};
use super::tokens::{self, Named};

/// Above the list of modules in ARCHITECTURE.md.
pub const HEADING: &str = "## Modules of the engine, top to bottom";

const ROOT: &str = "engine/src/lib.rs";

/// One module of the engine that is part of what is shipped.
pub struct Module {
    /// `file::work`, empty for the root.
    pub path: String,
    /// The file that holds it, relative to the tree.
    pub file: String,
    parent: usize,
    children: HashMap<String, usize>,
    items: HashSet<String>,
    /// What it names.
    pub named: Vec<Named>,
    /// Types that have an inherent `impl` here.
    pub impls: Vec<Named>,
}

/// All modules of the engine but those for tests.
pub struct Modules {
    /// The root first.
    pub all: Vec<Module>,
    /// Declared in `lib.rs`, in this order, those for tests too.
    pub declared: Vec<String>,
    /// Those of them that are for tests alone.
    pub for_tests: HashSet<String>,
    /// Files of modules for tests.
    pub test_files: HashSet<String>,
}

/// Read once for all tests.
pub static MODULES: LazyLock<Modules> = LazyLock::new(Modules::read);

impl Module {
    /// The name of the module in `lib.rs` that it is or lies in.
    pub fn top(&self) -> &str {
        self.path.split("::").next().expect("a part")
    }
}

impl Modules {
    fn read() -> Self {
        let mut modules = Self {
            all: Vec::new(),
            declared: Vec::new(),
            for_tests: HashSet::new(),
            test_files: HashSet::new(),
        };
        let sources: HashMap<&str, &Source> = TREE.rust.iter().map(|s| (s.path.as_str(), s)).collect();
        modules.add(&sources, ROOT, String::new(), 0);
        modules
    }

    /// Adds the modules of one file and of those it declares.
    fn add(&mut self, sources: &HashMap<&str, &Source>, file: &str, path: String, parent: usize) -> usize {
        let read = tokens::read(file, &sources[file].text);
        let own = self.all.len();
        let mut declares = Vec::new();
        for scope in read.scopes {
            let at = self.all.len();
            let inside = scope.inside.join("::");
            let full = if inside.is_empty() { path.clone() } else { join(&path, &inside) };
            let holder = match scope.inside.split_last() {
                None => parent,
                Some((_, above)) => {
                    let above = above.iter().fold(path.clone(), |p, n| join(&p, n));
                    self.all.iter().position(|m| m.path == above).expect("outer modules come first")
                }
            };
            if let Some(name) = scope.inside.last() {
                self.all[holder].children.insert(name.clone(), at);
            }
            self.all.push(Module {
                path: full,
                file: file.to_owned(),
                parent: holder,
                children: HashMap::new(),
                items: scope.items.into_iter().collect(),
                named: scope.named,
                impls: scope.impls,
            });
            declares.extend(scope.files.into_iter().map(|(name, test)| (at, name, test)));
        }
        for (at, name, test) in declares {
            let below = join(&self.all[at].path, &name);
            let stem = format!("engine/src/{}", below.replace("::", "/"));
            let file = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
            let file = file.into_iter().find(|f| sources.contains_key(f.as_str()));
            let file = file.unwrap_or_else(|| panic!("{below} has no file"));
            if at == 0 {
                self.declared.push(name.clone());
            }
            if test {
                self.for_tests.extend((at == 0).then(|| name.clone()));
                self.test_files.insert(file);
            } else {
                let child = self.add(sources, &file, below, at);
                self.all[at].children.insert(name, child);
            }
        }
        own
    }

    /// The module in which that is defined which a path means, or which it is. `None` for other crates.
    pub fn resolve(&self, from: usize, segments: &[String]) -> Option<usize> {
        self.find(from, segments, 0).map(|(module, _)| module)
    }

    /// As [`Self::resolve`], and whether the path means the module itself.
    fn find(&self, from: usize, segments: &[String], depth: usize) -> Option<(usize, bool)> {
        if depth > 8 {
            return None;
        }
        let mut at = from;
        let mut rest = segments;
        match segments.first()?.as_str() {
            "crate" => (at, rest) = (0, &segments[1..]),
            "self" => rest = &segments[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    at = self.all[at].parent;
                    rest = &rest[1..];
                }
            }
            first if self.all[from].children.contains_key(first) => {}
            first => {
                let (module, is_module) = self.imported(from, first, depth)?;
                if !is_module {
                    return Some((module, false));
                }
                (at, rest) = (module, &segments[1..]);
            }
        }
        while let Some((name, behind)) = rest.split_first() {
            let module = &self.all[at];
            if name == "*" {
                return Some((at, true));
            }
            if let Some(child) = module.children.get(name) {
                (at, rest) = (*child, behind);
            } else if module.items.contains(name) {
                return Some((at, false));
            } else {
                match self.imported(at, name, depth) {
                    Some((found, true)) => (at, rest) = (found, behind),
                    Some((found, false)) => return Some((found, false)),
                    None => return Some((at, false)),
                }
            }
        }
        Some((at, true))
    }

    /// What a module knows by this name through a `use`.
    fn imported(&self, at: usize, name: &str, depth: usize) -> Option<(usize, bool)> {
        let uses = || self.all[at].named.iter().filter(|n| n.known_as.is_some() && n.segments[0] != name);
        let known = uses().find(|n| n.known_as.as_deref() == Some(name));
        if let Some(known) = known {
            return self.find(at, &known.segments, depth + 1);
        }
        uses().filter(|n| n.known_as.as_deref() == Some("*")).find_map(|glob| {
            let (module, _) = self.find(at, &glob.segments, depth + 1)?;
            if let Some(child) = self.all[module].children.get(name) {
                return Some((*child, true));
            }
            self.all[module].items.contains(name).then_some((module, false))
        })
    }
}

/// The order that ARCHITECTURE.md gives.
pub fn order() -> Vec<String> {
    let text = TREE.prose("ARCHITECTURE.md");
    let list = text.split_once(HEADING).unwrap_or_else(|| panic!("ARCHITECTURE.md lacks \"{HEADING}\"")).1;
    let list = list.split("\n#").next().expect("a part");
    let mut order = Vec::new();
    for entry in list.lines().filter_map(|line| line.strip_prefix("- ")) {
        let mut rest = entry;
        while let Some((name, behind)) = rest.strip_prefix('`').and_then(|r| r.split_once('`')) {
            order.push(name.to_owned());
            rest = behind.strip_prefix(", ").unwrap_or_default();
        }
    }
    order
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") }
}
