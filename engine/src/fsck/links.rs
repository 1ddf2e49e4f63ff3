//! Orphan tables, names and numbers of names, the tree of directories, lost+found.

use super::Stage;
use super::batches;
use super::dirs;
use super::image::{self, BATCH};
use super::issue::{IssueKind, Location};
use super::seats::read_ahead;
use super::state::{Move, State};
use crate::Result;
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, InodeFlags, Intent, NatEntry, Nid, ORPHAN_ENTRY_SIZE, OrphanEntry, ROOT_NID,
};
use crate::inode::{FileType, fresh_image, now};
use std::collections::HashSet;
use zerocopy::FromBytes;

/// The name of the directory, in the root, for what has lost its name; further ones have a number behind it.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Such directories at the most.
const MOST_RESCUERS: usize = 9;
/// Entries that a bucket of it is expected to hold.
const ENTRIES_PER_BUCKET: usize = 64;

/// Makes sure that there is a root directory; whether there is one.
pub(super) fn check_root(state: &mut State<'_>) -> Result<bool> {
    if state.records.get(ROOT_NID).is_some_and(|record| record.is_dir()) {
        return Ok(true);
    }
    let place = Location::nid(ROOT_NID);
    let detail = "there is no directory with nid 1".to_string();
    let Some(record) = state.records.get(ROOT_NID).copied() else {
        state.left(IssueKind::RootMissing, place, detail, "the NAT block of nid 1 is missing too");
        return Ok(false);
    };
    let mut inode =
        fresh_image(ROOT_NID, record.generation.wrapping_add(1).max(1), libc::S_IFDIR | 0o755, 0, 0, now());
    inode.nlink.set(2);
    inode.parent.set(ROOT_NID);
    if record.place == 0 && !take_place(state, ROOT_NID, inode.generation.get())? {
        state.left(IssueKind::RootMissing, place, detail, "there is no free block for it");
        return Ok(false);
    }
    if let Some(record) = state.records.get_mut(ROOT_NID) {
        record.generation = inode.generation.get();
    }
    state.write_nat(ROOT_NID)?;
    state.found(IssueKind::RootMissing, place, detail);
    state.put_inode(ROOT_NID, &inode)?;
    Ok(false)
}

/// Gives a free nid a slot in a node block of its own.
fn take_place(state: &mut State<'_>, nid: Nid, generation: u32) -> Result<bool> {
    let Some(block) = state.allocate(1, true)? else { return Ok(false) };
    put_into(state, nid, generation, block).map(|()| true)
}

/// Makes a node block of one that was taken for a nid.
fn put_into(state: &mut State<'_>, nid: Nid, generation: u32, block: u64) -> Result<()> {
    state.image.put_raw(block, crate::device::IoBuf::zeroed(crate::device::BLOCK_SIZE))?;
    if let Some(record) = state.records.get_mut(nid) {
        record.place = NatEntry::new(block, 0, generation).place.get();
        record.generation = generation;
    }
    state.write_nat(nid)
}

/// Reads the orphan tables, and claims them. Comes before data is claimed.
pub(super) fn check_orphans(state: &mut State<'_>) -> Result<()> {
    let block = state.image.sb.orphan_root.get();
    let mut root = match state.image.get(block, BlockKind::OrphanRoot) {
        Ok(root) => root,
        Err(why) => {
            state.found(IssueKind::OrphanRoot, Location::block(block), why);
            return state.image.put(block, BlockKind::OrphanRoot, image::fresh(BlockKind::OrphanRoot, 0, 0));
        }
    };
    let mut changed = false;
    for (index, pointer) in root[BLOCK_HEADER_SIZE..].chunks_exact_mut(8).enumerate() {
        let table = image::word(pointer, 0);
        if table == 0 {
            continue;
        }
        let opened = if !state.image.holds(table) {
            Err("it lies outside of what can be allocated".to_string())
        } else if state.claims.has(table) {
            Err("something else uses it".to_string())
        } else {
            state
                .image
                .get(table, BlockKind::Orphans)
                .and_then(|bytes| image::foreign(&bytes, index as u64, 0).map_or(Ok(bytes), Err))
        };
        match opened {
            Ok(bytes) => {
                state.claim_metadata(table);
                check_table(state, table, bytes)?;
            }
            Err(why) => {
                let detail = format!("table {index} in block {table}: {why}");
                state.found(IssueKind::OrphanTable, Location::block(table), detail);
                pointer.fill(0);
                changed = true;
            }
        }
    }
    if changed { state.image.put(block, BlockKind::OrphanRoot, root) } else { Ok(()) }
}

