//! Contents of a medium in pages that copies share until they change.

use std::collections::HashMap;

use twox_hash::XxHash3_128;

use crate::sync::Arc;

pub(super) const PAGE: usize = 4096;

pub(super) type Page = Arc<[u8; PAGE]>;

/// Changed pages beyond which a copy is made the new base.
const MAX_CHANGES: usize = 128;

/// Contents of a medium; pages that were never written are zero.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    base: Arc<HashMap<u64, Page>>,
    changes: HashMap<u64, Page>,
    mark: u128,
}

/// A number for a page at its place; 0 for one of zeros. Those of several pages are added without carry: an image's is the
/// same whatever way it came to its contents.
pub(super) fn mark(page: u64, contents: &[u8; PAGE]) -> u128 {
    if contents.iter().all(|byte| *byte == 0) { 0 } else { XxHash3_128::oneshot_with_seed(page, contents) }
}

impl Image {
    /// A page, unless it was never written.
    pub fn get(&self, page: u64) -> Option<&Page> {
        self.changes.get(&page).or_else(|| self.base.get(&page))
    }

    /// A number for all that it holds.
    pub fn mark(&self) -> u128 {
        self.mark
    }

    /// That of a page as it is.
    pub fn mark_of(&self, page: u64) -> u128 {
        self.get(page).map_or(0, |contents| mark(page, contents))
    }

    /// Sets a page.
    pub fn set(&mut self, page: u64, contents: Page) {
        self.mark ^= self.mark_of(page) ^ mark(page, &contents);
        self.changes.insert(page, contents);
        if self.changes.len() > MAX_CHANGES {
            Arc::make_mut(&mut self.base).extend(self.changes.drain());
        }
    }

    /// Copies a page out; zeros if it was never written.
    pub fn read(&self, page: u64, into: &mut [u8]) {
        match self.get(page) {
            Some(contents) => into.copy_from_slice(&contents[..]),
            None => into.fill(0),
        }
    }

    /// Changes bytes inside one page: in place, unless a copy shares it.
    pub fn patch(&mut self, page: u64, offset: usize, bytes: &[u8]) {
        let within = offset..offset + bytes.len();
        if let Some(own) = self.changes.get_mut(&page) {
            let before = mark(page, own);
            let own = Arc::make_mut(own);
            own[within].copy_from_slice(bytes);
            self.mark ^= before ^ mark(page, own);
            return;
        }
        let mut contents = self.base.get(&page).map_or_else(|| Arc::new([0; PAGE]), Arc::clone);
        Arc::make_mut(&mut contents)[within].copy_from_slice(bytes);
        self.set(page, contents);
    }
}
