//! Checkpoints: a ring that is lapped while threads change attributes of files that lie scattered, home writes by one
//! request at a time, by batches of one thread, and by the engine's threads.

use super::said;
use crate::checkpoint::rounds::{self, Found};
use crate::reproduce::bed::{Bed, Journal, Mounted};
use crate::reproduce::found::{Account, Cells, Goal, Table, Wanted};
use crate::reproduce::model;
use crate::reproduce::run::{OURS, Run, figures, options};
use crate::reproduce::slow::DRIVE;
use narufs_bench::load::{self, Limits, Member};
use narufs_bench::target::{LibrarySession, Target};
use narufs_bench::workload::{Step, Worker};
use narufs_bench::{Error, Params, Result};
use narufs_engine::checkpoint::Phase;
use narufs_engine::format::Nid;
use narufs_engine::stats::Stats;
use narufs_engine::vfs::{Context, SetAttr, Vfs};
use std::sync::Arc;
use std::time::Duration;

const VARIANTS: [&str; 3] = [OURS, "checkpoint-one", "checkpoint-64"];
const MEMORY: &[&str] = &["memory=256M", "metadata_memory=256M"];
/// So small that seconds lap it.
const RING: u64 = 4 << 20;

/// Runs it.
///
/// # Errors
/// The user's end of it; an image that cannot be made.
pub fn run(run: &Run) -> Result<Account> {
    let mut account = Account::new([
        "checkpoint",
        "Checkpoints by several threads",
        "Han et al., Performance evaluation and optimization of journaling file systems on multicore and flash SSDs, \
         JKCA 18(4), 2018 (ext4, 72 cores, NVMe 2,800/1,900 MB/s)",
        "Where does the time of checkpoints go, how long do operations wait for them, and what does it bring to have many \
         home writes under way?",
    ]);
    account.method = said(&[
        "A ring of 4 MiB in memory that stands for NVM, so that the journal waits for nothing but checkpoints; the image \
         on a device whose writes take 200 us more, reads 100 us, flushes 1 ms, sixteen requests at a time.",
        "Scattered: threads change the mode of files drawn at random, one in each inode block, so that each record makes a \
         page dirty that has to go home before the ring comes around. tokubench: files of 4 KB are made in a tree.",
        "Waiting: the time that operations waited for room in the ring or for commits, of the threads' time in all.",
    ]);
    account.differs = said(&[
        "ext4's checkpoints run in its journal's thread; here they run in the engine's, and write each page to a double-write \
         area before its place, which ext4 does not: baseline and technique pay for it alike.",
        "The paper names an overhead and a gain of 92 % at the most, without the table of phases that stands here.",
        "What a device takes is stated, not a drive's: a drive's own latency would come on top.",
        "What the model misses: the published gain is of applications that do other work between two waits for the ring, \
         and of a thread that has 64 buffers under way. Here threads do nothing but fill the ring, and one request is \
         under way; checkpoint-64 stands beside it.",
    ]);
    let mut phases = Vec::new();
    let scattered = scattered(run, &mut account, &mut phases)?;
    let small = small_files(run, &mut account)?;
    for (title, cells) in [("Scattered", &scattered), ("tokubench", &small)] {
        let most = cells.places("ops/s").last().copied().unwrap_or(1);
        let ratio = cells.ratio(OURS, "checkpoint-one", most, "ops/s");
        let what = format!("{title}, {most} threads: times checkpoint-one");
        // The paper's gain is over ext4, with one request under way.
        let goal = if title == "Scattered" { Wanted::AtLeast(2.2) } else { Wanted::AtLeast(1.0) };
        account.goals.push(Goal::new(what, goal, ratio).published(1.92));
    }
    let columns = [
        ("ops/s", "ops/s", 0),
        ("waiting %", "waiting, %", 1),
        ("laps", "laps", 1),
        ("home MB/s", "home MB/s", 1),
    ];
    account.show("Scattered", ["threads", "operations a second"], &scattered, &columns);
    account.show("tokubench", ["threads", "operations a second"], &small, &columns[..1]);
    model::extend(run, &mut account, "Scattered", &scattered);
    let mut head = vec!["threads".to_owned(), "variant".to_owned()];
    head.extend(Phase::ALL.iter().map(|phase| format!("{phase:?}, %")));
    account.tables.push(Table {
        title: "Where rounds' threads are (last round)".to_owned(),
        head,
        rows: phases,
    });
    Ok(account)
}

/// One thread that changes files drawn at random.
struct Changer {
    fs: Arc<Vfs>,
    files: Arc<Vec<Nid>>,
    random: u64,
}

impl Worker<LibrarySession> for Changer {
    type Left = ();

