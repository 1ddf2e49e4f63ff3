//! The journal: varmail and tokubench over the engine's own, over jbd2's design, over slots under locks and over the
//! published one without them, on memory that stands for NVM and on the device; and commits by more threads than cores.

use super::said;
use crate::manycore::published::{FINE, JBD2, PAPER};
use crate::reproduce::bed::{Bed, Journal};
use crate::reproduce::found::{Account, Cells, Goal, Wanted};
use crate::reproduce::model;
use crate::reproduce::run::{COLUMNS, OURS, Run, figures, options};
use crate::reproduce::slow::DRIVE;
use narufs_bench::{Params, Result};
use std::time::Duration;

/// Ours, ours without the journal of data, and the others, which have none.
const VARIANTS: [&str; 5] = [OURS, "data-ordered", JBD2, FINE, PAPER];
const MEMORY: &[&str] = &["memory=512M", "metadata_memory=128M"];

/// The published gains at 16 threads: workload, over jbd2, over slots under locks.
const PUBLISHED: [(&str, f64, f64); 2] = [("varmail", 2.9, 2.4), ("tokubench", 2.0, 1.7)];

/// What a journal and the data lie on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Media {
    /// Memory that stands for NVM, and a device that takes a stated time.
    NvmAndDrive,
    /// The same memory, and the machine's device.
    NvmAndDevice,
    /// The machine's device.
    Device,
}

/// Each, as titles name it.
const MEDIA: [(Media, &str); 3] = [
    (Media::NvmAndDrive, "journal on NVM, data on a drive as stated"),
    (Media::NvmAndDevice, "journal on NVM, data on the device at hand"),
    (Media::Device, "journal and data on the device at hand"),
];

/// Runs it.
///
/// # Errors
/// The user's end of it; an image that cannot be made.
pub fn run(run: &Run) -> Result<Account> {
    let mut account = Account::new([
        "journaling",
        "A journal without locks in byte-addressable memory",
        "Han, Design and Evaluation of a High-performance Journaling Scheme for Non-volatile Memory, 2020 (ext4, Linux \
         4.1.7, 24 cores, 256 GB, Intel P3700, 256 MB of DRAM that stands for NVM)",
        "What do a mail store and a maker of small files gain from a journal of inode-sized slots without locks, over \
         images of blocks in running transactions and over slots under locks?",
    ]);
    account.method = said(&[
        "varmail (Filebench's loop over files of 16 KB) and tokubench (files of 4 KB in a tree, the final sync inside \
         the time), each on a file system made anew, journal in shared memory that stands for NVM, and in the image.",
        "After each run everything is compared.",
        "Commits: DWSL (overwrite and fsync of private files) with more threads than cores.",
    ]);
    account.differs = said(&[
        "Sizes are smaller than the paper's 100,000 and 3 million files, so that each round is short; tokubench's ring is \
         in proportion, and both are as large for all variants.",
        "Data on a drive as stated: the image is in memory, and each write takes 200 us more, a read 100 us, a flush 1 ms, \
         sixteen requests at a time, which is a flash drive whose cache does not survive a loss of power. The paper's \
         P3700 answers in 20 us and needs no flush: its 24 cores wait for locks where two cores can only wait for a device.",
        "narufs logs the data of small synced writes too, as the paper's authors name for the future: its varmail does \
         not wait for the device where the others' data do, which is ext4's default mode. \"data-ordered\" is narufs \
         without that: what its journal alone is worth.",
        "What the model misses: two threads that wait for a drive hardly meet in a journal, so that the model has 24 of them \
         wait side by side in varmail, where the paper's came to 700 MB/s, and what held them up there it does not say. Nor \
         does it know that many share the commit of a transaction: 16 threads of jbd2 do more than two let it expect. The \
         locks of slots under locks, for which the paper's 24 cores wait, two cores do not wait for; how long they would have \
         to be held, says the table.",
    ]);
    for (media, called) in MEDIA {
        for (workload, over_jbd2, over_locks) in PUBLISHED {
            let title = title(workload, called);
            let cells = measure(run, &mut account, &title, workload, media)?;
            account.show(&title, ["threads", "operations a second"], &cells, &COLUMNS);
            if media == Media::Device {
                continue;
            }
            let model = model::extend(run, &mut account, &title, &cells);
            let most = cells.places("ops/s").last().copied().unwrap_or(1);
            for (baseline, published) in [(JBD2, over_jbd2), (FINE, over_locks)] {
                let what = format!("{title}, {most} threads: times {baseline}");
                let ratio = cells.ratio(OURS, baseline, most, "ops/s");
                let modelled = model.as_ref().and_then(|model| model.ratio(OURS, baseline));
                let goal = Goal::new(what, Wanted::AtLeast(published), ratio).published(published);
                account.goals.push(Goal { modelled, ..goal });
            }
        }
    }
    commits(run, &mut account)?;
    Ok(account)
}

