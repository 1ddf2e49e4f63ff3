//! A thread of a server waits in the kernel for a page that this very server was to read, and the server ends.

use crate::{PROGRAM, mortal};
use narufs_engine::planted::kill::{Death, How, Step};
use narufs_fuse::control;
use narufs_fuse::wire::Opcode;
use narufs_testing::mortal::{Mortal, Way};
use narufs_testing::supervised::children_of;
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::process::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

pub const PAGE: usize = 4096;
pub const PAGES: u8 = 200;
/// Whose READ is not answered.
pub const LATE: u8 = 100;
/// Writes past the kernel's cache are counted; this is more than any count.
const STOP: u64 = 1 << 32;

pub fn told(e: impl std::fmt::Display) -> String {
    e.to_string()
}

pub fn read(file: &File, page: u8) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; PAGE];
    file.read_exact_at(&mut bytes, u64::from(page) * PAGE as u64)?;
    Ok(bytes)
}

/// Overwrites the first page by one write after the other until it is told to stop; what the last has written.
fn overwrite(file: &File, count: &AtomicU64) -> io::Result<u8> {
    let mut room = vec![0; 2 * PAGE];
    let skip = room.as_ptr().align_offset(PAGE);
    for with in (0..PAGES).cycle() {
        room[skip..][..PAGE].fill(with);
        file.write_all_at(&room[skip..][..PAGE], 0)?;
        if count.fetch_add(1, Ordering::Relaxed) >= STOP {
            return Ok(with);
        }
    }
    unreachable!("it goes on for ever")
}

/// Whether a thread that recalls pages waits where no signal reaches it.
fn recalls(server: u32) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{server}/task"))? {
        // One that has ended is not there.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else { continue };
        let (name, rest) = stat.rsplit_once(')').unwrap_or_default();
        if (name.contains("(naru-apart") || name.contains("(naru-recall"))
            && rest.trim_start().starts_with('D')
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Has the server end, and gives who waits for that.
pub type End = fn(&Mortal) -> io::Result<Option<Child>>;

fn waited_for(mortal: &Mortal, end: End) -> Result<(), String> {
    let (point, path) = (mortal.point(), mortal.point().join("file"));
    let bytes: Vec<u8> = (0..PAGES).flat_map(|page| [page; PAGE]).collect();
    fs::write(&path, bytes).map_err(told)?;
    let cached = File::open(&path).map_err(told)?;
    let direct = File::options().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path);
    let direct = direct.map_err(told)?;
    // Each page is read by itself, and the first is in the kernel's cache.
    fadvise(&cached, 0, None, Advice::DontNeed).map_err(told)?;
    fadvise(&cached, 0, None, Advice::Random).map_err(told)?;
    read(&cached, 0).map_err(told)?;
    let before = control::server_pid(&point).map_err(told)?;
    let stopped = Death { how: How::Stopped, ..Death::at(Opcode::Read as u32, Step::Noted) };
    mortal.plan().arm(&[stopped]).map_err(told)?;
    let count = AtomicU64::new(0);
    let last = std::thread::scope(|scope| {
        let ((say_read, hear_read), (say_written, hear_written)) = (mpsc::channel(), mpsc::channel());
        let waits = || -> Result<u8, String> {
            let late = &cached;
            scope.spawn(move || drop(say_read.send(read(late, LATE))));
            mortal.wait(|| Ok(mortal.plan().died()? == 1))?;
            let (file, count) = (&direct, &count);
            scope.spawn(move || drop(say_written.send(overwrite(file, count))));
            // What is recalled at last is all pages, and no write is answered before.
            mortal.wait(|| {
                let written = count.load(Ordering::Relaxed);
                Ok(recalls(before)? && count.load(Ordering::Relaxed) == written && recalls(before)?)
            })?;
            count.fetch_add(STOP, Ordering::Relaxed);
            let mut asked = end(mortal).map_err(told)?;
            let returned = || {
                let late = mortal.hear(&hear_read, || false)?.map_err(told)?;
                let last = mortal.hear(&hear_written, || false)?.map_err(told)?;
                if late == [LATE; PAGE] { Ok(last) } else { Err("another page was read".to_owned()) }
            };
            let outcome = returned();
            if let Some(asked) = &mut asked {
                if outcome.is_err() {
                    asked.kill().map_err(told)?;
                }
                let status = asked.wait().map_err(told)?;
                if !status.success() {
                    return outcome.and(Err(format!("who asked for its end: {status}")));
                }
            }
            outcome
        };
        let outcome = waits();
        if outcome.is_err() {
            count.fetch_add(STOP, Ordering::Relaxed);
            mortal.cut();
        }
        outcome
    })?;
    let after = control::server_pid(&point).map_err(told)?;
    let first = read(&cached, 0).map_err(told)?;
    if after == before || first != [last; PAGE] {
        return Err(format!("servers {before} and {after}: {:?} and not {last} was read", first.first()));
    }
    let keeper = control::supervisor_pid(&point).map_err(told)?.ok_or("nobody keeps it")?;
    let [keeper, after] = [keeper, after].map(|pid| Pid::from_raw(pid.cast_signed()).expect("a process"));
    mortal.wait(|| Ok(children_of(keeper)? == [after])).map_err(|e| format!("what is left of {before}: {e}"))
}

pub fn killed(mortal: &Mortal) -> io::Result<Option<Child>> {
    mortal.kill();
    Ok(None)
}

pub fn replaced(mortal: &Mortal) -> io::Result<Option<Child>> {
    let mut upgrade = Command::new(PROGRAM);
    upgrade.arg("upgrade").arg(mortal.point()).stdin(Stdio::null()).spawn().map(Some)
}

fn is_followed(end: End) {
    let mortal = mortal(Way::Usual);
    waited_for(&mortal, end).and_then(|()| mortal.end(Path::new(PROGRAM), |_| Ok(()))).unwrap();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_is_followed_that_was_killed_while_it_waited_for_itself() {
    is_followed(killed);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_that_waits_for_itself_makes_room_for_another_program() {
    is_followed(replaced);
}
