//! Node blocks and the inodes in them: identity, fields, and what their metadata claims.
//!
//! Most inodes claim nothing but their slot and their data. Threads look for what is wrong with them
//! ([`super::parallel`]), and one look is all that they get here; the others are looked at again, one by one.

mod buckets;
mod look;

use super::extents::{self, Visitor};
use super::image::{BATCH, slot_of};
use super::issue::{IssueKind, Location};
use super::parallel::in_order;
use super::seats::{chunks, places, read_ahead, seats};
use super::state::State;
use super::{Stage, xattr};
use crate::Result;
use crate::extent::Run;
use crate::format::{
    INODE_INLINE_SIZE, INODE_INLINE_XATTR_SIZE, INODES_PER_BLOCK, Inode, InodeFlags, MAX_FILE_SIZE, NatEntry,
    Nid, XATTR_SYMLINK,
};
use crate::inode::FileType;
use look::Said;
use zerocopy::FromZeros;

/// An inode that no NAT entry leads to.
struct Stray {
    block: u64,
    slot: usize,
    nid: Nid,
    generation: u32,
    verifies: bool,
}

/// Checks every inode, and claims node blocks, blocks of extent trees, attributes, and buckets.
pub(super) fn check(state: &mut State<'_>) -> Result<()> {
    let places = places(state);
    let (mut strays, mut sound) = (Vec::new(), Vec::new());
    let (base, total) = (state.image.base(), 2 * places.len() as u64);
    let mut done = 0;
    // First all node blocks are claimed, then what inodes lead to: nothing may claim a node block.
    in_order(
        state.threads,
        state,
        chunks(&places),
        |state, chunk| seats(state, chunk),
        |seats| look::look(&base, seats),
        |state, chunk, looks| {
            state.at(Stage::Inodes, done, total);
            done += chunk.len() as u64;
            for (nids, look) in chunk.chunk_by(|a, b| a.0 == b.0).zip(looks.blocks) {
                let current = look.filter(|_| base.is_as_after(looks.writes));
                take(state, nids, current, &mut strays, &mut sound)?;
            }
            Ok(())
        },
    )?;
    drop(places);
    for stray in strays {
        adopt_or_free(state, stray, &mut sound)?;
    }
    sound.sort_unstable();
    let rest = sound.len() as u64;
    for (done, batch) in sound.chunks(BATCH).enumerate() {
        state.at(Stage::Inodes, total - rest + (done * BATCH) as u64, total);
        read_ahead(state, batch);
        buckets::read_ahead(state, batch);
        for (_, nid) in batch {
            content(state, *nid)?;
        }
    }
    buckets::settle(state)
}

/// Takes what was seen of a node block; looks more closely where nothing was.
fn take(
    state: &mut State<'_>,
    nids: &[(u64, Nid)],
    look: Option<Vec<Option<Said>>>,
    strays: &mut Vec<Stray>,
    sound: &mut Vec<(u64, Nid)>,
) -> Result<()> {
    let Some((block, _)) = nids.first().copied() else { return Ok(()) };
    if let Some(all) = look.filter(|_| !state.claims.has(block)) {
        state.claim_metadata(block);
        for ((_, nid), said) in nids.iter().zip(all) {
            match said {
                Some(said) => note(state, *nid, &said),
                None => sound.push((block, *nid)),
            }
        }
        return Ok(());
    }
    match state.image.read(block) {
        Ok(bytes) => node_block(state, block, nids, &bytes, strays, sound),
        Err(why) => {
            state.claim_metadata(block);
            let detail = format!("the node block of {} inodes cannot be read", nids.len());
            // What is left because of it: the check ends after this part.
            state.found(IssueKind::InodeChecksum, Location::block(block), format!("{detail}: {why}"));
            Ok(())
        }
    }
}

fn note(state: &mut State<'_>, nid: Nid, said: &Said) {
    if let Some(record) = state.records.get_mut(nid) {
        record.kind = said.kind as u8;
        record.nlink = said.nlink;
        record.parent = said.parent;
        record.flagged = said.flagged;
        record.dead = said.dead;
    }
}

/// Checks the content of an inode whose identity holds, and notes what others need to know of it.
fn content(state: &mut State<'_>, nid: Nid) -> Result<()> {
    let Some(mut inode) = state.inode(nid) else { return Ok(()) };
    match fields(state, nid, &mut inode)? {
        Verdict::Keep => {}
        Verdict::Changed => state.put_inode(nid, &inode)?,
        Verdict::Clear => {
            state.put_inode(nid, &Inode::new_zeroed())?;
            return state.free_nid(nid);
        }
    }
    if let Some(kind) = FileType::from_mode(inode.mode.get().into()) {
        note(state, nid, &Said::by(&inode, kind));
    }
    Ok(())
}

