//! Which file of the image an object is.
//!
//! An object is a file with the name of the last part of its key, and each part before that is a directory. Directories
//! have a mark at the end of their names that files never have, so that `a` and `a/b` can both be there:
//!
//! | name | what it is |
//! | --- | --- |
//! | `part` | the object of which this is the last part |
//! | `part+` | the directory of keys that go on behind this part |
//! | `begin+-` | a directory in which a part goes on that is too long for a name |
//! | `NAME=` | the object whose name would look like one of these, or be `.` or `..`, or ends so with `=` behind it |
//! | `staging+~` | the store's own: names that objects have for a moment before they get theirs |
//!
//! Invariants: a key has one path, and a path is that of one key at the most. What is no name of these is not ours, and is
//! left alone.

use object_store::path::Path;
use std::borrow::Cow;

/// Bytes of a name without its mark at the most: with it there are 255.
const MOST_BYTES: usize = 250;

/// The directory of names that last for a moment.
pub(crate) const STAGING: &str = "staging+~";

/// What the name of a file or directory stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    /// A file: the last part of a key, or the end of it.
    Object(Cow<'a, str>),
    /// A directory: a part of keys, or the end of one.
    Part(&'a str),
    /// A directory: the beginning of a part, or more of it.
    Begin(&'a str),
    /// Not ours.
    Other,
}

/// Whether a name is one that directories have.
fn is_marked(name: &str) -> bool {
    ["+", "+-", "+~"].iter().any(|mark| name.ends_with(mark))
}

/// Whether a file has this name only with a `=` behind it.
fn is_escaped(name: &str) -> bool {
    let plain = name.trim_end_matches('=');
    is_marked(plain) || plain == "." || plain == ".."
}

/// What the name of a file means.
pub(crate) fn of_file(name: &str) -> Meaning<'_> {
    match name.strip_suffix('=') {
        Some(plain) if is_escaped(plain) => Meaning::Object(plain.into()),
        _ if is_escaped(name) => Meaning::Other,
        _ => Meaning::Object(name.into()),
    }
}

/// What the name of a directory means.
pub(crate) fn of_dir(name: &str) -> Meaning<'_> {
    match (name.strip_suffix('+'), name.strip_suffix("+-")) {
        (Some(part), _) if !part.is_empty() => Meaning::Part(part),
        (_, Some(begin)) if !begin.is_empty() => Meaning::Begin(begin),
        _ => Meaning::Other,
    }
}

/// Adds the directories of what is too long for a name, and gives the rest.
fn push_long<'p>(path: &mut String, mut part: &'p str) -> &'p str {
    while part.len() > MOST_BYTES {
        let end = (0..=MOST_BYTES).rev().find(|at| part.is_char_boundary(*at)).unwrap_or(0);
        path.push_str(&part[..end]);
        path.push_str("+-/");
        part = &part[end..];
    }
    part
}

/// The directory of keys that begin with these parts, below a directory of the image.
pub(crate) fn dir_path(root: &str, prefix: &Path) -> String {
    let mut path = String::with_capacity(root.len() + prefix.as_ref().len() + 16);
    path.push_str(root);
    for part in prefix.parts() {
        path.push('/');
        let rest = push_long(&mut path, part.as_ref());
        path.push_str(rest);
        path.push('+');
    }
    path
}

/// The file of an object; none of the root, which is no object.
pub(crate) fn object_path(root: &str, location: &Path) -> Option<String> {
    let name = location.filename()?;
    let mut path = dir_path(root, &location.parent()?);
    path.push('/');
    let rest = push_long(&mut path, name);
    path.push_str(rest);
    if is_escaped(rest) {
        path.push('=');
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str) -> String {
        object_path("", &Path::parse(key).expect("a key")).expect("an object")
    }

    #[test]
    fn an_object_and_a_prefix_of_one_name_are_two_files() {
        assert_eq!(path("a"), "/a");
        assert_eq!(path("a/b"), "/a+/b");
        assert_eq!(path("a+/b"), "/a++/b");
        assert_eq!(path("a+"), "/a+=");
        assert_eq!(path("a+-"), "/a+-=");
        assert_eq!(path("a+-=="), "/a+-===");
        assert_eq!(path("a=="), "/a==");
        assert_eq!(path("staging+~"), "/staging+~=");
        assert_eq!(object_path("/x", &Path::ROOT), None);
    }

    #[test]
    fn what_is_too_long_is_several_names() {
        let long = "ä".repeat(300);
        let at = path(&long);
        let names: Vec<&str> = at.split('/').skip(1).collect();
        assert_eq!(names.len(), 3);
        assert!(names.iter().all(|name| name.len() <= 255), "{names:?}");
        let ends_in_dots = "x".repeat(MOST_BYTES) + "..";
        assert!(path(&ends_in_dots).ends_with("+-/..="));
        assert_eq!(path(&"x".repeat(MOST_BYTES)).len(), MOST_BYTES + 1);
    }

    /// The key that the names of a path stand for.
    fn key(path: &str) -> String {
        let names: Vec<&str> = path.split('/').skip(1).collect();
        let (file, dirs) = names.split_last().expect("a file");
        let mut key = String::new();
        for dir in dirs {
            match of_dir(dir) {
                Meaning::Part(part) => key = key + part + "/",
                Meaning::Begin(begin) => key += begin,
                other => panic!("{dir}: {other:?}"),
            }
        }
        match of_file(file) {
            Meaning::Object(name) => key + &name,
            other => panic!("{file}: {other:?}"),
        }
    }

    #[test]
    fn every_key_comes_back_from_its_path() {
        let parts = ["a", "+", "+-", "+~", "a+", "a+=", "=", "a=", "+==", ".=", "..=", "+-=", ".", ".."];
        let long: Vec<String> = parts.iter().map(|part| "x".repeat(MOST_BYTES) + part).collect();
        let parts = parts.into_iter().filter(|part| !matches!(*part, "." | ".."));
        let parts: Vec<&str> = parts.chain(long.iter().map(String::as_str)).collect();
        let mut paths = std::collections::BTreeMap::new();
        for first in &parts {
            for second in &parts {
                for wanted in [(*second).to_owned(), format!("{first}/{second}")] {
                    let at = path(&wanted);
                    assert_eq!(key(&at), wanted);
                    let before = paths.insert(at.clone(), wanted.clone());
                    assert!(before.is_none_or(|before| before == wanted), "{at} is of two keys");
                }
            }
        }
    }

    #[test]
    fn what_is_not_ours_is_told() {
        for name in ["a+", "a+-", STAGING, "+"] {
            assert_eq!(of_file(name), Meaning::Other, "{name}");
        }
        for name in ["a", STAGING, "+", "lost+found", "+-"] {
            assert_eq!(of_dir(name), Meaning::Other, "{name}");
        }
    }
}