/// Checks the entries of one table. Names are known already.
fn check_table(state: &mut State<'_>, table: u64, mut bytes: crate::device::IoBuf) -> Result<()> {
    let mut changed = false;
    for raw in bytes[BLOCK_HEADER_SIZE..].chunks_exact_mut(ORPHAN_ENTRY_SIZE) {
        let Ok(entry) = OrphanEntry::read_from_bytes(raw) else { continue };
        let nid = entry.nid.get();
        if nid == 0 {
            continue;
        }
        let record = state.records.get(nid).filter(|r| r.file_type().is_some()).copied();
        let intent = entry.what();
        let (orphan, batch) = (intent == Some(Intent::Orphan), intent == Some(Intent::Batch));
        let problem = match record {
            _ if intent.is_none() => Some(format!("intent {} is unknown", entry.intent)),
            None => Some("the inode is free".into()),
            Some(record) if record.generation != entry.generation.get() => {
                Some(format!("generation {}, the inode has {}", entry.generation, record.generation))
            }
            Some(record) if (orphan || batch) && record.links > 0 => Some("the inode has a name".into()),
            Some(record) if orphan && record.orphan => Some("the inode is listed already".into()),
            Some(record) if orphan && record.is_dir() && dirs::has_names(state, nid)? => {
                Some("the directory has names in it".into())
            }
            Some(record) if !orphan && record.file_type() != Some(FileType::Regular) => {
                Some("the inode is no regular file".into())
            }
            Some(_) if matches!(intent, Some(Intent::Collapse | Intent::Insert)) => {
                state.inode(nid).and_then(|inode| entry.range_problem(inode.size.get()))
            }
            Some(_) if batch => match state.inode(nid) {
                Some(mut inode) => batches::problem(state, &mut inode, &entry)?,
                None => None,
            },
            Some(_) => None,
        };
        if let Some(why) = problem {
            state.found(IssueKind::OrphanEntry, Location::both(nid, table), why);
            raw.fill(0);
            changed = true;
        } else if let Some(record) = state.records.get_mut(nid) {
            record.listed = true;
            record.orphan |= orphan;
        }
    }
    if changed { state.image.put(table, BlockKind::Orphans, bytes) } else { Ok(()) }
}

/// Brings what has no name to lost+found, then sets numbers of names and parents.
pub(super) fn check(state: &mut State<'_>) -> Result<()> {
    let filled = dirs::fill_holes(state)?;
    for to in std::mem::take(&mut state.moves) {
        if !dirs::insert(state, &to)? {
            // It is without a name now; the next round finds it so.
            continue;
        }
    }
    if filled {
        // What is in the buckets that were found has names after all: the next round sees them.
        return Ok(());
    }
    let mut lost = unreachable_dirs(state);
    for (nid, record) in state.records.used() {
        let dir = record.file_type() == Some(FileType::Directory);
        if record.file_type().is_some() && !dir && record.links == 0 && !record.orphan {
            lost.push((nid, IssueKind::InodeUnreachable));
        }
    }
    rescue(state, lost)?;
    numbers(state)
}

/// The tops of what does not hang on the root.
fn unreachable_dirs(state: &mut State<'_>) -> Vec<(Nid, IssueKind)> {
    let dirs = state.records.of_type(FileType::Directory);
    let mut lost = Vec::new();
    if let Some(root) = state.records.get_mut(ROOT_NID) {
        root.reached = true;
    }
    for nid in dirs {
        let mut way = Vec::new();
        let mut on_way = HashSet::new();
        let mut at = nid;
        while let Some(record) = state.records.get(at).copied() {
            if record.reached {
                break;
            }
            if !on_way.insert(at) {
                lost.push((at, IssueKind::DirCycle));
                break;
            }
            way.push(at);
            if record.named_in == 0 {
                if !record.orphan {
                    lost.push((at, IssueKind::DirUnreachable));
                }
                break;
            }
            at = record.named_in;
        }
        // InodeRef, or to be by way of lost+found.
        for nid in way {
            if let Some(record) = state.records.get_mut(nid) {
                record.reached = true;
            }
        }
    }
    lost
}

