//! The range lock: threads that write different regions of one file, under the engine's lock, under one lock for the
//! file, and under the published interval tree.

use super::said;
use crate::manycore::events::{Place, Scene, Step, rate};
use crate::manycore::machine::Machine;
use crate::reproduce::bed::{Bed, Journal};
use crate::reproduce::found::{Account, Cells, Goal, Kind, Point, Series, Wanted};
use crate::reproduce::held::Regions;
use crate::reproduce::model;
use crate::reproduce::run::{COLUMNS, OURS, Run, figures, options};
use crate::reproduce::slow::Latency;
use narufs_bench::{Params, Result};
use std::time::Duration;

const VARIANTS: [&str; 3] = [OURS, "lock-inode", "lock-tree"];
/// Of the image in memory; the file has a region of 8 MiB for each thread.
const IMAGE: u64 = 768 << 20;
const RING: u64 = 32 << 20;
/// Pages of a region whose writes hold their range.
const PAGES: u64 = 256;
const MEMORY: &[&str] = &["memory=640M", "metadata_memory=64M", "noatime"];

/// Runs it.
///
/// # Errors
/// The user's end of it; an image that cannot be made.
pub fn run(run: &Run) -> Result<Account> {
    let mut account = Account::new([
        "range-lock",
        "A range lock in place of the inode's lock",
        "Performance improvement of F2FS by a range lock (Linux 4.14.11, FxMark, 8 x 15 cores, Optane 900p)",
        "What do threads gain that write different regions of one file, and what does a thread lose that writes a file \
         of its own?",
    ]);
    account.method = said(&[
        "Cached copies: DWOM (a page of the thread's own region of one file, again and again) and DWOL (the same in a \
         file of its own), the image and the journal in memory.",
        "Requests held: each thread overwrites 512 bytes in the middle of each page of its region, with nothing in \
         memory before; the range is held while the rest of the page is read from a device whose reads take a stated \
         time more. What threads wait for is that device, so that 64 of them say something on any number of cores.",
        "Each page is compared afterwards.",
    ]);
    account.differs = said(&[
        "The paper's machine has 120 cores; cached copies keep every core busy, so the figures of this machine end \
         where its cores end. The model goes on from there.",
        "The paper's lock covers writes alone; the engine's covers reads too, and reads of cached pages take none.",
        "narufs gives a range back before a direct write waits for the device; so overwrites of parts are what holds one \
         over a request.",
        "What the model misses: 40.5 times as much with 4 cores is more than 4 cores do at once, so the kernel's lock lost \
         time with each handover; how much, says the table, and sleepers that are woken one after the other lose as much. \
         The baseline here spins before it sleeps. A latency that is 14 % shorter beside 14.8 times the throughput is not \
         of one closed loop, where their product is the number of threads: what the paper's latencies leave out it does \
         not say. And a kernel's write takes ten times as long as one here, so that what the tree costs a file of one's \
         own is not seen there.",
    ]);
    let held = held(run, &mut account)?;
    let (owns, shares) = cached(run, &mut account)?;
    let most = held.places("ops/s").last().copied().unwrap_or(1);
    account.goals = vec![
        Goal::new(
            format!("requests held, {most} threads: times lock-inode"),
            Wanted::AtLeast(14.8),
            held.ratio(OURS, "lock-inode", most, "ops/s"),
        )
        .published(14.8),
    ];
    for threads in owns.places("ops/s") {
        let ratio = owns.ratio(OURS, "lock-inode", threads, "ops/s");
        let within = Wanted::AtLeast(0.97);
        account.goals.push(
            Goal::new(format!("DWOL, {threads} threads: times lock-inode"), within, ratio).published(1.0),
        );
    }
    for (title, cells) in [("Requests held", &held), ("DWOM", &shares), ("DWOL", &owns)] {
        account.show(title, ["threads", "operations a second"], cells, &COLUMNS);
        if title == "Requests held" {
            let series = held_model(run, cells);
            let at_most = |name: &str| {
                let line = series.iter().find(|line| line.name == name)?;
                line.points.last().map(|point| point.y)
            };
            let modelled = at_most(OURS).zip(at_most("lock-inode")).map(|(ours, theirs)| ours / theirs);
            if let Some(goal) = account.goals.first_mut() {
                goal.modelled = modelled;
            }
            account.figures[0].series.extend(series);
        }
        if title != "Requests held" {
            model::extend(run, &mut account, title, cells);
        }
    }
    Ok(account)
}

