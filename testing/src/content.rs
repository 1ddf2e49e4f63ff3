//! What files hold, and what a crash may leave of them: the contents that each had since it was last synced.

use std::sync::Arc;

/// A file as it should be.
#[derive(Debug, Clone)]
pub struct Content {
    /// Since the last sync that was answered, the oldest of them durable; the last is what it holds.
    versions: Vec<Arc<Vec<u8>>>,
}

impl Content {
    /// A durable one.
    #[must_use]
    pub fn durable(bytes: Vec<u8>) -> Content {
        Content { versions: vec![Arc::new(bytes)] }
    }

    /// What it holds.
    ///
    /// # Panics
    /// Never: there is always one.
    #[must_use]
    pub fn now(&self) -> &[u8] {
        self.versions.last().expect("there is always one")
    }

    /// It holds something else.
    pub fn set(&mut self, bytes: Vec<u8>) {
        self.versions.push(Arc::new(bytes));
    }

    /// What it holds is durable.
    pub fn synced(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
    }

    /// The bytes of a range are durable, and the size.
    pub fn synced_range(&mut self, start: usize, len: usize) {
        let last = Arc::clone(&self.versions[self.versions.len() - 1]);
        let range = start..(start + len).min(last.len());
        for version in &mut self.versions {
            let version = Arc::make_mut(version);
            if version.len() < last.len() {
                version.resize(last.len(), 0);
            }
            version[range.clone()].copy_from_slice(&last[range.clone()]);
        }
    }

    /// Whether a crash may leave this.
    ///
    /// # Errors
    /// In words: which byte may not be there.
    pub fn may_be(&self, seen: &[u8]) -> Result<(), String> {
        mixture(&self.versions, seen)
    }

    /// An operation failed which would have left `after`: what is there is of this or that, and is what it holds from
    /// now on.
    ///
    /// # Errors
    /// In words, as above.
    pub fn failed(&mut self, after: Vec<u8>, seen: Vec<u8>) -> Result<(), String> {
        let before = Arc::clone(&self.versions[self.versions.len() - 1]);
        mixture(&[before, Arc::new(after)], &seen)?;
        self.set(seen);
        Ok(())
    }
}

/// Whether each byte is one of the contents' at this place, and the size between theirs.
fn mixture(versions: &[Arc<Vec<u8>>], seen: &[u8]) -> Result<(), String> {
    let lens = || versions.iter().map(|v| v.len());
    let (least, most) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
    if !(least..=most).contains(&seen.len()) {
        return Err(format!("{} bytes, it had {:?}", seen.len(), lens().collect::<Vec<_>>()));
    }
    let had = |at: usize, byte: u8| versions.iter().any(|v| v.get(at).copied().unwrap_or(0) == byte);
    match (0..seen.len()).find(|at| !had(*at, seen[*at])) {
        None => Ok(()),
        Some(at) => {
            let had: Vec<_> = versions.iter().map(|v| v.get(at)).collect();
            Err(format!("byte {at} of {} is {:#x}, it was {had:x?}", seen.len(), seen[at]))
        }
    }
}