/// Gives names in lost+found.
fn rescue(state: &mut State<'_>, lost: Vec<(Nid, IssueKind)>) -> Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    let mut rescuers = Rescuers { dirs: Vec::new(), tried: 0, entries: lost.len() };
    for (nid, kind) in lost {
        let Some(record) = state.records.get(nid).copied() else { continue };
        let Some(file_type) = record.file_type() else { continue };
        let detail = match kind {
            IssueKind::DirCycle => format!("it lies within itself, by way of directory {}", record.named_in),
            _ => format!("a {file_type:?} that no directory names"),
        };
        let Some(dir) = rescuers.name(state, nid, file_type)? else {
            let why = "there is no room in lost+found: free some space, empty it, then repair again";
            state.left(kind, Location::nid(nid), detail, why);
            continue;
        };
        state.found(kind, Location::nid(nid), detail);
        if kind == IssueKind::DirCycle {
            dirs::remove_entry(state, record.named_in, nid)?;
            if let Some(parent) = state.records.get_mut(record.named_in) {
                parent.subdirs = parent.subdirs.saturating_sub(1);
            }
        }
        if let Some(record) = state.records.get_mut(nid) {
            record.named_in = dir;
            record.links = 1;
        }
        if file_type == FileType::Directory
            && let Some(parent) = state.records.get_mut(dir)
        {
            parent.subdirs = parent.subdirs.saturating_add(1);
        }
    }
    Ok(())
}

/// The directories for what has lost its name. A bucket takes so many names and no more, and a repair splits none: where
/// one directory is full, the next takes over.
struct Rescuers {
    dirs: Vec<Nid>,
    /// Names of such directories that were tried.
    tried: usize,
    /// Entries that are expected.
    entries: usize,
}

impl Rescuers {
    /// Names an inode after its number; the directory that has taken it.
    fn name(&mut self, state: &mut State<'_>, nid: Nid, file_type: FileType) -> Result<Option<Nid>> {
        let entry = |dir| Move { dir, name: format!("#{nid}").into_bytes(), nid, file_type };
        for dir in self.dirs.iter().rev() {
            if dirs::insert(state, &entry(*dir))? {
                return Ok(Some(*dir));
            }
        }
        while self.tried < MOST_RESCUERS {
            self.tried += 1;
            let name = match self.tried {
                1 => LOST_AND_FOUND.to_vec(),
                number => [LOST_AND_FOUND, format!("-{number}").as_bytes()].concat(),
            };
            let Some(dir) = lost_and_found(state, name, self.entries)? else { continue };
            self.dirs.push(dir);
            if dirs::insert(state, &entry(dir))? {
                return Ok(Some(dir));
            }
        }
        Ok(None)
    }
}

/// The nid of a directory for what has lost its name, made if there is none; with room for so many entries if it is new.
fn lost_and_found(state: &mut State<'_>, name: Vec<u8>, entries: usize) -> Result<Option<Nid>> {
    if let Some(nid) = dirs::lookup(state, ROOT_NID, &name)? {
        return Ok(state.records.get(nid).filter(|record| record.is_dir()).map(|_| nid));
    }
    let free = state.records.all().find(|(_, record)| record.place == 0).map(|(nid, r)| (nid, r.generation));
    let Some((nid, generation)) = free else { return Ok(None) };
    let generation = generation.wrapping_add(1).max(1);
    // Nothing is written before the root has the name: until then all can be given back.
    let Some(least) = state.allocate_each(2)? else { return Ok(None) };
    let entry = Move { dir: ROOT_NID, name, nid, file_type: FileType::Directory };
    if !dirs::insert(state, &entry)? {
        state.give_back(&least);
        return Ok(None);
    }
    // One of them is for the first bucket, where there is no row for more.
    state.give_back(&least[1..]);
    put_into(state, nid, generation, least[0])?;
    let mut inode = fresh_image(nid, generation, libc::S_IFDIR | 0o700, 0, 0, now());
    inode.nlink.set(2);
    inode.parent.set(ROOT_NID);
    state.put_inode(nid, &inode)?;
    let buckets = entries.div_ceil(ENTRIES_PER_BUCKET).next_power_of_two();
    let mut buckets = u32::try_from(buckets).unwrap_or(u32::MAX).min(1 << 14);
    while dirs::add_buckets(state, &mut inode, buckets)?.is_none() && buckets > 1 {
        buckets /= 2;
    }
    if let Some(record) = state.records.get_mut(nid) {
        record.kind = FileType::Directory as u8;
        (record.nlink, record.links, record.subdirs) = (2, 1, 0);
        (record.parent, record.named_in, record.reached) = (ROOT_NID, ROOT_NID, true);
    }
    if let Some(root) = state.records.get_mut(ROOT_NID) {
        root.subdirs = root.subdirs.saturating_add(1);
    }
    Ok(Some(nid))
}

