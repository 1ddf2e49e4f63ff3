//! Writes that were answered before the kernel has dropped the pages that they have made old, counted for each file, and noted
//! in the memory that servers share ([`narufs_engine::takeover::unrecalled`] has the protocol).
//!
//! What this leaves to others: the lock that all of it is done under, and the recalls.
//!
//! Invariant: of a file that is counted here the memory says that it is there, or that there are others.

use narufs_engine::format::Nid;
use narufs_engine::takeover::{Takeover, Unrecalled as Noted};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unrecalled {
    /// Where the mount outlives this server.
    memory: Option<Arc<Takeover>>,
    files: HashMap<Nid, Counted>,
    /// Why there are others: files that are counted and have no room, and all files, if a predecessor had no room.
    others: usize,
}

#[derive(Debug)]
struct Counted {
    writes: usize,
    has_room: bool,
}

/// What a predecessor has left to recall.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Files.
    pub files: Vec<Nid>,
    /// And all that there are.
    pub all: bool,
}

impl Unrecalled {
    /// With what a predecessor has left, as one write of each file.
    pub fn new(memory: Option<Arc<Takeover>>) -> (Unrecalled, Left) {
        let (nids, all) = memory.as_ref().map(|memory| memory.unrecalled().left()).unwrap_or_default();
        let mut unrecalled = Unrecalled { memory, files: HashMap::new(), others: usize::from(all) };
        let mut left = Left { files: Vec::new(), all };
        for nid in nids {
            match unrecalled.files.insert(nid, Counted { writes: 1, has_room: true }) {
                None => left.files.push(nid),
                // Nobody enters a file twice: once is enough.
                Some(_) => unrecalled.with(|noted| noted.take(nid)),
            }
        }
        (unrecalled, left)
    }

    fn with(&self, change: impl FnOnce(&Noted)) {
        if let Some(memory) = &self.memory {
            change(memory.unrecalled());
        }
    }

    /// A write of this file is about to be answered.
    pub fn answered(&mut self, nid: Nid) {
        let Some(memory) = &self.memory else { return };
        if let Some(counted) = self.files.get_mut(&nid) {
            counted.writes += 1;
            return;
        }
        let has_room = memory.unrecalled().put(nid);
        if !has_room {
            self.others += 1;
            memory.unrecalled().set_others(true);
        }
        self.files.insert(nid, Counted { writes: 1, has_room });
    }

    /// The pages that a write of this file has made old are gone.
    pub fn recalled(&mut self, nid: Nid) {
        let Some(counted) = self.files.get_mut(&nid) else { return };
        counted.writes -= 1;
        if counted.writes > 0 {
            return;
        }
        let has_room = counted.has_room;
        self.files.remove(&nid);
        match has_room {
            true => self.with(|noted| noted.take(nid)),
            false => self.one_less(),
        }
    }

    /// All pages of all files are gone that a predecessor had no room for.
    pub fn all_recalled(&mut self) {
        self.one_less();
    }

    fn one_less(&mut self) {
        self.others -= 1;
        self.with(|noted| noted.set_others(self.others > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narufs_engine::takeover::MOST_UNRECALLED;

    fn next(memory: &Takeover) -> (Unrecalled, Left) {
        let again = memory.descriptor().try_clone_to_owned().expect("a descriptor");
        Unrecalled::new(Some(Takeover::adopt(again).expect("it is there")))
    }

    fn left(memory: &Takeover) -> Left {
        next(memory).1
    }

    #[test]
    fn a_file_is_left_until_the_last_of_its_writes_is_recalled() {
        let memory = Takeover::create(1).expect("memory");
        let (mut first, nothing) = Unrecalled::new(Some(Arc::clone(&memory)));
        assert_eq!(nothing, Left::default());
        for nid in [5, 6, 5] {
            first.answered(nid);
        }
        first.recalled(5);
        assert_eq!(left(&memory), Left { files: vec![5, 6], all: false });
        first.recalled(6);
        let (mut second, found) = next(&memory);
        assert_eq!(found, Left { files: vec![5], all: false });
        second.answered(5);
        second.recalled(5);
        assert_eq!(left(&memory).files, [5], "of two of its writes one is recalled");
        second.recalled(5);
        assert_eq!(left(&memory), Left::default());
    }

    #[test]
    fn where_there_is_no_room_all_are_left_until_those_are_recalled() {
        let memory = Takeover::create(1).expect("memory");
        let (mut first, _) = Unrecalled::new(Some(Arc::clone(&memory)));
        let most = MOST_UNRECALLED as u64;
        (1..=most + 2).for_each(|nid| first.answered(nid));
        (1..most).for_each(|nid| first.recalled(nid));
        first.recalled(most + 1);
        let (mut second, found) = next(&memory);
        assert_eq!(found, Left { files: vec![most], all: true });
        second.all_recalled();
        assert!(!left(&memory).all);
        first.recalled(most + 2);
        first.recalled(most);
        assert_eq!(left(&memory), Left::default());
    }

    #[test]
    fn arbitrary_memory_is_borne() {
        let memory = Takeover::create(1).expect("memory");
        assert!([9, 9, u64::MAX].iter().all(|nid| memory.unrecalled().put(*nid)));
        let (mut first, found) = Unrecalled::new(Some(Arc::clone(&memory)));
        assert_eq!(found.files, [9, u64::MAX]);
        [9, u64::MAX, 9, 3].iter().for_each(|nid| first.recalled(*nid));
        assert_eq!(left(&memory), Left::default());
    }
}
