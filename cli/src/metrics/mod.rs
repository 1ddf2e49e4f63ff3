//! `narufs metrics`, and what `-o metrics=` serves: the counters of mounts in the text format of Prometheus.
//!
//! The counters are read all at once, so nothing is registered anywhere: [`text`] makes of one reading what the encoder
//! takes. [`families`] says what there is, [`http`] answers who asks by HTTP, [`address`] is where.
//!
//! Invariant: labels are few, and their values bounded by the program: kinds of requests, causes, classes, phases, and the
//! directories of mounts.

pub mod address;
mod families;
mod http;
pub mod serving;

use crate::args::Metrics;
use crate::failure::{Failure, Status};
use crate::{output, snapshot};
use families::Family;
use narufs_fuse::mount::mountinfo;
use prometheus::TextEncoder;
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Prints those of all mounts; one that does not answer is said, and does not hide the others.
pub fn run(args: &Metrics) -> Result<(), Failure> {
    let (mut read, mut failures) = (Vec::<(String, Value)>::new(), Vec::new());
    for dir in &args.dirs {
        match snapshot::of(dir) {
            Ok(counters) => {
                let name = name_of(dir);
                // Two series of one name would be refused.
                if read.iter().all(|(other, _)| *other != name) {
                    read.push((name, counters));
                }
            }
            Err(failure) => failures.push(failure.message),
        }
    }
    let text = text(&read).map_err(|why| Failure::new(Status::Failed, why))?;
    output::whole(&text);
    match failures.split_last() {
        None => Ok(()),
        Some((last, others)) => {
            others.iter().for_each(|why| eprintln!("narufs metrics: {why}"));
            Err(Failure::new(Status::Failed, last))
        }
    }
}

/// What a mount is called in labels: where it is, by whichever of its directories and however it was said. Nobody is asked
/// for that but the kernel's table: the mount may be dead.
pub fn name_of(dir: &Path) -> String {
    let place = narufs_fuse::mount::place(dir).unwrap_or_else(|_| dir.to_owned());
    let all = mountinfo::all().unwrap_or_default();
    // Of several at one place the last lies on top.
    let around = all.into_iter().filter(|entry| place.starts_with(&entry.point));
    let around = around.max_by_key(|entry| entry.point.as_os_str().len()).filter(mountinfo::Entry::is_ours);
    label(&around.map_or(place, |entry| entry.point))
}

/// A path as the value of a label, another one for each: what is not UTF-8, and the backslash that says so, by its bytes.
fn label(path: &Path) -> String {
    let mut label = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        label += &chunk.valid().replace('\\', "\\x5c");
        label.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    label
}

