//! Crashes around what once went wrong, closer than the enumeration looks at every sequence of this length.

use narufs_engine::format::ROOT_NID;
use narufs_engine::sim::{Crash, SimMedia};
use narufs_engine::vfs::{Context, OpenFlags, WriteFlags};
use narufs_testing::crash::{Bench, Effort, Tally, setup};
use narufs_testing::lab::{Lab, Ring};
use narufs_testing::lib_target::LibTarget;
use narufs_testing::model::Tree;
use narufs_testing::op::{Durable, Exists, Node, Op};
use narufs_testing::target::{Target, compare};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const WAYS: [(Ring, Crash); 3] =
    [(Ring::Ssd, Crash::PowerLoss), (Ring::Ssd, Crash::ProcessKill), (Ring::Nvm, Crash::PowerLoss)];

/// Many states of many points, from the first operation on.
const CLOSE: Effort = Effort { points: 80, states: 12, last: false, ..Effort::FULL };

fn create(path: &str) -> Op {
    Op::Create { path: path.into(), exclusive: true }
}
fn unlink(path: &str) -> Op {
    Op::Unlink { path: path.into() }
}
fn write(path: &str, offset: u64, len: u32, fill: u8) -> Op {
    Op::Write { path: path.into(), offset, len, fill, durable: Durable::No }
}
fn xattr(path: &str) -> Op {
    Op::SetXattr { path: path.into(), name: "user.c".into(), len: 900, fill: 3, exists: Exists::Any }
}
fn sync_dir() -> Op {
    Op::FsyncDir { path: "/".into() }
}

