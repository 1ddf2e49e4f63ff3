//! What a mount has done between two readings of its counters.

use crate::snapshot::{list, named, number, text};
use narufs_engine::device::BLOCK_SIZE;
use narufs_fuse::transport::latency::{BUCKETS, bound};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const PAGE: u64 = BLOCK_SIZE as u64;

/// A mount at work; rates are of a second, sizes in bytes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Rates {
    /// What was measured took so long, in seconds.
    pub seconds: f64,
    /// The server's process.
    pub server: u64,
    /// How requests come.
    pub transport: String,
    /// The supervisor's process, if there is one.
    pub supervisor: Option<u64>,
    /// Servers before this one.
    pub restarts: u64,
    /// The longest time without a server, in seconds.
    pub longest_pause: f64,
    /// Why nothing can be changed, if so.
    pub read_only: Option<String>,
    /// What fsync waits for, if there is anything.
    pub durability: Option<String>,
    /// Room, and what of it is free.
    pub room: Share,
    /// Requests by kind, the most frequent first.
    pub operations: Vec<Operation>,
    /// All of them.
    pub all: Operation,
    /// Of files.
    pub read_bytes: f64,
    /// Of files.
    pub written_bytes: f64,
    /// Device I/O by cause.
    pub device: Vec<Cause>,
    /// All of it.
    pub device_all: Cause,
    /// Flushes of the device.
    pub flushes: f64,
    /// The journal, if there is one.
    pub journal: Option<Journal>,
    /// Checkpoint rounds.
    pub rounds: f64,
    /// The page cache.
    pub cache: Cache,
    /// Waits for locks, in lock order.
    pub locks: Vec<Lock>,
    /// Memory of the server, and what it may have.
    pub memory: Share,
    /// Metadata in memory, and what is kept of it.
    pub metadata: Share,
    /// Of that, what waits for a checkpoint.
    pub metadata_dirty: u64,
}

/// A part of something, in bytes.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Share {
    /// What is used.
    pub used: u64,
    /// All there is; 0: there is no limit.
    pub of: u64,
}

impl Share {
    /// From 0 to 1.
    pub fn part(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.used as f64 / self.of as f64 }
    }
}

/// Requests of a kind; times in nanoseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Operation {
    /// The kernel's name, in lower case.
    pub name: String,
    /// How many.
    pub rate: f64,
    /// Half of those that were answered took no longer.
    pub p50: u64,
    /// Nine of ten.
    pub p90: u64,
    /// All but one of a hundred.
    pub p99: u64,
    /// The longest, about.
    pub max: u64,
}

/// Device I/O for a cause.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cause {
    /// Its name.
    pub name: String,
    /// Requests.
    pub reads: f64,
    /// Bytes of them.
    pub read_bytes: f64,
    /// Requests.
    pub writes: f64,
    /// Bytes of them.
    pub written_bytes: f64,
}

/// The journal at work.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Journal {
    /// Records.
    pub records: f64,
    /// Commits written.
    pub commits: f64,
    /// Callers that each has served.
    pub served: f64,
    /// Part of the ring that a checkpoint has not passed, from 0 to 1.
    pub fill: f64,
    /// How often the ring is gone around.
    pub laps: f64,
    /// Age of the oldest answer that a loss of power would take back, in seconds.
    pub power_lag: f64,
}

/// The page cache at work.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cache {
    /// What holds something.
    pub frames: Share,
    /// Newer than the device, and where writers are held back.
    pub dirty: Share,
    /// Pages that were read and found, from 0 to 1; none were read.
    pub hits: Option<f64>,
    /// Pages that gave way.
    pub evicted: f64,
    /// Writes that were held back.
    pub throttled: f64,
    /// Seconds that they were, summed over threads.
    pub throttled_seconds: f64,
}

/// Waits for a class of locks.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Lock {
    /// The class.
    pub class: String,
    /// How many.
    pub waits: f64,
    /// Seconds of them, summed over threads.
    pub seconds: f64,
}

/// Counters that count from zero in each server: those of another one are not taken away.
struct Difference<'v> {
    before: &'v Value,
    now: &'v Value,
    seconds: f64,
}

impl Difference<'_> {
    fn count(&self, place: &str) -> u64 {
        number(self.now, place).saturating_sub(number(self.before, place))
    }

    fn rate(&self, place: &str) -> f64 {
        self.count(place) as f64 / self.seconds
    }
}

