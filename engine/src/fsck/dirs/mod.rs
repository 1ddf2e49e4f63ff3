//! Directories: buckets, their chains, and the entries in them.

mod edit;
mod entry;
mod holes;
mod leaving;
mod look;

pub(super) use edit::{add_buckets, has_names, insert, lookup, remove_entry};
pub(super) use holes::{Found, fill_holes, find_lost};
pub(super) use leaving::{Leaving, find_room, with_leaving};

use super::Stage;
use super::extents::{self, Visitor};
use super::image::{self, BATCH, Base};
use super::issue::{IssueKind, Location};
use super::parallel::{CHUNK, in_order};
use super::seats::{places, read_ahead};
use super::state::{Move, State};
use crate::Result;
use crate::device::{BLOCK_SIZE, IoBuf};
use crate::dir::bucket::{self, Dentry};
use crate::dir::hash::{TIE_BITS, bucket_of, cookie_base, hash_of};
use crate::dir::{MAX_CHAIN, check_name};
use crate::extent::Run;
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, FIRST_COOKIE, Inode, Nid, ROOT_NID};
use crate::inode::FileType;
use crate::sync::Arc;
use entry::{Entry, bucket_block, read_entries, write_bucket};
use holes::All;
use std::collections::HashSet;

/// A directory under check.
struct Dir {
    nid: Nid,
    generation: u32,
    buckets: u32,
}

/// A bucket to be checked: its first block.
struct Bucket {
    dir: Arc<Dir>,
    bucket: u32,
    block: u64,
}

/// Buckets that are checked together; of one directory all.
const BUCKETS: usize = 16_384;

/// Gathers the blocks of a tree by logical number, up to the first hole.
struct Gather {
    blocks: Vec<u64>,
    /// Drop what lies beyond the first hole.
    trim: bool,
}

impl Visitor for Gather {
    fn node(&mut self, _: &mut State<'_>, _: u64) -> bool {
        true
    }

    fn run(&mut self, _: &mut State<'_>, run: &mut Run) -> Result<bool> {
        if u64::from(run.logical) == self.blocks.len() as u64 && !run.unwritten {
            self.blocks.extend((0..u64::from(run.len)).map(|n| run.block + n));
            return Ok(true);
        }
        Ok(!self.trim)
    }
}

/// Blocks of a directory's buckets, in order.
fn buckets_of(state: &mut State<'_>, inode: &Inode) -> Result<Vec<u64>> {
    let mut gather = Gather { blocks: Vec::new(), trim: false };
    extents::walk(state, &mut inode.clone(), &mut gather)?;
    Ok(gather.blocks)
}

/// Checks every directory.
pub(super) fn check(state: &mut State<'_>) -> Result<()> {
    let mut dirs: Vec<(u64, Nid)> = places(state);
    dirs.retain(|(_, nid)| state.records.get(*nid).is_some_and(|record| record.is_dir()));
    let mut waiting = Vec::new();
    let mut done = 0;
    for batch in dirs.chunks(BATCH) {
        read_ahead(state, batch);
        for (_, nid) in batch {
            let Some(mut inode) = state.inode(*nid) else { continue };
            let buckets = shape(state, *nid, &mut inode)?;
            let dir = Arc::new(describe(&inode, inode.buckets.get() as usize));
            let bucket = |(bucket, block)| Bucket { dir: Arc::clone(&dir), bucket, block };
            waiting.extend(buckets.into_iter().map(bucket));
        }
        done += batch.len();
        if waiting.len() >= BUCKETS || done == dirs.len() {
            check_buckets(state, &std::mem::take(&mut waiting), (done as u64, dirs.len() as u64))?;
        }
    }
    for (dir, nid) in std::mem::take(&mut state.removals) {
        remove_entry(state, dir, nid)?;
    }
    Ok(())
}

