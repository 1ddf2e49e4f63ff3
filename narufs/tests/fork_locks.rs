//! A child that lives on does not keep an image locked that its parent has closed, or has left by its end.
//!
//! The only test of its program: a child has the thread alone that forked it.

#![allow(unsafe_code, reason = "forks, and leaves the child without a word")]

use narufs::*;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Forks; the child ends with `run`, and says whether that went well.
fn fork(run: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child ends by _exit, and uses nothing of the parent's other threads: no lock that they may hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        // SAFETY: ends the process at once; its memory is a copy.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    child
}

fn wait_for(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the child is this process's, and the status lies on the stack.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// A child that lives until it is let go, and says so then.
struct Lingering {
    let_go: PipeWriter,
    says: PipeReader,
}

impl Lingering {
    /// The pipes, and what the child does with their other ends.
    fn new() -> (Lingering, impl FnOnce()) {
        let (mut waits, let_go) = std::io::pipe().expect("a pipe");
        let (says, mut tell) = std::io::pipe().expect("a pipe");
        let others = let_go.as_raw_fd();
        let run = move || {
            // SAFETY: the child's copy of a descriptor whose owner it never uses; with it, it would wait for itself
            // where the test has failed.
            unsafe { libc::close(others) };
            waits.read_exact(&mut [0]).expect("a byte");
            tell.write_all(b"!").expect("somebody listens");
        };
        (Lingering { let_go, says }, run)
    }

    /// It was there all the time.
    fn end(mut self) {
        self.let_go.write_all(b"!").expect("it waits");
        let mut said = [0];
        self.says.read_exact(&mut said).expect("it was alive");
    }
}

fn open(image: &Path) -> Fs {
    Fs::open(image, &MountOptions::new()).expect("nobody has it")
}

#[test]
fn a_child_that_lives_on_keeps_no_image_locked() {
    let place = tempfile::tempdir().expect("a place");
    let image = place.path().join("image");
    for journal in [Journal::Image, Journal::Emulated(place.path().join("ring"))] {
        let options = FormatOptions::new().size(16 << 20).journal(journal).force(true);
        Fs::format(&image, &options).expect("room");

        let fs = open(&image);
        let (lingering, run) = Lingering::new();
        let child = fork(run);
        let e = Fs::open(&image, &MountOptions::new()).expect_err("it is open here");
        assert!(matches!(e.cause(), Cause::InUse(_)), "the child has unlocked it: {e}");
        fs.write("/closed", "by the parent").expect("the child has taken nothing from the parent");
        fs.close().expect("nothing is open");
        let fs = open(&image);
        fs.close().expect("nothing is open");
        lingering.end();
        wait_for(child);

        let (lingering, run) = Lingering::new();
        let parent = fork(|| {
            let fs = open(&image);
            fs.create("/left").and_then(|file| file.sync_all()).expect("room");
            fork(run);
            std::mem::forget(fs);
        });
        wait_for(parent);
        let fs = open(&image);
        assert!(fs.recovery().records > 0 && fs.try_exists("/left").expect("asked"));
        lingering.end();
        fs.close().expect("nothing is open");
    }
}
