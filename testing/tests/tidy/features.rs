//! Features that nobody gets unasked: what breaks rules, and what narufs is measured against.

use super::source::TREE;

const UNASKED: [&str; 2] = ["baselines", "planted-bugs"];
const CRATES: [&str; 9] =
    ["engine", "fuse", "cli", "bench", "research", "testing", "narufs", "doors/c", "doors/object_store"];

/// Cargo builds a crate once with all features that anybody asks for: a dependency that asks would give them to all.
#[test]
fn no_crate_turns_them_on_unless_it_is_told() {
    let mut wrong = Vec::new();
    for name in CRATES {
        let manifest = std::fs::read_to_string(TREE.root.join(name).join("Cargo.toml")).expect("a manifest");
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let line = line.split('#').next().unwrap_or_default();
            for feature in UNASKED {
                let is_named =
                    ["\"", "/"].iter().any(|before| line.contains(&format!("{before}{feature}\"")));
                let passes_on = section == "[features]" && line.starts_with(&format!("{feature} = "));
                if is_named && !passes_on && !line.starts_with("required-features = ") {
                    wrong.push(format!("{name}/Cargo.toml, {section}: {line}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "they would be in every build:\n{}", wrong.join("\n"));
}