/// Checks buckets of directories; so many of so many directories are done with them.
fn check_buckets(state: &mut State<'_>, buckets: &[Bucket], (done, total): (u64, u64)) -> Result<()> {
    let base = state.image.base();
    let mut at = 0;
    in_order(
        state.threads,
        state,
        buckets.chunks(CHUNK),
        |_, chunk| *chunk,
        |chunk| look::look(&base, chunk),
        |state, chunk, looks| {
            // The part of these buckets, in directories.
            at += chunk.len();
            state.at(Stage::Directories, done.saturating_sub(1) * at as u64 / buckets.len() as u64, total);
            for (bucket, seen) in chunk.iter().zip(looks.buckets) {
                let current = seen.filter(|_| base.is_as_after(looks.writes));
                if !current.is_some_and(|seen| look::take(state, &bucket.dir, &seen)) {
                    check_bucket(state, &bucket.dir, bucket.bucket, bucket.block)?;
                }
            }
            Ok(())
        },
    )
}

/// Makes the number of buckets, the size and the mapped blocks agree, but for holes that are filled later; the buckets that
/// there are, and their blocks.
fn shape(state: &mut State<'_>, nid: Nid, inode: &mut Inode) -> Result<Vec<(u32, u64)>> {
    let all = All::of(state, inode)?;
    if all.is_whole(inode) {
        return Ok(all.buckets().collect());
    }
    if all.has_holes(inode) {
        let buckets: Vec<(u32, u64)> = all.buckets().collect();
        let detail = format!("it has {} of its {} buckets", buckets.len(), inode.buckets);
        state.found(IssueKind::DirBuckets, Location::nid(nid), detail);
        state.holes.push(nid);
        return Ok(buckets);
    }
    let mut gather = Gather { blocks: Vec::new(), trim: true };
    let beyond = extents::walk(state, inode, &mut gather)?;
    let blocks = gather.blocks;
    let (said, there) = (u64::from(inode.buckets.get()), blocks.len() as u64);
    let size = there * BLOCK_SIZE as u64;
    if beyond || said != there || inode.size.get() != size {
        let detail = format!(
            "it says {said} buckets in {} bytes, and has {there}{}",
            inode.size,
            if beyond { " and blocks beyond a hole" } else { "" }
        );
        state.found(IssueKind::DirBuckets, Location::nid(nid), detail);
        inode.buckets.set(there as u32);
        inode.size.set(size);
        state.put_inode(nid, inode)?;
    }
    Ok((0..).zip(blocks).collect())
}

/// What the blocks of one bucket have shown so far.
#[derive(Default)]
struct Seen {
    names: HashSet<Vec<u8>>,
    cookies: HashSet<u64>,
}

impl Seen {
    /// A cookie of this hash that no entry has so far.
    fn cookie(&self, hash: u64) -> Option<u64> {
        let base = cookie_base(hash);
        (base..base + (1 << TIE_BITS)).find(|cookie| !self.cookies.contains(cookie))
    }
}

fn check_bucket(state: &mut State<'_>, dir: &Dir, bucket: u32, first: u64) -> Result<()> {
    let mut left = Vec::new();
    let length = check_chain(state, dir, bucket, first, &mut left)?;
    leaving::note(state, length, left);
    Ok(())
}