/// Who is in a node block. `sound` gets the inodes whose identity holds.
fn node_block(
    state: &mut State<'_>,
    block: u64,
    nids: &[(u64, Nid)],
    bytes: &[u8],
    strays: &mut Vec<Stray>,
    sound: &mut Vec<(u64, Nid)>,
) -> Result<()> {
    let taken = state.claims.has(block);
    for slot in 0..INODES_PER_BLOCK {
        let Some(inode) = slot_of(bytes, slot) else { continue };
        let there = inode.nid.get();
        let mut wanted = false;
        for (_, nid) in nids {
            let Some(record) = state.records.get(*nid).copied().filter(|r| r.at() == (block, slot)) else {
                continue;
            };
            let place = Location::both(*nid, block);
            if taken || there != *nid {
                let what = match (taken, there) {
                    (true, _) => "a block that is used otherwise".to_string(),
                    (_, 0) => format!("slot {slot}, which is free"),
                    _ => format!("slot {slot}, which holds inode {there}"),
                };
                state.found(IssueKind::NatDangling, place, format!("its NAT entry leads to {what}"));
                state.free_nid(*nid)?;
                continue;
            }
            wanted = true;
            let verifies = state.image.inode_verifies(block, slot, &inode);
            let same = record.generation == inode.generation.get();
            if !verifies && (!same || implausible(&inode).is_some()) {
                let why = implausible(&inode).unwrap_or("its generation is wrong");
                let detail = format!("the checksum in slot {slot} does not hold, and {why}");
                state.found(IssueKind::InodeChecksum, place, format!("{detail}: it is lost"));
                state.image.put_inode(block, slot, &Inode::new_zeroed())?;
                state.free_nid(*nid)?;
                continue;
            }
            if !verifies {
                let detail = format!("the checksum in slot {slot} does not hold; what can be checked does");
                state.found(IssueKind::InodeChecksum, place, detail);
                state.image.put_inode(block, slot, &inode)?;
            }
            if !same {
                let detail = format!("NAT entry {}, inode {}", record.generation, inode.generation);
                state.found(IssueKind::NatGeneration, place, detail);
                if let Some(record) = state.records.get_mut(*nid) {
                    record.generation = inode.generation.get();
                }
                state.write_nat(*nid)?;
            }
            sound.push((block, *nid));
            state.claim_metadata(block);
        }
        if there != 0 && !wanted && !taken {
            let verifies = state.image.inode_verifies(block, slot, &inode);
            strays.push(Stray { block, slot, nid: there, generation: inode.generation.get(), verifies });
        }
    }
    Ok(())
}

/// Restores the NAT entry of an inode that lost it, or frees the slot of one that has no claim to it.
fn adopt_or_free(state: &mut State<'_>, stray: Stray, sound: &mut Vec<(u64, Nid)>) -> Result<()> {
    let Stray { block, slot, nid, generation, verifies } = stray;
    // Cleared as damaged a moment ago?
    if state.image.inode(block, slot).is_ok_and(|inode| inode.nid.get() != nid) {
        return Ok(());
    }
    let place = Location::both(nid, block);
    let free = state.records.get(nid).is_some_and(|r| r.place == 0 && r.generation == generation);
    if !(verifies && free) {
        let detail = format!("slot {slot} holds an inode that its NAT entry does not lead to");
        state.found(IssueKind::InodeStray, place, detail);
        return state.image.put_inode(block, slot, &Inode::new_zeroed());
    }
    state.found(IssueKind::InodeLost, place, format!("slot {slot} holds it, its NAT entry is free"));
    if let Some(record) = state.records.get_mut(nid) {
        record.place = NatEntry::new(block, slot as u8, generation).place.get();
    }
    state.claim_metadata(block);
    sound.push((block, nid));
    state.write_nat(nid)
}

/// Why an inode whose checksum does not hold should not be believed.
fn implausible(inode: &Inode) -> Option<&'static str> {
    let Some(file_type) = FileType::from_mode(inode.mode.get().into()) else { return Some("it has no type") };
    if InodeFlags::from_bits(inode.flags.get()).is_none() {
        return Some("its flags are unknown");
    }
    if extents::root_problem(inode).is_some() {
        return Some("its extents cannot be");
    }
    if size_problem(file_type, inode).is_some() {
        return Some("its size cannot be");
    }
    None
}

/// The flags that an inode of this type may have.
fn allowed_flags(file_type: FileType) -> InodeFlags {
    let of_type = match file_type {
        FileType::Symlink => InodeFlags::INLINE_SYMLINK,
        FileType::Directory => InodeFlags::DEAD,
        _ => InodeFlags::empty(),
    };
    InodeFlags::INLINE_XATTR | InodeFlags::ORPHAN | of_type
}

enum Verdict {
    Keep,
    Changed,
    Clear,
}

/// The size to set instead, where a size cannot be.
fn size_problem(file_type: FileType, inode: &Inode) -> Option<u64> {
    let size = inode.size.get();
    let most = match file_type {
        FileType::Regular | FileType::Directory => MAX_FILE_SIZE,
        FileType::Symlink => return None,
        _ => 0,
    };
    (size > most).then_some(most)
}

