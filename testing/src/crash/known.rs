//! What recovery has made of contents, and what has been judged already.
//!
//! Recovery follows from what lies on the media alone: media that hold the same show the same once they are mounted. Many
//! crash states hold the same: a kill between two words of a store leaves what the kill before it left, and one sequence
//! leaves much of the same on rings that differ in what fsync waits for alone. So each content is recovered once, and what
//! it shows is judged by every promise that it was found under.

use crate::lab::Ring;
use crate::model::Tree;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// Which promise: operations that had returned, whether the next was under way, and how many answers a loss of power keeps.
pub(super) type Under = (usize, bool, usize);

/// What a content showed; the same as another where that showed the same.
pub(super) type Sight = Arc<Tree>;

/// What is known of one sequence of operations, on whatever ring it runs.
#[derive(Default)]
pub struct Known {
    /// By whether the ring is mapped, and the content.
    shown: HashMap<(bool, u128), Sight>,
    /// All that differ, by their hashes.
    sights: HashMap<u64, Vec<Sight>>,
    /// In the run at hand: contents; and sights, which `sights` keeps, by their places.
    judged: HashSet<(u128, Under)>,
    fitting: HashSet<(*const Tree, Under)>,
}

impl Known {
    /// Another run begins, with promises of its own.
    pub(super) fn run(&mut self) {
        self.judged.clear();
        self.fitting.clear();
    }

    /// Whether this has not been judged under this promise yet; from now on it has.
    pub(super) fn is_new(&mut self, content: u128, under: Under) -> bool {
        self.judged.insert((content, under))
    }

    /// The same of what a content shows.
    pub(super) fn is_new_sight(&mut self, sight: &Sight, under: Under) -> bool {
        self.fitting.insert((Arc::as_ptr(sight), under))
    }

    /// What the content showed.
    pub(super) fn shown(&self, ring: Ring, content: u128) -> Option<Sight> {
        self.shown.get(&(ring.is_mapped(), content)).cloned()
    }

    /// Notes what it shows.
    pub(super) fn note(&mut self, ring: Ring, content: u128, tree: Tree) -> Sight {
        let mut hasher = XxHash3_64::new();
        tree.hash(&mut hasher);
        let alike = self.sights.entry(hasher.finish()).or_default();
        let sight = alike.iter().find(|sight| ***sight == tree).cloned().unwrap_or_else(|| {
            alike.push(Arc::new(tree));
            Arc::clone(&alike[alike.len() - 1])
        });
        self.shown.insert((ring.is_mapped(), content), Arc::clone(&sight));
        sight
    }
}
