//! Which owner waits for which among the owners of POSIX locks, over all files.

use super::Owner;
use std::collections::{BTreeMap, HashSet};

/// The edges from waiting requests to the owners that block them. An owner may wait several times at once (a
/// program with threads).
#[derive(Debug, Default)]
pub(super) struct WaitGraph {
    edges: BTreeMap<(Owner, u64), Vec<Owner>>,
}

impl WaitGraph {
    /// Notes that the request `id` of `owner` waits for `blockers`, in place of those it waited for before.
    /// False says that this would close a cycle; the request is then not noted any more.
    pub(super) fn wait(&mut self, owner: Owner, id: u64, blockers: Vec<Owner>) -> bool {
        self.edges.remove(&(owner, id));
        if self.reaches(&blockers, owner) {
            return false;
        }
        self.edges.insert((owner, id), blockers);
        true
    }

    /// Forgets a request that waits no more.
    pub(super) fn done(&mut self, owner: Owner, id: u64) {
        self.edges.remove(&(owner, id));
    }

    /// Whether any of `from` waits, however indirectly, for `goal`.
    fn reaches(&self, from: &[Owner], goal: Owner) -> bool {
        let mut seen = HashSet::new();
        let mut next = from.to_vec();
        while let Some(owner) = next.pop() {
            if owner == goal {
                return true;
            }
            if seen.insert(owner) {
                let waits = self.edges.range((owner, 0)..=(owner, u64::MAX));
                next.extend(waits.flat_map(|(_, blockers)| blockers));
            }
        }
        false
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use Owner::Library as Own;

    #[test]
    fn a_cycle_of_three_is_refused_and_a_chain_is_not() {
        let mut graph = WaitGraph::default();
        assert!(graph.wait(Own(1), 10, vec![Own(2)]));
        assert!(graph.wait(Own(2), 20, vec![Own(7), Own(3)]));
        assert!(!graph.wait(Own(3), 30, vec![Own(1)]));
        assert!(graph.wait(Own(3), 31, vec![Own(4)]));
        graph.done(Own(1), 10);
        assert!(graph.wait(Own(4), 40, vec![Own(1)]));
        assert!(!graph.wait(Own(1), 11, vec![Own(3)]));
    }

    #[test]
    fn a_request_that_waits_anew_forgets_its_former_blockers() {
        let mut graph = WaitGraph::default();
        assert!(graph.wait(Own(1), 10, vec![Own(2)]));
        assert!(graph.wait(Own(1), 10, vec![Own(3)]));
        assert!(graph.wait(Own(2), 20, vec![Own(1)]));
        assert!(!graph.wait(Own(3), 30, vec![Own(2)]));
    }
}
