//! What the processes do that [`super::parent`] starts: measure, or compare.

use super::{Failure, Load, Mount, Order, Said, Step};
use crate::daily::Shelf;
use crate::progress::Progress;
use crate::run::{At, timed};
use crate::stop::Stop;
use crate::target::{Library, LibraryOptions, LibrarySession, Target};
use crate::workload::{self, Seen, Visitor, Workload};
use crate::{Error, Plan, Record, Result};
use std::io::{BufRead, Read, Write};
use std::time::{Duration, Instant};

/// How often one that waits for its kill looks whether there is a parent.
const PAUSE: Duration = Duration::from_millis(100);

/// Says something to the parent. Where nobody listens any more there is nobody to tell.
fn say(said: &Said) {
    let mut line = serde_json::to_string(said).expect("what is said is plain data");
    line.push('\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// Carries out the order on standard input. `options` reads mount options.
///
/// # Errors
/// If there is no order: this process was not started by [`super::run`]. Whatever fails later is told to the
/// parent.
pub fn serve(options: impl Fn(&Mount) -> Result<LibraryOptions>) -> Result<()> {
    let refused = |e: std::io::Error| Error::Usage(format!("this is a part of `narufs bench`: {e}"));
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(refused)?;
    let order: Order = serde_json::from_str(&line).map_err(|e| refused(e.into()))?;
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let words = payload.downcast_ref::<&str>().copied();
        let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let words = words.and_then(|words| words.lines().next()).unwrap_or("without a word");
        let at = info.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
        say(&Said::Panicked(format!("{words}{at}")));
    }));
    let stop = Stop::default();
    end_with_input(stop.clone())?;
    let done = options(&order.mount).and_then(|options| perform(&order, &options, &stop, &say));
    say(&done.map_or_else(|e| Said::Failed(Failure::from(e)), |()| Said::Ended));
    Ok(())
}

/// Sets the flag when standard input ends: by the parent's wish, or with the parent.
fn end_with_input(stop: Stop) -> Result<()> {
    let wait = move || {
        let mut rest = [0; 64];
        while matches!(std::io::stdin().lock().read(&mut rest), Ok(n) if n > 0) {}
        stop.set();
    };
    let thread = std::thread::Builder::new().name("parent".into()).spawn(wait);
    thread.map(drop).map_err(|e| Error::io("start a thread", "", e))
}

/// Carries out an order. Returns with the image unmounted, unless that is what fails.
fn perform(
    order: &Order,
    options: &LibraryOptions,
    stop: &Stop,
    say: &(impl Fn(&Said) + Sync),
) -> Result<()> {
    let spec = workload::find(&order.load.workload)
        .ok_or_else(|| Error::Usage(format!("{}: no such workload", order.load.workload)))?;
    let plan = order.load.plan(spec);
    let progress = if order.watched { Progress::told(told) } else { Progress::none() };
    let at = At {
        spec,
        threads: order.load.threads,
        repeat: order.load.repeat,
        plan: &plan,
        stop,
        progress: &progress,
    };
    let mut library = Library::mount(&order.mount.image, &order.mount.name, options.clone())?;
    let done = match &order.step {
        Step::Measure => measure(&mut library, order, &at, say),
        Step::Compare(left) => {
            say(&Said::Mounted);
            library.enter_again(&order.work).and_then(|()| compare(&library, left, &at, say))
        }
        Step::TidyUp => library.enter_again(&order.work).or_else(absent),
    };
    at.doing("cleaning up");
    let left = library.leave();
    let unmounted = library.unmount();
    done.and(left).and(unmounted)
}

/// What the one who watches is told.
fn told(shown: crate::progress::Shown) {
    use crate::progress::Shown::{Doing, Running};
    say(&match shown {
        Doing(title, what) => Said::Doing(title.to_owned(), what.to_owned()),
        Running(passed, limit) => Said::Running(passed, limit),
    });
}

/// There is nothing to tidy up where a run has not begun.
fn absent(e: Error) -> Result<()> {
    if e.errno() == Some(libc::ENOENT) { Ok(()) } else { Err(e) }
}

impl Load {
    fn plan(&self, spec: &'static workload::Spec) -> Plan {
        Plan {
            workloads: vec![spec],
            threads: vec![self.threads],
            time: self.time,
            repeat: self.repeats,
            params: self.params.clone(),
            check: self.check,
            shelf: Shelf::default(),
        }
    }
}

/// Runs the workload. With a check to come it waits for its end, which comes from outside.
fn measure(library: &mut Library, order: &Order, at: &At, say: &impl Fn(&Said)) -> Result<()> {
    struct Visit<'a>(&'a Library, &'a At<'a>);
    impl Visitor<LibrarySession> for Visit<'_> {
        type Output = Result<(Vec<Record>, String)>;
        fn visit<W: Workload<LibrarySession>>(self, workload: W) -> Self::Output {
            let (records, left) = timed(self.0, &workload, self.1)?;
            let left = serde_json::to_string(&left).map_err(|e| Error::Refused(e.to_string()))?;
            Ok((records, left))
        }
    }
    library.enter(&order.work)?;
    let (records, left) =
        at.spec.with(at.env(), Visit(library, at)).unwrap_or_else(|| Err(at.spec.not_here()))?;
    for record in records {
        say(&Said::Measured(Box::new(record)));
    }
    if !at.plan.check {
        return Ok(());
    }
    let begin = Instant::now();
    library.sync_all()?;
    say(&Said::Synced(begin.elapsed(), left));
    loop {
        // The parent kills this process; where it is no more, the end of the orders says so.
        std::thread::sleep(PAUSE);
        at.stop.check()?;
    }
}

