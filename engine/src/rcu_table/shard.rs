//! A shard: what its readers see, and what the holder of its lock does. The protocol is at the head of [`super`].

#![allow(unsafe_code, reason = "a leaf module: entries that readers reach without a lock")]

use super::leaf::{Directory, Found, KEYS, Leaf, index_of, number_of};
use super::limbo::{Kept, Limbo};
use super::own::{Counted, Node, Own};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::{CachePadded, Grace, Mutex, MutexGuard, Readers};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

/// Most entries that leave together.
const TOGETHER: usize = 16;

/// A shard. Its readers' line is not that of the lock.
pub(super) struct Shard<R: Counted, S> {
    /// The directory that readers use; null: there are no leaves yet.
    directory: CachePadded<AtomicPtr<Node<Directory>>>,
    inner: CachePadded<Mutex<Inner<R, S>>>,
}

/// What the lock guards.
struct Inner<R, S> {
    /// The same directory.
    directory: Option<Own<Directory>>,
    /// Its places that are not empty.
    used: usize,
    /// None is empty.
    leaves: Vec<Own<Leaf>>,
    len: usize,
    /// Where the next look falls: a leaf's seat, and a place.
    hand: (usize, usize),
    /// Keys of entries that were marked together, and when.
    leaving: Option<(Grace, Vec<u64>)>,
    limbo: Limbo<R>,
    beside: S,
}

/// What a reader finds out without the lock.
pub(super) enum OptimisticRead<R> {
    Found(R),
    Nothing,
    /// It is about to leave: the lock decides.
    Leaving,
}

impl<R: Counted, S: Default> Shard<R, S> {
    /// An empty shard.
    pub fn new() -> Shard<R, S> {
        let inner = Inner {
            directory: None,
            used: 0,
            leaves: Vec::new(),
            len: 0,
            hand: (0, 0),
            leaving: None,
            limbo: Limbo::new(),
            beside: S::default(),
        };
        Shard {
            directory: CachePadded::new(AtomicPtr::new(null_mut())),
            inner: CachePadded::new(Mutex::new(inner)),
        }
    }
}

impl<R: Counted, S> Shard<R, S> {
    /// What a key has.
    ///
    /// # Safety
    /// The caller has entered the table's readers.
    pub unsafe fn optimistic_read(&self, key: u64) -> OptimisticRead<R> {
        // Acquire: pairs with the Release of `show_directory`.
        let directory = self.directory.load(Ordering::Acquire);
        if directory.is_null() {
            return OptimisticRead::Nothing;
        }
        // SAFETY: nodes and entries that a reader can have found are freed after it has left (rules 3 and 4). Guarded
        // by `loom_models`.
        unsafe {
            let Some(leaf) = Node::at(directory).find(number_of(key)) else { return OptimisticRead::Nothing };
            match Node::at(leaf).look(index_of(key)) {
                Found::Nothing => OptimisticRead::Nothing,
                Found::Entry(pointer) => OptimisticRead::Found(R::another(pointer)),
                Found::Leaving(_) => OptimisticRead::Leaving,
            }
        }
    }

    /// The shard's lock.
    pub fn lock<'a>(&'a self, readers: &'a Readers) -> Locked<'a, R, S> {
        Locked { shard: self, readers, inner: self.inner.lock(), freed: Vec::new() }
    }
}

impl<R: Counted, S> Drop for Shard<R, S> {
    fn drop(&mut self) {
        for leaf in &self.inner.get_mut().leaves {
            for place in 0..KEYS {
                if let Found::Entry(pointer) | Found::Leaving(pointer) = leaf.look(place) {
                    // SAFETY: the table's own count, and nobody reads any more. Guarded by `rcu_table::tests`.
                    drop(unsafe { R::from_ptr(pointer) });
                }
            }
        }
    }
}

/// A shard with its lock held.
pub(crate) struct Locked<'a, R: Counted, S> {
    shard: &'a Shard<R, S>,
    readers: &'a Readers,
    inner: MutexGuard<'a, Inner<R, S>>,
    /// Dropped last, with the lock free again.
    freed: Vec<Kept<R>>,
}

