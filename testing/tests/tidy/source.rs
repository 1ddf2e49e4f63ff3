//! The files of the tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use walkdir::{DirEntry, WalkDir};

/// One file of source or prose.
pub struct Source {
    /// Relative to the root of the tree, with slashes.
    pub path: String,
    /// Its whole content.
    pub text: String,
}

/// The tree that is looked at.
pub struct Tree {
    /// Where it lies.
    pub root: PathBuf,
    /// Files of Rust.
    pub rust: Vec<Source>,
    /// Files of Markdown.
    pub prose: Vec<Source>,
    /// Paths of all files and folders, relative to the root.
    pub all: Vec<String>,
}

/// Read once for all tests.
pub static TREE: LazyLock<Tree> = LazyLock::new(Tree::read);

impl Tree {
    fn read() -> Self {
        let root = std::env::var_os("NARUFS_TIDY_ROOT").map_or_else(
            || {
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .parent()
                    .expect("the crate lies in the workspace")
                    .to_owned()
            },
            PathBuf::from,
        );
        let mut tree = Self { rust: Vec::new(), prose: Vec::new(), all: Vec::new(), root };
        for entry in WalkDir::new(&tree.root).sort_by_file_name().into_iter().filter_entry(is_ours) {
            let entry = entry.expect("list the tree");
            let path =
                entry.path().strip_prefix(&tree.root).expect("below the root").to_string_lossy().into_owned();
            let list = match entry.path().extension().and_then(|e| e.to_str()) {
                Some("rs") => Some(&mut tree.rust),
                Some("md") => Some(&mut tree.prose),
                _ => None,
            };
            if let Some(list) = list {
                let text = fs::read_to_string(entry.path()).expect("read a source");
                list.push(Source { path: path.clone(), text });
            }
            tree.all.push(path);
        }
        tree
    }

    /// The text of a file of Markdown.
    pub fn prose(&self, path: &str) -> &str {
        &self.prose.iter().find(|s| s.path == path).unwrap_or_else(|| panic!("{path} does not exist")).text
    }

    /// Whether a file or folder is there whose path is this, or ends with this.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let tail = format!("/{path}");
        self.all.iter().any(|p| p == path || p.ends_with(&tail))
    }
}

/// Leaves out what is built, found or hidden, but for the rules of continuous integration.
fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let hidden = name.starts_with('.') && entry.depth() > 0 && name != ".ci";
    !hidden && !matches!(&*name, "target" | "corpus" | "artifacts" | "mnt")
}
