//! A drive with a volatile write cache, as a file: `narufs-drive [--told] FLUSHED DIR [SEED]` shows at DIR/disk the
//! bytes of the file FLUSHED, and puts there what was written when it is flushed; see `narufs_testing::drive`. SIGTERM
//! is the loss of power, at the worst moment: when the next flush is asked for, or after two seconds without one. It
//! says how many sectors were not flushed and how many of them are there nevertheless (with SEED; without one none
//! is), and ends. Unmounted, it flushes and ends. With --told it is told by its standard input which requests fail, are
//! done in part, or are held; see `narufs_testing::drive::told`. It mounts, which takes root.

use narufs_testing::drive::faults::Faults;
use narufs_testing::drive::shown::show;
use narufs_testing::drive::told::tell;
use narufs_testing::drive::{Drive, Lost};
use parking_lot::Mutex;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// So long a loss of power waits for a flush.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes the power away. The end of the process ends the mount: the medium is gone for whoever has it open.
fn end(drive: &mut Drive, seed: Option<u64>) -> ! {
    let written = drive.written();
    let said = drive.cut(seed).and_then(|Lost { pending, kept }| {
        let (forced, flushed) = (written.forced, written.flushed);
        writeln!(
            io::stdout(),
            "sectors forced {forced}, flushed {flushed}, not flushed {pending}, {kept} of them there"
        )
    });
    match said {
        Ok(()) => std::process::exit(0),
        Err(e) => {
            eprintln!("narufs-drive: {e}");
            std::process::exit(1)
        }
    }
}

/// Does as it is told until nobody tells it anything.
fn listen(faults: &Faults) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        writeln!(io::stdout(), "{}", tell(faults, &line?))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let told = words.first().is_some_and(|word| word == "--told");
    if told {
        words.remove(0);
    }
    let (flushed, dir, seed) = match &words[..] {
        [flushed, dir] => (flushed, dir, None),
        [flushed, dir, seed] => (flushed, dir, Some(seed.parse()?)),
        _ => return Err("narufs-drive [--told] FLUSHED DIR [SEED]".into()),
    };
    let drive = Arc::new(Mutex::new(Drive::new(OpenOptions::new().read(true).write(true).open(flushed)?)?));
    let mut signals = Signals::new([SIGTERM])?;
    let to_be_cut = Arc::new(AtomicBool::new(false));
    let faults = Arc::new(Faults::default());
    let session = show(&drive, &faults, Path::new(dir), flushed, {
        let to_be_cut = Arc::clone(&to_be_cut);
        move |drive| {
            if to_be_cut.load(Relaxed) && drive.pending() > 0 {
                end(drive, seed);
            }
        }
    })?;
    std::thread::spawn({
        let drive = Arc::clone(&drive);
        move || {
            if signals.forever().next().is_some() {
                to_be_cut.store(true, Relaxed);
                std::thread::sleep(PATIENCE);
                end(&mut drive.lock(), seed);
            }
        }
    });
    if told {
        std::thread::spawn(move || {
            if let Err(e) = listen(&faults) {
                eprintln!("narufs-drive: it can be told nothing more: {e}");
            }
        });
    }
    session.run()?;
    drive.lock().flush()?;
    Ok(())
}