/// Why a symbolic link has no target.
fn target_problem(inode: &Inode) -> Option<String> {
    let (size, flags) = (inode.size.get(), InodeFlags::from_bits_retain(inode.flags.get()));
    if !flags.contains(InodeFlags::INLINE_SYMLINK) {
        let holds = (1..libc::PATH_MAX as u64).contains(&size) && inode.xattr_block.get() != 0;
        return (!holds).then(|| format!("a target of {size} bytes that is nowhere"));
    }
    let room = if flags.contains(InodeFlags::INLINE_XATTR) {
        INODE_INLINE_SIZE - INODE_INLINE_XATTR_SIZE
    } else {
        INODE_INLINE_SIZE
    };
    let target =
        usize::try_from(size).ok().filter(|size| *size > 0 && *size <= room).map(|s| &inode.inline[..s]);
    match target {
        None => Some(format!("a target of {size} bytes")),
        Some(target) => target.contains(&0).then(|| "a NUL in the target".into()),
    }
}

/// Why a symbolic link whose target is an attribute has none: its attributes have been checked.
fn long_target_problem(state: &State<'_>, inode: &Inode) -> Option<String> {
    if inode.flags.get() & InodeFlags::INLINE_SYMLINK.bits() != 0 {
        return None;
    }
    match xattr::value(state, inode, XATTR_SYMLINK) {
        None => Some("none of its attributes is its target".into()),
        Some(target) if target.len() as u64 != inode.size.get() => {
            Some(format!("a target of {} bytes, and its size says {}", target.len(), inode.size))
        }
        Some(target) => target.contains(&0).then(|| "a NUL in the target".into()),
    }
}

/// Checks everything about an inode but its names and its count of blocks.
fn fields(state: &mut State<'_>, nid: Nid, inode: &mut Inode) -> Result<Verdict> {
    let place = Location::nid(nid);
    let mut changed = false;
    let file_type = match FileType::from_mode(inode.mode.get().into()) {
        Some(file_type) => file_type,
        None => {
            state.found(IssueKind::InodeMode, place, format!("mode {:o}", inode.mode));
            inode.mode.set((libc::S_IFREG | 0o600) as u16);
            changed = true;
            FileType::Regular
        }
    };
    let allowed = allowed_flags(file_type);
    let unknown = inode.flags.get() & !allowed.bits();
    if unknown != 0 {
        state.found(IssueKind::InodeFlags, place, format!("flags {unknown:#x} do not belong to its type"));
        inode.flags.set(inode.flags.get() & allowed.bits());
        changed = true;
    }
    if let Some(size) = size_problem(file_type, inode) {
        state.found(IssueKind::InodeSize, place, format!("{} bytes, at most {size} can be", inode.size));
        inode.size.set(size);
        changed = true;
    }
    if file_type == FileType::Symlink
        && let Some(why) = target_problem(inode)
    {
        state.found(IssueKind::SymlinkTarget, place, why);
        return Ok(Verdict::Clear);
    }
    let mapped = matches!(file_type, FileType::Regular | FileType::Directory);
    let root = match extents::root_problem(inode) {
        None if !mapped && inode.extent_count > 0 => Some("extents in an inode that has no content".into()),
        problem => problem,
    };
    if let Some(why) = root {
        state.found(IssueKind::ExtentRoot, place, why);
        (inode.extent_depth, inode.extent_count) = (0, 0);
        if mapped {
            inode.inline.fill(0);
        }
        changed = true;
    }
    if mapped {
        let mut visitor = Claim { nid, buckets: file_type == FileType::Directory };
        changed |= extents::walk(state, inode, &mut visitor)?;
    }
    changed |= xattr::check(state, inode)?;
    if file_type == FileType::Symlink
        && let Some(why) = target_problem(inode).or_else(|| long_target_problem(state, inode))
    {
        // The attributes went, and the target with them; or it never was one of them.
        state.found(IssueKind::SymlinkTarget, place, why);
        return Ok(Verdict::Clear);
    }
    Ok(if changed { Verdict::Changed } else { Verdict::Keep })
}

/// Claims the blocks of the tree; in a directory also the buckets.
struct Claim {
    nid: Nid,
    buckets: bool,
}

impl Visitor for Claim {
    fn node(&mut self, state: &mut State<'_>, block: u64) -> bool {
        let new = state.claim_metadata(block);
        if let Some(record) = state.records.get_mut(self.nid) {
            record.blocks += u64::from(new);
        }
        new
    }

    fn run(&mut self, state: &mut State<'_>, run: &mut Run) -> Result<bool> {
        if !self.buckets {
            return Ok(true);
        }
        if !state.claims.none_of(run.block, run.len.into()) || !buckets::are_of(state, self.nid, run) {
            state.doubtful.push((self.nid, *run));
            return Ok(true);
        }
        buckets::claim(state, self.nid, run);
        Ok(true)
    }
}
