//! The process within the memory limit, and what starts it.
//!
//! The worker is this program again, with its [`Task`] on standard input. It joins the group before it does anything
//! else, so that what it starts is in it too, and answers with one line of JSON for each record, or for why there
//! is none. Its starter passes an interruption on, and outlives it.

use crate::compare::contender::Contender;
use crate::compare::media::Places;
use crate::compare::start::{Budget, Wants};
use crate::daily::Shelf;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::workload;
use crate::{Error, Params, Plan, Record, Result};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often the user is heard.
const TICK: Duration = Duration::from_millis(100);
/// How long an interrupted worker may take to clean up behind itself.
const GRACE: Duration = Duration::from_secs(30);

/// The argument of this program that makes it a worker.
pub(super) const COMMAND: &str = "spill-worker";

/// What a worker is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Where to write the own process id.
    pub door: PathBuf,
    /// The contender.
    pub contender: String,
    /// The media.
    pub places: Places,
    /// The narufs program.
    pub narufs: PathBuf,
    /// What narufs is told to use.
    pub budget: Budget,
    /// Bytes of the limit.
    pub memory: u64,
    /// Size of the file, as a multiple of that.
    pub ratio: f64,
}

/// A line of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Record(Box<Record>),
    Failed(String),
}

/// A worker's whole life: reads its task, does it, answers.
///
/// # Errors
/// If nobody listens, or the task is none. What goes wrong otherwise is an answer.
pub fn serve(task: impl Read, mut answers: impl Write) -> Result<()> {
    let at = |e: std::io::Error| Error::io("answer", "", e);
    // Whoever has started it undoes what is around it; without them there is nothing to measure for.
    let died = set_parent_process_death_signal(Some(Signal::TERM));
    let task: Task = serde_json::from_reader(task).map_err(|e| Error::Usage(format!("no task: {e}")))?;
    let stop = Stop::on_signals()?;
    let mut records = Vec::new();
    let done = died.map_err(|e| Error::io("prctl", "", e)).and_then(|()| work(&task, &stop, &mut records));
    let records = records.into_iter().map(|record| Answer::Record(Box::new(record)));
    let failed = done.err().map(|e| Answer::Failed(e.to_string()));
    for answer in records.chain(failed) {
        serde_json::to_writer(&mut answers, &answer).map_err(|e| at(e.into()))?;
        answers.write_all(b"\n").map_err(at)?;
    }
    Ok(())
}

fn work(task: &Task, stop: &Stop, records: &mut Vec<Record>) -> Result<()> {
    let id = std::process::id().to_string();
    std::fs::write(&task.door, id).map_err(|e| Error::io("join", &task.door.display().to_string(), e))?;
    let none = || Error::Usage(format!("{}: no such contender", task.contender));
    let contender = Contender::find(&task.contender).ok_or_else(none)?;
    let spec = workload::find(super::WORKLOAD).ok_or_else(none)?;
    let plan = Plan {
        workloads: vec![spec],
        threads: vec![1],
        time: Duration::from_secs(1),
        repeat: 1,
        params: Params { memory: task.memory, ratio: task.ratio, ..Params::default() },
        check: true,
        shelf: Shelf::default(),
    };
    let wants = Wants { ring: Some(task.budget.journal), files: None };
    contender.start(&task.places, &task.narufs, wants, Some(task.budget))?.run(
        &plan,
        stop,
        &Progress::none(),
        |record| records.push(record),
    )
}

/// A worker that does not outlive its starter's interest.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // It has ended, or is to.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a worker and waits for what it has to say.
pub(super) fn run(task: &Task, narufs: &Path, stop: &Stop) -> Result<Vec<Record>> {
    let at = |e: std::io::Error| Error::io("start", &narufs.display().to_string(), e);
    let mut command = Command::new(narufs);
    // A group of its own: an interruption reaches it from here, once.
    command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut worker = Started(command.spawn().map_err(at)?);
    let (input, output) = (worker.0.stdin.take(), worker.0.stdout.take());
    let (Some(mut input), Some(output)) = (input, output) else {
        return Err(at(std::io::Error::other("no pipes")));
    };
    let words = serde_json::to_vec(task).map_err(|e| at(e.into()))?;
    input.write_all(&words).map_err(at)?;
    drop(input);
    let (send, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            // Nobody listens any more: nothing is lost.
            if send.send(line).is_err() {
                return;
            }
        }
    });
    let mut answers = Vec::new();
    let mut asked: Option<Instant> = None;
    loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => answers.push(line.map_err(at)?),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        match asked {
            None if stop.is_set() => {
                kill_process(Pid::from_child(&worker.0), Signal::TERM).map_err(|e| at(e.into()))?;
                asked = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => {
                worker.0.kill().map_err(at)?;
            }
            _ => {}
        }
    }
    let status = worker.0.wait().map_err(at)?;
    // The pipe has ended, so that it has too.
    let _ = reader.join();
    stop.check()?;
    let records = understood(&answers)?;
    if !status.success() {
        return Err(Error::Refused(format!("the benchmark's process ended with {status}")));
    }
    Ok(records)
}

fn understood(answers: &[String]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for line in answers {
        match serde_json::from_str(line) {
            Ok(Answer::Record(record)) => records.push(*record),
            Ok(Answer::Failed(why)) => return Err(Error::Refused(why)),
            Err(e) => return Err(Error::Refused(format!("the benchmark's process said nonsense: {e}"))),
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_in_its_own_words() {
        let line = serde_json::to_string(&Answer::Failed("no \"room\"".into())).expect("plain");
        assert_eq!(understood(&[line]).expect_err("failed").to_string(), "no \"room\"");
        assert!(understood(&["{".into()]).is_err());
        assert_eq!(understood(&[]).expect("nothing was said"), []);
    }

    #[test]
    fn what_is_no_task_is_refused() {
        assert!(serve(&b"{}"[..], Vec::new()).expect_err("refused").to_string().starts_with("no task"));
    }
}
