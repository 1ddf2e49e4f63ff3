//! Which metrics there are, and where in a [snapshot](crate::snapshot) each lies.

use crate::snapshot::{list, named, number, text};
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::format::SLOT_SIZE;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use serde_json::Value;

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;
const PAGE: f64 = BLOCK_SIZE as f64;
const SLOT: f64 = SLOT_SIZE as f64;

/// The powers of two, in nanoseconds, that the buckets of a histogram end at: 4 µs to 8.6 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 12..=33;

/// What a metric is.
#[derive(Clone, Copy)]
enum Kind {
    /// It only grows, until the server is another.
    Total,
    /// It goes up and down.
    Level,
}
use Kind::{Level, Total};

/// A metric with one series for each mount: where its number is, and what that is divided by. Metrics whose number is not
/// there are left out.
const SINGLE: &[(&str, Kind, &str, &str, f64)] = &[
    (
        "incarnation",
        Level,
        "Servers that the mount had before this one. Counters begin again with each.",
        "/incarnation",
        1.0,
    ),
    (
        "start_time_seconds",
        Level,
        "When the server began to count, since the Unix epoch.",
        "/started_ns",
        SECOND,
    ),
    ("longest_pause_seconds", Level, "Longest time without a server.", "/longest_pause_ns", SECOND),
    ("files", Level, "Inodes in use and still possible.", "/room/files", 1.0),
    ("files_free", Level, "Inodes still possible.", "/room/files_free", 1.0),
    ("memory_resident_bytes", Level, "Memory of the server.", "/memory/resident", 1.0),
    ("memory_limit_bytes", Level, "Memory that the server may have.", "/memory/limit", 1.0),
    ("device_flushes_total", Total, "Flushes of the device.", "/flushes", 1.0),
    ("journal_ring_bytes", Level, "Size of the journal's ring.", "/journal/ring_slots", 1.0 / SLOT),
    ("journal_laps_total", Total, "Times the journal has gone around its ring.", "/journal/laps", 1.0),
    ("journal_records_total", Total, "Records logged.", "/journal/records", 1.0),
    ("journal_commits_total", Total, "Commits written.", "/journal/commits", 1.0),
    (
        "journal_commits_shared_total",
        Total,
        "Calls for a commit that another's commit served.",
        "/journal/coalesced",
        1.0,
    ),
    ("journal_streamed_bytes_total", Total, "Bytes written to the ring.", "/journal/bytes_streamed", 1.0),
    (
        "journal_wait_seconds_total",
        Total,
        "Time that callers waited for room in the journal and for commits.",
        "/journal/wait_ns",
        SECOND,
    ),
    (
        "journal_power_lag_seconds",
        Level,
        "Age of the oldest answer to an fsync that a loss of power would take back.",
        "/journal/power_lag_ns",
        SECOND,
    ),
    (
        "journal_power_lag_bytes",
        Level,
        "Bytes of records that a loss of power would take back.",
        "/power_lag_bytes",
        1.0,
    ),
    ("checkpoint_rounds_total", Total, "Rounds that set out to write.", "/checkpoint/rounds", 1.0),
    ("checkpoint_seconds_total", Total, "Time that passed in rounds.", "/checkpoint/ns", SECOND),
    ("checkpoint_batches_total", Total, "Batches of metadata pages.", "/checkpoint/batches", 1.0),
    ("checkpoint_home_writes_total", Total, "Writes of metadata home.", "/checkpoint/home_requests", 1.0),
    ("cache_bytes", Level, "Size of the page cache.", "/data/cache/frames", 1.0 / PAGE),
    ("cache_free_bytes", Level, "Page cache that holds nothing.", "/data/cache/free", 1.0 / PAGE),
    ("cache_dirty_bytes", Level, "Data newer than the device's.", "/data/cache/dirty", 1.0 / PAGE),
    (
        "cache_dirty_limit_bytes",
        Level,
        "Dirty data at which writers are held back.",
        "/data/dirty_limit",
        1.0 / PAGE,
    ),
    ("cache_evicted_pages_total", Total, "Clean pages that gave way.", "/data/cache/evicted", 1.0),
    ("cache_returned_pages_total", Total, "Pages that came back soon.", "/data/cache/returned", 1.0),
    ("cache_missed_pages_total", Total, "Pages that were looked for in vain.", "/data/misses", 1.0),
    ("readahead_pages_total", Total, "Pages read ahead.", "/data/ahead", 1.0),
    ("readahead_used_pages_total", Total, "Of them, pages that a reader came for.", "/data/ahead_used", 1.0),
    ("write_back_pages_total", Total, "Pages written home.", "/data/written", 1.0),
    ("write_back_failures_total", Total, "Writes that failed on the device.", "/data/failures", 1.0),
    ("throttled_writes_total", Total, "Writes held back for the device.", "/data/throttled", 1.0),
    ("throttled_seconds_total", Total, "Time that they were.", "/data/throttled_ns", SECOND),
    ("metadata_bytes", Level, "Metadata pages in memory.", "/metadata_pages", 1.0 / PAGE),
    ("metadata_dirty_bytes", Level, "Of them, those for a checkpoint.", "/metadata_dirty", 1.0 / PAGE),
    ("metadata_limit_bytes", Level, "Metadata pages that are kept, about.", "/metadata_limit", 1.0),
];