/// Compares what is there with what a process that is no more says it has left.
fn compare(library: &Library, left: &str, at: &At, say: &impl Fn(&Said)) -> Result<()> {
    struct Visit<'a>(&'a Library, &'a str);
    impl Visitor<LibrarySession> for Visit<'_> {
        type Output = Result<Seen>;
        fn visit<W: Workload<LibrarySession>>(self, workload: W) -> Self::Output {
            let left: Vec<W::Left> = serde_json::from_str(self.1)
                .map_err(|e| Error::Refused(format!("what must be there cannot be understood: {e}")))?;
            workload.check(&left, &mut self.0.session()?)
        }
    }
    at.doing("checking");
    let begin = Instant::now();
    let compared = at.spec.with(at.env(), Visit(library, left));
    let seen = compared.unwrap_or_else(|| Err(at.spec.not_here()))?;
    say(&Said::Compared(begin.elapsed(), seen.files, seen.bytes));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Params;
    use std::path::Path;
    use std::sync::Mutex;

    /// A small image with its journal in emulated memory.
    fn image(at: &Path) -> Mount {
        let image = at.join("image");
        let format = narufs_engine::FormatOptions {
            blocks: Some(16384),
            journal_slots: Some(8192),
            journal: narufs_engine::format::JournalKind::Emulated,
            journal_path: Some(at.join("ring").to_str().expect("plain letters").into()),
            sparse: true,
            ..narufs_engine::FormatOptions::default()
        };
        std::fs::File::create(&image).and_then(|f| f.set_len(16384 * 4096)).expect("a sparse file");
        narufs_engine::format(&image, &narufs_engine::FormatOptions { blocks: None, ..format })
            .expect("room enough");
        Mount { image, name: "lib".into(), options: vec![] }
    }

    /// Does what is ordered; gives what was said.
    fn said(mount: &Mount, workload: &str, step: Step, check: bool) -> (Result<()>, Vec<Said>) {
        let params = Params { files: Some(60), size: Some(1 << 20), ops: Some(30), ..Params::default() };
        let load = Load {
            workload: workload.into(),
            threads: 2,
            repeat: 1,
            repeats: 1,
            time: Duration::from_secs(600),
            params,
            check,
        };
        let order = Order { mount: mount.clone(), work: "work".into(), load, step, watched: false };
        let (stop, heard) = (Stop::default(), Mutex::new(Vec::new()));
        let hear = |said: &Said| {
            // In place of the kill: it ends, and what it has made goes.
            if matches!(said, Said::Synced(..)) {
                stop.set();
            }
            heard.lock().expect("no panic").push(said.clone());
        };
        let done = perform(&order, &LibraryOptions::default(), &stop, &hear);
        (done, heard.into_inner().expect("no panic"))
    }

    /// What a process that is let go with everything it has made leaves behind.
    fn measured(mount: &Mount, workload: &str) -> String {
        let (done, heard) = said(mount, workload, Step::Measure, true);
        assert!(matches!(done, Err(Error::Interrupted)), "{workload}: {done:?}");
        match heard.as_slice() {
            [measured @ .., Said::Synced(_, left)] => {
                assert!(!measured.is_empty() && measured.iter().all(|s| matches!(s, Said::Measured(_))));
                left.clone()
            }
            other => panic!("{workload}: {other:?}"),
        }
    }

    #[test]
    fn what_is_not_there_is_noticed_in_another_process() {
        let at = tempfile::tempdir_in("/dev/shm").expect("memory for files");
        let mount = image(at.path());
        for workload in ["DWSL", "DWAL", "MWCM", "MWRM", "varmail", "tokubench", "oltp"] {
            let left = measured(&mount, workload);
            // Its work directory is gone: nothing is there to be compared.
            let (done, _) = said(&mount, workload, Step::Compare(left), true);
            assert_eq!(done.expect_err("nothing is there").errno(), Some(libc::ENOENT), "{workload}");
        }
        let (done, heard) = said(&mount, "MWCM", Step::Measure, false);
        assert!(done.is_ok() && matches!(heard.as_slice(), [Said::Measured(_)]), "{heard:?}");
        let (done, _) = said(&mount, "MWCM", Step::TidyUp, false);
        done.expect("nothing is left to tidy up");
    }

    #[test]
    fn orders_and_answers_travel_whole() {
        let at = tempfile::tempdir_in("/dev/shm").expect("memory for files");
        let order = Order {
            mount: image(at.path()),
            work: "w".into(),
            load: Load {
                workload: "oltp".into(),
                threads: 3,
                repeat: 2,
                repeats: 3,
                time: Duration::from_millis(2500),
                params: Params { ratio: 1.25, ops: Some(7), ..Params::default() },
                check: true,
            },
            step: Step::Compare("[{\"a\":1}]".into()),
            watched: true,
        };
        let line = serde_json::to_string(&order).expect("plain data");
        assert!(!line.contains('\n'));
        let back: Order = serde_json::from_str(&line).expect("as it was written");
        assert_eq!((back.mount, back.step, back.load.params), (order.mount, order.step, order.load.params));
        assert_eq!((back.load.time, back.load.repeats), (order.load.time, 3));
        for e in [Error::Usage("u".into()), Error::Refused("r".into()), Error::Wrong("w".into())] {
            let (words, failure) = (e.to_string(), Failure::from(e));
            assert_eq!(Error::from(failure).to_string(), words);
        }
        assert!(matches!(Error::from(Failure::from(Error::Interrupted)), Error::Interrupted));
    }
}