/// What was done between two readings that were so long apart.
pub fn between(before: &Value, now: &Value, apart: Duration) -> Rates {
    let is_same = ["/incarnation", "/server_pid", "/started_ns"]
        .iter()
        .all(|place| number(before, place) == number(now, place));
    let nothing = Value::Null;
    let before = if is_same { before } else { &nothing };
    let seconds = apart.as_secs_f64().max(1e-3);
    let by = Difference { before, now, seconds };
    let n = |place: &str| number(now, place);
    let block = n("/room/block_size");
    let word = |place: &str| now.pointer(place).and_then(Value::as_str).map(str::to_owned);
    let (operations, all) = operations(&by);
    let (device, device_all) = device(&by);
    Rates {
        seconds,
        server: n("/server_pid"),
        transport: text(now, "/transport").to_owned(),
        supervisor: Some(n("/supervisor_pid")).filter(|pid| *pid != 0),
        restarts: n("/incarnation"),
        longest_pause: n("/longest_pause_ns") as f64 / 1e9,
        read_only: word("/read_only"),
        durability: word("/durability"),
        room: Share {
            used: n("/room/blocks").saturating_sub(n("/room/blocks_free")) * block,
            of: n("/room/blocks") * block,
        },
        operations,
        all,
        read_bytes: by.rate("/latencies/READ/bytes"),
        written_bytes: by.rate("/latencies/WRITE/bytes"),
        device,
        device_all,
        flushes: by.rate("/flushes"),
        journal: now["journal"].is_object().then(|| journal(&by)),
        rounds: by.rate("/checkpoint/rounds"),
        cache: cache(&by),
        locks: locks(&by),
        memory: Share { used: n("/memory/resident"), of: n("/memory/limit") },
        metadata: Share { used: n("/metadata_pages") * PAGE, of: n("/metadata_limit") },
        metadata_dirty: n("/metadata_dirty") * PAGE,
    }
}

fn operations(by: &Difference<'_>) -> (Vec<Operation>, Operation) {
    let mut all_times = BTreeMap::new();
    let mut operations = Vec::new();
    for (name, _) in named(by.now, "/requests") {
        let rate = by.rate(&format!("/requests/{name}"));
        let times = times(by, name);
        if rate > 0.0 {
            times.iter().for_each(|(bucket, count)| *all_times.entry(*bucket).or_insert(0) += count);
            operations.push(operation(name, rate, &times));
        }
    }
    // By name where they are as many, as they come.
    operations.sort_by(|one, other| other.rate.total_cmp(&one.rate));
    let all = operation("all", operations.iter().map(|operation| operation.rate).sum(), &all_times);
    (operations, all)
}

fn operation(name: &str, rate: f64, times: &BTreeMap<usize, u64>) -> Operation {
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|part| quantile(times, part));
    Operation { name: name.to_lowercase(), rate, p50, p90, p99, max }
}

/// How many of the requests of this name took how long, by the numbers of the buckets.
fn times(by: &Difference<'_>, name: &str) -> BTreeMap<usize, u64> {
    let place = format!("/latencies/{name}/buckets");
    let mut times = BTreeMap::new();
    for (of, sign) in [(by.now, 1i64), (by.before, -1)] {
        for bucket in list(of, &place) {
            let number = match bucket.get(0).and_then(Value::as_u64) {
                Some(below) => (0..BUCKETS).find(|number| bound(*number).is_none_or(|bound| bound >= below)),
                None => Some(BUCKETS - 1),
            };
            let count = bucket.get(1).and_then(Value::as_i64).unwrap_or(0);
            *times.entry(number.unwrap_or(BUCKETS - 1)).or_insert(0) += sign * count;
        }
    }
    let some =
        |(number, count): (usize, i64)| Some((number, u64::try_from(count).ok().filter(|count| *count > 0)?));
    times.into_iter().filter_map(some).collect()
}

/// Nanoseconds that this part of the requests took no longer than, as if times were spread evenly in their bucket; 0:
/// there were none.
fn quantile(times: &BTreeMap<usize, u64>, part: f64) -> u64 {
    let all: u64 = times.values().sum();
    let mut left = (all as f64 * part).ceil();
    for (number, count) in times {
        let count = *count as f64;
        if left <= count {
            let from = number.checked_sub(1).and_then(bound).unwrap_or(0);
            let to = bound(*number).unwrap_or(from);
            return from + ((to - from) as f64 * left / count) as u64;
        }
        left -= count;
    }
    0
}

fn device(by: &Difference<'_>) -> (Vec<Cause>, Cause) {
    let mut all = Cause { name: "all".into(), ..Cause::default() };
    let mut causes = Vec::new();
    for (at, cause) in list(by.now, "/device").enumerate() {
        let rate = |what: &str| by.rate(&format!("/device/{at}/{what}"));
        let cause = Cause {
            name: words(text(cause, "/cause")),
            reads: rate("reads"),
            read_bytes: rate("read_bytes"),
            writes: rate("writes"),
            written_bytes: rate("write_bytes"),
        };
        all.reads += cause.reads;
        all.read_bytes += cause.read_bytes;
        all.writes += cause.writes;
        all.written_bytes += cause.written_bytes;
        if cause.reads + cause.writes > 0.0 {
            causes.push(cause);
        }
    }
    causes.sort_by(|one, other| {
        (other.read_bytes + other.written_bytes).total_cmp(&(one.read_bytes + one.written_bytes))
    });
    (causes, all)
}

