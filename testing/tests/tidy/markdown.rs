//! Links, paths and lines of the documents.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::exceptions;
use super::hold;
use super::source::{Source, TREE};

/// Characters that a line of prose may have.
const LONGEST_LINE: usize = 400;

/// Ends of names by which a word in backticks is known to be a file.
const ENDINGS: [&str; 7] = [".rs", ".md", ".sh", ".py", ".toml", ".svg", ".png"];

/// What a document consists of, as far as the rules look at it.
#[derive(Default)]
struct Document {
    /// Targets of links, with the line.
    links: Vec<(usize, String)>,
    /// Words in backticks, with the line.
    code: Vec<(usize, String)>,
    /// Anchors of its headings.
    anchors: HashSet<String>,
    /// Blocks and tables, which may be as wide as they need.
    wide: Vec<Range<usize>>,
}

fn parse(source: &Source) -> Document {
    let mut document = Document::default();
    let mut heading: Option<String> = None;
    let mut seen: HashMap<String, usize> = HashMap::new();
    let line = |at: usize| source.text[..at].matches('\n').count() + 1;
    for (event, range) in Parser::new_ext(&source.text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                document.links.push((line(range.start), dest_url.to_string()));
            }
            Event::Start(Tag::CodeBlock(_) | Tag::Table(_) | Tag::HtmlBlock) => document.wide.push(range),
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let count = seen.entry(slug.clone()).or_default();
                document.anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
                *count += 1;
            }
            Event::Code(text) => {
                document.code.push((line(range.start), text.to_string()));
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::Text(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    document
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

/// A path relative to a document, from the root of the tree.
fn beside(document: &str, link: &str) -> String {
    let mut path = PathBuf::new();
    let folder = Path::new(document).parent().expect("a file lies in a folder");
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.to_string_lossy().into_owned()
}

#[test]
fn every_link_leads_somewhere() {
    let documents: HashMap<&str, Document> = TREE.prose.iter().map(|s| (s.path.as_str(), parse(s))).collect();
    let mut found = Vec::new();
    for source in &TREE.prose {
        for (line, link) in &documents[source.path.as_str()].links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(f, a)| (f, Some(a)));
            let target = if file.is_empty() { source.path.clone() } else { beside(&source.path, file) };
            let there = target.is_empty() || TREE.all.contains(&target) || TREE.root.join(&target).exists();
            let anchored =
                anchor.is_none_or(|a| documents.get(target.as_str()).is_none_or(|d| d.anchors.contains(a)));
            if !there || !anchored {
                found.push(format!("{}:{line}: {link}", source.path));
            }
        }
    }
    hold("links", exceptions::BROKEN_LINKS, &found);
}

#[test]
fn every_file_that_is_named_exists() {
    let mut found = Vec::new();
    for source in &TREE.prose {
        for (line, code) in parse(source).code {
            if is_path(&code) && !TREE.has(&code) && !TREE.has(&beside(&source.path, &code)) {
                found.push(format!("{}:{line}: {code}", source.path));
            }
        }
    }
    for source in &TREE.rust {
        for (number, line) in source.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            for code in comment.split('`').skip(1).step_by(2) {
                if is_path(code) && !TREE.has(code) {
                    found.push(format!("{}:{}: {code}", source.path, number + 1));
                }
            }
        }
    }
    hold("files", exceptions::MISSING_FILES, &found);
}

/// Whether a word in backticks looks like a file or folder of the repository.
fn is_path(code: &str) -> bool {
    let plain =
        code.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c)) && !code.starts_with(['/', '.']);
    let begins = code.split('/').next().expect("a part");
    let below = code.contains('/') && TREE.all.iter().any(|p| p == begins);
    let named = ENDINGS.iter().any(|e| code.ends_with(e) && code.len() > e.len());
    plain
        && (below || named)
        && !code.contains("NNNN")
        && !exceptions::NOT_OURS.iter().any(|(n, _)| *n == code)
}

#[test]
fn no_line_of_prose_is_too_long() {
    let mut found = Vec::new();
    for source in &TREE.prose {
        let document = parse(source);
        let mut at = 0;
        for (number, line) in source.text.split('\n').enumerate() {
            let length = line.chars().count();
            if length > LONGEST_LINE && !document.wide.iter().any(|w| w.contains(&at)) {
                found.push(format!("{}:{}: {length} characters", source.path, number + 1));
            }
            at += line.len() + 1;
        }
    }
    hold("prose", exceptions::LONG_LINES, &found);
}