/// A metric with a series for each entry of a list: the list, the label, where the label's value and the number are.
const LISTED: &[(&str, &str, [&str; 4], f64)] = &[
    ("device_reads_total", "Reads of the device.", ["/device", "cause", "/cause", "/reads"], 1.0),
    ("device_read_bytes_total", "Bytes of them.", ["/device", "cause", "/cause", "/read_bytes"], 1.0),
    ("device_writes_total", "Writes of the device.", ["/device", "cause", "/cause", "/writes"], 1.0),
    ("device_written_bytes_total", "Bytes of them.", ["/device", "cause", "/cause", "/write_bytes"], 1.0),
    ("device_discarded_bytes_total", "Discards.", ["/device", "cause", "/cause", "/discard_bytes"], 1.0),
    ("lock_waits_total", "Waits for locks.", ["/locks", "class", "/class", "/waits"], 1.0),
    ("lock_wait_seconds_total", "Time of them.", ["/locks", "class", "/class", "/wait_ns"], SECOND),
    (
        "checkpoint_phase_seconds_total",
        "Time of rounds by phase, summed over threads.",
        ["/checkpoint/phases", "phase", "/phase", "/ns"],
        SECOND,
    ),
    (
        "server_ends_total",
        "Servers that have ended, by what they were doing; of the mount, whoever serves it.",
        ["/servers/phases", "phase", "/phase", "/ends"],
        1.0,
    ),
];

/// All series of one name.
pub struct Family {
    name: String,
    help: String,
    kind: MetricType,
    series: Vec<Metric>,
}

impl Family {
    fn new(name: &str, help: &str, kind: MetricType) -> Family {
        Family { name: format!("narufs_{name}"), help: help.to_owned(), kind, series: Vec::new() }
    }

    fn of(name: &str, kind: Kind, help: &str) -> Family {
        Family::new(name, help, if matches!(kind, Total) { MetricType::COUNTER } else { MetricType::GAUGE })
    }

    fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        let mut metric = Metric::from_label(pairs(labels));
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.series.push(metric);
    }

    /// As the encoder takes it. `None`: no mount has any.
    pub fn encoded(self) -> Option<MetricFamily> {
        let mut family = MetricFamily::default();
        family.set_name(self.name);
        family.set_help(self.help);
        family.set_field_type(self.kind);
        let is_empty = self.series.is_empty();
        family.set_metric(self.series);
        (!is_empty).then_some(family)
    }
}

fn pairs(labels: &[(&str, &str)]) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    let mut pairs: Vec<LabelPair> = labels.iter().map(pair).collect();
    pairs.sort_by(|one, other| one.name().cmp(other.name()));
    pairs
}

/// All metrics of these mounts.
pub fn all(read: &[(String, Value)]) -> Vec<Family> {
    let mut families = states(read);
    for (name, kind, help, place, per) in SINGLE {
        let mut family = Family::of(name, *kind, help);
        for (mount, counters) in read {
            if let Some(value) = counters.pointer(place).and_then(Value::as_u64) {
                family.add(&[("mount", mount)], value as f64 / per);
            }
        }
        families.push(family);
    }
    for (name, help, [place, label, key, value], per) in LISTED {
        let mut family = Family::of(name, Total, help);
        for (mount, counters) in read {
            for entry in list(counters, place) {
                let which = snake(text(entry, key));
                let labels = [("mount", mount.as_str()), (*label, which.as_str())];
                family.add(&labels, number(entry, value) as f64 / per);
            }
        }
        families.push(family);
    }
    families.extend(requests(read));
    families
}