fn journal(by: &Difference<'_>) -> Journal {
    let n = |place: &str| number(by.now, place);
    let (commits, shared) = (by.rate("/journal/commits"), by.rate("/journal/coalesced"));
    let slots = n("/journal/ring_slots").max(1) as f64;
    Journal {
        records: by.rate("/journal/records"),
        commits,
        served: if commits > 0.0 { 1.0 + shared / commits } else { 0.0 },
        fill: n("/journal/tail").saturating_sub(n("/journal/head")) as f64 / slots,
        laps: by.rate("/journal/tail").min(if by.before.is_null() { 0.0 } else { f64::MAX }) / slots,
        power_lag: n("/journal/power_lag_ns") as f64 / 1e9,
    }
}

fn cache(by: &Difference<'_>) -> Cache {
    let n = |place: &str| number(by.now, place);
    let frames = n("/data/cache/frames");
    let (read, missed) = (by.count("/latencies/READ/bytes").div_ceil(PAGE), by.count("/data/misses"));
    Cache {
        frames: Share { used: frames.saturating_sub(n("/data/cache/free")) * PAGE, of: frames * PAGE },
        dirty: Share { used: n("/data/cache/dirty") * PAGE, of: n("/data/dirty_limit") * PAGE },
        // Partial overwrites miss, too.
        hits: (read > 0).then(|| 1.0 - (missed as f64 / read as f64).min(1.0)),
        evicted: by.rate("/data/cache/evicted"),
        throttled: by.rate("/data/throttled"),
        throttled_seconds: by.rate("/data/throttled_ns") / 1e9,
    }
}

fn locks(by: &Difference<'_>) -> Vec<Lock> {
    let lock = |(at, class): (usize, &Value)| Lock {
        class: words(text(class, "/class")),
        waits: by.rate(&format!("/locks/{at}/waits")),
        seconds: by.rate(&format!("/locks/{at}/wait_ns")) / 1e9,
    };
    list(by.now, "/locks").enumerate().map(lock).collect()
}

/// `DataWriteBack` and `directory-move` in words.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(if letter == '-' { ' ' } else { letter.to_ascii_lowercase() });
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reading(server: u64, lookups: u64) -> Value {
        json!({
            "server_pid": server, "incarnation": server,
            "requests": {"LOOKUP": lookups, "FORGET": 5, "READ": lookups / 10},
            "latencies": {
                "LOOKUP": {"sum_ns": 1, "bytes": 0, "buckets": [[2048, lookups - 1], [null, 1]]},
                "READ": {"sum_ns": 1, "bytes": lookups * 4096, "buckets": [[1280, lookups / 10]]},
            },
            "data": {"misses": lookups / 4},
            "device": [{"cause": "ReadMiss", "reads": lookups, "read_bytes": lookups * 10, "writes": 0, "write_bytes": 0}],
            "locks": [{"class": "directory-move", "waits": lookups, "wait_ns": lookups * 1_000_000}],
            "journal": {"ring_slots": 100, "tail": 1000 + lookups, "head": 1000, "commits": lookups / 10, "coalesced": lookups / 5},
        })
    }

    #[test]
    fn what_was_done_is_said_by_the_second() {
        let rates = between(&reading(1, 100), &reading(1, 300), Duration::from_secs(2));
        let operations: Vec<(&str, f64)> =
            rates.operations.iter().map(|operation| (operation.name.as_str(), operation.rate)).collect();
        assert_eq!(operations, [("lookup", 100.0), ("read", 10.0)]);
        assert_eq!(rates.all.rate, 110.0);
        let lookup = &rates.operations[0];
        assert!(lookup.p50 > 1792 && lookup.p50 < lookup.p99 && lookup.max == 2048, "{lookup:?}");
        assert_eq!((rates.device[0].name.as_str(), rates.device[0].read_bytes), ("read miss", 1000.0));
        assert_eq!((rates.locks[0].class.as_str(), rates.locks[0].seconds), ("directory move", 0.1));
        assert_eq!(rates.cache.hits, Some(0.75));
        let journal = rates.journal.expect("it has one");
        assert_eq!((journal.commits, journal.served, journal.fill, journal.laps), (10.0, 3.0, 3.0, 1.0));
    }

    #[test]
    fn another_server_counts_from_zero() {
        let rates = between(&reading(1, 1000), &reading(2, 20), Duration::from_secs(1));
        assert_eq!((rates.operations[0].rate, rates.restarts), (20.0, 2));
        assert_eq!(rates.journal.expect("it has one").laps, 0.0, "its position did not begin at zero");
    }

    #[test]
    fn a_quantile_lies_in_its_bucket_and_of_nothing_is_zero() {
        assert_eq!(quantile(&BTreeMap::new(), 0.5), 0);
        let times = BTreeMap::from([(0, 50), (1, 49), (BUCKETS - 1, 1)]);
        assert_eq!(quantile(&times, 0.5), 1024);
        assert_eq!(quantile(&times, 0.99), 1280);
        assert_eq!(quantile(&times, 1.0), 1 << 34);
    }
}
