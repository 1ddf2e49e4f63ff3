//! A mount over a drive that fails: `narufs mount` on an image that lies on a drive whose requests fail, are done in part,
//! or are held (`narufs_testing::drive`). Needs root and /dev/fuse.
//!
//! What holds: nothing fails before a request has; what fails says EIO or EROFS; the mount goes on answering, and if it
//! writes nothing any more its log says why, once; what an fsync has answered for is there after an unmount, and after a
//! loss of power; fsck finds nothing. A request that is done in part is noticed by nobody.

mod files;
mod held;
mod over;

use files::Files;
use narufs_testing::drive::faults::{Counts, Kind, Lasts, Rule, Wrong};
use narufs_testing::settings;
use over::Over;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What befalls requests, with how many numbers of them.
#[derive(Debug, Clone, Copy)]
struct Row {
    kind: Kind,
    lasts: Lasts,
    wrong: Wrong,
}

/// Each kind of request, in each way, once and for good. Less than a block brings a request no further; a block and a
/// part of one does.
const ROWS: [Row; 10] = [
    row(Kind::Write, Lasts::Once, Wrong::Fails(libc::EIO)),
    row(Kind::Write, Lasts::On, Wrong::Fails(libc::EIO)),
    row(Kind::Read, Lasts::Once, Wrong::Fails(libc::EIO)),
    row(Kind::Read, Lasts::On, Wrong::Fails(libc::EIO)),
    row(Kind::Flush, Lasts::Once, Wrong::Fails(libc::EIO)),
    row(Kind::Flush, Lasts::On, Wrong::Fails(libc::EIO)),
    row(Kind::Write, Lasts::Once, Wrong::Short(700)),
    row(Kind::Write, Lasts::On, Wrong::Short(5000)),
    row(Kind::Read, Lasts::Once, Wrong::Short(700)),
    row(Kind::Read, Lasts::On, Wrong::Short(5000)),
];

const fn row(kind: Kind, lasts: Lasts, wrong: Wrong) -> Row {
    Row { kind, lasts, wrong }
}

/// What was seen of a row.
#[derive(Debug, Default)]
struct Tally {
    lives: u64,
    /// Operations that said so.
    told: usize,
    read_only: u64,
}

/// Requests of a life with nothing wrong, from its beginning to the end of its work.
fn requests() -> Counts {
    let mut over = Over::made();
    over.mount().expect("the drive works");
    let mut files = Files::new(&over);
    let before = over.faults().counts();
    files.work(&over);
    let after = over.faults().counts();
    assert!(files.told.is_empty(), "{:?}", files.told);
    let files = files.closed();
    over.unmount();
    over.mount().expect("the drive works");
    files.are_there(&over).expect("nothing has failed");
    over.unmount();
    over.place.check().expect("nothing has failed");
    Counts {
        reads: after.reads - before.reads,
        writes: after.writes - before.writes,
        flushes: after.flushes - before.flushes,
        ..Counts::default()
    }
}

/// One life, in which this befalls the request of that number; then the drive is mended, and everything is there.
fn live(row: Row, spared: u64, tally: &mut Tally) {
    let Row { kind, lasts, wrong } = row;
    let mut over = Over::made();
    over.mount().expect("the drive works");
    let mut files = Files::new(&over);
    over.faults().add(Rule { kind: Some(kind), spared, lasts, wrong });
    files.work(&over);
    over.faults().mend();
    let stats = over.stats();
    let said = over.said();
    let errors = || said.lines().filter(|line| line.contains("ERROR"));
    match stats["read_only"].as_str() {
        None => assert_eq!(errors().count(), 0, "{said}"),
        Some(why) => assert_eq!(errors().filter(|line| line.contains(why)).count(), 1, "{why}: {said}"),
    }
    tally.lives += 1;
    tally.told += files.told.len();
    tally.read_only += u64::from(!stats["read_only"].is_null());
    if matches!(wrong, Wrong::Short(_)) {
        assert!(files.told.is_empty() && said.is_empty(), "{:?}, {said}", files.told);
    }
    let told = std::mem::take(&mut files.told);
    let files = files.closed();
    let loses_power = spared.is_multiple_of(2);
    // The second time it has been recovered already.
    for recovered in [false, true] {
        match recovered {
            false if loses_power => over.lose_power(spared),
            false if !stats["read_only"].is_null() => over.unmount_unclean(),
            _ => over.unmount(),
        }
        over.mount().unwrap_or_else(|e| panic!("a mount on a drive that works: {e}"));
        files.are_there(&over).unwrap_or_else(|e| panic!("{e}; told: {told:?}; said: {said}"));
    }
    over.unmount();
    over.place.check().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn no_request_of_a_drive_takes_what_a_mount_has_promised() {
    let whole = requests();
    println!("{whole:?}");
    let samples = 2 * settings::scale();
    let next = AtomicUsize::new(0);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let run = || {
            let mut failures = Vec::new();
            // Relaxed: each number once.
            while let Some(row) = ROWS.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (mut tally, all) = (Tally::default(), whole.of(Some(row.kind)));
                for sample in 0..samples.min(all) {
                    let spared = (settings::first_seed() + sample * all / samples) % all;
                    let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        live(*row, spared, &mut tally);
                    }));
                    if lived.is_err() {
                        failures.push(format!("{row:?}, request {spared} of {all}"));
                    }
                }
                println!("{row:?}: {tally:?}");
            }
            failures
        };
        let runs = [scope.spawn(run), scope.spawn(run)];
        runs.into_iter().flat_map(|run| run.join().expect("no panic")).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
