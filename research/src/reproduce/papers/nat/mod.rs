//! Inode ids: what a creation and a removal cost against the size of the table, on one core; and both by threads, in
//! directories of their own and in one.

mod counters;
mod table;
mod threads;

use super::said;
use crate::reproduce::bed::Bed;
use crate::reproduce::found::{Account, Cells, Goal, Wanted};
use crate::reproduce::model;
use crate::reproduce::run::{OURS, Run};
use narufs_bench::Result;
use threads::{MADE, REMOVED};

const GLOBAL: &str = "ids-global";
const SCAN: &str = "ids-scan";
const VARIANTS: [&str; 3] = [OURS, GLOBAL, SCAN];
/// Ids of the largest table that F2FS makes unless it is told to: as many blocks of it, 31,200, as its checkpoint has bits
/// for. A block of it has 455 ids, one here 254.
const USUAL: u64 = 31_200 * 254;
/// Larger than that: F2FS makes such tables with `mkfs.f2fs -i`.
const EXTENDED: u64 = 72_000_000;

/// Runs it.
///
/// # Errors
/// The user's end of it; an image that cannot be made.
pub fn run(run: &Run) -> Result<Account> {
    let mut account = Account::new([
        "nat",
        "Inode ids for each core, and where the free ones are",
        "Enabling Metadata I/O Scalability in F2FS on a Manycore Server, 2022 (40 cores)",
        "What do creations and removals gain where each core has ids of its own, and where free ids are found without a \
         scan of the table?",
    ]);
    account.method = said(&[
        "Image and journal in memory. Tables in which nearly all ids are in use: up to 1,000,000 by files, beyond that by \
         entries alone, which is all of a file that a scan sees. Each run has a copy.",
        "One core: one thread makes 250 files and removes them, 21 times, and syncs at the end; figures are medians. A pair \
         is one creation and one removal. What ids take of it is told by clocks around the choice of an id and around its \
         return; the blocks of the table that were passed, and those that were read, are counted.",
        "F2FS sees to its list of free ids with each operation once 100,000 entries are in memory that were changed since \
         its last checkpoint, which comes when a tenth of the table was changed. Where a tenth is more, 101,000 files are \
         made first, and what is measured is what follows: of 100 operations that is so for 50 with 2,000,000 ids, for 87 \
         with 7,924,800, for 98 with 72,000,000. In smaller tables it scans when its list is empty, for a block's worth of \
         ids at a time.",
        "By threads: MWCL and MWUL (empty files are made, then removed, in private directories), MWCM and MWUM (in one), \
         on the table of 7,924,800, after the same 101,000 files; quickly, on a small one.",
    ]);
    account.differs = said(&[
        "The paper's gain of 41 times is of whole removals by 40 threads that scan one after the other. Such cores are not \
         here: the goal is asked of the ids alone, on one core, at a stated size, and whole files stand beside it; the \
         model has the 40 threads.",
        "A table of F2FS has its full size from the start and scans when nearly all of it is in use; here it grows by a \
         block when nothing is free. The baseline has it easier than F2FS: what, says the module.",
        "How large the paper's table was is not known here. A scan's cost is by blocks: 31,200 of them are the most that F2FS \
         makes by default, 14,196,000 ids there and 7,924,800 here; with mkfs.f2fs -i there are more.",
        "What the model misses: creations of F2FS share more than ids with each other (the lock of checkpoints, node pages, \
         the directory's own blocks), which is in the paper's 1.6 and 40; of the engine's other work nothing is shared by two \
         threads, so that ids-global's lock is all that would hold up 40. Over ids-scan a ratio is as large as the table.",
    ]);
    let sizes: &[u64] =
        run.size(&[10_000, 100_000, 1_000_000, 2_000_000, USUAL, EXTENDED], &[1000, 8000, 2_000_000]);
    let threads_on = run.size(USUAL, 8000);
    let mut beds = Vec::new();
    for &ids in sizes {
        beds.push((ids, table::make(run, ids)?));
    }
    against_size(run, &mut account, &beds, sizes)?;
    beds.retain(|(ids, _)| *ids == threads_on);
    for (ids, bed) in &beds {
        by_threads(run, &mut account, bed, *ids)?;
    }
    Ok(account)
}

