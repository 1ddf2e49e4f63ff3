//! A server ends that has answered an asynchronous write past the kernel's cache, and has not recalled its page.

use crate::aio::{Aligned, Writes};
use crate::waits::{End, LATE, PAGE, PAGES, killed, read, replaced, told};
use crate::{PROGRAM, mortal};
use narufs_engine::planted::kill::{Death, How, Step};
use narufs_fuse::control;
use narufs_fuse::wire::Opcode;
use narufs_testing::mortal::{Mortal, Way};
use narufs_testing::outlive::sys::Map;
use rustix::fs::{Advice, Mode, OFlags, fadvise, minor, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc;

/// The write that is answered first is of this page.
const FIRST: u8 = 50;
const NEW: u8 = 0xee;
/// Writes past the cache after which all of it is recalled.
const PATIENCE: u32 = 4096;
/// Writes that wait for their recall.
const WAITING: u8 = 12;

/// Says how many requests of this mount the kernel may have under way that nobody waits for.
fn limit(point: &Path, requests: u8) -> io::Result<()> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let name = format!("{}/max_background", minor(fs::metadata(point)?.dev()));
    let file = openat(root, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).write_all(requests.to_string().as_bytes())
}

/// Whether a thread of this process sleeps in io_submit(2).
fn submits(thread: i32) -> io::Result<bool> {
    let call = fs::read_to_string(format!("/proc/self/task/{thread}/syscall"))?;
    Ok(call.split(' ').next() == Some(libc::SYS_io_submit.to_string().as_str()))
}

/// Waits until these writes have ended, and no others.
fn end_writes(
    mortal: &Mortal,
    writes: &mut Writes<'_>,
    pages: impl IntoIterator<Item = u8>,
) -> Result<(), String> {
    let expected: BTreeSet<u8> = pages.into_iter().collect();
    let mut ended = BTreeSet::new();
    let outcome = mortal.wait(|| {
        ended.extend(writes.ended()?);
        Ok(ended.len() == expected.len())
    });
    let outcome = outcome.map_err(|e| format!("writes of {ended:?} and not {expected:?} have ended: {e}"));
    outcome.and(if ended == expected { Ok(()) } else { Err(format!("{ended:?} and not {expected:?} ended")) })
}

/// Has a write be answered while its recall waits for those of the writes before it, which wait for a READ; the kernel has its
/// page from before it.
fn answer_first<'f>(mortal: &Mortal, cached: &File, direct: &'f File) -> Result<Writes<'f>, String> {
    let point = mortal.point();
    let served = || mortal.plan().passes(Opcode::Write as u32, Step::Freed);
    let before = served().map_err(told)?;
    let page = Aligned::of(0);
    for _ in 1..PATIENCE {
        direct.write_all_at(page.bytes(), 0).map_err(told)?;
    }
    // From now on all pages are recalled, LATE among them, which is being read.
    let mut writes = Writes::new(direct, 64).map_err(told)?;
    for page in 1..=WAITING {
        writes.begin(page, NEW).map_err(told)?;
    }
    mortal.wait(|| Ok(served()? >= before + PATIENCE - 1 + u32::from(WAITING)))?;
    // The next drops its page, and is not sent.
    limit(&point, WAITING).map_err(told)?;
    let ((say_thread, hear_thread), (say_begun, hear_begun)) = (mpsc::channel(), mpsc::channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = say_thread.send(rustix::thread::gettid().as_raw_pid());
            let begun = writes.begin(FIRST, NEW);
            let _ = say_begun.send(begun.map(|()| writes));
        });
        let show = || {
            let thread = mortal.hear(&hear_thread, || false)?;
            mortal.wait(|| submits(thread))?;
            // Of what is read ahead nobody waits for either, so it is read by a fault.
            let map = Map::of(cached, PAGE * usize::from(PAGES)).map_err(told)?;
            map.reads_nothing_ahead().map_err(told)?;
            match map.get(PAGE * usize::from(FIRST)) {
                FIRST => Ok(()),
                byte => Err(format!("it was written already: {byte}")),
            }
        };
        let begun = || {
            let shown = show();
            limit(&point, 64).map_err(told)?;
            let mut writes = mortal.hear(&hear_begun, || false)?.map_err(told)?;
            end_writes(mortal, &mut writes, [FIRST])?;
            shown.map(|()| writes)
        };
        // Whoever waits for an answer gets an error, so that all of this ends.
        begun().inspect_err(|_| mortal.cut())
    })
}

fn recalled(mortal: &Mortal, end: End) -> Result<(), String> {
    let (point, path) = (mortal.point(), mortal.point().join("file"));
    let bytes: Vec<u8> = (0..PAGES).flat_map(|page| [page; PAGE]).collect();
    fs::write(&path, bytes).map_err(told)?;
    let cached = File::options().read(true).write(true).open(&path).map_err(told)?;
    let direct = File::options().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path);
    let direct = direct.map_err(told)?;
    fadvise(&cached, 0, None, Advice::DontNeed).map_err(told)?;
    fadvise(&cached, 0, None, Advice::Random).map_err(told)?;
    read(&cached, 0).map_err(told)?;
    let before = control::server_pid(&point).map_err(told)?;
    let stopped = Death { how: How::Stopped, ..Death::at(Opcode::Read as u32, Step::Noted) };
    mortal.plan().arm(&[stopped]).map_err(told)?;
    std::thread::scope(|scope| {
        let (say_read, hear_read) = mpsc::channel();
        let go = || -> Result<(), String> {
            let late = &cached;
            scope.spawn(move || drop(say_read.send(read(late, LATE))));
            mortal.wait(|| Ok(mortal.plan().died()? == 1))?;
            let mut writes = answer_first(mortal, &cached, &direct)?;
            let mut asked = end(mortal).map_err(told)?;
            let mut returned = || {
                let late = mortal.hear(&hear_read, || false)?.map_err(told)?;
                end_writes(mortal, &mut writes, 1..=WAITING)?;
                if late == [LATE; PAGE] { Ok(()) } else { Err("another page was read".to_owned()) }
            };
            let rest = returned().inspect_err(|_| mortal.cut());
            let status = asked.as_mut().map(|asked| asked.wait()).transpose().map_err(told)?;
            rest?;
            match status {
                Some(status) if !status.success() => Err(format!("who asked for its end: {status}")),
                _ => Ok(()),
            }
        };
        go().inspect_err(|_| mortal.cut())
    })?;
    mortal
        .wait(|| Ok(read(&cached, FIRST)? == [NEW; PAGE]))
        .map_err(|e| format!("an old page stays: {e}"))?;
    let after = control::server_pid(&point).map_err(told)?;
    if after == before { Err("the same server serves".into()) } else { Ok(()) }
}

fn is_recalled(end: End) {
    let mortal = mortal(Way::Usual);
    let is_there = |point: &Path| {
        let file = File::open(point.join("file")).map_err(told)?;
        let page = read(&file, FIRST).map_err(told)?;
        if page == [NEW; PAGE] { Ok(()) } else { Err("what was written is not there".to_owned()) }
    };
    recalled(&mortal, end).and_then(|()| mortal.end(Path::new(PROGRAM), is_there)).unwrap();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_was_answered_and_not_recalled_is_recalled_by_the_next() {
    is_recalled(killed);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_was_answered_and_not_recalled_is_recalled_by_another_program() {
    is_recalled(replaced);
}