/// Sets numbers of names, parents, and orphan flags.
fn numbers(state: &mut State<'_>) -> Result<()> {
    let mut wrong: Vec<(u64, Nid)> = Vec::new();
    for (nid, record) in state.records.used() {
        let Some(file_type) = record.file_type() else { continue };
        if expected_links(nid, record, file_type) != Some(record.nlink)
            || file_type == FileType::Directory && record.parent != expected_parent(nid, record)
            || record.flagged && !record.listed
            || record.dead && has_name(nid, record)
        {
            wrong.push((record.entry().block(), nid));
        }
    }
    wrong.sort_unstable();
    let total = wrong.len() as u64;
    for (done, batch) in wrong.chunks(BATCH).enumerate() {
        state.at(Stage::Links, (done * BATCH) as u64, total);
        read_ahead(state, batch);
        for (_, nid) in batch {
            let Some(record) = state.records.get(*nid).copied() else { continue };
            let (Some(file_type), Some(mut inode)) = (record.file_type(), state.inode(*nid)) else {
                continue;
            };
            let place = Location::nid(*nid);
            if let Some(links) =
                expected_links(*nid, &record, file_type).filter(|links| *links != record.nlink)
            {
                let detail = format!("it says {} links and has {links}", record.nlink);
                state.found(IssueKind::InodeLinks, place, detail);
                inode.nlink.set(links);
            }
            if file_type == FileType::Directory && record.parent != expected_parent(*nid, &record) {
                let parent = expected_parent(*nid, &record);
                let detail = format!("its parent pointer is {}, its name is in {parent}", record.parent);
                state.found(IssueKind::DirParent, place, detail);
                inode.parent.set(parent);
            }
            if record.flagged && !record.listed {
                state.found(IssueKind::OrphanFlag, place, "it is in no orphan table".into());
                inode.flags.set(inode.flags.get() & !InodeFlags::ORPHAN.bits());
            }
            if record.dead && has_name(*nid, &record) {
                let detail = "the directory says that it is removed, and has a name".into();
                state.found(IssueKind::InodeFlags, place, detail);
                inode.flags.set(inode.flags.get() & !InodeFlags::DEAD.bits());
            }
            state.put_inode(*nid, &inode)?;
        }
    }
    Ok(())
}

/// Whether there is a way to an inode by names, or is to be one.
fn has_name(nid: Nid, record: &super::records::Record) -> bool {
    nid == ROOT_NID || record.links > 0
}

/// Links that an inode has; none where that cannot be said.
fn expected_links(nid: Nid, record: &super::records::Record, file_type: FileType) -> Option<u32> {
    Some(match (file_type, has_name(nid, record)) {
        (FileType::Directory, true) => record.subdirs.saturating_add(2),
        (_, true) => record.links,
        // Its links went with its last name.
        (_, false) if record.orphan => 0,
        (_, false) => record.nlink,
    })
}

/// The parent that a directory has; its own word while it has no name.
fn expected_parent(nid: Nid, record: &super::records::Record) -> Nid {
    match (nid, record.named_in) {
        (ROOT_NID, _) => ROOT_NID,
        (_, 0) => record.parent,
        (_, dir) => dir,
    }
}
