//! Checking an image, and mending it.
//!
//! The check goes through the whole image and *plans* a repair as it goes: each mend is made on an overlay in
//! memory at once, so that what follows is judged as it will be. Rounds repeat until one finds nothing more to
//! mend; only then are bitmaps compared. A check without repair drops the plan; a repair carries it out.
//!
//! Most of an image is sound, and that it is, threads find out (`parallel`); what is not, one finds and mends, so
//! that issues and their order do not depend on how many look.
//!
//! An image that was not unmounted is checked as recovery would leave it; a repair runs recovery first. One whose journal
//! was given up is marked as damaged from then on until it is checked.
//!
//! What this leaves to others: replaying the journal (recovery), locking the image (the caller
//! does, for the time of the call), talking to the user.
//!
//! # Invariants
//! - Without `repair` nothing is written to the device.
//! - A repair that is interrupted at any write leaves an image that a second repair completes: the superblock
//!   says "damaged" before the first change and until the last; changed blocks go by way of the double-write
//!   area, so that none is ever torn; copies of data are complete before anything leads to them.
//! - Everything ends, whatever the image holds: chains and trees are bounded by claims, rounds by a number.
//! - Memory: three bits a block of the image, some 80 bytes an inode, 24 bytes for each row of blocks that gets a
//!   copy, some megabytes for each thread, the first 100,000 issues, and the blocks that the plan changes: 64 MiB of
//!   them in memory, the rest in a temporary file without a name (under `TMPDIR`), for some sixty bytes of memory each.

mod batches;
mod bitmaps;
mod data;
mod dirs;
mod extents;
mod image;
mod inodes;
mod issue;
mod links;
mod nat;
mod parallel;
mod records;
mod recover;
mod repair;
mod seats;
mod state;
mod xattr;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use issue::{Issue, IssueKind, Location, Outcome, Severity};

use crate::device::{BLOCK_SIZE, Overlay};
use crate::format::{STATE_CLEAN, STATE_DAMAGED, STATE_MOUNTED};
use crate::inode::FileType;
use crate::sync::Arc;
use crate::volume::Media;
use crate::{Result, superblock};
use image::Image;
use state::{Findings, State};
use std::time::{Duration, Instant};

/// Rounds at the most. Two or three are usual for a damaged image.
const ROUNDS: usize = 12;

/// Bytes of changed blocks that the plan keeps in memory.
const PLAN_MEMORY: usize = 64 << 20;

/// What the check is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Stage {
    /// Reading the node address table.
    Nat,
    /// Looking for what lost its pointer.
    Salvage,
    /// Inodes and their metadata.
    Inodes,
    /// Directories.
    Directories,
    /// File data.
    Data,
    /// Numbers of names.
    Links,
    /// Bitmaps.
    Bitmaps,
    /// Writing the repair.
    Repair,
}

/// Is told the stage, how much of it is done, and of how much.
pub type ProgressFn = Arc<dyn Fn(Stage, u64, u64) + Send + Sync>;

/// What to do.
#[derive(Clone, Default)]
pub struct Options {
    /// Mend what can be mended; otherwise nothing is written.
    pub repair: bool,
    /// With `repair`: give up a journal that is missing, or what lies beyond its damage. The image is then as of its
    /// last checkpoint, or as far as the journal is whole.
    pub discard_journal: bool,
    /// Threads that look at the image, besides the one that calls; 0: as many as there are cores.
    pub threads: usize,
    /// Called now and then once the check has taken two seconds.
    pub progress: Option<ProgressFn>,
}

/// What there is on the image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Counts {
    /// Inodes, directories among them.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks of the allocation groups.
    pub blocks: u64,
    /// Those of them that belong to something.
    pub used: u64,
    /// Regular files that have blocks for data, written or reserved.
    pub with_data: u64,
    /// Rows of blocks that these are: as many as there are such files, where none is in pieces.
    pub rows: u64,
}

/// The outcome.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Report {
    /// What was found, in the order of finding.
    pub issues: Vec<Issue>,
    /// Further issues that were only counted.
    pub more: u64,
    /// What there is; after a repair, what there is then.
    pub counts: Counts,
}

impl Report {
    /// The exit status as in fsck(8): 0 clean, 1 everything mended, 4 something is left.
    pub fn status(&self) -> u8 {
        let mended = |issue: &Issue| issue.outcome == Outcome::Mended;
        match (self.issues.is_empty(), self.issues.iter().all(mended)) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 4,
        }
    }

    /// The issues of a kind.
    pub fn of(&self, kind: IssueKind) -> impl Iterator<Item = &Issue> {
        self.issues.iter().filter(move |issue| issue.kind == kind)
    }
}

/// How the check is run: with how many threads, and when it tells how far it has come.
struct Progress {
    threads: usize,
    tell: Option<ProgressFn>,
    next: Instant,
}

impl Progress {
    fn new(options: &Options) -> Progress {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = if options.threads == 0 { cores() } else { options.threads };
        let next = Instant::now() + Duration::from_secs(2);
        Progress { threads, tell: options.progress.clone(), next }
    }