    fn step(&mut self, _session: &mut LibrarySession) -> Result<Step> {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let nid = self.files[(self.random >> 33) as usize % self.files.len()];
        let set = SetAttr { mode: Some(0o600 + (self.random >> 60) as u32), ..SetAttr::default() };
        let done = self.fs.setattr(&Context::root(), nid, None, &set);
        done.map(|_| Step::Done(0)).map_err(|e| Error::Refused(format!("chmod: {e}")))
    }

    fn left(self) {}
}

fn stats(mounted: &Mounted) -> Result<Stats> {
    Stats::of(&mounted.fs).map_err(|e| Error::Refused(format!("stats: {e}")))
}

fn scattered(run: &Run, account: &mut Account, phases: &mut Vec<Vec<String>>) -> Result<Cells> {
    let places: &[u64] = run.size(&[1, 2, 4, 8], &[1, 2, 8]);
    let bed = Bed::make(&run.work, run.size(1 << 30, 256 << 20), Journal::Nvm, RING)?;
    let mounted = bed.mount(&options(OURS, MEMORY), None)?;
    let made = rounds::scattered(&mounted.fs, run.size(4000, 1000));
    mounted.unmount()?;
    let files = Arc::new(made.map_err(|e| Error::Refused(format!("make files: {e}")))?);
    let time = Duration::from_millis(run.size(3000, 700));
    run.in_turn(account, "scattered", &VARIANTS, places, |variant, threads| {
        let mut mounted = bed.mount(&options(variant, MEMORY), Some(DRIVE))?;
        // Sessions are of a directory.
        mounted.library.enter("changes")?;
        let found = changes(run, &mounted, &files, threads, time);
        let left = mounted.library.leave();
        let unmounted = mounted.unmount();
        let (found, rounds) = found?;
        left?;
        let all = rounds.phases.iter().map(|(ns, _)| ns).sum::<u64>().max(1) as f64;
        phases.retain(|row| row[0] != threads.to_string() || row[1] != variant);
        let mut row = vec![threads.to_string(), variant.to_owned()];
        row.extend(rounds.phases.iter().map(|(ns, _)| format!("{:.1}", 100.0 * *ns as f64 / all)));
        phases.push(row);
        unmounted.map(|()| found)
    })
}

type Figures = Vec<(&'static str, f64)>;

fn changes(
    run: &Run,
    mounted: &Mounted,
    files: &Arc<Vec<Nid>>,
    threads: u64,
    time: Duration,
) -> Result<(Figures, Found)> {
    let mut members = Vec::new();
    for thread in 0..threads {
        let worker = Changer { fs: Arc::clone(&mounted.fs), files: Arc::clone(files), random: thread + 1 };
        members.push(Member { worker, session: mounted.library.session()? });
    }
    mounted.turn(true);
    let before = stats(mounted)?;
    let measured =
        load::drive(&mut members, &Limits::new(Some(time), None, false), &run.stop, || Ok(()), |_| ());
    let after = stats(mounted)?;
    mounted.turn(false);
    let measured = measured?;
    let seconds = measured.time.as_secs_f64().max(1e-9);
    let rounds = Found::between(&before.checkpoint, &after.checkpoint);
    let journal = |of: &Stats| of.journal.map_or((0, 0, 1), |j| (j.wait_ns, j.tail, j.ring_slots));
    let ((waited, tail, _), (waited_then, tail_then, slots)) = (journal(&before), journal(&after));
    let waiting = (waited_then - waited) as f64 / 1e9 / (threads as f64 * seconds);
    Ok((
        vec![
            ("ops/s", measured.ops as f64 / seconds),
            ("waiting %", waiting * 100.0),
            ("laps", (tail_then - tail) as f64 / slots as f64),
            ("home MB/s", rounds.home_bytes as f64 / seconds / 1e6),
        ],
        rounds,
    ))
}

fn small_files(run: &Run, account: &mut Account) -> Result<Cells> {
    let places: &[u64] = run.size(&[1, 2, 4, 8], &[8]);
    let params = Params { files: Some(run.size(40_000, 2000)), ..Params::default() };
    run.in_turn(account, "tokubench", &VARIANTS, places, |variant, threads| {
        let bed = Bed::make(&run.work, run.size(1 << 30, 128 << 20), Journal::Nvm, RING)?;
        let mut mounted = bed.mount(&options(variant, MEMORY), Some(DRIVE))?;
        mounted.turn(true);
        let records = run.load(&mut mounted, "tokubench", threads, Duration::from_secs(1), &params);
        let unmounted = mounted.unmount();
        let found = records?.first().map(figures).unwrap_or_default();
        unmounted.map(|()| found)
    })
}
