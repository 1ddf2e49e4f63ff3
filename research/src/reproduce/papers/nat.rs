//! Inode ids: creations and removals by threads, in directories of their own and in one; and what a pair of them costs
//! against the size of the table, on one core.

use super::said;
use crate::reproduce::bed::{Bed, Journal};
use crate::reproduce::found::{Account, Cells, Goal, Wanted};
use crate::reproduce::model;
use crate::reproduce::run::{COLUMNS, OURS, Run, figures, options};
use narufs_bench::stats::median;
use narufs_bench::target::{How, Library, Session, Target};
use narufs_bench::{Params, Result};
use std::time::{Duration, Instant};

const VARIANTS: [&str; 3] = [OURS, "ids-global", "ids-scan"];
const MEMORY: &[&str] = &["memory=128M", "metadata_memory=1G"];
const RING: u64 = 64 << 20;
/// Names in a directory.
const NAMES: u64 = 1000;
/// Entries in memory above which F2FS sees to its list with each operation.
const LOOKED_AT: u64 = 100_000;
const DIR: &str = "table";

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
        "MWCL, MWCM, MWUL and MWUM (creations and removals of empty files, in private directories and in one), image and \
         journal in memory.",
        "Against the size of the table: an image with so many files; then one thread makes files and removes them, and \
         syncs, so that their ids are free again. A pair is one creation and one removal; medians of five turns. Before, \
         files are looked at until 100,000 entries of the table are in memory: F2FS sees to its list of free ids with each \
         operation from there on.",
    ]);
    account.differs = said(&[
        "The paper's 40 cores are not there; the cost against the table's size needs one core, and it is what grows in the \
         paper's scans.",
        "The paper's gain of 41 times is of removals by 40 threads that scan one after the other; here it is asked for at a \
         stated size of the table.",
    ]);
    let sizes: &[u64] = run.size(&[10_000, 100_000, 1_000_000], &[1000, 8000]);
    let pairs = against_size(run, &mut account, sizes)?;
    let (least, most) = (sizes[0], sizes[sizes.len() - 1]);
    let ratio = pairs.ratio(OURS, "ids-scan", most, "pairs/s");
    let what = format!("pairs at {most} ids: times ids-scan");
    account.goals.push(Goal::new(what, Wanted::AtLeast(41.0), ratio).published(41.0));
    let cost = |ids: u64| pairs.median(OURS, ids, "pair ns");
    let growth = cost(most).zip(cost(least)).map(|(most, least)| most / least);
    let what = format!("a pair of ours at {most} ids, of one at {least}");
    account.goals.push(Goal::new(what, Wanted::AtMost(1.5), growth));
    let columns =
        [("pair ns", "a pair, ns", 0), ("create ns", "to make, ns", 0), ("unlink ns", "to remove, ns", 0)];
    account.show("Cost against the table", ["ids", "nanoseconds a pair"], &pairs, &columns);
    for workload in ["MWCL", "MWCM", "MWUL", "MWUM"] {
        let cells = by_threads(run, &mut account, workload)?;
        account.show(workload, ["threads", "operations a second"], &cells, &COLUMNS);
        model::extend(run, &mut account, workload, &cells);
    }
    Ok(account)
}

fn by_threads(run: &Run, account: &mut Account, workload: &'static str) -> Result<Cells> {
    let places: &[u64] = run.size(&[1, 2, 4, 8, 16], &[1, 2, 8]);
    let params = Params { files: Some(run.size(100_000, 2000)), ..Params::default() };
    let time = Duration::from_secs(run.size(10, 1));
    run.in_turn(account, workload, &VARIANTS, places, |variant, threads| {
        let bed =
            Bed::make(&run.memory, run.size(512 << 20, 128 << 20), Journal::Nvm, run.size(RING, RING / 4))?;
        let mut mounted = bed.mount(&options(variant, MEMORY), None)?;
        let records = run.load(&mut mounted, workload, threads, time, &params);
        let unmounted = mounted.unmount();
        let found = records?.first().map(figures).unwrap_or_default();
        unmounted.map(|()| found)
    })
}

fn against_size(run: &Run, account: &mut Account, sizes: &[u64]) -> Result<Cells> {
    let (count, turns) = (run.size(2000, 300), run.size(5, 2));
    let mut beds = Vec::new();
    for &ids in sizes {
        run.stop.check()?;
        run.progress.doing("ids", &format!("making {ids} files"));
        // An inode takes a sixteenth of a block, a name a hundredth or so; and room for the rest.
        let bytes = (ids / 8 + (1 << 15)) * 4096;
        let bed = Bed::make(&run.memory, bytes, Journal::Nvm, RING)?;
        let mut mounted = bed.mount(&options(OURS, MEMORY), None)?;
        mounted.library.enter(DIR)?;
        let filled = fill(run, &mounted.library, ids);
        let unmounted = mounted.unmount();
        filled?;
        unmounted?;
        beds.push((ids, bed));
    }
    run.in_turn(account, "pairs", &VARIANTS, sizes, |variant, ids| {
        let Some((_, bed)) = beds.iter().find(|(size, _)| *size == ids) else { return Ok(Vec::new()) };
        let mut mounted = bed.mount(&options(variant, MEMORY), None)?;
        mounted.library.enter_again(DIR)?;
        let pairs =
            look(run, &mounted.library, ids).and_then(|()| pairs(run, &mounted.library, count, turns));
        let unmounted = mounted.unmount();
        let (made, removed) = pairs?;
        let pair = made + removed;
        let found =
            vec![("pairs/s", 1e9 / pair), ("pair ns", pair), ("create ns", made), ("unlink ns", removed)];
        unmounted.map(|()| found)
    })
}

fn fill(run: &Run, library: &Library, ids: u64) -> Result<()> {
    let mut session = library.session()?;
    session.mkdir("own")?;
    for n in 0..ids {
        if n.is_multiple_of(NAMES) {
            run.stop.check()?;
            session.mkdir(&(n / NAMES).to_string())?;
        }
        let file = session.create(&format!("{}/{n}", n / NAMES), How::Write)?;
        session.close(file)?;
    }
    Ok(())
}

/// Looks at files of the table, as many as make F2FS see to its list.
fn look(run: &Run, library: &Library, ids: u64) -> Result<()> {
    let mut session = library.session()?;
    for n in 0..ids.min(LOOKED_AT) {
        if n.is_multiple_of(NAMES) {
            run.stop.check()?;
        }
        session.size(&format!("{}/{n}", n / NAMES))?;
    }
    Ok(())
}

/// Nanoseconds of a creation and of a removal.
fn pairs(run: &Run, library: &Library, count: u64, turns: u32) -> Result<(f64, f64)> {
    let mut session = library.session()?;
    let (mut made, mut removed) = (Vec::new(), Vec::new());
    let each = |begun: Instant| begun.elapsed().as_nanos() as f64 / count as f64;
    for _ in 0..turns {
        run.stop.check()?;
        let begun = Instant::now();
        for n in 0..count {
            let file = session.create(&format!("own/{n}"), How::Write)?;
            session.close(file)?;
        }
        made.push(each(begun));
        let begun = Instant::now();
        (0..count).try_for_each(|n| session.unlink(&format!("own/{n}")))?;
        removed.push(each(begun));
        // What is removed gives its id back once that is committed.
        library.sync_all()?;
    }
    Ok((median(&made).unwrap_or(0.0), median(&removed).unwrap_or(0.0)))
}
