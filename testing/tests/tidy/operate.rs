//! docs/operate says what to do about each finding of fsck and each line of the log.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use narufs_engine::fsck::IssueKind;

use super::figures::rows;
use super::source::TREE;

const FINDINGS: &str = "docs/operate/fsck.md";
const MESSAGES: &str = "docs/operate/messages.md";

/// Letters without which words are no line of their own, but what another has said.
const FEWEST: usize = 6;

#[test]
fn every_finding_of_fsck_is_explained() {
    let table = rows(FINDINGS, "| finding |");
    let mut wrong = Vec::new();
    for (at, kind) in IssueKind::ALL.iter().enumerate() {
        let severity = format!("{:?}", kind.severity()).to_lowercase();
        let begins = [&format!("`{}`", kind.name()), &severity];
        match table.get(at).map(Vec::as_slice) {
            Some([name, bad, means, mending, lost])
                if [name, bad] == begins
                    && mending == kind.mending()
                    && !means.is_empty()
                    && !lost.is_empty() => {}
            row => wrong.push(format!("{begins:?}, {:?} in the place of {row:?}", kind.mending())),
        }
    }
    assert!(wrong.is_empty(), "{FINDINGS}, in the order of the code:\n{}", wrong.join("\n"));
    assert_eq!(table.len(), IssueKind::ALL.len(), "{FINDINGS} explains what there is not");
}

/// The texts of `tracing::warn!` and `tracing::error!`, tests aside: of each the longest part without a value.
fn said(stream: TokenStream, lines: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let word = |at: usize| tokens.get(at).map(ToString::to_string).unwrap_or_default();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let of_tests = group.delimiter() == Delimiter::Brace
            && at >= 2
            && word(at - 2) == "mod"
            && word(at - 1) == "tests";
        let is_line = at >= 2 && word(at - 1) == "!" && matches!(word(at - 2).as_str(), "warn" | "error");
        if is_line {
            let texts = group.stream().into_iter().filter_map(|token| match token {
                TokenTree::Literal(text) => syn::parse_str::<syn::LitStr>(&text.to_string()).ok(),
                _ => None,
            });
            lines.extend(texts.last().map(|text| longest_part(&text.value())));
        } else if !of_tests {
            said(group.stream(), lines);
        }
    }
}

fn longest_part(text: &str) -> String {
    let parts = text.split(['{', '}']).step_by(2);
    parts.max_by_key(|part| part.len()).unwrap_or_default().trim_matches([' ', ':', ';']).to_owned()
}

#[test]
fn every_line_of_the_log_is_explained() {
    let text = TREE.prose(MESSAGES);
    let mut lines = Vec::new();
    for source in &TREE.rust {
        let is_of_the_log = ["cli/src/", "engine/src/", "fuse/src/", "narufs/src/"]
            .iter()
            .any(|crate_| source.path.starts_with(crate_));
        if is_of_the_log && !source.path.contains("/tests/") {
            said(source.text.parse().unwrap_or_else(|e| panic!("{}: {e}", source.path)), &mut lines);
        }
    }
    assert!(
        lines.iter().filter(|line| line.len() >= FEWEST).count() > 40,
        "the log says more than {lines:?}"
    );
    let missing: Vec<_> = lines.iter().filter(|line| line.len() >= FEWEST && !text.contains(*line)).collect();
    assert!(missing.is_empty(), "{MESSAGES} has nothing about: {missing:#?}");
}

#[test]
fn what_a_line_says_is_told_from_its_values() {
    let code = r#"fn f() { tracing::warn!(nid = 3, "{} of {x}: no room for it: {e}", a); g(|e| tracing::error!("{e}")) }
        mod tests { fn t() { tracing::warn!("left out") } }"#;
    let mut lines = Vec::new();
    said(code.parse().expect("Rust"), &mut lines);
    assert_eq!(lines, ["no room for it", ""]);
}