/// What a request takes more.
fn latency(run: &Run) -> Latency {
    let read = Duration::from_millis(run.size(2, 4));
    // Nothing is written or flushed in the time.
    Latency { read, write: Duration::ZERO, flush: Duration::ZERO, channels: 256 }
}

fn held(run: &Run, account: &mut Account) -> Result<Cells> {
    let places: &[u64] = run.size(&[1, 2, 4, 16, 64], &[1, 8, 64]);
    let regions = Regions { threads: 64, pages: PAGES };
    let bed = Bed::make(&run.memory, IMAGE, Journal::Nvm, RING)?;
    regions.make(&bed)?;
    let (latency, time) = (latency(run), Duration::from_millis(run.size(1000, 500)));
    account.method.push(format!(
        "Requests held: a read takes {} ms more, and all channels that threads need are there.",
        latency.read.as_millis()
    ));
    run.in_turn(account, "requests held", &VARIANTS, places, |variant, threads| {
        let found = regions.measure(run, &bed, &options(variant, MEMORY), latency, (threads, time))?;
        let us = |quantile: f64| found.latency.value_at_quantile(quantile) as f64 / 1e3;
        Ok(vec![
            ("ops/s", found.ops as f64 / found.time.as_secs_f64().max(1e-9)),
            ("MB/s", found.bytes as f64 / found.time.as_secs_f64().max(1e-9) / 1e6),
            ("mean us", found.latency.mean() / 1e3),
            ("p50 us", us(0.5)),
            ("p99 us", us(0.99)),
            ("p99.9 us", us(0.999)),
        ])
    })
}

/// What threads do that wait for the device, each for itself or one after the other: of the rate of one thread follows
/// what an operation takes besides.
fn held_model(run: &Run, cells: &Cells) -> Vec<Series> {
    let Some(one) = cells.median(OURS, 1, "ops/s") else { return Vec::new() };
    let request = latency(run).read.as_nanos() as f64;
    let own = Step::Work((1e9 / one - request).max(0.0));
    let section = Place::Shared(0);
    let held = [own, Step::Acquire(section), Step::Request(request), Step::Release(section)];
    let free = [own, Step::Request(request)];
    let scene = Scene {
        machine: Machine { cores: 64, sockets: 1 },
        costs: run.costs,
        handover: 0.0,
        channels: latency(run).channels,
    };
    let line = |(name, program): (&str, &[Step])| Series {
        name: name.to_owned(),
        kind: Kind::Modelled,
        points: cells
            .places("ops/s")
            .into_iter()
            .map(|threads| Point::at(threads as f64, rate(&scene, program, threads as usize, 5000)))
            .collect(),
    };
    let programs: [(&str, &[Step]); 3] = [(OURS, &free), ("lock-inode", &held), ("lock-tree", &free)];
    let known = cells.variants("ops/s");
    programs.into_iter().filter(|(name, _)| known.contains(name) || *name == "lock-inode").map(line).collect()
}

/// DWOL and DWOM.
fn cached(run: &Run, account: &mut Account) -> Result<(Cells, Cells)> {
    let places: &[u64] = run.size(&[1, 2, 4, 16, 64], &[1, 2, 16]);
    let mut all = Vec::new();
    // What is to be equal is looked at in more and shorter turns: the machine changes less within one.
    for (workload, turns, time) in
        [("DWOL", run.size(5, 1), run.size(400, 100)), ("DWOM", 1, run.size(1000, 100))]
    {
        let time = Duration::from_millis(time);
        let bed = Bed::make(&run.memory, IMAGE, Journal::Nvm, RING)?;
        let once = |variant: &str, threads| {
            let mut mounted = bed.mount(&options(variant, MEMORY), None)?;
            let records = run.load(&mut mounted, workload, threads, time, &Params::default());
            let unmounted = mounted.unmount();
            let found = records?.first().map(figures).unwrap_or_default();
            unmounted.map(|()| found)
        };
        all.push(run.in_turns(turns * run.rounds, account, workload, &VARIANTS, places, once)?);
    }
    let shares = all.pop().unwrap_or_default();
    Ok((all.pop().unwrap_or_default(), shares))
}
