//! Directory replies, built in the reply buffer.

use super::replies::{DirentHead, EntryOut};
use crate::types::Entry;
use zerocopy::{FromBytes, IntoBytes};

/// Collects the names of one READDIR or READDIRPLUS until the reply is full.
///
/// For READDIRPLUS, [`DirSink::fits`] must be asked before a lookup count is raised; what was pushed is undone by
/// the session if the reply cannot be sent.
#[derive(Debug)]
pub struct DirSink<'a> {
    buffer: &'a mut [u8],
    used: usize,
    plus: bool,
}

fn record(plus: bool, name_len: usize) -> usize {
    let entry = if plus { size_of::<EntryOut>() } else { 0 };
    entry + (size_of::<DirentHead>() + name_len).next_multiple_of(8)
}

impl<'a> DirSink<'a> {
    /// Collects into `buffer`, which is as long as the kernel asked for.
    pub fn new(buffer: &'a mut [u8], plus: bool) -> Self {
        DirSink { buffer, used: 0, plus }
    }

    /// Whether this answers READDIRPLUS.
    pub fn is_plus(&self) -> bool {
        self.plus
    }

    /// Whether a name of this length has room.
    pub fn fits(&self, name_len: usize) -> bool {
        record(self.plus, name_len) <= self.buffer.len() - self.used
    }

    /// Adds a name; false if there was no room. `next` is the cookie from which the list goes on after this
    /// name; `kind` is a `DT_` number. In a READDIRPLUS the entry is left empty: the kernel looks the name up
    /// when it needs it ("." and ".." are always added this way).
    #[must_use]
    pub fn push(&mut self, ino: u64, next: u64, kind: u8, name: &[u8]) -> bool {
        self.push_record(None, ino, next, kind, name)
    }

    /// Adds a name with its entry, whose lookup count has been raised; false if there was no room.
    #[must_use]
    pub fn push_entry(&mut self, entry: &Entry, next: u64, name: &[u8]) -> bool {
        let kind = ((entry.attr.mode & libc::S_IFMT) >> 12) as u8;
        self.push_record(Some(&entry.to_wire()), entry.attr.ino, next, kind, name)
    }

    fn push_record(&mut self, entry: Option<&EntryOut>, ino: u64, next: u64, kind: u8, name: &[u8]) -> bool {
        if !self.fits(name.len()) {
            return false;
        }
        let space = &mut self.buffer[self.used..][..record(self.plus, name.len())];
        space.fill(0);
        let at = if self.plus { size_of::<EntryOut>() } else { 0 };
        if let (true, Some(entry)) = (self.plus, entry) {
            space[..at].copy_from_slice(entry.as_bytes());
        }
        let head = DirentHead { ino, off: next, namelen: name.len() as u32, kind: u32::from(kind) };
        space[at..][..size_of::<DirentHead>()].copy_from_slice(head.as_bytes());
        space[at + size_of::<DirentHead>()..][..name.len()].copy_from_slice(name);
        self.used += space.len();
        true
    }

    /// Takes the kernel's trust in the names of all entries back.
    pub fn distrust(&mut self) {
        let mut rest = &mut self.buffer[..self.used];
        while self.plus
            && let Ok((entry, dirent)) = EntryOut::mut_from_prefix(rest)
            && let Ok((head, _)) = DirentHead::ref_from_prefix(dirent)
        {
            (entry.entry_valid, entry.entry_valid_nsec) = (0, 0);
            let len = record(true, head.namelen as usize);
            rest = &mut rest[len..];
        }
    }

    /// The bytes collected.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether no name was added.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}

/// The inodes whose lookup counts a READDIRPLUS reply has raised.
pub fn looked_up(mut reply: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        loop {
            let (entry, rest) = EntryOut::read_from_prefix(reply).ok()?;
            let (head, _) = DirentHead::read_from_prefix(rest).ok()?;
            reply = reply.get(record(true, head.namelen as usize)..)?;
            if entry.nodeid != 0 {
                return Some(entry.nodeid);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_plain_list_holds_what_fits() {
        let mut buffer = [0xff; 24 + 8 + 24 + 16];
        let mut sink = DirSink::new(&mut buffer, false);
        assert!(sink.push(1, 1, libc::DT_DIR, b"."));
        assert!(sink.push(2, 2, libc::DT_REG, b"nine byte"));
        assert!(!sink.push(3, 3, libc::DT_REG, b""));
        assert_eq!(sink.len(), buffer.len());
        assert_eq!(&buffer[24..32], b".\0\0\0\0\0\0\0");
        assert_eq!(buffer[56 + 9], 0);
    }

    /// The inodes of the entries whose names may be trusted.
    fn trusted(mut reply: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        while let Ok((entry, rest)) = EntryOut::read_from_prefix(reply) {
            if (entry.entry_valid, entry.entry_valid_nsec) != (0, 0) {
                found.push(entry.nodeid);
            }
            let (head, _) = DirentHead::read_from_prefix(rest).expect("whole records");
            reply = &reply[record(true, head.namelen as usize)..];
        }
        found
    }

    #[test]
    fn only_entries_that_were_counted_are_undone() {
        let mut buffer = [0; 1000];
        let mut sink = DirSink::new(&mut buffer, true);
        let mut entry = Entry { entry_timeout: Duration::from_millis(1500), ..Entry::default() };
        entry.attr.mode = libc::S_IFREG;
        assert!(sink.push(1, 1, libc::DT_DIR, b"."));
        for nodeid in [5, 6] {
            entry.nodeid = nodeid;
            assert!(sink.push_entry(&entry, nodeid, b"name"));
        }
        let used = sink.len();
        assert_eq!(trusted(&buffer[..used]), [5, 6]);
        let mut sink = DirSink { buffer: &mut buffer, used, plus: true };
        sink.distrust();
        assert!(trusted(&buffer[..used]).is_empty());
        assert_eq!(looked_up(&buffer[..used]).collect::<Vec<_>>(), [5, 6]);
    }
}