/// The metrics of mounts by their names, with what was read of each.
///
/// # Errors
/// What the encoder does not take.
pub fn text(read: &[(String, Value)]) -> Result<String, String> {
    let families: Vec<_> = families::all(read).into_iter().filter_map(Family::encoded).collect();
    TextEncoder::new().encode_to_string(&families).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::ffi::OsStr;

    fn counters() -> Value {
        json!({
            "version": "1.2.3", "transport": "device", "incarnation": 2, "supervisor_pid": 7, "started_ns": 1_500_000_000u64,
            "read_only": "damaged", "failed": true,
            "room": {"block_size": 4096, "blocks": 100, "blocks_free": 25, "files": 10, "files_free": 4},
            "requests": {"LOOKUP": 12, "COPY_FILE_RANGE_64": 1}, "requests_awaited": {"LOOKUP": 11},
            "journal": {"ring_slots": 1000, "tail": 2500, "head": 2400, "laps": 2, "commits": 5, "power_lag_ns": 250_000_000},
            "device": [{"cause": "DataWriteBack", "reads": 1, "read_bytes": 4096, "writes": 0, "write_bytes": 0, "discard_bytes": 0}],
            "locks": [{"class": "inode", "waits": 3, "wait_ns": 2_000_000_000u64}],
            "latencies": {"LOOKUP": {"sum_ns": 3_000_000u64, "bytes": 0, "buckets": [[1280, 4], [5120, 2], [4_194_304, 3], [null, 1]]}},
        })
    }

    fn lines(read: &[(String, Value)]) -> Vec<String> {
        text(read).expect("it is text").lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_was_read_is_there_with_its_labels_and_in_base_units() {
        let lines = lines(&[("/mnt/a".into(), counters())]);
        for line in [
            "narufs_incarnation{mount=\"/mnt/a\"} 2",
            "narufs_supervised{mount=\"/mnt/a\"} 1",
            "narufs_start_time_seconds{mount=\"/mnt/a\"} 1.5",
            "narufs_failed{mount=\"/mnt/a\"} 1",
            "narufs_size_bytes{mount=\"/mnt/a\"} 409600",
            "narufs_free_bytes{mount=\"/mnt/a\"} 102400",
            "narufs_requests_total{mount=\"/mnt/a\",operation=\"lookup\"} 12",
            "narufs_requests_total{mount=\"/mnt/a\",operation=\"copy_file_range_64\"} 1",
            "narufs_device_read_bytes_total{cause=\"data_write_back\",mount=\"/mnt/a\"} 4096",
            "narufs_lock_wait_seconds_total{class=\"inode\",mount=\"/mnt/a\"} 2",
            "narufs_journal_laps_total{mount=\"/mnt/a\"} 2",
            "narufs_journal_power_lag_seconds{mount=\"/mnt/a\"} 0.25",
        ] {
            assert!(lines.iter().any(|other| other == line), "{line} in {lines:#?}");
        }
    }

    #[test]
    fn the_labels_of_two_paths_are_never_the_same() {
        let label = |bytes: &[u8]| label(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(label("/mnt/\u{e4} b".as_bytes()), "/mnt/\u{e4} b");
        assert_eq!(label(b"/mnt/\xfe\xffa"), "/mnt/\\xfe\\xffa");
        assert_eq!(label(b"/mnt/\\xfe"), "/mnt/\\x5cxfe");
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_all() {
        let lines = lines(&[("/mnt/a".into(), counters())]);
        let histogram: Vec<&str> =
            lines.iter().filter_map(|line| line.strip_prefix("narufs_request_duration_seconds_")).collect();
        let of = |le: &str| {
            let start = format!("bucket{{mount=\"/mnt/a\",operation=\"lookup\",le=\"{le}\"}} ");
            histogram.iter().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
        };
        // 5120 ns are above 4.096 µs: counted from 8.192 on.
        assert_eq!(of("0.000004096").as_deref(), Some("4"), "{histogram:#?}");
        assert_eq!(of("0.000008192").as_deref(), Some("6"));
        assert_eq!(of("0.004194304").as_deref(), Some("9"));
        assert_eq!(of("+Inf").as_deref(), Some("10"));
        assert!(histogram.contains(&"count{mount=\"/mnt/a\",operation=\"lookup\"} 10"));
        assert!(histogram.contains(&"sum{mount=\"/mnt/a\",operation=\"lookup\"} 0.003"));
    }

    #[test]
    fn mounts_stand_together_below_one_heading_and_what_none_has_is_left_out() {
        let one = ("/mnt/a".to_owned(), counters());
        let mut other = ("/mnt/\"b\"".to_owned(), counters());
        other.1["journal"] = Value::Null;
        let text = text(&[one, other]).expect("it is text");
        assert_eq!(text.matches("# TYPE narufs_incarnation gauge").count(), 1);
        assert!(text.contains("narufs_incarnation{mount=\"/mnt/\\\"b\\\"\"} 2"));
        assert_eq!(text.matches("narufs_journal_laps_total{").count(), 1);
        assert!(!text.contains("scratch"));
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            let is_counter = line.ends_with(" counter");
            let name = line.split(' ').nth(2).expect("a name");
            assert!(name.starts_with("narufs_") && is_counter == name.ends_with("_total"), "{line}");
            assert!(text.contains(&format!("# HELP {name} ")), "{line}");
        }
    }
}
