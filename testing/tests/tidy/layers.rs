//! A module uses only those below it, and files of different modules do not need each other in a circle.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::exceptions;
use super::hold;
use super::modules::{MODULES, order};
use super::tokens::Named;

/// A path of the shipped engine that names another of its modules.
struct Use {
    file: String,
    line: usize,
    from: String,
    to: String,
    /// The file that defines what is named.
    defined: String,
    /// Whether the path leads through the crate's root, or is a leaf of a `use`.
    is_import: bool,
    text: String,
}

fn uses() -> Vec<Use> {
    let mut uses = Vec::new();
    for (at, module) in MODULES.all.iter().enumerate().skip(1) {
        for named in &module.named {
            let Some(defined) = MODULES.resolve(at, &named.segments) else { continue };
            let is_import = named.known_as.is_some() || is_rooted(named);
            // What is named by way of another module counts as that module's, where the path says so.
            let through = (1..named.segments.len())
                .filter_map(|n| MODULES.resolve(at, &named.segments[..n]))
                .map(|m| MODULES.all[m].top().to_owned())
                .find(|top| !top.is_empty() && top != module.top());
            uses.push(Use {
                file: module.file.clone(),
                line: named.line,
                from: module.top().to_owned(),
                to: through.unwrap_or_else(|| MODULES.all[defined].top().to_owned()),
                defined: MODULES.all[defined].file.clone(),
                is_import,
                text: named.segments.join("::"),
            });
        }
    }
    uses
}

fn is_rooted(named: &Named) -> bool {
    matches!(named.segments[0].as_str(), "crate" | "super" | "self")
}

fn ranks() -> HashMap<String, usize> {
    order().into_iter().enumerate().map(|(rank, name)| (name, rank)).collect()
}

#[test]
fn the_list_of_modules_is_whole_and_lib_declares_them_in_its_order() {
    let order = order();
    let shipped: Vec<String> =
        MODULES.declared.iter().filter(|m| !MODULES.for_tests.contains(*m)).cloned().collect();
    let listed: BTreeSet<&String> = order.iter().collect();
    assert_eq!(listed.len(), order.len(), "ARCHITECTURE.md names a module twice: {order:?}");
    assert_eq!(
        listed,
        shipped.iter().collect(),
        "ARCHITECTURE.md (left) and lib.rs (right) have other modules"
    );
    assert_eq!(order, shipped, "ARCHITECTURE.md (left) and lib.rs (right) have them in another order");
}

#[test]
fn no_module_uses_one_above_it() {
    let ranks = ranks();
    let mut found = BTreeSet::new();
    let mut pairs: BTreeMap<(String, String), usize> = BTreeMap::new();
    for used in uses().iter().filter(|u| u.is_import && u.from != u.to) {
        let (Some(from), Some(to)) = (ranks.get(&used.from), ranks.get(&used.to)) else { continue };
        if to > from || exceptions::UPWARD.iter().any(|(file, to, _)| *file == used.file && *to == used.to) {
            continue;
        }
        if found.insert((used.from.clone(), used.to.clone(), used.file.clone(), used.line)) {
            *pairs.entry((used.from.clone(), used.to.clone())).or_default() += 1;
        }
    }
    let mut text = String::new();
    for ((from, to), count) in &pairs {
        text += &format!("  pair: {from} -> {to}: {count}\n");
    }
    println!("{} pairs of modules run up\n{text}", pairs.len());
    let found: Vec<String> =
        found.into_iter().map(|(from, to, file, line)| format!("{file}:{line}: {from} -> {to}")).collect();
    hold("upward", exceptions::UPWARD_IMPORTS, &found);
}

#[test]
fn no_module_adds_methods_to_a_type_of_another() {
    let mut found = Vec::new();
    for (at, module) in MODULES.all.iter().enumerate().skip(1) {
        for named in &module.impls {
            let Some(defined) = MODULES.resolve(at, &named.segments) else { continue };
            let home = &MODULES.all[defined];
            if home.top() != module.top() {
                let ty = named.segments.join("::");
                found.push(format!("{}:{}: impl {ty}, of {}", module.file, named.line, home.top()));
            }
        }
    }
    hold("methods", exceptions::FOREIGN_METHODS, &found);
}

#[test]
fn no_files_of_different_modules_stand_in_a_circle() {
    let mut why: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut top: HashMap<String, String> = HashMap::new();
    for module in MODULES.all.iter().skip(1) {
        top.insert(module.file.clone(), module.top().to_owned());
    }
    for used in uses() {
        if used.file != used.defined && top.contains_key(&used.defined) {
            graph.entry(used.file.clone()).or_default().insert(used.defined.clone());
            why.entry((used.file, used.defined)).or_insert(format!("{} (line {})", used.text, used.line));
        }
    }
    let circles: Vec<BTreeSet<String>> = circles(&graph)
        .into_iter()
        .filter(|circle| circle.iter().map(|f| &top[f]).collect::<BTreeSet<_>>().len() > 1)
        .collect();
    let mut found = Vec::new();
    for (number, circle) in circles.iter().enumerate() {
        println!("circle {}: {} files: {circle:?}", number + 1, circle.len());
        for ((from, to), text) in &why {
            if circle.contains(from) && circle.contains(to) && top[from] != top[to] {
                found.push(format!("circle {}: {from} -> {to}: {text}", number + 1));
            }
        }
    }
    println!("{} circles of files across modules", circles.len());
    hold("circles", exceptions::CIRCLE_EDGES, &found);
}

/// Sets of files that reach each other.
fn circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach = |from: &String, graph: &BTreeMap<String, BTreeSet<String>>| {
        let mut seen = BTreeSet::new();
        let mut left = vec![from.clone()];
        while let Some(file) = left.pop() {
            for to in graph.get(&file).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    left.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|f| (f, reach(f, graph))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (file, to) in &reached {
        if to.contains(*file) && !circles.iter().any(|c| c.contains(*file)) {
            circles.push(
                to.iter().filter(|t| reached.get(t).is_some_and(|r| r.contains(*file))).cloned().collect(),
            );
        }
    }
    circles
}
