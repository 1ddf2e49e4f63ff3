//! What one round of the check knows so far, and how its findings are kept.

use super::dirs::Found;
use super::image::{BATCH, Bits, Image};
use super::issue::{Issue, IssueKind, Location, Outcome, Severity};
use super::records::Records;
use super::{Progress, Stage};
use crate::Result;
use crate::extent::Run;
use crate::format::{BLOCK_HEADER_SIZE, BLOCKS_PER_GROUP, BlockKind, Inode, Nid};
use crate::inode::FileType;
use crate::superblock::{group_blocks, group_start};
use std::collections::{BTreeMap, HashSet};

/// Issues kept at the most; further ones are only counted.
const MOST_ISSUES: usize = 100_000;

/// All that was found, over all rounds.
#[derive(Default)]
pub(super) struct Findings {
    pub issues: Vec<Issue>,
    /// Issues found beyond those kept.
    pub more: u64,
    /// Those of them that stay as they are.
    pub more_left: u64,
    /// Mends planned in this round.
    pub mends: u64,
    /// One of those only counted stays, and is no minor one.
    worse_left: bool,
    seen: HashSet<(IssueKind, Location, String)>,
}

impl Findings {
    /// Begins a round: what is left of the one before will be found again.
    pub fn begin_round(&mut self) {
        self.mends = 0;
        self.more -= self.more_left;
        (self.more_left, self.worse_left) = (0, false);
    }

    /// Whether something stays as it is that a mount should not write upon.
    pub fn is_damage_left(&self) -> bool {
        let stays = |issue: &Issue| {
            matches!(issue.outcome, Outcome::Left(_)) && issue.kind.severity() > Severity::Minor
        };
        self.worse_left || self.issues.iter().any(stays)
    }

    /// Leaves all that would have been mended.
    pub fn leave(&mut self, why: &str) {
        for issue in self.issues.iter_mut().filter(|issue| issue.outcome == Outcome::Mendable) {
            issue.outcome = Outcome::Left(why.into());
        }
        self.worse_left |= self.more > self.more_left;
        self.more_left = self.more;
    }

    /// Adds a finding, once.
    pub fn add(&mut self, kind: IssueKind, place: Location, detail: String, outcome: Outcome) {
        if outcome == Outcome::Mendable {
            self.mends += 1;
        }
        if self.issues.len() >= MOST_ISSUES {
            self.more += 1;
            if matches!(outcome, Outcome::Left(_)) {
                self.more_left += 1;
                self.worse_left |= kind.severity() > Severity::Minor;
            }
        } else if self.seen.insert((kind, place, detail.clone())) {
            self.issues.push(Issue { kind, place, detail, outcome });
        }
    }
}

/// An entry that is to be put into a directory.
#[derive(Debug, Clone)]
pub(super) struct Move {
    pub dir: Nid,
    pub name: Vec<u8>,
    pub nid: Nid,
    pub file_type: FileType,
}

/// One round.
pub(super) struct State<'a> {
    pub image: &'a mut Image,
    pub findings: &'a mut Findings,
    pub progress: &'a mut Progress,
    /// Threads that look at what is to be checked.
    pub threads: usize,
    /// Blocks that belong to something.
    pub claims: Bits,
    /// Those of them that hold metadata.
    pub metadata: Bits,
    pub records: Records,
    /// Entries to be put elsewhere once everything is claimed.
    pub moves: Vec<Move>,
    /// Runs that seem to be a directory's buckets, and perhaps are not.
    pub doubtful: Vec<(Nid, Run)>,
    /// Entries to be removed: the directory, and what the entry leads to.
    pub removals: Vec<(Nid, Nid)>,
    /// Directories of whose buckets some are not mapped.
    pub holes: Vec<Nid>,
    /// Their buckets that were found, and that nothing leads to.
    pub lost_buckets: BTreeMap<Nid, Vec<Found>>,
    /// What is marked, and what is written by now, is held.
    noted: bool,
    /// Before which block no free row of so many begins: nothing is freed in a round but what is given back.
    first_free: BTreeMap<u32, u64>,
    /// How many blocks are free at the most, once all were taken.
    free: Option<u64>,
}

