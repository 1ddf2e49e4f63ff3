//! What is seen of a model, and the model of what is seen.

use super::{Model, ROOT, Shown, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Model {
    /// The identity of what a path names, without following a symlink at its end; it is never used again.
    pub fn identity(&self, path: &str) -> Option<usize> {
        self.find(path).ok()
    }

    /// The content of the regular file with an identity, if it exists.
    pub fn content(&self, id: usize) -> Option<&Arc<Vec<u8>>> {
        self.nodes.get(&id).filter(|n| n.mode & libc::S_IFMT == libc::S_IFREG).map(|n| &n.data)
    }

    /// The times that utimens set, if nothing has changed them since.
    pub fn times(&self, path: &str) -> Option<(i64, i64)> {
        self.find(path).ok().and_then(|id| self.nodes[&id].times)
    }

    /// Some path of an inode.
    pub fn path_of(&self, id: usize) -> Option<String> {
        self.path_below("", ROOT, id)
    }

    fn path_below(&self, path: &str, dir: usize, id: usize) -> Option<String> {
        if dir == id {
            return Some(if path.is_empty() { "/".into() } else { path.into() });
        }
        let children = &self.nodes[&dir].children;
        children.iter().find_map(|(name, child)| self.path_below(&format!("{path}/{name}"), *child, id))
    }

    /// Identities of all regular files.
    pub fn files(&self) -> Vec<usize> {
        self.nodes.keys().copied().filter(|id| self.kind(*id) == libc::S_IFREG).collect()
    }

    /// Every name: the directory's identity, the name, and what it leads to; in order.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str, usize)> {
        self.nodes.iter().flat_map(|(dir, node)| {
            node.children.iter().map(move |(name, child)| (*dir, name.as_str(), *child))
        })
    }

    /// The model of a tree that was found: everything in it is as it is seen.
    pub fn of(tree: &Tree) -> Model {
        let mut model = Model { nodes: BTreeMap::new(), next: ROOT };
        let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
        // Parents come before what they hold.
        for (path, shown) in tree {
            let id = *ids.entry(&shown.same_as).or_insert_with(|| {
                let id = model.add(shown.mode);
                let node = model.node(id);
                (node.uid, node.gid, node.rdev) = (shown.uid, shown.gid, shown.rdev);
                node.data = Arc::new(shown.data.clone());
                node.xattrs.clone_from(&shown.xattrs);
                (node.times, node.touched) = (shown.times, shown.touched);
                id
            });
            if let Ok((dir, name)) = model.parent(path)
                && id != ROOT
            {
                model.node(dir).children.insert(name.into(), id);
            }
        }
        model
    }

    /// Everything there is to see.
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut first = BTreeMap::new();
        self.show("/", ROOT, &mut tree, &mut first);
        let names: BTreeMap<usize, String> = first
            .iter()
            .map(|(id, paths): (&usize, &Vec<String>)| (*id, paths.iter().min().cloned().unwrap_or_default()))
            .collect();
        for (id, paths) in &first {
            for p in paths {
                if let Some(s) = tree.get_mut(p) {
                    s.same_as = names[id].clone();
                }
            }
        }
        tree
    }

    fn show(&self, path: &str, id: usize, tree: &mut Tree, first: &mut BTreeMap<usize, Vec<String>>) {
        let n = &self.nodes[&id];
        first.entry(id).or_default().push(path.into());
        tree.insert(
            path.into(),
            Shown {
                mode: n.mode,
                nlink: self.links(id),
                uid: n.uid,
                gid: n.gid,
                rdev: n.rdev,
                data: n.data.to_vec(),
                xattrs: n.xattrs.clone(),
                times: n.times,
                touched: n.touched,
                same_as: String::new(),
            },
        );
        for (name, child) in &n.children {
            let below = if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
            self.show(&below, *child, tree, first);
        }
    }
}
