//! Starts the processes, kills the one that has measured, and puts the record together.

use super::{COMMAND, Engine, Load, Order, Said, Step};
use crate::progress::Progress;
use crate::record::Check;
use crate::run::{At, in_turn, work_name};
use crate::stop::Stop;
use crate::target::Reopened;
use crate::{Error, Plan, Record, Result};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often the user is heard.
const TICK: Duration = Duration::from_millis(100);

/// Runs the plan on an image, each part in a process of its own. Every record is given to `each` as soon as it is
/// there.
///
/// # Errors
/// The first failure, also of a process; what the run had made is removed then too. [`Error::Interrupted`] if
/// `stop` was set.
pub fn run(
    engine: &Engine,
    plan: &Plan,
    stop: &Stop,
    progress: &Progress,
    each: impl FnMut(Record),
) -> Result<()> {
    let once =
        |at: &At, each: &mut dyn FnMut(Record)| once(engine, at).map(|all| all.into_iter().for_each(each));
    in_turn(plan, stop, progress, once, each)
}

/// How a process has failed.
enum Trouble {
    /// It has said so and tidied up.
    Told(Error),
    /// It is no more; what it has made is still there.
    Died(Error),
}

fn once(engine: &Engine, at: &At) -> Result<Vec<Record>> {
    let load = Load {
        workload: at.spec.name.to_owned(),
        threads: at.threads,
        repeat: at.repeat,
        repeats: at.plan.repeat,
        time: at.plan.time,
        params: at.plan.params.clone(),
        check: at.plan.check,
    };
    let (mount, watched) = (engine.mount.clone(), at.progress.is_watched());
    let order = Order { mount, work: work_name(), load, step: Step::Measure, watched };
    match measure_and_compare(engine, &order, at) {
        Ok(records) => Ok(records),
        Err(Trouble::Told(e)) => Err(e),
        Err(Trouble::Died(e)) => {
            let order = Order { step: Step::TidyUp, ..order };
            let tidied = Process::start(engine, &order).and_then(|process| process.end(at));
            if let Err(Trouble::Told(e) | Trouble::Died(e)) = tidied {
                tracing::warn!("{}: {e}", engine.mount.image.display());
            }
            Err(e)
        }
    }
}

fn measure_and_compare(engine: &Engine, order: &Order, at: &At) -> Result<Vec<Record>, Trouble> {
    let mut records = Vec::new();
    let mut process = Process::start(engine, order)?;
    let (synced, left) = loop {
        match process.next(at)? {
            Said::Measured(record) => records.push(*record),
            Said::Synced(time, left) => break (time, left),
            Said::Ended => return process.reap().map(|()| records),
            _ => {}
        }
    };
    let begin = Instant::now();
    process.kill()?;
    at.doing("recovering");
    let mut process = Process::start(engine, &Order { step: Step::Compare(left), ..order.clone() })?;
    let (mut mounted, mut compared) = (begin, None);
    loop {
        match process.next(at)? {
            Said::Mounted => mounted = Instant::now(),
            Said::Compared(time, files, bytes) => compared = Some((time, files, bytes)),
            Said::Ended => break,
            _ => {}
        }
    }
    process.reap()?;
    if let (Some(last), Some((time, files, bytes))) = (records.last_mut(), compared) {
        last.check = Some(Check {
            reopened: Reopened::Killed,
            reopen_s: (synced + (mounted - begin)).as_secs_f64(),
            compare_s: time.as_secs_f64(),
            files,
            bytes,
        });
    }
    Ok(records)
}

/// A process at work. Dropped, it is killed.
struct Process {
    child: std::process::Child,
    /// It is to end when this is closed.
    orders: Option<ChildStdin>,
    said: Receiver<Said>,
}

fn died(e: std::io::Error) -> Trouble {
    Trouble::Died(Error::io("talk to", "the engine's process", e))
}

impl Process {
    fn start(engine: &Engine, order: &Order) -> Result<Process, Trouble> {
        let mut command = Command::new(&engine.program);
        // In a group of its own, Ctrl-C does not end it: this process tells it to.
        command.arg(COMMAND).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let started =
            command.spawn().map_err(|e| Error::io("start", &engine.program.display().to_string(), e));
        let mut child = started.map_err(Trouble::Told)?;
        let (orders, out) = (child.stdin.take(), child.stdout.take());
        let (send, said) = channel();
        let mut process = Process { child, orders, said };
        let mut line = serde_json::to_string(order).expect("orders are plain data");
        line.push('\n');
        let (Some(orders), Some(out)) = (&mut process.orders, out) else {
            return Err(died(std::io::ErrorKind::BrokenPipe.into()));
        };
        orders.write_all(line.as_bytes()).map_err(died)?;
        let listener = std::thread::Builder::new().name("child".into());
        listener.spawn(move || listen(out, &send)).map_err(died)?;
        Ok(process)
    }

    /// The next that matters. What it says to those who watch is shown.
    fn next(&mut self, at: &At) -> Result<Said, Trouble> {
        loop {
            match self.said.recv_timeout(TICK) {
                Ok(Said::Doing(title, what)) => at.progress.doing(&title, &what),
                Ok(Said::Running(passed, limit)) => at.progress.running(passed, limit),
                Ok(Said::Failed(failure)) => {
                    self.reap()?;
                    return Err(Trouble::Told(failure.into()));
                }
                Ok(Said::Panicked(words)) => {
                    return Err(Trouble::Died(Error::Refused(format!(
                        "the engine's process has panicked: {words}"
                    ))));
                }
                Ok(said) => return Ok(said),
                Err(RecvTimeoutError::Timeout) if at.stop.is_set() => self.orders = None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended_too_soon()),
            }
        }
    }

    fn ended_too_soon(&mut self) -> Trouble {
        match self.wait() {
            Ok(status) => {
                Trouble::Died(Error::Refused(format!("the engine's process has ended too soon: {status}")))
            }
            Err(trouble) => trouble,
        }
    }

    fn wait(&mut self) -> Result<ExitStatus, Trouble> {
        self.orders = None;
        self.child.wait().map_err(died)
    }

    /// Waits for the end of one that has said its last.
    fn reap(&mut self) -> Result<(), Trouble> {
        match self.wait()? {
            status if status.success() => Ok(()),
            _ => Err(self.ended_too_soon()),
        }
    }

    /// Waits until it has done all it was told.
    fn end(mut self, at: &At) -> Result<(), Trouble> {
        while !matches!(self.next(at)?, Said::Ended) {}
        self.reap()
    }

    /// Kills it, which is alive: it waits for that.
    fn kill(mut self) -> Result<(), Trouble> {
        self.child.kill().map_err(died)?;
        match self.wait()?.signal() {
            Some(libc::SIGKILL) => Ok(()),
            _ => Err(self.ended_too_soon()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is reaped already is not touched: the standard library knows.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(out: ChildStdout, send: &Sender<Said>) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let Ok(said) = serde_json::from_str(&line) else { return };
        if send.send(said).is_err() {
            return;
        }
    }
}
