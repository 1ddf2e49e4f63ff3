//! Creations by threads in directories of their own, with and without rounds that follow one another without a pause.

use super::volume::Volume;
use narufs_engine::format::{Nid, ROOT_NID};
use narufs_engine::vfs::Context;
use narufs_engine::{Error, Result};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Creations a second of `threads` threads that make `count` files each.
///
/// # Errors
/// What the file system says.
pub fn measure(volume: &Volume, threads: usize, count: usize, beside_rounds: bool) -> Result<f64> {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    let (fs, root) = (volume.fs(), Context::root());
    // Relaxed: a number.
    let run = RUN.fetch_add(1, Ordering::Relaxed);
    let name = |thread: usize| format!("{}-{run}-{thread}", std::process::id()).into_bytes();
    let dirs: Result<Vec<Nid>> =
        (0..threads).map(|n| Ok(fs.mkdir(&root, ROOT_NID, &name(n), 0o755)?.nid)).collect();
    let dirs = dirs?;
    // What was left dirty before is no business of this run.
    volume.checkpoint()?;
    let (begin, over) = (Barrier::new(threads + usize::from(beside_rounds)), AtomicBool::new(false));
    let make = |dir: Nid| -> Result<(Instant, Instant)> {
        let root = Context::root();
        begin.wait();
        let began = Instant::now();
        for n in 0..count {
            let made = fs.mknod(&root, dir, format!("file-{n}").as_bytes(), libc::S_IFREG | 0o644, 0)?;
            fs.forget(made.nid, 1);
        }
        Ok((began, Instant::now()))
    };
    let make_rounds = || -> Result<()> {
        begin.wait();
        // Relaxed: nothing rests on it.
        while !over.load(Ordering::Relaxed) {
            volume.checkpoint()?;
        }
        Ok(())
    };
    let (make, make_rounds) = (&make, &make_rounds);
    let (made, rounds) = std::thread::scope(|scope| {
        let rounds = beside_rounds.then(|| scope.spawn(make_rounds));
        let makers: Vec<_> = dirs.iter().map(|dir| scope.spawn(move || make(*dir))).collect();
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap_or_else(panicked)).collect();
        over.store(true, Ordering::Relaxed);
        (made, rounds.map_or(Ok(()), |rounds| rounds.join().unwrap_or_else(panicked)))
    });
    rounds?;
    let made: Vec<(Instant, Instant)> = made.into_iter().collect::<Result<_>>()?;
    // From the first to begin to the last to end.
    let (Some(began), Some(ended)) = (made.iter().map(|m| m.0).min(), made.iter().map(|m| m.1).max()) else {
        return Ok(0.0);
    };
    Ok((threads * count) as f64 / (ended - began).as_secs_f64())
}

fn panicked<R>(_: Box<dyn std::any::Any + Send>) -> Result<R> {
    Err(Error::Refused("a thread of the measurement has panicked".into()))
}
