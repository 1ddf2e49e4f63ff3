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
//! What the device fails to read is no damage: nobody knows what it holds, and a copy of the device may. The check ends
//! there, and nothing is mended.
//!
//! What this leaves to others: replaying the journal (recovery), locking the image (the caller
//! does, for the time of the call), talking to the user.
//!
//! # Invariants
//! - Without `repair` nothing is written to the device.
//! - A repair that is interrupted at any write leaves an image that a second repair completes: the superblock
//!   says "damaged" before the first change and until the last; changed blocks go by way of the double-write
//!   area, so that none is ever torn; copies of data are complete before anything leads to them; names that move from one
//!   block of a directory to another stand in one of them or in a block of their own, as long as there is a free one.
//! - Everything ends, whatever the image holds: chains and trees are bounded by claims, rounds by a number.
//! - Memory: three bits a block of the image, some 80 bytes an inode, 24 bytes for each row of blocks that gets a
//!   copy, some 200 bytes for each name that moves within its directory, some megabytes for each thread, the first 100,000
//!   issues, and the blocks that the plan changes: 64 MiB of them in memory, the rest in a temporary file without a name
//!   (under `TMPDIR`), for some sixty bytes of memory each.

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
use crate::{Error, Result, superblock};
use image::Image;
use state::{Findings, State};
use std::time::{Duration, Instant};

/// Rounds at the most. Two or three are usual for a damaged image.
const ROUNDS: usize = 12;

/// Why everything is left where something cannot be read.
const UNREADABLE: &str = "the device fails to read: copy the image to a sound device, then repair the copy";

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
    /// Those of them that stay as they are.
    pub more_left: u64,
    /// What there is; after a repair, what there is then.
    pub counts: Counts,
}

impl Report {
    /// The exit status as in fsck(8): 0 clean, 1 everything mended, 4 something is left.
    pub fn status(&self) -> u8 {
        let mended = |issue: &Issue| issue.outcome == Outcome::Mended;
        match (self.issues.is_empty(), self.more_left == 0 && self.issues.iter().all(mended)) {
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
    let unclean = sb.state.get() == STATE_MOUNTED || media.ring.is_ahead_of(&sb, &media.device)?;
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
    // What was given up stays where it was.
    if !unclean || sb.state.get() == STATE_DAMAGED {
        // A crash may tear the copy that is being written, or leave anything in the areas; a clean image has
        // neither.
        check_copies(&image, &mut findings);
        recover::check_areas(&image, &mut findings)?;
    }
    let mut saved = Vec::new();
    // One whose journal was given up a moment ago is marked for that alone.
    if sb.state.get() == STATE_DAMAGED && !unclean {
        let detail = "damage was found earlier, or a repair was interrupted".into();
        findings.add(IssueKind::MarkedDamaged, Location::default(), detail, Outcome::Mendable);
        saved = repair::resume(&image)?;
    }
    let (counts, end) = plan(&mut image, &mut findings, &mut progress)?;
    match end {
        End::Settled => {}
        End::Layout => findings.leave(IssueKind::Layout.mending()),
        End::Endless => findings.leave("mending it brought up more each time: repair again"),
        End::Unreadable => findings.leave(UNREADABLE),
    }
    let damaged = findings.is_damage_left();
    if damaged {
        for mark in findings.issues.iter_mut().filter(|issue| issue.kind == IssueKind::MarkedDamaged) {
            mark.outcome = Outcome::Left(mark.kind.mending().into());
        }
    }
    if options.repair && end != End::Unreadable && recover::make_area_whole(&*media.device, &mut findings) {
        for issue in findings.issues.iter_mut().filter(|issue| issue.outcome == Outcome::Mendable) {
            issue.outcome = Outcome::Mended;
        }
        let mended = findings.issues.iter().any(|issue| issue.outcome == Outcome::Mended);
        let state = if damaged { STATE_DAMAGED } else { STATE_CLEAN };
        if end == End::Settled && mended {
            repair::carry_out(&*media.device, &image, &saved, state, &mut progress)?;
        } else if damaged {
            repair::mark(&*media.device, &image)?;
        }
    }
    Ok(finish(findings, counts))
}

fn finish(findings: Findings, counts: Counts) -> Report {
    Report { issues: findings.issues, more: findings.more, more_left: findings.more_left, counts }
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

/// How a plan ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nothing is left to mend.
    Settled,
    /// Regions overlap.
    Layout,
    /// Each round has found more.
    Endless,
    /// The device has failed to read what is looked at.
    Unreadable,
}

/// Plans the repair: rounds until nothing is left to mend.
fn plan(image: &mut Image, findings: &mut Findings, progress: &mut Progress) -> Result<(Counts, End)> {
    for _ in 0..ROUNDS {
        findings.begin_round();
        let mut counts = Counts::default();
        let end = round(image, findings, progress, &mut counts)?;
        if image.has_unreadable() {
            // Nothing else was wrong until then: that is no clean image.
            let nothing = findings.issues.is_empty();
            let failed =
                Error::Device { context: "checking what could not be read at times", errno: libc::EIO };
            return if nothing { Err(failed) } else { Ok((Counts::default(), End::Unreadable)) };
        }
        if let Some(end) = end {
            return Ok((counts, end));
        }
    }
    Ok((Counts::default(), End::Endless))
}

/// One round; how the plan ends, if it does. The first part that meets what cannot be read is the last: later ones would
/// take for lost what is not.
fn round(
    image: &mut Image,
    findings: &mut Findings,
    progress: &mut Progress,
    counts: &mut Counts,
) -> Result<Option<End>> {
    let mut state = State::new(image, findings, progress);
    if !nat::claim_regions(&mut state) {
        return Ok(Some(End::Layout));
    }
    let parts: [fn(&mut State<'_>) -> Result<()>; 4] =
        [nat::check, inodes::check, dirs::check, links::check_orphans];
    for part in parts {
        part(&mut state)?;
        if state.image.has_unreadable() {
            return Ok(None);
        }
    }
    (counts.with_data, counts.rows) = data::check(&mut state)?;
    if state.image.has_unreadable() {
        return Ok(None);
    }
    if links::check_root(&mut state)? {
        links::check(&mut state)?;
    }
    for (_, record) in state.records.used() {
        counts.inodes += u64::from(record.kind != 0);
        counts.directories += u64::from(record.file_type() == Some(FileType::Directory));
    }
    if state.findings.mends > 0 {
        return Ok(None);
    }
    // Before the bitmaps are those of what is to be: what is freed by then is others' until it is home.
    if !state.image.leaving.is_empty() {
        state.note_taken()?;
    }
    bitmaps::check(&mut state, counts)?;
    dirs::find_room(&mut state)?;
    Ok(Some(End::Settled))
}