impl<'a> State<'a> {
    /// The state at the beginning of a pass.
    pub fn new(image: &'a mut Image, findings: &'a mut Findings, progress: &'a mut Progress) -> State<'a> {
        let blocks = image.sb.blocks.get();
        State {
            image,
            findings,
            threads: progress.threads,
            progress,
            claims: Bits::new(blocks),
            metadata: Bits::new(blocks),
            records: Records::default(),
            moves: Vec::new(),
            doubtful: Vec::new(),
            holes: Vec::new(),
            lost_buckets: BTreeMap::new(),
            removals: Vec::new(),
            noted: false,
            first_free: BTreeMap::new(),
            free: None,
        }
    }

    /// Notes something that the caller mends.
    pub fn found(&mut self, kind: IssueKind, place: Location, detail: String) {
        self.findings.add(kind, place, detail, Outcome::Mendable);
    }

    /// Notes something that stays as it is.
    pub fn left(&mut self, kind: IssueKind, place: Location, detail: String, why: &str) {
        self.findings.add(kind, place, detail, Outcome::Left(why.into()));
    }

    /// Claims a block for metadata; whether nobody had.
    pub fn claim_metadata(&mut self, block: u64) -> bool {
        self.metadata.add(block);
        self.claims.add(block)
    }

    /// Tells how far a stage has come.
    pub fn at(&mut self, stage: Stage, done: u64, total: u64) {
        self.progress.at(stage, done, total);
    }

    /// Frees the NAT entry of a nid; its generation stays.
    pub fn free_nid(&mut self, nid: Nid) -> Result<()> {
        if let Some(record) = self.records.get_mut(nid) {
            record.place = 0;
            record.kind = 0;
        }
        self.write_nat(nid)
    }

    /// Writes the NAT entry as the record has it.
    pub fn write_nat(&mut self, nid: Nid) -> Result<()> {
        use zerocopy::IntoBytes;
        let (index, at) = crate::format::nat_place(nid);
        let (Some(block), Some(record)) = (self.records.nat_block(index), self.records.get(nid)) else {
            return Ok(());
        };
        let Ok(mut bytes) = self.image.get(block, BlockKind::Nat) else { return Ok(()) };
        bytes[at..at + crate::format::NAT_ENTRY_SIZE].copy_from_slice(record.entry().as_bytes());
        self.image.put(block, BlockKind::Nat, bytes)
    }

    /// The inode of a nid that has a sound one.
    pub fn inode(&self, nid: Nid) -> Option<Inode> {
        let record = self.records.get(nid).filter(|r| r.place != 0)?;
        let (block, slot) = record.at();
        self.image.inode(block, slot).ok().filter(|inode| inode.nid.get() == nid)
    }

    /// Writes the inode of a nid.
    pub fn put_inode(&mut self, nid: Nid, inode: &Inode) -> Result<()> {
        let Some(record) = self.records.get(nid) else { return Ok(()) };
        let (block, slot) = record.at();
        self.image.put_inode(block, slot, inode)
    }

    /// Calls `visit` with the bytes of each bitmap block, or none where it does not verify.
    pub fn bitmaps(
        &mut self,
        mut visit: impl FnMut(&mut Self, u64, Result<&[u8], &str>) -> Result<()>,
    ) -> Result<()> {
        let groups = self.image.sb.groups.get();
        let mut group = 0;
        while group < groups {
            let now: Vec<u64> = (group..groups.min(group + BATCH as u64)).collect();
            let blocks: Vec<u64> = now.iter().map(|g| group_start(&self.image.sb, *g)).collect();
            for ((group, block), read) in now.iter().zip(&blocks).zip(self.image.read_many(&blocks)) {
                let good = read.and_then(|bytes| {
                    self.image.verify(*block, BlockKind::Bitmap, &bytes)?;
                    match super::image::foreign(&bytes, *group, 0) {
                        None => Ok(bytes),
                        Some(why) => Err(why),
                    }
                });
                visit(self, *group, good.as_deref().map_err(String::as_str))?;
            }
            group += now.len() as u64;
        }
        Ok(())
    }

    /// Has nobody else take what is claimed by now, in this round or a later one: what a mend takes something from is led to
    /// on the device until the mend is home. To be used once every claim is made.
    pub fn hold_claims(&mut self) {
        self.image.held.add_those_of(&self.claims);
    }

    /// Has nobody take what is marked now, whatever is marked from now on, nor what the plan has written: it would go over
    /// what is put there.
    pub fn note_taken(&mut self) -> Result<()> {
        if self.noted {
            return Ok(());
        }
        self.noted = true;
        for block in self.image.device.blocks_written() {
            self.image.held.add(block);
        }
        self.bitmaps(|state, group, bytes| {
            // Where the marks are lost the claims alone count.
            let Ok(bytes) = bytes else { return Ok(()) };
            let first = group_start(&state.image.sb, group);
            for at in 0..group_blocks(&state.image.sb, group) {
                if is_marked(bytes, at) {
                    state.image.held.add(first + at);
                }
            }
            Ok(())
        })
    }

    /// Takes a free row of blocks, of one group; none if there is no such row.
    pub fn allocate(&mut self, len: u32, metadata: bool) -> Result<Option<u64>> {
        let row = u64::from(len);
        // Where there is no shorter row there is no longer one.
        let before = self.first_free.range(..=len).map(|(_, block)| *block).max();
        self.note_taken()?;
        let found = self.find_free(before.unwrap_or(self.image.sb.groups_start.get()), row);
        self.first_free.insert(len, found.map_or(u64::MAX, |start| start + row));
        let Some(start) = found else {
            if len == 1 {
                self.free = Some(0);
            }
            return Ok(None);
        };
        self.free = self.free.map(|free| free.saturating_sub(row));
        self.claims.add_all(start, row);
        if metadata {
            self.metadata.add_all(start, row);
            self.image.fresh.extend(start..start + row);
        }
        Ok(Some(start))
    }

    /// The first free row of so many blocks that begins at a block or behind it.
    fn find_free(&self, from: u64, len: u64) -> Option<u64> {
        let sb = &self.image.sb;
        for group in (from - sb.groups_start.get()) / BLOCKS_PER_GROUP..sb.groups.get() {
            let (first, mut free) = (group_start(sb, group), 0);
            for block in from.max(first + 1)..first + group_blocks(sb, group) {
                #[cfg(all(test, not(any(loom, shuttle))))]
                super::tests::PROBED.set(super::tests::PROBED.get() + 1);
                let taken = self.claims.has(block) || self.image.held.has(block);
                free = if taken { 0 } else { free + 1 };
                if free == len {
                    return Some(block + 1 - len);
                }
            }
        }
        None
    }

    /// Takes so many free blocks for metadata, wherever they lie; none, and nothing is taken, where there are fewer.
    pub fn allocate_each(&mut self, count: usize) -> Result<Option<Vec<u64>>> {
        // However many ask for more than there are: all are taken once to see that.
        if self.free.is_some_and(|free| free < count as u64) {
            return Ok(None);
        }
        let mut blocks = Vec::new();
        while blocks.len() < count {
            let Some(block) = self.allocate(1, true)? else {
                self.give_back(&blocks);
                return Ok(None);
            };
            blocks.push(block);
        }
        Ok(Some(blocks))
    }

    /// Gives blocks back that were taken for metadata in this round, and not written: others are in want of them.
    pub fn give_back(&mut self, blocks: &[u64]) {
        for block in blocks {
            self.claims.remove(*block);
            self.metadata.remove(*block);
            self.image.fresh.remove(block);
        }
        self.free = self.free.map(|free| free + blocks.len() as u64);
        let Some(lowest) = blocks.iter().min() else { return };
        for (len, before) in &mut self.first_free {
            // A row may begin that far before it.
            let first = (lowest + 1).saturating_sub(u64::from(*len)).max(self.image.sb.groups_start.get());
            *before = first.min(*before);
        }
    }
}

/// Whether a bit of a bitmap block is set.
pub(super) fn is_marked(bytes: &[u8], at: u64) -> bool {
    bytes.get(BLOCK_HEADER_SIZE + (at / 8) as usize).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}
