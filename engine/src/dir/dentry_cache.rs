//! Names that walks have met, and what they lead to: read without a lock, and without a write that others see.
//!
//! A bounded table that may forget anything at any time. What it does say of a name was so at a moment of the look at
//! it. What this leaves to others: paths and permissions (`vfs::walk`), the names themselves ([`Dir`](super::Dir)),
//! and that a change of a name tells [`DentryCache::forget`] of it.
//!
//! A *line* of 64 bytes has one name: the identity of its directory, the name (a longer one than [`INLINE`] as two
//! hashes of 119 bits under the image's key, which nobody that makes names knows), the identity and type of what it
//! leads to, and whether everyone may search that. [`WAYS`] lines are a bucket; the one that a name's hash prefers is
//! looked at first. The memory comes as it is first needed, and is counted with the inodes (`volume::AssembleOptions`).
//!
//! # Protocol
//! Identities are generation and nid, never used twice; so a line about a directory that is gone is never asked for.
//! 1. A line's version is even, or odd while one thread, which has *claimed* it by a compare-and-swap from the even
//!    version under which it has read the line, writes all of it. The next version is even again.
//! 2. *Look*: the version, the words, the version again; what was read counts if both are the same and even, as in
//!    Linux's walks under RCU. Nobody waits: otherwise the name is not known.
//! 3. *Put*: with the lock of the name's bucket in its directory held shared at the least, and with what the name leads
//!    to now. A thread that cannot claim at once leaves it.
//! 4. *Forget*: with that lock held exclusively, before anything of the change is seen by a thread that does not take
//!    the lock. Each line that has the name is claimed and emptied. A line that somebody else has claimed is passed
//!    over: it is to get another name, for by 3 nobody puts this one meanwhile. So a thread that begins to look
//!    afterwards does not find the name.
//! 5. That everyone may search a directory counts for a walk if the line was made under the count of
//!    *permission_generation* with which the walk began. A thread that puts a line reads that count first and the
//!    permission then. A thread that takes the permission away counts a closing afterwards, with the directory's lock
//!    still held. So it was there at the walk's beginning.

use super::hash::NameHash;
use crate::format::{MAX_NAME, Nid};
use crate::inode::FileType;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{CachePadded, OnceLock};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Lines of a bucket.
const WAYS: usize = if cfg!(loom) { 1 } else { 4 };
/// Lines whose memory comes at once: 16 KiB.
const PAGE: usize = if cfg!(loom) { WAYS } else { 256 };
/// Words of a name.
const NAME_WORDS: usize = if cfg!(loom) { 2 } else { 3 };
/// The longest name that lies in its line.
const INLINE: usize = NAME_WORDS * 8;
/// Bytes that a line takes.
pub(crate) const LINE_BYTES: u64 = 64;

/// An inode for ever: no other gets both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its number.
    pub nid: Nid,
    /// The generation of the number.
    pub generation: u32,
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Child {
    /// The inode.
    pub identity: Identity,
    /// Its type.
    pub file_type: FileType,
    /// Everyone may search it.
    pub searchable: bool,
}

/// How often a directory was closed to somebody: see rule 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PermissionGeneration(u64);

/// The table.
#[derive(Debug)]
pub(crate) struct DentryCache {
    pages: Box<[OnceLock<Box<[Line]>>]>,
    buckets: u64,
    /// Written seldom, read by every walk.
    permission_generation: CachePadded<AtomicU64>,
    hash: NameHash,
    check: SipHasher13,
}

/// The words of a line beside its version.
type Words = [u64; 4 + NAME_WORDS];
/// Nid of the directory.
const DIR: usize = 0;
/// Generations: of the directory, and above that of the child.
const GENERATIONS: usize = 1;
/// Nid of the child; 0 in an empty line.
const CHILD: usize = 2;
/// Length of the name, type of the child, whether everyone may search it, and the permission_generation.
const ABOUT: usize = 3;
/// The name.
const NAME: usize = 4;

const TYPE_SHIFT: u32 = 8;
const SEARCHABLE: u64 = 1 << 12;
const GENERATION_SHIFT: u32 = 13;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line {
    version: AtomicU64,
    words: [AtomicU64; 4 + NAME_WORDS],
}

/// A name in a directory as lines have it.
struct Key {
    dir: Identity,
    len: u64,
    name: [u64; NAME_WORDS],
}

impl Key {
    fn is_in(&self, words: &Words) -> bool {
        words[DIR] == self.dir.nid
            && words[GENERATIONS] as u32 == self.dir.generation
            && words[ABOUT] & 0xff == self.len
            && words[NAME..] == self.name
            && words[CHILD] != 0
    }

