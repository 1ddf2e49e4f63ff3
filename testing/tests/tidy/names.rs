//! Names that were renamed away stay away.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use super::exceptions;
use super::hold;
use super::source::TREE;

#[test]
fn no_old_name_comes_back() {
    let mut found = Vec::new();
    for source in &TREE.rust {
        if source.path.starts_with("testing/tests/tidy/") {
            continue;
        }
        let stem = source.path.rsplit('/').next().expect("a part").trim_end_matches(".rs");
        let mut words: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut add = |name: &str, line: usize| {
            for (old, within, _) in exceptions::OLD_NAMES {
                if source.path.contains(within) && is_made_of(name, old) {
                    let lines = words.entry(old).or_default();
                    if lines.last() != Some(&line) {
                        lines.push(line);
                    }
                }
            }
        };
        add(stem, 0);
        identifiers(source.text.parse().expect("Rust"), &mut add);
        for (old, lines) in words {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            found.push(format!("{}: {old} (lines {})", source.path, lines.join(", ")));
        }
    }
    hold("names", exceptions::OLD_NAMES_LEFT, &found);
}

fn identifiers(tokens: TokenStream, add: &mut impl FnMut(&str, usize)) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => identifiers(group.stream(), add),
            TokenTree::Ident(word) => add(&word.to_string(), word.span().start().line),
            _ => {}
        }
    }
}

/// Whether a name is an old one, or has its words side by side.
fn is_made_of(name: &str, old: &str) -> bool {
    if old.starts_with(char::is_uppercase) {
        return name == old;
    }
    let mut snake = String::new();
    let mut was_small = false;
    for c in name.chars() {
        if c.is_uppercase() && was_small {
            snake.push('_');
        }
        was_small = c.is_lowercase() || c.is_ascii_digit();
        snake.extend(c.to_lowercase());
    }
    format!("_{snake}_").contains(&format!("_{old}_"))
}
