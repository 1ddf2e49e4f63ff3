//! Buckets as threads look at them: those in which nothing is wrong.

use super::entry::visit_entries;
use super::{Bucket, Dir, belongs};
use crate::dir::bucket;
use crate::dir::hash::{bucket_of, hash_of};
use crate::dir::{MAX_CHAIN, check_name};
use crate::format::{BLOCK_HEADER_SIZE, FIRST_COOKIE, Nid, ROOT_NID};
use crate::fsck::image::{self, Base};
use crate::fsck::parallel::Rows;
use crate::fsck::state::State;
use crate::inode::FileType;

/// What was seen of a chunk of buckets.
pub(super) struct Looks {
    /// Writes before it was looked at.
    pub writes: u64,
    /// Those in which nothing is wrong.
    pub buckets: Vec<Option<Seen>>,
}

/// A bucket in which nothing is wrong by itself.
pub(super) struct Seen {
    /// Blocks of the chain after the first.
    overflow: Vec<u64>,
    /// What the entries lead to, and what they say that it is.
    entries: Vec<(Nid, FileType)>,
}

pub(super) fn look(base: &Base, buckets: &[Bucket]) -> Looks {
    let writes = base.writes();
    let rows = Rows::read(base, buckets.iter().map(|bucket| bucket.block).collect());
    Looks { writes, buckets: buckets.iter().map(|bucket| look_at(base, bucket, &rows)).collect() }
}

/// One bucket: none if anything is not as it should be.
fn look_at(base: &Base, of: &Bucket, rows: &Rows) -> Option<Seen> {
    let mut overflow = Vec::new();
    let mut next = chained(base, of, of.block, rows.get(of.block)?)?;
    let mut further = Vec::new();
    while next != 0 {
        if overflow.len() + 1 == MAX_CHAIN || overflow.contains(&next) || !base.holds(next) {
            return None;
        }
        let rows = Rows::read(base, vec![next]);
        let after = chained(base, of, next, rows.get(next)?)?;
        overflow.push(next);
        further.push(rows);
        next = after;
    }
    let blocks = overflow.iter().zip(&further).filter_map(|(block, rows)| rows.get(*block));
    let mut names: Vec<(u64, &[u8])> = Vec::new();
    let mut entries = Vec::new();
    for block in rows.get(of.block).into_iter().chain(blocks) {
        let before = names.len();
        let mut sound = true;
        let fault = visit_entries(block, |header, name| {
            let (hash, cookie) = (base.hash.of(name), header.cookie.get());
            let file_type = FileType::from_dt(header.file_type);
            sound &= check_name(name).is_ok()
                && !matches!(name, b"." | b"..")
                && bucket_of(hash, of.dir.buckets) == of.bucket
                && (FIRST_COOKIE..1 << 63).contains(&cookie)
                && hash_of(cookie) == hash;
            names.push((cookie, name));
            entries.push((header.nid.get(), file_type));
        });
        let count = bucket::header(block).map(|header| usize::from(header.count.get()));
        if fault.is_some() || !sound || count != Some(names.len() - before) {
            return None;
        }
    }
    let entries: Vec<(Nid, FileType)> =
        entries.into_iter().map(|(nid, file_type)| Some((nid, file_type?))).collect::<Option<_>>()?;
    // The same name has the same hash, and so lies next to itself, but for others of this hash.
    names.sort_unstable();
    let twice = names.chunk_by(|a, b| hash_of(a.0) == hash_of(b.0)).any(|same| {
        let again = |(at, name): (usize, &(u64, &[u8]))| {
            same[..at].iter().any(|other| other.0 == name.0 || other.1 == name.1)
        };
        same.iter().enumerate().any(again)
    });
    let mut dirs: Vec<Nid> =
        entries.iter().filter(|entry| entry.1 == FileType::Directory).map(|entry| entry.0).collect();
    dirs.sort_unstable();
    let two_names = dirs.windows(2).any(|two| two[0] == two[1]);
    (!twice && !two_names).then_some(Seen { overflow, entries })
}

/// The block after one of the bucket.
fn chained(base: &Base, of: &Bucket, block: u64, bytes: &[u8]) -> Option<u64> {
    let own = base.holds(block) && belongs(base, &of.dir, of.bucket, block, bytes).is_ok();
    own.then(|| image::word(bytes, BLOCK_HEADER_SIZE))
}

/// Claims what was seen, and counts the names; false, and nothing is done, where it does not agree with the rest.
pub(super) fn take(state: &mut State<'_>, dir: &Dir, seen: &Seen) -> bool {
    let agrees = |(nid, file_type): &(Nid, FileType)| {
        let Some(record) = state.records.get(*nid) else { return false };
        let free = *file_type != FileType::Directory || *nid != ROOT_NID && record.named_in == 0;
        record.file_type() == Some(*file_type) && free
    };
    if seen.overflow.iter().any(|block| state.claims.has(*block)) || !seen.entries.iter().all(agrees) {
        return false;
    }
    for block in &seen.overflow {
        state.claim_metadata(*block);
    }
    let mut subdirs = 0u32;
    for (nid, file_type) in &seen.entries {
        let Some(record) = state.records.get_mut(*nid) else { continue };
        record.links = record.links.saturating_add(1);
        if *file_type == FileType::Directory {
            record.named_in = dir.nid;
            subdirs += 1;
        }
    }
    if let Some(record) = state.records.get_mut(dir.nid) {
        record.blocks += seen.overflow.len() as u64;
        record.subdirs = record.subdirs.saturating_add(subdirs);
    }
    true
}
