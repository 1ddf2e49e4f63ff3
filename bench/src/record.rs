//! What comes out of a run: one record for each workload, number of threads, repetition and phase.

use crate::daily::Caches;
use crate::load::Measured;
use crate::meter::{CauseIo, Counters, DeviceIo};
use crate::target::{Description, Reopened, Survives};
use narufs_engine::format::SLOT_SIZE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Laps of the ring below which a row does not show what the journal costs in the long run.
const ENOUGH_LAPS: f64 = 3.0;
/// Operations that journal take a slot of the ring each; of others hundreds and more share one. This lies between.
const OPS_OF_A_SLOT: u64 = 10;

/// The check after the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// How the target was brought back.
    pub reopened: Reopened,
    /// What bringing it back took, recovery included.
    pub reopen_s: f64,
    /// What comparing took.
    pub compare_s: f64,
    /// Files compared.
    pub files: u64,
    /// Bytes compared.
    pub bytes: u64,
}

/// One row. What is `None` is unknown for this target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The workload.
    pub workload: String,
    /// The phase, of a workload that has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub phase: Option<String>,
    /// The target, as the user called it.
    pub target: String,
    /// Its type of file system.
    pub filesystem: String,
    /// What a reader must know: "no system calls" where the engine was called in this process, delays that were
    /// added.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// Threads.
    pub threads: usize,
    /// Whether each stayed on one core.
    pub pinned: bool,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// What everything random follows from.
    pub seed: u64,
    /// Operations.
    pub ops: u64,
    /// Seconds they took, with what had to be synced inside the time.
    pub seconds: f64,
    /// Whether it ended because the work was done.
    pub done: bool,
    /// Operations in a second.
    pub ops_per_s: f64,
    /// Megabytes (10^6) of files read and written in a second.
    pub mb_per_s: f64,
    /// Mean latency of an operation in microseconds.
    pub mean_us: f64,
    /// Half were not slower.
    pub p50_us: f64,
    /// One in a hundred was slower.
    pub p99_us: f64,
    /// One in a thousand was slower.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
    /// Processor seconds of the generator and of a server of narufs, without those of kernel threads.
    pub cpu_s: f64,
    /// The same for an operation, in microseconds.
    pub cpu_us_per_op: f64,
    /// Reads of the device.
    pub device_reads: u64,
    /// Bytes of them.
    pub device_read_bytes: u64,
    /// Writes of the device.
    pub device_writes: u64,
    /// Bytes of them.
    pub device_write_bytes: u64,
    /// Reads and writes of the device of a journal or log that lies elsewhere, of a kernel file system; they are
    /// not among those of the device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log_device: Option<DeviceIo>,
    /// The same by cause, of narufs.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub causes: Vec<CauseIo>,
    /// Flushes of the device, where they are counted.
    pub device_flushes: Option<u64>,
    /// What a synced file lives through.
    pub survives: Survives,
    /// Times around the ring, of narufs; kernels do not tell it of their journals.
    pub laps: Option<f64>,
    /// Bytes of the ring.
    pub ring_bytes: Option<u64>,
    /// Whether it journalled, with a slot of the ring for each ten operations at the least, and went around the ring
    /// less than three times.
    pub unlapped: bool,
    /// Bytes of metadata that went home.
    pub checkpoint_bytes: Option<u64>,
    /// Cache lines written back to the journal's memory.
    pub nvm_write_backs: Option<u64>,
    /// Fences of it.
    pub nvm_fences: Option<u64>,
    /// Requests of the kernel by their names, of a mount of narufs that counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requests: Option<BTreeMap<String, u64>>,
    /// What was in memory before, of everyday work.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub caches: Option<Caches>,
    /// Seconds that syncing everything took afterwards, of everyday work; not part of `seconds`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub then_sync_s: Option<f64>,
    /// The check; with the last phase.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub check: Option<Check>,
}

/// Which run a record is of.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// The workload.
    pub workload: &'a str,
    /// The phase.
    pub phase: Option<&'a str>,
    /// Threads.
    pub threads: usize,
    /// Whether they were pinned.
    pub pinned: bool,
    /// Which repetition.
    pub repeat: u32,
    /// The seed.
    pub seed: u64,
}

