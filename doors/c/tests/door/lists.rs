//! Lists that must agree: what the source exports, the header, the versions of symbols, the tests, the manual.

use super::laid::laid;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn read(of: &str) -> String {
    std::fs::read_to_string(path(of)).unwrap_or_else(|e| panic!("{of}: {e}"))
}

/// The text of all sources in a folder.
fn sources(folder: &str) -> Vec<(String, String)> {
    let files = path(folder).read_dir().expect("a folder").map(|file| file.expect("a file").path());
    let files = files.filter(|file| file.is_file());
    files.map(|file| (file.display().to_string(), std::fs::read_to_string(&file).expect("text"))).collect()
}

/// Words that begin with `narufs_` and are followed by a parenthesis.
fn calls(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.match_indices("narufs_").filter(|(at, _)| !text[..*at].ends_with(is_part));
    words
        .filter_map(|(at, _)| {
            let rest = &text[at..];
            let end = rest.find(|c| !is_part(c))?;
            rest[end..].starts_with('(').then(|| rest[..end].to_owned())
        })
        .collect()
}

/// Functions that the source gives to C, with the text behind their names.
fn exported() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (_, text) in sources("src") {
        for function in text.split("pub extern \"C\" fn ").skip(1) {
            let name = function.split('(').next().expect("a name").to_owned();
            all.push((name, function.to_owned()));
        }
    }
    all
}

pub fn functions() -> BTreeSet<String> {
    exported().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn the_header_is_what_the_source_says() {
    let config = cbindgen::Config::from_file(path("cbindgen.toml")).expect("the way it is made");
    let made = cbindgen::Builder::new().with_crate(path("")).with_config(config).generate();
    let mut text = Vec::new();
    made.expect("the source can be read").write(&mut text);
    let text = String::from_utf8(text).expect("text");
    let header = path("narufs.h");
    if std::env::var_os("NARUFS_HEADER_WRITE").is_some() {
        std::fs::write(&header, &text).expect("it can be written");
    }
    let written = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(written == text, "narufs.h is not what the source says: `make c-header` writes it anew");
    assert_eq!(laid().read("include/narufs.h"), text);
    let version = format!("#define NARUFS_VERSION \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "cbindgen.toml has another version than {version}");
}

#[test]
fn every_function_has_a_version_of_its_symbol() {
    let map = read("narufs.map");
    let listed: BTreeSet<String> = map
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("narufs_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, functions(), "narufs.map (left) and the source (right) have other functions");
}

#[test]
fn every_function_is_called_by_the_tests_in_c_and_told_of_in_the_manual() {
    let tests = calls(&(read("tests/c/every.c") + &read("tests/c/check.h")));
    let untested: Vec<_> = functions().difference(&tests).cloned().collect();
    assert!(untested.is_empty(), "tests/c/every.c calls not: {untested:?}");
    // Those that take no handle, or what is no handle.
    let free =
        ["version", "error_message", "error_cause", "format", "mount", "scratch", "lock_owner", "free"];
    let free: BTreeSet<String> = free.iter().map(|name| format!("narufs_{name}")).collect();
    let hostile = calls(&read("tests/c/hostile.c"));
    let left: Vec<_> =
        functions().difference(&hostile).filter(|name| !free.contains(*name)).cloned().collect();
    assert!(left.is_empty(), "tests/c/hostile.c gives no wrong handle to: {left:?}");
    let manual = calls(&read("narufs.3"));
    assert_eq!(manual, functions(), "narufs.3 (left) and the source (right) have other functions");
}

/// No panic crosses: every body is nothing but a call of what catches them. What frees memory has nothing that panics.
#[test]
fn every_function_catches_panics() {
    let catching = ["done(", "self::done(", "number(", "handle(", "guarded("];
    let mut bare = Vec::new();
    for (name, text) in exported() {
        let body = text.split_once(" {\n").expect("a body").1;
        let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("let (uid, gid)"));
        let first = lines.clone().next().expect("a line");
        if !catching.iter().any(|catch| first.starts_with(catch)) && name != "narufs_free" {
            bare.push(name);
        }
    }
    assert!(bare.is_empty(), "they catch no panics: {bare:?}");
}

#[test]
fn the_version_is_that_of_the_crate() {
    assert!(laid().read("lib/pkgconfig/narufs.pc").contains(concat!(
        "Version: ",
        env!("CARGO_PKG_VERSION"),
        "\n"
    )));
}
