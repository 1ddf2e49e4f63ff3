//! Tables of ids of a stated size, and what one thread's creations and removals cost on them.

use super::counters::{self, Counters};
use crate::reproduce::bed::{Bed, Journal, Mounted};
use crate::reproduce::run::{OURS, Run, options};
use narufs_bench::Result;
use narufs_bench::stats::median;
use narufs_bench::target::{How, Session, Target};
use narufs_engine::format::{INODES_PER_BLOCK, NAT_PER_BLOCK};
use std::time::Instant;

/// Files that F2FS has to change in one go, beyond which each of its operations sees to the list of free ids: 100,000
/// entries, and some.
pub const CHANGED: u64 = 101_000;
/// Up to so many ids are those of files.
const FILES: u64 = 1_000_000;
/// Files for which there is room beside them.
const MORE: u64 = 400_000;
/// Names in a directory.
const NAMES: u64 = 1000;
/// A commit of the mount's own, after which nothing counts as changed, comes as seldom as F2FS's checkpoint by time.
const MEMORY: &[&str] = &["memory=128M", "metadata_memory=1G", "commit=60"];
/// A journal that need not be emptied while anything is measured.
const RING: u64 = 256 << 20;

/// How many files are made before anything is measured: F2FS writes its table home when a tenth of it has changed, so that
/// where a tenth is less, it never has so many entries that were changed.
pub fn changed_before(ids: u64) -> u64 {
    if ids / 10 > CHANGED { CHANGED } else { 0 }
}

/// An image with a table that has `ids` ids in use, all but those of the files that each run makes before.
///
/// # Errors
/// What the file system says.
pub fn make(run: &Run, ids: u64) -> Result<Bed> {
    run.stop.check()?;
    run.progress.doing("ids", &format!("a table of {ids}"));
    let there = ids - changed_before(ids);
    // An inode takes a sixteenth of a block, a name a hundredth or so; and room for the rest. The image's index has a
    // place for each block of a table that names so many inodes as fit.
    let files = if ids <= FILES { ids + MORE } else { MORE };
    let blocks =
        (files / 8 + (1 << 15)).max(ids.div_ceil(INODES_PER_BLOCK as u64) * 9 / 8 + ids / NAT_PER_BLOCK);
    let bed = Bed::thin(&run.memory, blocks * 4096, Journal::Nvm, RING)?;
    let mut mounted = bed.mount(&options(OURS, MEMORY), None)?;
    mounted.library.enter("before")?;
    let filled = match ids <= FILES {
        true => mounted.library.session().and_then(|mut session| files_in(run, &mut session, "table", there)),
        false => entries(run, &mounted, there / NAT_PER_BLOCK),
    };
    mounted.unmount()?;
    filled.map(|()| bed)
}

/// Makes so many blocks of entries.
fn entries(run: &Run, mounted: &Mounted, blocks: u64) -> Result<()> {
    let each = 4096;
    for first in (0..blocks).step_by(each) {
        run.stop.check()?;
        counters::fill(&mounted.fs, (blocks - first).min(each as u64))?;
    }
    Ok(())
}

/// Makes so many files below a new directory.
fn files_in<S: Session>(run: &Run, session: &mut S, dir: &str, count: u64) -> Result<()> {
    session.mkdir(dir)?;
    for n in 0..count {
        if n.is_multiple_of(NAMES) {
            run.stop.check()?;
            session.mkdir(&format!("{dir}/{}", n / NAMES))?;
        }
        let file = session.create(&format!("{dir}/{}/{n}", n / NAMES), How::Write)?;
        session.close(file)?;
    }
    Ok(())
}

/// A mount of a copy of the image, as F2FS is after so many files were made; nothing was synced.
///
/// # Errors
/// What the file system says.
pub fn mount(run: &Run, bed: &Bed, variant: &str, ids: u64) -> Result<(Bed, Mounted)> {
    let copy = bed.copy()?;
    let mut mounted = copy.mount(&options(variant, MEMORY), None)?;
    mounted.library.enter("run")?;
    files_in(run, &mut mounted.library.session()?, "changed", changed_before(ids))?;
    Ok((copy, mounted))
}

/// What one thread's creations and removals cost, and ids of that: medians of many turns, of which those in which
/// something else had the core are few.
///
/// # Errors
/// What the file system says.
pub fn one_thread(run: &Run, bed: &Bed, variant: &str, ids: u64) -> Result<Vec<(&'static str, f64)>> {
    let (count, turns) = (run.size(250, 50), run.size(21, 7));
    let (_copy, mounted) = mount(run, bed, variant, ids)?;
    let mut session = mounted.library.session()?;
    session.mkdir("own")?;
    let mut turned: Vec<(&'static str, f64)> = Vec::new();
    let each = |begun: Instant| begun.elapsed().as_nanos() as f64 / count as f64;
    let all = Counters::begin(&mounted.fs);
    for _ in 0..turns {
        run.stop.check()?;
        let counters = Counters::begin(&mounted.fs);
        let begun = Instant::now();
        for n in 0..count {
            let file = session.create(&format!("own/{n}"), How::Write)?;
            session.close(file)?;
        }
        turned.push(("create ns", each(begun)));
        let begun = Instant::now();
        (0..count).try_for_each(|n| session.unlink(&format!("own/{n}")))?;
        turned.push(("unlink ns", each(begun)));
        turned.extend(counters.done(&mounted.fs).into_iter().filter(|(what, _)| what.ends_with(" ns")));
    }
    let of = |name: &str| {
        let values: Vec<f64> =
            turned.iter().filter(|(what, _)| *what == name).map(|(_, value)| *value).collect();
        median(&values)
    };
    let counted = all.done(&mounted.fs);
    let mut found = Vec::new();
    if let Some((made, removed)) = of("create ns").zip(of("unlink ns")) {
        let pair = made + removed;
        found.extend([
            ("pairs/s", 1e9 / pair),
            ("pair ns", pair),
            ("create ns", made),
            ("unlink ns", removed),
        ]);
    }
    if let Some((take, free)) = of("take ns").zip(of("free ns")) {
        // What was removed gives its ids back once that is committed.
        let back = Counters::begin(&mounted.fs);
        mounted.library.sync_all()?;
        let ns =
            back.done(&mounted.fs).iter().find(|(what, _)| *what == "free ns").map_or(0.0, |(_, ns)| *ns);
        let free = free + ns / (count * turns) as f64;
        let id = take + free;
        found.extend([("ids/s", 1e9 / id.max(1.0)), ("id ns", id), ("take ns", take), ("free ns", free)]);
    }
    found.extend(counted.into_iter().filter(|(what, _)| !what.ends_with(" ns")));
    Ok(found)
}
