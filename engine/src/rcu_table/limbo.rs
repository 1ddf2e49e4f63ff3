//! What has been unlinked and may have been found before: kept until those that read then have left.

use super::leaf::{Directory, Leaf};
use super::own::Own;
use crate::sync::{Grace, Readers};
use std::collections::VecDeque;

/// So many things wait in a shard before their readers are looked for: looking costs a line of each core. Most often
/// another shard has looked meanwhile. Models do not wait.
const MOST: usize = if cfg!(loom) { 1 } else { 16 };

/// Something that was unlinked. Dropping it frees it.
#[derive(Debug)]
pub(super) enum Kept<R> {
    Entry(R),
    Leaf(#[expect(dead_code, reason = "it is there to be dropped")] Own<Leaf>),
    Directory(#[expect(dead_code, reason = "it is there to be dropped")] Own<Directory>),
}

/// Things that wait, in the order in which they were unlinked.
#[derive(Debug)]
pub(super) struct Limbo<R>(VecDeque<(Grace, Kept<R>)>);

impl<R> Limbo<R> {
    /// Nothing waits.
    pub fn new() -> Limbo<R> {
        Limbo(VecDeque::new())
    }

    /// Keeps what the caller has just unlinked.
    pub fn put(&mut self, readers: &Readers, kept: Kept<R>) {
        self.0.push_back((readers.now(), kept));
    }

    /// Moves what nobody reads any more to `out`, to be dropped where no lock is held.
    pub fn take(&mut self, readers: &Readers, out: &mut Vec<Kept<R>>) {
        self.take_passed(readers, out);
        if self.0.len() >= MOST
            && let Some((last, _)) = self.0.back()
        {
            readers.poll(*last);
            self.take_passed(readers, out);
        }
    }

    fn take_passed(&mut self, readers: &Readers, out: &mut Vec<Kept<R>>) {
        let passed = self.0.iter().take_while(|(since, _)| readers.passed(*since)).count();
        out.extend(self.0.drain(..passed).map(|(_, kept)| kept));
    }

    /// Number of things that wait.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