/// Checks the blocks of a bucket: how many there are, and which names leave them for other buckets.
fn check_chain(
    state: &mut State<'_>,
    dir: &Dir,
    bucket: u32,
    first: u64,
    left: &mut Vec<(u64, Leaving)>,
) -> Result<usize> {
    let mut seen = Seen::default();
    let mut block = first;
    let mut before: Option<u64> = None;
    let mut length = 0;
    while block != 0 {
        let place = Location::both(dir.nid, block);
        let opened = open(state, dir, bucket, block);
        if let Some(last) = before {
            let problem = match &opened {
                Err(why) if !is_ours(state, dir, block) => Some(why.clone()),
                _ if state.claims.has(block) => {
                    Some("something else uses the block, or the chain itself".into())
                }
                _ if length == MAX_CHAIN => Some("the chain does not end".into()),
                _ => None,
            };
            if let Some(why) = problem {
                state.found(IssueKind::BucketChain, place, format!("overflow of bucket {bucket}: {why}"));
                return cut(state, last).map(|()| length);
            }
            state.claim_metadata(block);
            if let Some(record) = state.records.get_mut(dir.nid) {
                record.blocks += 1;
            }
        }
        length += 1;
        let raw = || state.image.read(block).unwrap_or_else(|_| IoBuf::zeroed(BLOCK_SIZE));
        let (bytes, broken) = match opened {
            Ok(bytes) => (bytes, None),
            Err(why) => (raw(), Some(why)),
        };
        let mut next = image::word(&bytes, BLOCK_HEADER_SIZE);
        let (mut entries, fault) = read_entries(&bytes);
        let count = bucket::header(&bytes).map_or(0, |h| usize::from(h.count.get()));
        let mut rewrite = true;
        if let Some(why) = broken {
            // The name's own hash says which entries are whole.
            entries
                .retain(|e| hash_of(e.cookie) == state.image.hash.of(&e.name) && check_name(&e.name).is_ok());
            if open(state, dir, bucket, next).is_err() {
                next = 0;
            }
            let detail = format!("bucket {bucket}: {why}; {} entries in it verify", entries.len());
            state.found(IssueKind::Bucket, place, detail);
        } else if let Some(why) = fault {
            state.found(IssueKind::DentryMalformed, place, format!("bucket {bucket}: {why}"));
        } else if count != entries.len() {
            let detail = format!("bucket {bucket}: it counts {count} entries and has {}", entries.len());
            state.found(IssueKind::BucketCount, place, detail);
        } else {
            rewrite = false;
        }
        let all = if rewrite { Vec::new() } else { entries.clone() };
        let mut moved = Vec::new();
        entries.retain_mut(|entry| {
            let moves = state.moves.len();
            let stays = check_entry(state, dir, bucket, place, &mut seen, entry);
            if state.moves.len() > moves {
                moved.push(entry.clone());
            }
            stays
        });
        if !moved.is_empty() {
            left.push((block, Leaving::new(dir, bucket, moved)));
        }
        if rewrite || entries != all {
            write_bucket(state, dir, bucket, block, next, &entries)?;
        }
        before = Some(block);
        block = next;
    }
    Ok(length)
}

/// Whether a block that does not verify was part of this directory, and not something else that a wrong
/// pointer leads to.
fn is_ours(state: &State<'_>, dir: &Dir, block: u64) -> bool {
    let Some(bytes) = state.image.holds(block).then(|| state.image.read(block).ok()).flatten() else {
        return false;
    };
    let bucket = image::header(&bytes).is_some_and(|header| header.kind() == Some(BlockKind::Bucket));
    bucket
        && image::foreign(&bytes, dir.nid, dir.generation).is_none()
        && state.image.get(block, BlockKind::Bucket).is_err()
}

/// A block of the bucket, verified.
fn open(state: &State<'_>, dir: &Dir, bucket: u32, block: u64) -> Result<IoBuf, String> {
    if !state.image.holds(block) {
        return Err("the block lies outside of what can be allocated".into());
    }
    let bytes = state.image.read(block)?;
    belongs(state.image, dir, bucket, block, &bytes).map(|()| bytes)
}

/// Whether bytes are those of a block of the bucket.
fn belongs(base: &Base, dir: &Dir, bucket: u32, block: u64, bytes: &[u8]) -> Result<(), String> {
    base.verify(block, BlockKind::Bucket, bytes)?;
    if let Some(why) = image::foreign(bytes, dir.nid, dir.generation) {
        return Err(why);
    }
    match bucket::header(bytes) {
        Some(header) if header.bucket.get() == bucket => Ok(()),
        Some(header) => Err(format!("it is part of bucket {}", header.bucket)),
        None => Err("it is cut short".into()),
    }
}

/// Ends a chain after a block.
fn cut(state: &mut State<'_>, last: u64) -> Result<()> {
    let Ok(mut bytes) = state.image.get(last, BlockKind::Bucket) else { return Ok(()) };
    bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8].fill(0);
    state.image.put(last, BlockKind::Bucket, bytes)
}

