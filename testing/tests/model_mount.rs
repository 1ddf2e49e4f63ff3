//! Random sequences through a mount, against the reference model: with unmounts in the middle, clean ones and, after
//! a sync, ones as a killed server leaves them.
//!
//! `NARUFS_SEED=n` replays one seed; `NARUFS_TEST_SCALE=n` runs n times as many.

use narufs_testing::dir_target::DirTarget;
use narufs_testing::lab::Ring;
use narufs_testing::model::{Model, Outcome};
use narufs_testing::op::{Falloc, Generator, Op};
use narufs_testing::place::{Place, require_mounts};
use narufs_testing::served::{Memory, Served, transports};
use narufs_testing::settings;
use narufs_testing::target::{Target, compare};
use std::path::Path;

const IMAGE_BYTES: u64 = 128 << 20;

/// What a mount answers: the model's word, but for what no kernel passes on to a file system in user space.
fn expected(model: &mut Model, op: &Op) -> Outcome {
    if let Op::Fallocate { mode: Falloc::Collapse | Falloc::Insert, .. } = op {
        // Refused with the file open: its own errors come first.
        return match model.clone().apply(op) {
            Ok(_) | Err(libc::EINVAL) => Err(libc::EOPNOTSUPP),
            open => open,
        };
    }
    model.apply(op)
}

fn target(place: &Place) -> Result<DirTarget, String> {
    let mut target = DirTarget::new(&place.point()).map_err(|e| format!("the mount: {e}"))?;
    target.sync_all = Some(narufs_fuse::control::sync);
    Ok(target)
}

struct Shape {
    ring: Ring,
    memory: Memory,
    slots: u64,
    parts: usize,
    steps: usize,
}

/// `parts` times `steps` operations, with a new mount after each part. Gives the number of operations done.
fn run(shape: &Shape, seed: u64) -> Result<usize, String> {
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, shape.ring, IMAGE_BYTES, shape.slots).map_err(|e| format!("mkfs: {e}"))?;
    // Requests come another way at each mount.
    let transports = transports()?;
    let mut mounts = (seed as usize..).map(|nth| transports[nth % transports.len()]);
    let mut mount = || {
        let transport = mounts.next().unwrap_or_default();
        Served::start(&place, shape.ring, shape.memory, transport)
    };
    let (mut model, mut generator) = (Model::default(), Generator::new(seed));
    let mut served = mount()?;
    assert!(served.has_tmpfile(), "missing: O_TMPFILE over FUSE (Linux 6.1)");
    let mut done = 0;
    for part in 0..shape.parts {
        let mut target = target(&place)?;
        for step in 0..shape.steps {
            let op = generator.next_op();
            let (want, got) = (expected(&mut model, &op), target.apply(&op));
            if got != want {
                return Err(format!("part {part}, step {step}: {op:?} answered {got:?}, expected {want:?}"));
            }
            done += 1;
        }
        compare(&model.tree(), &target.tree()?).map_err(|e| format!("part {part}: {e}"))?;
        if part % 2 == 0 {
            drop(target);
            served.stop().map_err(|e| format!("part {part}: {e}"))?;
            place.check().map_err(|e| format!("part {part}: {e}"))?;
        } else {
            target.apply(&Op::SyncAll).map_err(|e| format!("part {part}: sync: errno {e}"))?;
            drop((target, served));
        }
        served = mount().map_err(|e| format!("after part {part}: {e}"))?;
        let shown = self::target(&place)?.tree()?;
        compare(&model.tree(), &shown).map_err(|e| format!("part {part}, mounted again: {e}"))?;
    }
    served.stop()?;
    place.check()?;
    Ok(done)
}

fn run_all(what: &str, seeds: u64, shape: impl Fn(Ring) -> Shape) {
    require_mounts();
    let seeds = settings::seeds(seeds);
    let (mut failures, mut done) = (Vec::new(), 0);
    for ring in Ring::ALL {
        for seed in seeds.clone() {
            match run(&shape(ring), seed) {
                Ok(operations) => done += operations,
                Err(e) => failures.push(format!("{what}, {ring:?}, NARUFS_SEED={seed}: {e}")),
            }
        }
    }
    println!("{what}: seeds {seeds:?}, {done} operations through mounts on {:?}", Ring::ALL);
    let shown = &failures[..failures.len().min(5)];
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), shown.join("\n"));
}

#[test]
#[ignore = "needs root, /dev/fuse with O_TMPFILE (Linux 6.1) and FUSE over io_uring (Linux 6.14)"]
fn mounts_with_little_memory_agree_with_the_model() {
    run_all("little memory", 24, |ring| Shape {
        ring,
        memory: Memory { data: Some(256 << 10), metadata: Some(1 << 20) },
        slots: 3072,
        parts: 3,
        steps: 250,
    });
}

#[test]
#[ignore = "needs root, /dev/fuse with O_TMPFILE (Linux 6.1) and FUSE over io_uring (Linux 6.14)"]
fn mounts_as_they_come_agree_with_the_model() {
    run_all("as it comes", 12, |ring| Shape {
        ring,
        memory: Memory::default(),
        slots: 16_384,
        parts: 2,
        steps: 500,
    });
}