impl<R: Counted, S> Locked<'_, R, S> {
    /// The entry of a key; one that was to leave stays.
    pub fn get(&mut self, key: u64) -> Option<R> {
        let leaf = &self.inner.leaves[self.seat(number_of(key))?];
        let pointer = match leaf.look(index_of(key)) {
            Found::Nothing => return None,
            Found::Entry(pointer) => pointer,
            Found::Leaving(pointer) => {
                leaf.show(index_of(key), Found::Entry(pointer));
                pointer
            }
        };
        // SAFETY: entries go with the lock held. Guarded by `loom_models`.
        Some(unsafe { R::another(pointer) })
    }

    /// Puts an entry there, in the place of the one that the key may have had.
    pub fn insert(&mut self, key: u64, entry: R) {
        let number = number_of(key);
        let seat = self.seat(number).unwrap_or_else(|| self.add_leaf(number));
        let leaf = &self.inner.leaves[seat];
        let before = leaf.look(index_of(key));
        leaf.show(index_of(key), Found::Entry(entry.into_ptr()));
        self.count_out(before);
        self.inner.len += 1;
        self.tidy();
    }

    /// Takes an entry out if `is_it`.
    pub fn remove_if(&mut self, key: u64, is_it: impl FnOnce(&R) -> bool) {
        let Some(seat) = self.seat(number_of(key)) else { return };
        let found = self.inner.leaves[seat].look(index_of(key));
        if let Found::Entry(pointer) | Found::Leaving(pointer) = found
            // SAFETY: entries go with the lock held. Guarded by `loom_models`.
            && unsafe { ask(pointer, is_it) }
        {
            self.vacate(seat, index_of(key));
            self.count_out(found);
            self.tidy();
        }
    }

    /// Every entry, in no order.
    pub fn entries(&self) -> impl Iterator<Item = R> {
        let places = self.inner.leaves.iter().flat_map(|leaf| (0..KEYS).map(|place| leaf.look(place)));
        places.filter_map(|found| match found {
            // SAFETY: entries go with the lock held. Guarded by `rcu_table::tests`.
            Found::Entry(pointer) | Found::Leaving(pointer) => Some(unsafe { R::another(pointer) }),
            Found::Nothing => None,
        })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// What the lock guards beside the entries.
    pub fn beside(&mut self) -> &mut S {
        &mut self.inner.beside
    }

    /// Makes room where there are more than `limit` entries: looks at `looks` of them at the most, in turn, and lets
    /// those leave that nobody else refers to and that `may_go`. It is asked twice about each, before it is marked
    /// (then somebody may just have found it) and before it goes, which may be in a later call; it waits for nothing.
    /// `left` is told with the entry gone.
    pub fn sweep(
        &mut self,
        limit: usize,
        looks: usize,
        mut may_go: impl FnMut(&R) -> bool,
        mut left: impl FnMut(&mut S, u64, &R),
    ) {
        let mut may_go = |entry: &R| entry.is_alone() && may_go(entry);
        self.let_leave(&mut may_go, &mut left);
        if self.inner.leaving.is_none() && self.inner.len > limit {
            // A few more than need be: what looking for readers costs is shared by those that leave together.
            let wanted = self.inner.len - limit - 1 + (limit / TOGETHER).clamp(1, TOGETHER);
            self.mark(wanted, looks, &mut may_go);
            self.let_leave(&mut may_go, &mut left);
        }
        self.tidy();
    }

    /// Marks up to `wanted` entries.
    fn mark(&mut self, wanted: usize, looks: usize, may_go: &mut impl FnMut(&R) -> bool) {
        let mut marked = Vec::new();
        for _ in 0..looks {
            if marked.len() == wanted {
                break;
            }
            let Some((seat, place)) = self.next_taken() else { break };
            let leaf = &self.inner.leaves[seat];
            if let Found::Entry(pointer) = leaf.look(place)
                // SAFETY: entries go with the lock held. Guarded by `loom_models`.
                && unsafe { ask(pointer, &mut *may_go) }
            {
                leaf.show(place, Found::Leaving(pointer));
                marked.push(leaf.key(place));
            }
        }
        if !marked.is_empty() {
            self.inner.leaving = Some((self.readers.now(), marked));
        }
    }

    /// Ends what [`Locked::mark`] began, if those that read then have left.
    fn let_leave(&mut self, may_go: &mut impl FnMut(&R) -> bool, left: &mut impl FnMut(&mut S, u64, &R)) {
        let readers = self.readers;
        let Some((_, keys)) = self.inner.leaving.take_if(|(since, _)| readers.poll(*since)) else { return };
        for key in keys {
            let (Some(seat), place) = (self.seat(number_of(key)), index_of(key)) else { continue };
            let leaf = &self.inner.leaves[seat];
            // Else it was wanted meanwhile, or removed.
            let Found::Leaving(pointer) = leaf.look(place) else { continue };
            // SAFETY: entries go with the lock held. Guarded by `loom_models`.
            if !unsafe { ask(pointer, &mut *may_go) } {
                leaf.show(place, Found::Entry(pointer));
                continue;
            }
            self.vacate(seat, place);
            self.inner.len -= 1;
            // SAFETY: the table's own count, of an entry that no reader has touched since it was marked, and that is
            // in no place any more. Guarded by `loom_models`.
            let entry = unsafe { R::from_ptr(pointer) };
            left(&mut self.inner.beside, key, &entry);
            self.freed.push(Kept::Entry(entry));
        }
    }

    /// The next entry under the hand.
    fn next_taken(&mut self) -> Option<(usize, usize)> {
        let (mut seat, mut place) = self.inner.hand;
        loop {
            let leaf = match self.inner.leaves.get(seat) {
                Some(leaf) => leaf,
                None => {
                    (seat, place) = (0, 0);
                    self.inner.leaves.first()?
                }
            };
            if let Some(taken) = leaf.taken_from(place) {
                self.inner.hand = (seat, taken + 1);
                return Some((seat, taken));
            }
            (seat, place) = (seat + 1, 0);
        }
    }

    /// What a place had before is no entry any more, but may have been found.
    fn count_out(&mut self, before: Found) {
        if let Found::Entry(pointer) | Found::Leaving(pointer) = before {
            self.inner.len -= 1;
            // SAFETY: the table's own count, of an entry that is in no place any more. Guarded by `loom_models`.
            let entry = unsafe { R::from_ptr(pointer) };
            self.inner.limbo.put(self.readers, Kept::Entry(entry));
        }
    }

    fn tidy(&mut self) {
        self.inner.limbo.take(self.readers, &mut self.freed);
    }

    fn seat(&self, number: u64) -> Option<usize> {
        let directory = self.inner.directory.as_ref()?;
        // SAFETY: leaves go with the lock held. Guarded by `rcu_table::tests`.
        unsafe { directory.find(number).map(|leaf| Node::at(leaf).seat()) }
    }

    fn add_leaf(&mut self, number: u64) -> usize {
        let seat = self.inner.leaves.len();
        let directory = match &self.inner.directory {
            Some(directory) if 2 * (self.inner.used + 1) <= directory.len() => directory,
            _ => self.rebuild(seat + 1),
        };
        let leaf = Own::new(Leaf::new(number, seat));
        let is_used = directory.put(number, leaf.pointer());
        self.inner.used += usize::from(is_used);
        self.inner.leaves.push(leaf);
        seat
    }

    /// Empties a place, and takes its leaf away if that was the last.
    fn vacate(&mut self, seat: usize, place: usize) {
        let inner = &mut *self.inner;
        inner.leaves[seat].show(place, Found::Nothing);
        if inner.leaves[seat].taken_from(0).is_some() {
            return;
        }
        let leaf = inner.leaves.swap_remove(seat);
        if let Some(moved) = inner.leaves.get(seat) {
            moved.sit(seat);
        }
        let places = inner.directory.as_ref().map_or(0, |directory| {
            directory.take(leaf.number(), leaf.pointer());
            directory.len()
        });
        inner.limbo.put(self.readers, Kept::Leaf(leaf));
        let leaves = inner.leaves.len();
        if places > Directory::FEWEST && 16 * leaves < places {
            self.rebuild(leaves);
        }
    }

    /// A directory with room for so many leaves in the place of the old one.
    fn rebuild(&mut self, leaves: usize) -> &Own<Directory> {
        let inner = &mut *self.inner;
        let directory = Own::new(Directory::with_room_for(leaves));
        for leaf in &inner.leaves {
            directory.put(leaf.number(), leaf.pointer());
        }
        inner.used = inner.leaves.len();
        // Release: pairs with the Acquire of `optimistic_read`: a thread that finds the directory finds its leaves.
        self.shard.directory.store(directory.pointer(), Ordering::Release);
        if let Some(old) = inner.directory.take() {
            inner.limbo.put(self.readers, Kept::Directory(old));
        }
        inner.directory.insert(directory)
    }

    /// Leaves, places of the directory, and things in limbo.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn sizes(&self) -> (usize, usize, usize) {
        let places = self.inner.directory.as_ref().map_or(0, |directory| directory.len());
        (self.inner.leaves.len(), places, self.inner.limbo.len())
    }
}

/// What is answered about the table's own reference.
///
/// # Safety
/// The entry is not freed meanwhile.
unsafe fn ask<R: Counted>(pointer: *mut (), question: impl FnOnce(&R) -> bool) -> bool {
    // SAFETY: the caller's; the count is not used up, for this is not dropped.
    question(&ManuallyDrop::new(unsafe { R::from_ptr(pointer) }))
}