/// Checks one entry, and puts right what can be; whether it stays where it is.
fn check_entry(
    state: &mut State<'_>,
    dir: &Dir,
    bucket: u32,
    place: Location,
    seen: &mut Seen,
    entry: &mut Entry,
) -> bool {
    let shown = entry.shown();
    if check_name(&entry.name).is_err() || matches!(entry.name.as_slice(), b"." | b"..") {
        state.found(IssueKind::DentryName, place, format!("{shown}: no entry can have this name"));
        return false;
    }
    if seen.names.contains(&entry.name) {
        state.found(IssueKind::DentryTwice, place, format!("{shown}: there is such a name already"));
        return false;
    }
    let Some(record) = state.records.get(entry.nid).copied().filter(|r| r.file_type().is_some()) else {
        state.found(IssueKind::DentryDangling, place, format!("{shown} leads to no inode"));
        return false;
    };
    let file_type = record.file_type().unwrap_or(entry.file_type);
    if file_type == FileType::Directory && !adopt(state, dir, place, entry, &shown) {
        return false;
    }
    if let Some(record) = state.records.get_mut(entry.nid) {
        record.links = record.links.saturating_add(1);
    }
    let hash = state.image.hash.of(&entry.name);
    if bucket_of(hash, dir.buckets) != bucket {
        let detail = format!("{shown} lies in bucket {bucket}, not in {}", bucket_of(hash, dir.buckets));
        state.found(IssueKind::DentryBucket, place, detail);
        state.moves.push(Move { dir: dir.nid, name: entry.name.clone(), nid: entry.nid, file_type });
        return false;
    }
    let twice = seen.cookies.contains(&entry.cookie);
    if twice || !(FIRST_COOKIE..1 << 63).contains(&entry.cookie) || hash_of(entry.cookie) != hash {
        let kind = if twice { IssueKind::DentryCookieTwice } else { IssueKind::DentryCookie };
        state.found(kind, place, format!("{shown} has cookie {:#x}", entry.cookie));
        // Without a free one among 256 the entry goes; what it led to is then without a name.
        let Some(cookie) = seen.cookie(hash) else { return false };
        entry.cookie = cookie;
    }
    if entry.file_type != file_type {
        let detail = format!("{shown} is said to be {:?} and is {file_type:?}", entry.file_type);
        state.found(IssueKind::DentryType, place, detail);
        entry.file_type = file_type;
    }
    seen.names.insert(entry.name.clone());
    seen.cookies.insert(entry.cookie);
    true
}

/// Takes note that this directory names another; whether it may.
fn adopt(state: &mut State<'_>, dir: &Dir, place: Location, entry: &Entry, shown: &str) -> bool {
    let Some(record) = state.records.get_mut(entry.nid) else { return false };
    if entry.nid != ROOT_NID && record.named_in == 0 {
        record.named_in = dir.nid;
        if let Some(parent) = state.records.get_mut(dir.nid) {
            parent.subdirs = parent.subdirs.saturating_add(1);
        }
        return true;
    }
    let earlier = record.named_in;
    // The directory's own pointer decides, if it speaks for the later name.
    let confirmed = entry.nid != ROOT_NID && record.parent == dir.nid && earlier != dir.nid;
    if confirmed {
        record.named_in = dir.nid;
        record.links = record.links.saturating_sub(1);
        for (nid, by) in [(earlier, -1), (dir.nid, 1)] {
            if let Some(parent) = state.records.get_mut(nid) {
                parent.subdirs = parent.subdirs.saturating_add_signed(by);
            }
        }
        state.removals.push((earlier, entry.nid));
    }
    let detail = match entry.nid {
        ROOT_NID => format!("{shown} leads to the root directory"),
        _ => format!("{shown} is named in {earlier} too"),
    };
    state.found(IssueKind::DirTwoParents, place, detail);
    confirmed
}

/// The blocks of a bucket's chain: as far as they verify.
fn chain(state: &State<'_>, dir: &Dir, bucket: u32, first: u64) -> Vec<(u64, IoBuf)> {
    let mut found = Vec::new();
    let mut next = first;
    while next != 0 && found.len() < MAX_CHAIN {
        let Ok(bytes) = open(state, dir, bucket, next) else { break };
        let after = image::word(&bytes, BLOCK_HEADER_SIZE);
        found.push((next, bytes));
        next = after;
    }
    found
}

fn describe(inode: &Inode, buckets: usize) -> Dir {
    Dir { nid: inode.nid.get(), generation: inode.generation.get(), buckets: buckets as u32 }
}