    /// Spreads names over buckets; a thread that picks names so that they meet makes their own walks slow.
    fn place(&self) -> u64 {
        let about = u64::from(self.dir.generation) << 8 | self.len;
        let mut hash = folded(self.dir.nid ^ 0x9e37_79b9_7f4a_7c15, about ^ 0xd6e8_feb8_6659_fd93);
        for word in self.name.iter().take((self.len as usize).div_ceil(8)) {
            hash = folded(hash ^ word, 0xa076_1d64_78bd_642f);
        }
        hash
    }
}

fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

impl Line {
    /// Rule 2: the words, and the version under which they stood.
    fn read(&self) -> Option<(u64, Words)> {
        // Acquire: pairs with the Release that ends a change: the words are those of this version or newer.
        let version = self.version.load(Ordering::Acquire);
        if version & 1 != 0 {
            return None;
        }
        // Relaxed: what they are worth is told by the version.
        let words = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
        // Acquire: pairs with the Release fence of a change: a thread that has read a word of it sees its odd version
        // below.
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some((version, words))
    }

    /// Rule 1: writes the words if the line is as it was at this version.
    fn write(&self, version: u64, words: &Words) -> bool {
        // Relaxed: what the line had does not matter any more, and the fence below orders what comes.
        if self.version.compare_exchange(version, version + 1, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // Release: pairs with the Acquire fence in `read`.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(*value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `read`.
        self.version.store(version + 2, Ordering::Release);
        true
    }
}

impl DentryCache {
    /// A table of about `lines` names, of an image whose names are hashed under `key`.
    pub(crate) fn new(lines: usize, key: &[u8; 16]) -> DentryCache {
        let pages = (lines / PAGE).max(1);
        DentryCache {
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
            buckets: (pages * PAGE / WAYS) as u64,
            permission_generation: CachePadded::default(),
            hash: NameHash::new(key),
            check: SipHasher13::new_with_key(&key.map(|byte| !byte)),
        }
    }

    /// The permission_generation so far, at the beginning of a walk or before the permission of what is put.
    pub(crate) fn permission_generation(&self) -> PermissionGeneration {
        // Acquire: pairs with the Release in `close`: the permission is read as it was left, or newer.
        PermissionGeneration(
            self.permission_generation.load(Ordering::Acquire) & (u64::MAX >> GENERATION_SHIFT),
        )
    }

    /// A caller may not search a directory any more though a line says that it may. Its lock is held.
    pub(crate) fn close(&self) {
        // Release: pairs with the Acquire in `permission_generation`.
        self.permission_generation.fetch_add(1, Ordering::Release);
    }

    /// What a name leads to, if it is known; `permission_generation`: see rule 5.
    #[inline]
    pub(crate) fn find(
        &self,
        dir: Identity,
        name: &[u8],
        permission_generation: PermissionGeneration,
    ) -> Option<Child> {
        let key = self.key(dir, name)?;
        let (lines, first) = self.lines(&key, false)?;
        (0..WAYS).find_map(|way| {
            let (_, words) = lines[(first + way) % WAYS].read().filter(|(_, words)| key.is_in(words))?;
            let about = words[ABOUT];
            Some(Child {
                identity: Identity { nid: words[CHILD], generation: (words[GENERATIONS] >> 32) as u32 },
                file_type: FileType::from_dt((about >> TYPE_SHIFT & 0xf) as u8)?,
                searchable: about & SEARCHABLE != 0 && about >> GENERATION_SHIFT == permission_generation.0,
            })
        })
    }

    /// Notes what a name leads to: rule 3. `permission_generation` was read before the child's permission.
    pub(crate) fn put(
        &self,
        dir: Identity,
        name: &[u8],
        child: &Child,
        permission_generation: PermissionGeneration,
    ) {
        let Some(key) = self.key(dir, name) else { return };
        let Some((lines, first)) = self.lines(&key, true) else { return };
        let mut words = [0; 4 + NAME_WORDS];
        words[DIR] = dir.nid;
        words[GENERATIONS] = u64::from(child.identity.generation) << 32 | u64::from(dir.generation);
        words[CHILD] = child.identity.nid;
        words[ABOUT] = key.len
            | (child.file_type as u64) << TYPE_SHIFT
            | if child.searchable { SEARCHABLE } else { 0 }
            | permission_generation.0 << GENERATION_SHIFT;
        words[NAME..].copy_from_slice(&key.name);
        let (mut empty, mut changes) = (None, 0);
        for way in (0..WAYS).map(|way| (first + way) % WAYS) {
            let Some((version, there)) = lines[way].read() else { continue };
            if key.is_in(&there) {
                if there != words {
                    lines[way].write(version, &words);
                }
                return;
            }
            if there[CHILD] == 0 && empty.is_none() {
                empty = Some((way, version));
            }
            changes += version / 2;
        }
        // With none empty each goes in turn: their changes so far say whose it is.
        let turn = || {
            let way = changes as usize % WAYS;
            lines[way].read().map(|(version, _)| (way, version))
        };
        if let Some((way, version)) = empty.or_else(turn) {
            lines[way].write(version, &words);
        }
    }