fn title(workload: &str, media: &str) -> String {
    format!("{workload}, {media}")
}

fn measure(
    run: &Run,
    account: &mut Account,
    title: &str,
    workload: &'static str,
    media: Media,
) -> Result<Cells> {
    let places: &[u64] = match media {
        Media::Device => run.size(&[1, 4, 16], &[1, 16]),
        _ => run.size(&[1, 2, 4, 16], &[1, 2, 16]),
    };
    let files = match workload {
        "varmail" => run.size(10_000, 400),
        _ => run.size(60_000, 2000),
    };
    let params = Params { files: Some(files), ..Params::default() };
    let bytes = run.size(2 << 30, 256 << 20);
    let ring = match workload {
        "varmail" => run.size(64 << 20, 8 << 20),
        // For each file as much as the paper's 256 MB have for 3 million.
        _ => run.size(5 << 20, 2 << 20),
    };
    let time = Duration::from_millis(run.size(2000, 300));
    run.in_turn(account, title, &VARIANTS, places, |variant, threads| {
        let (bed, latency) = match media {
            Media::NvmAndDrive => (Bed::thin(&run.memory, bytes, Journal::Nvm, ring)?, Some(DRIVE)),
            Media::NvmAndDevice => (Bed::make(&run.work, bytes, Journal::Nvm, ring)?, None),
            Media::Device => (Bed::make(&run.work, bytes, Journal::Ssd, ring)?, None),
        };
        let mut mounted = bed.mount(&options(variant, MEMORY), latency)?;
        mounted.turn(true);
        let records = run.load(&mut mounted, workload, threads, time, &params);
        let unmounted = mounted.unmount();
        let found = records?.first().map(figures).unwrap_or_default();
        unmounted.map(|()| found)
    })
}

/// Commits by more threads than cores: the published one spins for its predecessor.
fn commits(run: &Run, account: &mut Account) -> Result<()> {
    let title = "fsync by more threads than cores, journal on NVM";
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let places: Vec<u64> = run.size([1, 4, 16], [1, 4, 8]).map(|times| cores * times).to_vec();
    let time = Duration::from_millis(run.size(2000, 200));
    let bed = Bed::make(&run.work, 256 << 20, Journal::Nvm, 32 << 20)?;
    let cells = run.in_turn(account, title, &[OURS, "journal-paper"], &places, |variant, threads| {
        let mut mounted = bed.mount(&options(variant, MEMORY), None)?;
        let records = run.load(&mut mounted, "DWSL", threads, time, &Params::default());
        let unmounted = mounted.unmount();
        let found = records?.first().map(figures).unwrap_or_default();
        unmounted.map(|()| found)
    })?;
    let most = places.last().copied().unwrap_or(1);
    let ratio = cells.ratio(OURS, "journal-paper", most, "ops/s");
    account.goals.push(Goal::new(
        format!("fsync, {most} threads on {cores} cores: times journal-paper"),
        Wanted::AtLeast(1.0),
        ratio,
    ));
    account.show(title, ["threads", "operations a second"], &cells, &COLUMNS);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manycore::published::POINTS;

    #[test]
    fn every_published_point_is_of_an_experiment_that_is_run() {
        let titles: Vec<String> = MEDIA
            .iter()
            .flat_map(|(_, called)| PUBLISHED.map(|(workload, ..)| title(workload, called)))
            .collect();
        for point in POINTS.iter().filter(|point| point.paper == "journaling") {
            assert!(titles.iter().any(|title| title == point.figure), "{}", point.words());
        }
    }
}