fn survives(sequences: &[Vec<Op>], efforts: &[Effort]) {
    let mut tally = Tally::default();
    for (ring, crash) in WAYS {
        let bench = Bench::new(Lab::tiny(ring), crash, &setup()).expect("the tree can be made");
        for (seed, ops) in sequences.iter().enumerate() {
            for effort in efforts {
                bench.run(ops, effort, seed as u64, &mut tally).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
    println!("{tally}");
}

/// The slot, and the times that still wait in memory, of an inode that is freed belong to the next at once.
#[test]
fn an_inode_slot_is_freed_and_reused_without_harm() {
    let device = |path: &str| Op::Mknod { path: path.into(), node: Node::Block(0x0701) };
    survives(
        &[
            vec![write("/a", 0, 300, 1), unlink("/a"), create("/n"), Op::SyncAll],
            vec![unlink("/r"), create("/n"), xattr("/n"), sync_dir(), unlink("/n"), device("/f")],
            vec![create("/n"), unlink("/n"), device("/n"), unlink("/y"), create("/m"), sync_dir()],
            vec![unlink("/p"), sync_dir(), create("/n"), write("/n", 0, 5000, 2), sync_dir()],
        ],
        &[CLOSE],
    );
}

/// A page that is dirty when a checkpoint round begins, freed at each place of it.
#[test]
fn a_page_is_freed_within_a_checkpoint_round_without_harm() {
    let dirty = [xattr("/b"), xattr("/c"), create("/n"), xattr("/n")];
    let rounds: Vec<Effort> =
        (0..16).map(|place| Effort { in_round: Some(place), points: 12, states: 4, ..CLOSE }).collect();
    survives(&[[&dirty[..], &[unlink("/n")]].concat()], &rounds);
}

/// The truncation of a file that is written anew in part past the cache is recorded with all of the new.
#[test]
fn a_direct_write_to_a_part_of_a_rewritten_file_leaves_the_old_or_the_new() {
    let rewrite = |path: &str, len| Op::Rewrite { path: path.into(), len, fill: 1, direct: true };
    survives(
        &[vec![rewrite("/g", 20_480)], vec![rewrite("/a", 9000), sync_dir()], vec![rewrite("/c", 12_288)]],
        &[Effort { last: false, ..Effort::FULL }],
    );
}

/// What one interrupted mount does, and those after it.
struct Interrupted {
    lab: Lab,
    crash: Crash,
    want: Tree,
    rng: StdRng,
    mounts: u64,
}

impl Interrupted {
    /// Mounts, perhaps unmounts, and interrupts that, so many times over.
    fn mount(&mut self, sim: &SimMedia, depth: u32, points: usize) -> Result<(), String> {
        self.mounts += 1;
        let live = self.lab.mount(sim).map_err(|e| format!("mount: {e}"))?;
        live.sound().map_err(|e| format!("mount: {e}"))?;
        compare(&self.want, &LibTarget::new(live.fs()).tree()?)?;
        if self.rng.random() {
            live.unmount().map_err(|e| format!("unmount: {e}"))?;
        } else {
            drop(live);
        }
        if depth == 0 {
            return Ok(());
        }
        let events = sim.events();
        for step in 0..points.min(events + 1) {
            let at = if points > events { step } else { self.rng.random_range(0..=events) };
            for state in sim.crash_point(at).sample(self.crash, self.rng.random(), 2) {
                self.mount(&state.restart(), depth - 1, 2).map_err(|e| format!("{state}: {e}"))?;
            }
        }
        Ok(())
    }
}

/// Mounting writes the superblock and the ring's header, and so does unmounting: cut short anywhere, again and
/// again, the image and its ring belong together still, and hold what they held.
#[test]
fn mounts_and_unmounts_are_interrupted_again_and_again_without_harm() {
    for (ring, crash) in WAYS {
        for seed in 0..4 {
            let lab = Lab::tiny(ring);
            let bench = Bench::new(lab, crash, &setup()).expect("the tree can be made");
            let sim = bench.media();
            let live = lab.mount(&sim).expect("clean");
            for op in [create("/n"), xattr("/n"), sync_dir()] {
                LibTarget::new(live.fs()).apply(&op).expect("there is room");
            }
            let want = LibTarget::new(live.fs()).tree().expect("whole");
            drop(live);
            let state = sim.crash_point(sim.events()).states(crash, seed).next().expect("at least one");
            let rng = StdRng::seed_from_u64(seed);
            let mut interrupted = Interrupted { lab, crash, want, rng, mounts: 0 };
            let done = interrupted.mount(&state.restart(), 4, usize::MAX);
            done.unwrap_or_else(|e| panic!("{ring:?}, {crash:?}, seed {seed}: {e}"));
            println!("{ring:?}, {crash:?}, seed {seed}: {} mounts", interrupted.mounts);
        }
    }
}

/// A directory whose buckets split under the operations.
#[test]
fn a_directory_that_grows_survives_crashes() {
    let name = |n: usize| format!("/d/{n:0>200}");
    let mut tree = vec![Op::Mkdir { path: "/d".into() }];
    tree.extend((0..14).map(|n| create(&name(n))));
    tree.push(Op::SyncAll);
    let mut ops: Vec<Op> = (14..32).map(|n| create(&name(n))).collect();
    ops.extend([Op::FsyncDir { path: "/d".into() }, unlink(&name(3)), create(&name(32))]);
    let mut tally = Tally::default();
    for (ring, crash) in WAYS {
        let bench = Bench::new(Lab::tiny(ring), crash, &tree).expect("the tree can be made");
        bench.run(&ops, &CLOSE, 1, &mut tally).unwrap_or_else(|e| panic!("{e}"));
    }
    println!("{tally}");
}

/// A directory whose buckets are joined again as it is emptied, and split once more.
#[test]
fn a_directory_that_shrinks_survives_crashes() {
    let name = |n: usize| format!("/d/{n:0>200}");
    let mut tree = vec![Op::Mkdir { path: "/d".into() }];
    tree.extend((0..50).map(|n| create(&name(n))));
    tree.push(Op::SyncAll);
    let mut ops: Vec<Op> = (0..48).filter(|n| n % 16 != 5).map(|n| unlink(&name(n))).collect();
    ops.insert(24, Op::FsyncDir { path: "/d".into() });
    ops.push(Op::Rename { from: name(48), to: "/moved".into(), flags: 0 });
    ops.extend((60..66).map(|n| create(&name(n))));
    let mut tally = Tally::default();
    for (ring, crash) in WAYS {
        let bench = Bench::new(Lab::tiny(ring), crash, &tree).expect("the tree can be made");
        bench.run(&ops, &CLOSE, 1, &mut tally).unwrap_or_else(|e| panic!("{e}"));
    }
    println!("{tally}");
}

/// Freed blocks are the only ones to take.
#[test]
fn an_image_with_just_room_enough_survives_crashes() {
    let ops = [
        unlink("/g"),
        create("/n"),
        write("/n", 0, 120_000, 1),
        Op::Fsync { path: "/n".into() },
        Op::Truncate { path: "/n".into(), size: 0 },
        write("/n", 0, 100_000, 2),
        Op::Fsync { path: "/n".into() },
    ];
    let full = |e: &String| e.contains("No space left on device");
    let mut tally = Tally::default();
    for (ring, crash) in WAYS {
        let labs = (100..220).step_by(3).map(|blocks| Lab { blocks, ..Lab::tiny(ring) });
        let results = labs.map(|lab| Bench::new(lab, crash, &setup())?.run(&ops, &CLOSE, 1, &mut tally));
        let fit = results.filter(|result| !result.as_ref().is_err_and(full)).take(3);
        fit.for_each(|result| result.unwrap_or_else(|e| panic!("{e}")));
    }
    assert!(tally.sequences >= 9, "{tally}");
    println!("{tally}");
}

/// The last bytes that a file can have, far behind a hole.
#[test]
fn a_file_of_sixteen_tebibytes_survives_crashes() {
    const AT: u64 = (1 << 44) - 8192;
    narufs_engine::lane::pin(Some(0));
    for (ring, crash) in WAYS {
        let lab = Lab::tiny(ring);
        let sim = lab.format();
        let live = lab.mount(&sim).expect("just made");
        let (fs, ctx) = (live.fs(), Context::root());
        let made = fs.create(&ctx, ROOT_NID, b"n", 0o644, OpenFlags::READ_WRITE).expect("room");
        let before = sim.events();
        fs.write(&ctx, &made.1, AT, &[7; 5000], WriteFlags::empty()).expect("room");
        fs.fsync(&made.1, false).expect("memory");
        let synced = sim.events();
        let mut points = sim.crash_points();
        for events in (before..=synced).rev().step_by(3).collect::<Vec<_>>().into_iter().rev() {
            points.skip_to(events);
            let point = points.next().expect("in the log");
            for state in point.sample(crash, events as u64, 6) {
                let again = state.restart();
                let live = lab.mount(&again).unwrap_or_else(|e| panic!("{ring:?}, {state}: {e}"));
                let Ok(found) = live.fs().lookup(&ctx, ROOT_NID, b"n") else {
                    assert!(events < synced, "{ring:?}, {state}: it is gone");
                    continue;
                };
                let size = found.attr.size;
                assert!(size == AT + 5000 || events < synced && size == 0, "{ring:?}, {state}: {size}");
                let file = live.fs().open(&ctx, found.nid, OpenFlags::empty()).expect("there");
                let mut bytes = [1; 5000];
                let read = live.fs().read(&file, AT, &mut bytes).expect("whole");
                let may = |byte: &u8| *byte == 7 || *byte == 0 && events < synced;
                assert!(bytes[..read].iter().all(may), "{ring:?}, {state}: other bytes");
                assert_eq!(
                    live.fs().read(&file, AT - 4096, &mut bytes[..4096]).expect("whole"),
                    4096.min(size as usize)
                );
                assert!(
                    size == 0 || bytes[..4096].iter().all(|byte| *byte == 0),
                    "{ring:?}, {state}: no hole"
                );
                live.fs().release(file, None);
            }
        }
    }
}

/// A transaction whose record is whole counts, also where it lies in memory whose lines go home by themselves.
#[cfg(feature = "baselines")]
#[test]
fn a_transaction_in_memory_maps_nothing_that_is_not_down() {
    let baselines = "journal-fine".parse().expect("it is one");
    let lab = Lab { baselines, slots: 8192, blocks: 2048, ..Lab::tiny(Ring::Nvm) };
    let bench = Bench::new(lab, Crash::PowerLoss, &setup()).expect("the tree can be made");
    let ops = [
        Op::WriteDirect { path: "/a".into(), block: 3, blocks: 2, fill: 27, durable: Durable::No },
        Op::Mknod { path: "/f".into(), node: Node::File },
    ];
    for seed in 30..40 {
        let effort = Effort { points: 6, in_round: Some(8), ..Effort::SAMPLE };
        bench.run(&ops, &effort, seed, &mut Tally::default()).unwrap_or_else(|e| panic!("{e}"));
    }
}