    /// A name leads elsewhere, or nowhere: rule 4.
    pub(crate) fn forget(&self, dir: Identity, name: &[u8]) {
        let Some(key) = self.key(dir, name) else { return };
        let Some((lines, _)) = self.lines(&key, false) else { return };
        for line in lines {
            // Otherwise it has another name, or somebody has claimed it meanwhile and gives it one.
            if let Some((version, words)) = line.read()
                && key.is_in(&words)
            {
                line.write(version, &[0; 4 + NAME_WORDS]);
            }
        }
    }

    #[inline]
    fn key(&self, dir: Identity, name: &[u8]) -> Option<Key> {
        if name.len() > MAX_NAME {
            return None;
        }
        let mut words = [0; NAME_WORDS];
        if name.len() <= INLINE {
            let mut bytes = [0; INLINE];
            bytes[..name.len()].copy_from_slice(name);
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        } else {
            let mut check = self.check;
            check.write(name);
            words[..2].copy_from_slice(&[self.hash.of(name), check.finish()]);
        }
        Some(Key { dir, len: name.len() as u64, name: words })
    }

    /// The bucket of a name, if it has memory or is to get some, and the line to look at first.
    #[inline]
    fn lines(&self, key: &Key, make: bool) -> Option<(&[Line], usize)> {
        let place = key.place();
        let bucket = ((u128::from(place) * u128::from(self.buckets)) >> 64) as usize;
        let page = self.pages.get(bucket / (PAGE / WAYS))?;
        let page = match page.get() {
            None if make => page.get_or_init(|| (0..PAGE).map(|_| Line::default()).collect()),
            page => page?,
        };
        let at = bucket % (PAGE / WAYS) * WAYS;
        Some((page.get(at..at + WAYS)?, place as usize % WAYS))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const DIR: Identity = Identity { nid: 7, generation: 3 };

    fn child(nid: Nid) -> Child {
        let identity = Identity { nid, generation: nid as u32 + 1 };
        Child { identity, file_type: FileType::Directory, searchable: true }
    }

    #[test]
    fn a_line_is_a_line() {
        assert_eq!(size_of::<Line>() as u64, LINE_BYTES);
    }

    /// Names of each length, of one directory and another: each is found as it was put, and no longer than that.
    #[test]
    fn names_are_found_as_they_were_put() {
        let known = DentryCache::new(1 << 14, &[1; 16]);
        let now = known.permission_generation();
        let other = Identity { generation: 4, ..DIR };
        let names: Vec<Vec<u8>> = (1..=MAX_NAME).map(|len| vec![b'a'; len]).collect();
        for (name, nid) in names.iter().zip(10..) {
            assert_eq!(known.find(DIR, name, now), None);
            known.put(DIR, name, &child(nid), now);
        }
        for (name, nid) in names.iter().zip(10..) {
            assert_eq!(known.find(DIR, name, now), Some(child(nid)));
            assert_eq!(known.find(other, name, now), None);
            known.put(DIR, name, &child(nid + 1), now);
            assert_eq!(known.find(DIR, name, now), Some(child(nid + 1)));
            known.forget(other, name);
            assert!(known.find(DIR, name, now).is_some());
            known.forget(DIR, name);
            assert_eq!(known.find(DIR, name, now), None);
        }
        assert_eq!(known.find(DIR, &[b'a'; 256], now), None);
    }

    #[test]
    fn a_closing_ends_what_was_said_before() {
        let known = DentryCache::new(1, &[1; 16]);
        let before = known.permission_generation();
        known.put(DIR, b"a", &child(10), before);
        known.close();
        let found = known.find(DIR, b"a", known.permission_generation()).expect("known");
        assert!(!found.searchable);
        assert!(known.find(DIR, b"a", before).expect("known").searchable);
        known.put(DIR, b"a", &child(10), known.permission_generation());
        assert!(known.find(DIR, b"a", known.permission_generation()).expect("known").searchable);
    }

    /// A table that is too small knows some names, and none wrongly.
    #[test]
    fn a_small_table_forgets() {
        let known = DentryCache::new(1, &[1; 16]);
        let now = known.permission_generation();
        let mut there = HashMap::new();
        for n in 0..10_000u64 {
            let name = (n % 1000).to_string();
            if n % 7 == 0 {
                known.forget(DIR, name.as_bytes());
                there.remove(&name);
            } else {
                known.put(DIR, name.as_bytes(), &child(n + 1), now);
                there.insert(name.clone(), n + 1);
            }
            assert_eq!(known.find(DIR, name.as_bytes(), now), there.get(&name).map(|nid| child(*nid)));
        }
        let found = there.iter().filter(|(name, nid)| {
            let found = known.find(DIR, name.as_bytes(), now);
            assert!(found.is_none_or(|found| found == child(**nid)));
            found.is_some()
        });
        let found = found.count();
        assert!((PAGE / 2..=PAGE).contains(&found), "{found} of {PAGE} lines have a name that is there");
    }
}
