//! Where `unsafe` may stand.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};

use super::exceptions;
use super::source::TREE;

/// The workspace denies `unsafe`; a file that allows it is on the list, and the list has no other.
#[test]
fn unsafe_code_stands_only_where_the_list_says() {
    let manifest =
        std::fs::read_to_string(TREE.root.join("Cargo.toml")).expect("the manifest of the workspace");
    assert!(manifest.contains("unsafe_code = \"deny\""), "the workspace no longer denies unsafe code");
    let found: BTreeSet<&str> = TREE
        .rust
        .iter()
        .filter(|s| s.text.contains("unsafe") && is_unsafe(s.text.parse().expect("Rust")))
        .map(|s| s.path.as_str())
        .collect();
    let listed: BTreeSet<&str> = exceptions::UNSAFE.iter().copied().collect();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(unlisted.is_empty(), "unsafe code outside of the list: {unlisted:?}");
    assert!(gone.is_empty(), "listed, and without unsafe code: {gone:?}");
}

fn is_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => is_unsafe(group.stream()),
        TokenTree::Ident(word) => word == "unsafe",
        _ => false,
    })
}
