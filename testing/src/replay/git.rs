//! What must be there of the repositories of git (testing/machines/loads/git.py, whose `judge` says the same of a mount).
//!
//! Each process has one: commit N adds file N and removes that of [`super::oracle::KEEP`] before; now and then the repository is
//! packed. git's own check comes first, on a copy. Then the whole history is read: every commit with its parent, its tree
//! and its message, every tree's names, every file's bytes.

use super::acked::{Allowed, Found};
use super::look;
use super::oracle::{content, kept};
use crate::model::Tree;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;

const BRANCH: &str = "refs/heads/main";

/// Judges what is there: the last commit of each process.
///
/// # Errors
/// What contradicts what was acknowledged, in words.
pub fn judge(tree: &Tree, allowed: &Allowed) -> Result<Found, String> {
    allowed.each(|process, _| judge_one(tree, process))
}

fn judge_one(tree: &Tree, process: usize) -> Result<u64, String> {
    let work = tempfile::tempdir().map_err(|e| e.to_string())?;
    look::copy(tree, &format!("/d{process}/.git"), work.path()).map_err(|e| e.to_string())?;
    git(work.path(), &["fsck", "--full", "--strict", "--no-dangling", "--no-progress"], "")?;
    let subject = git(work.path(), &["for-each-ref", "--format=%(contents:subject)", BRANCH], "")?;
    let subject = String::from_utf8_lossy(&subject).trim().to_owned();
    let last = if subject.is_empty() {
        0
    } else {
        subject.parse().map_err(|_| format!("a commit of {subject:?}"))?
    };
    history(work.path(), process, last)?;
    Ok(last)
}

/// One object, as `git cat-file --batch` tells of it.
struct Object {
    name: String,
    bytes: Vec<u8>,
}

/// Whether the history is that of so many commits.
fn history(dir: &Path, process: usize, last: u64) -> Result<(), String> {
    let mut asks = String::new();
    for number in 1..=last {
        for what in ["", "^{tree}", &format!(":{number}")] {
            asks += &format!("{BRANCH}~{}{what}\n", last - number);
        }
    }
    // Before the first one there is none.
    asks += &format!("{BRANCH}~{last}\n");
    let said = git(dir, &["cat-file", "--batch"], &asks)?;
    let mut rest = &said[..];
    let mut objects = Vec::new();
    while let Some(object) = next_object(&mut rest)? {
        objects.push(object);
    }
    let other = || format!("the history is not that of {last} commits: {} objects", objects.len());
    if objects.len() as u64 != 3 * last || !rest.is_empty() {
        return Err(other());
    }
    for (number, of) in (1..=last).zip(objects.chunks_exact(3)) {
        let [commit, tree, file] = of else { return Err(other()) };
        let mut head = format!("tree {}\n", tree.name);
        if number > 1 {
            head += &format!("parent {}\n", objects[3 * (number as usize - 2)].name);
        }
        let ends = format!("\n\n{number}\n");
        if !commit.bytes.starts_with(head.as_bytes()) || !commit.bytes.ends_with(ends.as_bytes()) {
            return Err(format!("commit {number} of {last} is another"));
        }
        let mut names: Vec<(String, &str)> =
            kept(number).map(|n| (n.to_string(), &*objects[3 * (n as usize - 1) + 2].name)).collect();
        names.sort_unstable();
        let wanted: Vec<u8> = names.iter().flat_map(|(name, content)| entry(name, content)).collect();
        if tree.bytes != wanted {
            return Err(format!("the tree of commit {number} of {last} has other files"));
        }
        if file.bytes != content(process, number) {
            return Err(format!("file {number} of {last} has another content"));
        }
    }
    Ok(())
}

/// The next object of an answer; none where one is missing, which ends it.
fn next_object(said: &mut &[u8]) -> Result<Option<Object>, String> {
    let end = said.iter().position(|b| *b == b'\n').ok_or("git's answer ends early")?;
    let line = String::from_utf8_lossy(&said[..end]).into_owned();
    *said = &said[end + 1..];
    if line.ends_with(" missing") {
        return Ok(None);
    }
    let size = line.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
    let size = size.filter(|size| *size < said.len()).ok_or_else(|| format!("git says {line:?}"))?;
    let name = line.split(' ').next().unwrap_or_default().to_owned();
    let bytes = said[..size].to_vec();
    *said = &said[size + 1..];
    Ok(Some(Object { name, bytes }))
}

/// What a tree has of a plain file.
fn entry(name: &str, content: &str) -> Vec<u8> {
    let mut entry = format!("100644 {name}\0").into_bytes();
    let nibbles: Vec<u8> =
        content.chars().filter_map(|c| c.to_digit(16)).map(|nibble| nibble as u8).collect();
    entry.extend(nibbles.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
    entry
}

fn git(dir: &Path, words: &[&str], asks: &str) -> Result<Vec<u8>, String> {
    let told = |e: std::io::Error| format!("git: {e}");
    let mut input = tempfile::tempfile().map_err(told)?;
    input.write_all(asks.as_bytes()).map_err(told)?;
    input.rewind().map_err(told)?;
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").arg("--git-dir").arg(dir);
    let output = command.args(words).stdin(input).output().map_err(told)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said =
        [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).trim().replace('\n', "; "));
    Err(format!("git {}: {}", words[0], said.join("; ")))
}
