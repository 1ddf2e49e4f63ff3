//! What losses of power could have left of a disk: `narufs-replay RECORD KIND [load=LOAD] [size=MIB] [durability=D] [states=N]
//! [seed=N]` reads what QEMU has recorded (`scripts/machines.sh replay`), see `narufs_testing::replay`. KIND is `narufs` or
//! `ext4`; `ext4-nobarrier`, which asks for no flush; `narufs-unflushed`, as if the disk had done none. Of the last two a loss
//! must be found. ext4 takes root, for loop devices. LOAD is `files`, `sqlite`, `git`, `mail` or `postgres`; size is that of the
//! file system (64), durability what the mount was told.

use narufs_testing::demand;
use narufs_testing::outlive::Outcome;
use narufs_testing::outlive::settings::Settings;
use narufs_testing::replay::acked::Durability;
use narufs_testing::replay::log::Log;
use narufs_testing::replay::look::{Kind, Load};
use narufs_testing::replay::{Plan, moments, run};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "narufs-replay RECORD narufs|ext4|ext4-nobarrier|narufs-unflushed|narufs-nvdimm|narufs-nvdimm-older \
    [load=files|sqlite|git|mail|postgres] [size=MIB] [durability=power|window=TIME|process] [moments=DIR] [states=N] [seed=N]";

/// Sectors of a MiB.
const SECTORS: usize = 2048;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match replay(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("narufs-replay: {e}");
            ExitCode::FAILURE
        }
    }
}

fn replay(words: &[String]) -> Outcome {
    let [record, name, words @ ..] = words else { return Err(USAGE.into()) };
    let (kind, loses) = match name.as_str() {
        "narufs" => (Kind::Narufs, false),
        "narufs-unflushed" => (Kind::Narufs, true),
        "narufs-nvdimm" => (Kind::Narufs, false),
        "narufs-nvdimm-older" => (Kind::Narufs, true),
        "ext4" => (Kind::Ext4, false),
        "ext4-nobarrier" => (Kind::Ext4, true),
        _ => return Err(USAGE.into()),
    };
    let settings =
        Settings::new(record.into(), words, &["load", "size", "durability", "states", "seed", "moments"])?;
    let load: Load = settings.text("load", "files").parse()?;
    let durability: Durability = settings.text("durability", "power").parse()?;
    let sectors =
        usize::try_from(settings.number("size", 64)?)?.checked_mul(SECTORS).ok_or("a size beyond memory")?;
    let (states, seed) = (settings.number("states", 4)?, settings.number("seed", rand::random())?);
    let mut moments = Vec::new();
    if name.starts_with("narufs-nvdimm") {
        moments = moments::read(Path::new(settings.text("moments", "moments")))?;
        println!("{name}: {} moments", moments.len());
    }
    if loses && let Some(first) = moments.first().cloned() {
        moments.iter_mut().for_each(|moment| moment.memory.clone_from(&first.memory));
    }
    let mut log = Log::open(File::open(record)?)?;
    println!("{name}: seed={seed}");
    let tally = run(
        &mut log,
        &Plan { kind, load, durability, sectors, flushes: !loses || !moments.is_empty(), states, seed },
        &moments,
    )?;
    println!("RESULT {name}: {tally}");
    demand!(tally.acknowledged > 0 && tally.states > 0, "nothing was acknowledged, or looked at");
    if loses {
        demand!(tally.failed > 0, "nothing was flushed and nothing is lost: the states are none");
    } else {
        demand!(tally.failed == 0, "{} states of {} are not as promised", tally.failed, tally.states);
    }
    Ok(())
}
