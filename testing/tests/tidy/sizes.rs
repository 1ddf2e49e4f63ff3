//! The length of files.

use super::exceptions;
use super::hold;
use super::source::TREE;

/// Lines that a file of Rust may have.
const MOST_LINES: usize = 450;

#[test]
fn no_file_is_too_long() {
    let mut found = Vec::new();
    for source in &TREE.rust {
        let lines = source.text.lines().count();
        if lines > MOST_LINES {
            found.push(format!("{}: {lines} lines", source.path));
        }
    }
    hold("lines", exceptions::LONG_FILES, &found);
}
