//! A process that sits on a mount: its program lies there, and its working directory. It answers questions, a line each,
//! through whatever number of servers.

use super::sys::page_out;
use super::{Outcome, Work};
use crate::demand;
use rustix::fs::{Advice, FlockOperation, fadvise, fcntl_lock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process, from outside.
#[derive(Debug)]
pub struct Sitter {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Sitter {
    /// Starts a program of this kind in a directory; `locked` is the file that it is asked to lock.
    pub fn start(program: &Path, dir: &Path, locked: &Path) -> Outcome<Sitter> {
        let mut command = Command::new(program);
        command.arg("sit").arg(locked).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (questions, answers) =
            (child.stdin.take().ok_or("no way in")?, child.stdout.take().ok_or("no way out")?);
        Ok(Sitter { child, questions, answers: BufReader::new(answers) })
    }

    /// Asks something, which is answered later.
    pub fn say(&mut self, question: &str) -> Outcome {
        Ok(writeln!(self.questions, "{question}")?)
    }

    /// The next answer.
    pub fn hear(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        demand!(line.ends_with('\n'), "it is gone: {:?}", self.child.try_wait());
        Ok(line.trim_end().to_owned())
    }

    /// Asks, and demands an answer.
    pub fn demand(&mut self, question: &str, wanted: &str) -> Outcome {
        self.say(question)?;
        let heard = self.hear()?;
        demand!(heard == wanted, "a process on the mount was asked for {question} and said {heard}");
        Ok(())
    }

    /// Has it end by itself.
    pub fn end(mut self) -> Outcome {
        self.say("end")?;
        let status = self.child.wait()?;
        demand!(status.success(), "a process on the mount has ended with {status}");
        Ok(())
    }
}

impl Drop for Sitter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies the program that this process runs to the mount.
pub fn own_program(work: &Work<'_>) -> Outcome<std::path::PathBuf> {
    let program = work.dir.join("program");
    fs::copy("/proc/self/exe", &program)?;
    Ok(program)
}

/// What such a process does.
///
/// # Errors
/// The conversation is broken.
pub fn sit(locked: &Path) -> Outcome {
    let locked = File::options().read(true).write(true).open(locked)?;
    let text = text()?;
    let sum = checksum(&text)?;
    for question in std::io::stdin().lines() {
        let answer = match question?.as_str() {
            "look" => look(sum, &text).map_or_else(|e| format!("bad: {e}"), |()| "good".to_owned()),
            "look-gone" => look_gone().map_or_else(|e| format!("bad: {e}"), |()| "good".to_owned()),
            "try" => tried(fcntl_lock(&locked, FlockOperation::NonBlockingLockExclusive)),
            "wait" => tried(fcntl_lock(&locked, FlockOperation::LockExclusive)),
            "unlock" => tried(fcntl_lock(&locked, FlockOperation::Unlock)),
            "end" => return Ok(()),
            other => format!("bad: {other}?"),
        };
        println!("{answer}");
    }
    Ok(())
}

fn tried(outcome: Result<(), Errno>) -> String {
    match outcome {
        Ok(()) => "done".to_owned(),
        Err(Errno::AGAIN | Errno::ACCESS) => "held".to_owned(),
        Err(e) => format!("bad: {e}"),
    }
}

/// In a directory that is there, from a program whose pages come from the mount.
fn look(sum: u32, text: &[Range<usize>]) -> Outcome {
    text.iter().try_for_each(page_out)?;
    fadvise(File::open("/proc/self/exe")?, 0, None, Advice::DontNeed)?;
    demand!(checksum(text)? == sum, "the program has other bytes");
    fs::write("sitting", "here")?;
    demand!(fs::read_to_string("sitting")? == "here", "other bytes");
    fs::remove_file("sitting")?;
    demand!(std::env::current_dir()?.is_dir(), "it is not where it was");
    Ok(())
}

/// In one that was removed.
fn look_gone() -> Outcome {
    let here = fs::metadata(".")?;
    demand!(here.is_dir() && here.nlink() == 0, "it has {} links", here.nlink());
    let made = File::create("sitting");
    demand!(made.is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT)), "something was made in it");
    demand!(fs::read_dir(".")?.next().is_none(), "there are names in it");
    Ok(())
}

/// Where this program's own instructions lie.
fn text() -> Outcome<Vec<Range<usize>>> {
    let program = fs::metadata("/proc/self/exe")?.ino().to_string();
    let mut found = Vec::new();
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [range, "r-xp", _, _, inode, ..] = words[..]
            && inode == program
        {
            let (from, to) = range.split_once('-').ok_or("a range")?;
            found.push(usize::from_str_radix(from, 16)?..usize::from_str_radix(to, 16)?);
        }
    }
    demand!(!found.is_empty(), "its program is not mapped");
    Ok(found)
}

fn checksum(text: &[Range<usize>]) -> Outcome<u32> {
    let memory = File::open("/proc/self/mem")?;
    let mut sum = 0;
    for range in text {
        let mut bytes = vec![0; range.len()];
        memory.read_exact_at(&mut bytes, range.start as u64)?;
        sum = crc32c::crc32c_append(sum, &bytes);
    }
    Ok(sum)
}
