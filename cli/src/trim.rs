//! `narufs trim`: tells the device which space is free.

use crate::args::Trim;
use crate::failure::{Failure, Status};
use crate::output::say;
use crate::size::Size;
use indicatif::{ProgressBar, ProgressStyle};
use narufs_fuse::control;
use std::io::IsTerminal;

/// Bytes of one call: short enough for progress to be seen.
const STEP: u64 = 4 << 30;

/// Trims, and says how much.
pub fn run(args: &Trim) -> Result<(), Failure> {
    let failed = |e: std::io::Error| match e.raw_os_error() {
        Some(libc::EPERM) => {
            Failure::about(Status::Failed, &args.dir, "only root and the user who mounted may trim it")
        }
        _ => Failure::of_call(&args.dir, &e),
    };
    // Refuses what is not a mount of narufs: FITRIM is anybody's call.
    let size = control::size(&args.dir).map_err(failed)?;
    let bar = progress_bar(size);
    let mut trimmed = 0;
    for start in (0..size).step_by(STEP as usize) {
        trimmed += control::trim(&args.dir, start..(start + STEP).min(size), args.least.0).map_err(failed)?;
        bar.set_position(start + STEP);
    }
    bar.finish_and_clear();
    say!("{}: {} are free and discarded", args.dir.display(), Size(trimmed));
    Ok(())
}

fn progress_bar(size: u64) -> ProgressBar {
    if size <= STEP || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(size);
    if let Ok(style) = ProgressStyle::with_template("trimming [{bar:40}] {binary_bytes}/{binary_total_bytes}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
