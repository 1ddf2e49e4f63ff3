//! Random sequences on the library, on simulated media, against the reference model: with clean unmounts and
//! mounts in the middle, and everything removed in the end.
//!
//! `NARUFS_SEED=n` replays one seed; `NARUFS_TEST_SCALE=n` runs n times as many.

use narufs_testing::lab::{Lab, Live, Ring};
use narufs_testing::lib_target::LibTarget;
use narufs_testing::model::{Model, Outcome, Value};
use narufs_testing::op::{Generator, Op};
use narufs_testing::settings;
use narufs_testing::target::{Target, compare};

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Ok(Value::Unit) => "success".into(),
        Ok(Value::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Err(errno) => std::io::Error::from_raw_os_error(*errno).to_string(),
    }
}

/// `parts` times `steps` operations with a clean remount after each part.
fn run(lab: Lab, seed: u64, parts: usize, steps: usize) -> Result<(), String> {
    let sim = lab.format();
    let mount = || -> Result<Live, String> { lab.mount(&sim).map_err(|e| format!("mount: {e}")) };
    let mut live = mount()?;
    let mut model = Model::default();
    let mut generator = Generator::new(seed);
    generator.batches = true;
    for part in 0..parts {
        for step in 0..steps {
            let op = generator.next_op();
            let (want, got) = (model.apply(&op), LibTarget::new(live.fs()).apply(&op));
            if got != want {
                let (want, got) = (brief(&want), brief(&got));
                return Err(format!("part {part}, step {step}: {op:?} answered {got}, expected {want}"));
            }
        }
        let shown = LibTarget::new(live.fs()).tree()?;
        compare(&model.tree(), &shown).map_err(|e| format!("part {part}: {e}"))?;
        live.unmount().map_err(|e| format!("part {part}: unmount: {e}"))?;
        lab.check(&sim)?;
        live = mount()?;
        let shown = LibTarget::new(live.fs()).tree()?;
        compare(&model.tree(), &shown).map_err(|e| format!("part {part}, mounted again: {e}"))?;
    }
    LibTarget::new(live.fs()).remove_all().map_err(|e| format!("removing all: {e}"))?;
    LibTarget::new(live.fs()).apply(&Op::SyncAll).map_err(|e| format!("the last sync: errno {e}"))?;
    let free = live.free()?;
    live.unmount().map_err(|e| format!("last unmount: {e}"))?;
    lab.check(&sim)?;
    let after = mount()?.free()?;
    if free != after {
        return Err(format!("{free} blocks free before the last unmount, {after} after it"));
    }
    Ok(())
}

fn run_all(what: &str, rings: &[Ring], lab: impl Fn(Ring) -> Lab, seeds: u64, parts: usize, steps: usize) {
    let seeds = settings::seeds(seeds);
    let mut failures = Vec::new();
    for &ring in rings {
        for seed in seeds.clone() {
            if let Err(e) = run(lab(ring), seed, parts, steps) {
                failures.push(format!("{what}, {ring:?}, NARUFS_SEED={seed}: {e}"));
            }
        }
    }
    println!("{what}: seeds {seeds:?}, {parts} parts of {steps} operations on each of {rings:?}");
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures[..failures.len().min(5)].join("\n")
    );
}

#[test]
fn tiny_file_systems_agree_with_the_model() {
    run_all("tiny", &Ring::ALL, Lab::tiny, 60, 3, 250);
}

#[test]
fn roomy_file_systems_agree_with_the_model() {
    run_all("roomy", &Ring::ALL, Lab::roomy, 20, 2, 600);
}

/// The journals that narufs is measured against, on a ring that holds a few of their transactions.
#[cfg(feature = "baselines")]
#[test]
fn baselines_of_the_journal_agree_with_the_model() {
    for name in ["journal-jbd2", "journal-fine", "journal-paper"] {
        let baselines = name.parse().expect("it is one");
        let lab = |ring| Lab { baselines, slots: 8192, blocks: 2048, ..Lab::tiny(ring) };
        run_all(name, &[Ring::Ssd, Ring::Nvm], lab, 15, 3, 250);
    }
}

/// What narufs is measured against does the same.
#[cfg(feature = "baselines")]
#[test]
fn baselines_of_images_agree_with_the_model() {
    for (name, baselines) in narufs_testing::baselines_of_images() {
        run_all(name, &Ring::ALL, |ring| Lab { baselines, ..Lab::tiny(ring) }, 3, 2, 200);
    }
}