/// Whether operations journal: not a time stamp now and then, nor what write-back logs for thousands of them at once.
fn journals(ops: u64, delta: &Counters) -> bool {
    delta.ring.is_some_and(|ring| ring.tail > 0 && ring.tail.saturating_mul(OPS_OF_A_SLOT) >= ops)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl Record {
    /// The record of a phase. `closing` is what was synced after the last operation, inside the time.
    pub fn new(row: Row, target: &Description, m: &Measured, closing: Duration, delta: &Counters) -> Record {
        let seconds = (m.time + closing).as_secs_f64().max(1e-9);
        let cpu_s = delta.own_cpu_s + delta.server_cpu_s;
        let laps = delta.laps();
        Record {
            workload: row.workload.to_owned(),
            phase: row.phase.map(str::to_owned),
            target: target.name.clone(),
            filesystem: target.filesystem.clone(),
            note: target.note.clone(),
            threads: row.threads,
            pinned: row.pinned,
            repeat: row.repeat,
            seed: row.seed,
            ops: m.ops,
            seconds,
            done: m.done,
            ops_per_s: m.ops as f64 / seconds,
            mb_per_s: m.bytes as f64 / seconds / 1e6,
            mean_us: m.latency.mean() / 1000.0,
            p50_us: us(m.latency.value_at_quantile(0.5)),
            p99_us: us(m.latency.value_at_quantile(0.99)),
            p999_us: us(m.latency.value_at_quantile(0.999)),
            max_us: us(m.latency.max()),
            cpu_s,
            cpu_us_per_op: cpu_s * 1e6 / m.ops.max(1) as f64,
            device_reads: delta.device.reads,
            device_read_bytes: delta.device.read_bytes,
            device_writes: delta.device.writes,
            device_write_bytes: delta.device.write_bytes,
            log_device: delta.log,
            causes: delta.causes.clone(),
            device_flushes: delta.flushes,
            survives: target.survives,
            laps,
            ring_bytes: delta.ring.map(|ring| ring.slots * SLOT_SIZE as u64),
            unlapped: journals(m.ops, delta) && laps.is_some_and(|laps| laps < ENOUGH_LAPS),
            checkpoint_bytes: delta.checkpoint_bytes(),
            nvm_write_backs: delta.ring.map(|ring| ring.write_backs),
            nvm_fences: delta.ring.map(|ring| ring.fences),
            requests: delta.requests.clone(),
            caches: None,
            then_sync_s: None,
            check: None,
        }
    }

    /// The workload with its phase.
    pub fn title(&self) -> String {
        match &self.phase {
            Some(phase) => format!("{} {phase}", self.workload),
            None => self.workload.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let mut latency = crate::load::histogram();
        for ns in 1..=1000 {
            latency.record(ns * 1000).expect("within bounds");
        }
        Measured { time: Duration::from_secs(2), ops: 1000, bytes: 4_096_000, latency, done: false }
    }

    fn record(delta: &Counters) -> Record {
        let row = Row { workload: "DWOL", phase: None, threads: 2, pinned: true, repeat: 1, seed: 1 };
        let target = Description {
            name: "lib:x".into(),
            filesystem: "narufs".into(),
            survives: Survives::Process,
            note: Some("no system calls".into()),
        };
        Record::new(row, &target, &measured(), Duration::from_millis(500), delta)
    }

    #[test]
    fn rates_are_over_the_whole_time() {
        let record = record(&Counters { own_cpu_s: 1.0, server_cpu_s: 0.5, ..Counters::default() });
        assert!((record.seconds - 2.5).abs() < 1e-9 && (record.ops_per_s - 400.0).abs() < 1e-6);
        assert!((record.mb_per_s - 1.6384).abs() < 1e-6);
        assert!((record.cpu_us_per_op - 1500.0).abs() < 1e-6);
        for (found, wanted) in
            [(record.p50_us, 500.0), (record.p99_us, 990.0), (record.p999_us, 999.0), (record.max_us, 1000.0)]
        {
            assert!((found - wanted).abs() / wanted < 0.002, "{found} for {wanted}");
        }
        assert_eq!(record.note.as_deref(), Some("no system calls"));
    }

    #[test]
    fn rows_that_hardly_lap_say_so() {
        let of = |tail| {
            let ring = Some(crate::meter::Ring { tail, slots: 100, write_backs: 7, fences: 2 });
            record(&Counters { ring, ..Counters::default() })
        };
        assert_eq!((of(299).unlapped, of(300).unlapped, of(0).unlapped), (true, false, false));
        // Of a thousand operations: a slot for ten of them is journalling, less is not.
        assert_eq!((of(100).unlapped, of(99).unlapped, of(1).unlapped), (true, false, false));
        assert_eq!((of(150).laps, of(1).nvm_write_backs, of(1).nvm_fences), (Some(1.5), Some(7), Some(2)));
        assert!(!record(&Counters::default()).unlapped);
    }

    #[test]
    fn json_has_the_promised_fields() {
        let json = serde_json::to_value(record(&Counters::default())).expect("it is JSON");
        for field in [
            "workload",
            "target",
            "threads",
            "repeat",
            "ops",
            "seconds",
            "ops_per_s",
            "mb_per_s",
            "p50_us",
            "p99_us",
            "p999_us",
            "cpu_s",
            "device_read_bytes",
            "device_write_bytes",
            "survives",
            "laps",
        ] {
            assert!(json.get(field).is_some(), "{field} is missing");
        }
        assert_eq!(json["survives"], "process");
        assert_eq!(json.get("phase"), None);
        let back: Record = serde_json::from_value(json).expect("it can be read back");
        assert_eq!(back, record(&Counters::default()));
    }
}