/// The cost on one core, and the goals.
fn against_size(run: &Run, account: &mut Account, beds: &[(u64, Bed)], sizes: &[u64]) -> Result<()> {
    let cells = run.in_turn(account, "ids", &VARIANTS, sizes, |variant, ids| {
        let Some((_, bed)) = beds.iter().find(|(size, _)| *size == ids) else { return Ok(Vec::new()) };
        table::one_thread(run, bed, variant, ids)
    })?;
    let (least, most) = (sizes[0], sizes[sizes.len() - 1]);
    let usual = run.size(USUAL, most);
    for (ids, what, of) in [(usual, "ids", "ids/s"), (most, "pairs of files", "pairs/s")] {
        let ratio = cells.ratio(OURS, SCAN, ids, of);
        let what = format!("{what} with {ids} in use, one core: times {SCAN}");
        account.goals.push(Goal::new(what, Wanted::AtLeast(41.0), ratio).published(41.0));
    }
    for (of, what) in [("id ns", "an id"), ("pair ns", "a pair of files")] {
        let cost = |ids: u64| cells.median(OURS, ids, of);
        let growth = cost(most).zip(cost(least)).map(|(most, least)| most / least);
        let what = format!("{what} of ours with {most} in use, of one with {least}");
        account.goals.push(Goal::new(what, Wanted::AtMost(1.5), growth));
    }
    let ids = [("id ns", "an id, ns", 0), ("take ns", "to take, ns", 0), ("free ns", "to give back, ns", 0)];
    let axes = ["ids in use", "nanoseconds"];
    account.show("What ids take of a pair", axes, &cells, &ids);
    let counts = [
        ("passed", "blocks passed", 2),
        ("read", "blocks read", 4),
        ("scans", "scans", 4),
        ("waits", "waits", 4),
    ];
    account.tables.push(cells.table("Counted for each operation", axes[0], &counts));
    let files =
        [("pair ns", "a pair, ns", 0), ("create ns", "to make, ns", 0), ("unlink ns", "to remove, ns", 0)];
    account.show("What whole files take", axes, &cells, &files);
    Ok(())
}

fn by_threads(run: &Run, account: &mut Account, bed: &Bed, ids: u64) -> Result<()> {
    let places: &[u64] = run.size(&[1, 2, 8], &[1, 2]);
    for (made, removed, shared) in [("MWCL", "MWUL", false), ("MWCM", "MWUM", true)] {
        let title = format!("{made} {removed}");
        let cells = run.in_turn(account, &title, &VARIANTS, places, |variant, threads| {
            threads::measure(run, bed, (variant, ids), threads, shared)
        })?;
        for (workload, called) in [(made, MADE), (removed, REMOVED)] {
            let cells: Cells = cells.renamed(&called.into_iter().zip(NAMES).collect::<Vec<_>>());
            account.show(workload, ["threads", "operations a second"], &cells, &COLUMNS);
            let model = model::extend(run, account, workload, &cells);
            if workload == "MWUL" {
                let what = format!("MWUL, 40 threads on {ids} ids: times {SCAN}");
                let modelled = model.and_then(|model| model.ratio(OURS, SCAN));
                let goal = Goal::new(what, Wanted::AtLeast(41.0), None).published(41.0);
                account.goals.push(Goal { modelled, ..goal });
            }
        }
    }
    Ok(())
}

/// What the figures of a workload are called on its page.
const NAMES: [&str; 5] = ["ops/s", "p50 us", "p99 us", "passed", "waits"];
const COLUMNS: [(&str, &str, usize); 5] = [
    ("ops/s", "ops/s", 0),
    ("p50 us", "p50 us", 1),
    ("p99 us", "p99 us", 1),
    ("passed", "blocks passed", 1),
    ("waits", "waits for a scan", 3),
];
