//! `narufs fsck`: checks an image, and mends it.

use crate::args::Fsck;
use crate::failure::{Failure, Status};
use crate::output::say;
use crate::size::Size;
use indicatif::{ProgressBar, ProgressStyle};
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::fsck::{self, IssueKind, Options, Outcome, Report};
use narufs_engine::volume::{self, Origin};
use std::io::IsTerminal;
use std::sync::Arc;

/// Checks; the failure's status is that of fsck(8).
pub fn run(args: &Fsck) -> Result<(), Failure> {
    let repair = args.repair || args.automatic;
    let failed = |e: narufs_engine::Error| Failure::about(Status::CheckFailed, &args.image, e);
    let said =
        [(args.moved, Origin::Moved), (args.discard_journal, Origin::GivenUp), (args.copied, Origin::Copied)];
    let origin = said.into_iter().find(|(is_said, _)| *is_said).map_or(Origin::Unknown, |(_, origin)| origin);
    let media = volume::open_for_check(&args.image, args.journal.as_deref(), repair, origin);
    let media = media.map_err(failed)?;
    let bar = progress_bar(args.json);
    let shown = bar.clone();
    let options = Options {
        repair,
        discard_journal: args.discard_journal,
        threads: args.threads.map_or(0, usize::from),
        progress: Some(Arc::new(move |stage, done, total| {
            shown.set_length(total);
            shown.set_position(done);
            shown.set_message(format!("{stage:?}").to_lowercase());
        })),
    };
    let report = fsck::check(&media, &options);
    bar.finish_and_clear();
    let report = report.map_err(failed)?;
    if args.json {
        let json = serde_json::to_string_pretty(&report);
        say!("{}", json.map_err(|e| Failure::new(Status::CheckFailed, e.to_string()))?);
    } else {
        print(args, &report);
    }
    match report.status() {
        0 => Ok(()),
        1 => Err(Failure::new(Status::Mended, "")),
        _ => Err(Failure::new(Status::ProblemsLeft, "")),
    }
}

/// Shown on a terminal; elsewhere the report is enough.
fn progress_bar(json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{msg:12} [{bar:40}] {pos}/{len}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn print(args: &Fsck, report: &Report) {
    let image = args.image.display();
    for issue in &report.issues {
        say!("{issue}");
    }
    if report.more > 0 {
        say!("... and {} more of these kinds", report.more);
    }
    let counts = &report.counts;
    if counts.blocks > 0 {
        say!(
            "{image}: {}, {}, {} of {} in use",
            count(counts.inodes.saturating_sub(counts.directories), "file", "files"),
            count(counts.directories, "directory", "directories"),
            Size(counts.used * BLOCK_SIZE as u64),
            Size(counts.blocks * BLOCK_SIZE as u64)
        );
        if counts.rows > 0 {
            let files = count(counts.with_data, "file", "files");
            say!("{image}: data of {files} in {}", count(counts.rows, "row of blocks", "rows of blocks"));
        }
    }
    let mended = report.more - report.more_left;
    let more = if args.repair || args.automatic { report.more_left } else { report.more };
    let left = report.issues.iter().filter(|i| i.outcome != Outcome::Mended).count() as u64 + more;
    match (report.status(), left) {
        (0, _) => say!("{image}: clean"),
        (1, _) => say!("{image}: {} mended", problems(report.issues.len() as u64 + mended)),
        (_, left) if args.repair || args.automatic => say!("{image}: {} left", problems(left)),
        (_, left) if report.issues.iter().any(|i| i.kind == IssueKind::RingMissing) => {
            say!("{image}: {}; nothing else was checked", problems(left));
        }
        (_, left) => say!("{image}: {}; to mend: narufs fsck {image} --repair", problems(left)),
    }
}

fn problems(count_of: u64) -> String {
    count(count_of, "problem", "problems")
}

fn count(of: u64, one: &str, many: &str) -> String {
    format!("{of} {}", if of == 1 { one } else { many })
}
