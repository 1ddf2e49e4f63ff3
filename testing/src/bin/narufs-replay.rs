//! What losses of power could have left of a disk: `narufs-replay RECORD KIND [load=LOAD] [states=N] [seed=N]` reads what QEMU has
//! recorded (`scripts/machines.sh replay`), see `narufs_testing::replay`. KIND is `narufs` or `ext4`; `ext4-nobarrier`, which
//! asks for no flush; `narufs-unflushed`, as if the disk had done none. Of the last two a loss must be found. ext4 takes root,
//! for loop devices. LOAD is `files` or `sqlite`.

use narufs_testing::demand;
use narufs_testing::outlive::Outcome;
use narufs_testing::outlive::settings::Settings;
use narufs_testing::replay::log::Log;
use narufs_testing::replay::look::{Kind, Load};
use narufs_testing::replay::{Plan, run};
use std::fs::File;
use std::process::ExitCode;

const USAGE: &str = "narufs-replay RECORD narufs|ext4|ext4-nobarrier|narufs-unflushed [load=files|sqlite] [states=N] [seed=N]";

/// Sectors of the file system, as testing/machines/recorded.sh lays it out.
const SECTORS: usize = 131_072;

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
        "ext4" => (Kind::Ext4, false),
        "ext4-nobarrier" => (Kind::Ext4, true),
        _ => return Err(USAGE.into()),
    };
    let settings = Settings::new(record.into(), words, &["load", "states", "seed"])?;
    let load = match settings.text("load", "files") {
        "files" => Load::Files,
        "sqlite" => Load::Databases,
        other => return Err(format!("load={other}: neither files nor sqlite").into()),
    };
    let (states, seed) = (settings.number("states", 4)?, settings.number("seed", rand::random())?);
    let mut log = Log::open(File::open(record)?)?;
    println!("{name}: seed={seed}");
    let flushes = name != "narufs-unflushed";
    let tally = run(&mut log, &Plan { kind, load, sectors: SECTORS, flushes, states, seed })?;
    println!("RESULT {name}: {tally}");
    demand!(tally.acknowledged > 0 && tally.states > 0, "nothing was acknowledged, or looked at");
    if loses {
        demand!(tally.failed > 0, "nothing was flushed and nothing is lost: the states are none");
    } else {
        demand!(tally.failed == 0, "{} states of {} are not as promised", tally.failed, tally.states);
    }
    Ok(())
}