/// What is no number as it is read.
fn states(read: &[(String, Value)]) -> Vec<Family> {
    let mut info = Family::of("info", Level, "What serves the mount: always 1.");
    let mut levels = [
        ("supervised", "Whether another server follows when this one is gone."),
        ("read_only", "Whether nothing can be changed."),
        ("failed", "Whether damage, or a failure of the device or journal, has made it read-only."),
        ("size_bytes", "Room for files and metadata."),
        ("free_bytes", "Room that is free."),
        ("journal_used_bytes", "Part of the ring that a checkpoint has not passed."),
    ]
    .map(|(name, help)| Family::of(name, Level, help));
    let mut fsyncs = Family::of("fsyncs_total", Total, "Calls of fsync by where their data went.");
    let mut moved = [
        ("read_bytes_total", "Bytes of files that were read.", "/latencies/READ/bytes"),
        ("written_bytes_total", "Bytes of files that were written.", "/latencies/WRITE/bytes"),
    ]
    .map(|(name, help, place)| (Family::of(name, Total, help), place));
    for (mount, counters) in read {
        let mount = ("mount", mount.as_str());
        let word = |name| (name, text(counters, &format!("/{name}")));
        info.add(&[mount, word("version"), word("transport"), word("durability"), word("journal_kind")], 1.0);
        let n = |place: &str| number(counters, place) as f64;
        let is = |yes: bool| f64::from(u8::from(yes));
        let block = n("/room/block_size");
        let used = number(counters, "/journal/tail").saturating_sub(number(counters, "/journal/head"));
        let has_journal = counters["journal"].is_object();
        let values = [
            Some(is(n("/supervisor_pid") > 0.0)),
            Some(is(counters["read_only"].is_string())),
            Some(is(counters["failed"] == true)),
            Some(n("/room/blocks") * block),
            Some(n("/room/blocks_free") * block),
            has_journal.then_some(used as f64 * SLOT),
        ];
        for (family, value) in levels.iter_mut().zip(values) {
            value.into_iter().for_each(|value| family.add(&[mount], value));
        }
        // None was made yet: that is no reason to be missing.
        moved.iter_mut().for_each(|(family, place)| family.add(&[mount], n(place)));
        for (to, place) in [("journal", "/data/syncs_absorbed"), ("home", "/data/syncs_home")] {
            fsyncs.add(&[mount, ("to", to)], n(place));
        }
    }
    std::iter::once(info).chain(levels).chain(moved.map(|(family, _)| family)).chain([fsyncs]).collect()
}

/// What the kernel has asked for.
fn requests(read: &[(String, Value)]) -> Vec<Family> {
    let mut sent = Family::of("requests_total", Total, "Requests of the kernel.");
    let help = "Requests of the kernel that a caller waited for.";
    let mut awaited = Family::of("requests_awaited_total", Total, help);
    let help = "Time from a request's receipt by the server to its answer.";
    let mut times = Family::new("request_duration_seconds", help, MetricType::HISTOGRAM);
    for (mount, counters) in read {
        let labels = |name: &str| [("mount", mount.clone()), ("operation", name.to_lowercase())];
        for (family, place) in [(&mut sent, "/requests"), (&mut awaited, "/requests_awaited")] {
            for (name, count) in named(counters, place) {
                let labels = labels(name);
                let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
                family.add(&labels, count.as_u64().unwrap_or(0) as f64);
            }
        }
        for (name, latency) in named(counters, "/latencies") {
            let labels = labels(name);
            let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
            let mut metric = Metric::from_label(pairs(&labels));
            metric.set_histogram(histogram(latency));
            times.series.push(metric);
        }
    }
    vec![sent, awaited, times]
}

/// Sums of the finer buckets that were read.
fn histogram(latency: &Value) -> Histogram {
    let read =
        list(latency, "/buckets").filter_map(|bucket| Some((bucket.get(0)?, bucket.get(1)?.as_u64()?)));
    let read: Vec<(Option<u64>, u64)> = read.map(|(bound, count)| (bound.as_u64(), count)).collect();
    let below = |most: u64| read.iter().filter(move |(bound, _)| bound.is_some_and(|bound| bound <= most));
    let buckets = BOUNDS.map(|power| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(f64::from(power).exp2() / SECOND);
        bucket.set_cumulative_count(below(1 << power).map(|(_, count)| count).sum());
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(read.iter().map(|(_, count)| count).sum());
    histogram.set_sample_sum(number(latency, "/sum_ns") as f64 / SECOND);
    histogram
}

/// A name as labels have it: `DataWriteBack` and `directory-move` become `data_write_back` and `directory_move`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(if letter == '-' { '_' } else { letter.to_ascii_lowercase() });
    }
    snake
}