    fn at(&mut self, stage: Stage, done: u64, total: u64) {
        let Some(tell) = &self.tell else { return };
        let now = Instant::now();
        if now >= self.next {
            self.next = now + Duration::from_millis(200);
            tell(stage, done, total);
        }
    }
}

/// Checks an image that nobody else uses.
///
/// # Errors
/// [`crate::Error::Refused`] if it is no image, or none that this version can check; errors of the device.
pub fn check(media: &Media, options: &Options) -> Result<Report> {
    let mut progress = Progress::new(options);
    let mut findings = Findings::default();
    let mut sb = superblock::read(&*media.device)?;
    superblock::check_checkable(&sb)?;
    let unclean = sb.state.get() == STATE_MOUNTED;
    if unclean && options.repair {
        if !recover::carry_out(media, options.discard_journal, &mut findings)? {
            return Ok(finish(findings, Counts::default()));
        }
        sb = superblock::read(&*media.device)?;
    }
    let overlay = Arc::new(Overlay::new(Arc::clone(&media.device), PLAN_MEMORY / BLOCK_SIZE));
    if unclean && !options.repair && !recover::onto(&overlay, media, &sb, &mut findings)? {
        return Ok(finish(findings, Counts::default()));
    }
    let mut image = Image::new(overlay, sb);
    if !unclean {
        // A crash may tear the copy that is being written, or leave anything in the areas; a clean image has
        // neither.
        check_copies(&image, &mut findings);
        recover::check_areas(&image, &mut findings)?;
    }
    // One whose journal was given up a moment ago is marked for that alone.
    if sb.state.get() == STATE_DAMAGED && !unclean {
        let detail = "damage was found earlier, or a repair was interrupted".into();
        findings.add(IssueKind::MarkedDamaged, Location::default(), detail, Outcome::Mendable);
        repair::resume(&image)?;
    }
    let counts = plan(&mut image, &mut findings, &mut progress)?;
    let issues = &mut findings.issues;
    let stays =
        |issue: &Issue| matches!(issue.outcome, Outcome::Left(_)) && issue.kind.severity() > Severity::Minor;
    let damaged = issues.iter().any(stays);
    if damaged {
        for mark in issues.iter_mut().filter(|issue| issue.kind == IssueKind::MarkedDamaged) {
            mark.outcome = Outcome::Left(mark.kind.mending().into());
        }
    }
    if options.repair && recover::make_area_whole(&*media.device, issues) {
        for issue in issues.iter_mut().filter(|issue| issue.outcome == Outcome::Mendable) {
            issue.outcome = Outcome::Mended;
        }
        if issues.iter().any(|issue| issue.outcome == Outcome::Mended) {
            let state = if damaged { STATE_DAMAGED } else { STATE_CLEAN };
            repair::carry_out(&*media.device, &image, state, &mut progress)?;
        }
    }
    Ok(finish(findings, counts))
}

fn finish(findings: Findings, counts: Counts) -> Report {
    Report { issues: findings.issues, more: findings.more, counts }
}

/// Whether both copies of the superblock are whole.
fn check_copies(image: &Image, findings: &mut Findings) {
    for (at, copy) in superblock::copies(&*image.device).into_iter().enumerate() {
        if let Err(why) = copy {
            let place = Location::block(crate::format::SUPERBLOCK_BLOCKS[at]);
            findings.add(IssueKind::SuperblockCopy, place, why, Outcome::Mendable);
        }
    }
}

/// Plans the repair: rounds until nothing is left to mend.
fn plan(image: &mut Image, findings: &mut Findings, progress: &mut Progress) -> Result<Counts> {
    for _ in 0..ROUNDS {
        findings.mends = 0;
        let (counts, settled) = round(image, findings, progress)?;
        if settled {
            return Ok(counts);
        }
    }
    for issue in findings.issues.iter_mut().filter(|issue| issue.outcome == Outcome::Mendable) {
        issue.outcome = Outcome::Left("mending it brought up more each time: repair again".into());
    }
    Ok(Counts::default())
}

/// One round; whether nothing is left to mend.
fn round(image: &mut Image, findings: &mut Findings, progress: &mut Progress) -> Result<(Counts, bool)> {
    let mut counts = Counts::default();
    let mut state = State::new(image, findings, progress);
    if !nat::claim_regions(&mut state) {
        return Ok((counts, true));
    }
    nat::check(&mut state)?;
    inodes::check(&mut state)?;
    dirs::check(&mut state)?;
    links::check_orphans(&mut state)?;
    (counts.with_data, counts.rows) = data::check(&mut state)?;
    if links::check_root(&mut state)? {
        links::check(&mut state)?;
    }
    for (_, record) in state.records.used() {
        counts.inodes += u64::from(record.kind != 0);
        counts.directories += u64::from(record.file_type() == Some(FileType::Directory));
    }
    if state.findings.mends > 0 {
        return Ok((counts, false));
    }
    bitmaps::check(&mut state, &mut counts)?;
    Ok((counts, true))
}
