//! What media, processors and journal did in a span of time: counters read before and after it.
//!
//! A kernel file system's device I/O is what the kernel counts for its block device, whoever caused it; that of
//! narufs is what its engine counts, under its cause. Processor time is that of this process and of the servers of a
//! mount of narufs; threads of the kernel are not in it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Requests and bytes of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIo {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl DeviceIo {
    /// What the kernel counts for the block device of a directory in sysfs.
    pub fn read(sysfs: &Path) -> io::Result<DeviceIo> {
        DeviceIo::parse(&std::fs::read_to_string(sysfs.join("stat"))?)
            .ok_or_else(|| io::Error::other("the device's statistics cannot be understood"))
    }

    fn parse(stat: &str) -> Option<DeviceIo> {
        // The kernel's unit here is 512 bytes, whatever the device's sector is.
        let fields: Vec<u64> = stat.split_whitespace().map(|f| f.parse().ok()).collect::<Option<_>>()?;
        let [reads, _, read, _, writes, _, written, ..] = fields[..] else { return None };
        Some(DeviceIo { reads, read_bytes: read * 512, writes, write_bytes: written * 512 })
    }

    /// Flushes that the kernel counts for the device; nothing of a kernel that does not.
    pub fn flushes(sysfs: &Path) -> Option<u64> {
        std::fs::read_to_string(sysfs.join("stat")).ok()?.split_whitespace().nth(15)?.parse().ok()
    }

    fn since(&self, before: &DeviceIo) -> DeviceIo {
        DeviceIo {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
        }
    }

    fn is_none(&self) -> bool {
        *self == DeviceIo::default()
    }
}

/// Device I/O of one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseIo {
    /// The cause, by the engine's name.
    pub cause: String,
    /// What it asked for.
    #[serde(flatten)]
    pub io: DeviceIo,
}

/// The journal of narufs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ring {
    /// Slots written so far.
    pub tail: u64,
    /// Slots of the ring.
    pub slots: u64,
    /// Cache lines written back.
    pub write_backs: u64,
    /// Fences.
    pub fences: u64,
}

/// Everything that is read before and after.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// The device.
    pub device: DeviceIo,
    /// The device of a journal or log that lies elsewhere; not part of `device`.
    pub log: Option<DeviceIo>,
    /// By cause; empty where the target is not narufs.
    pub causes: Vec<CauseIo>,
    /// Flushes of the device: those that narufs asked for, or that the kernel counts.
    pub flushes: Option<u64>,
    /// The journal, of narufs alone.
    pub ring: Option<Ring>,
    /// Requests of the kernel by their names, of a mount of narufs that counts them.
    pub requests: Option<BTreeMap<String, u64>>,
    /// Processor seconds of a mount's servers, and of who starts them.
    pub server_cpu_s: f64,
    /// Processor seconds of this process.
    pub own_cpu_s: f64,
}

/// A name in the one spelling of records: `double-write`, however the engine spells it.
fn kebab(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(if letter == '_' { '-' } else { letter.to_ascii_lowercase() });
    }
    out
}

fn number(value: &Value, field: &str) -> u64 {
    value.get(field).and_then(Value::as_u64).unwrap_or(0)
}

impl Counters {
    /// The counters of narufs, as its engine or its mount tells them.
    pub fn of_narufs(stats: &Value) -> Counters {
        let row = |row: &Value| CauseIo {
            cause: kebab(row["cause"].as_str().unwrap_or("unknown")),
            io: DeviceIo {
                reads: number(row, "reads"),
                read_bytes: number(row, "read_bytes"),
                writes: number(row, "writes"),
                write_bytes: number(row, "write_bytes"),
            },
        };
        let causes: Vec<CauseIo> = stats["device"].as_array().into_iter().flatten().map(row).collect();
        let mut device = DeviceIo::default();
        for CauseIo { io, .. } in &causes {
            device.reads += io.reads;
            device.read_bytes += io.read_bytes;
            device.writes += io.writes;
            device.write_bytes += io.write_bytes;
        }
        let ring = stats["journal"].is_object().then(|| {
            let ring = &stats["journal"];
            Ring {
                tail: number(ring, "tail"),
                slots: number(ring, "ring_slots"),
                write_backs: number(ring, "write_backs"),
                fences: number(ring, "fences"),
            }
        });
        let flushes = stats["flushes"].as_u64();
        let requests = stats["requests"].as_object().map(|by_opcode| {
            by_opcode.iter().filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
        });
        Counters { device, causes, flushes, ring, requests, ..Counters::default() }
    }

    /// Adds this process's processor time.
    pub fn with_own_cpu(mut self) -> Counters {
        self.own_cpu_s = own_cpu();
        self
    }

    /// Adds the processor time of programs that this process has started and that have ended.
    pub fn with_children_cpu(mut self) -> Counters {
        self.own_cpu_s += children_cpu();
        self
    }

    /// What happened between `before` and this.
    pub fn since(&self, before: &Counters) -> Counters {
        let earlier = |cause: &str| before.causes.iter().find(|row| row.cause == cause);
        let causes = self.causes.iter().map(|row| CauseIo {
            cause: row.cause.clone(),
            io: earlier(&row.cause).map_or(row.io, |before| row.io.since(&before.io)),
        });
        Counters {
            device: self.device.since(&before.device),
            log: self.log.zip(before.log).map(|(after, before)| after.since(&before)),
            causes: causes.filter(|row| !row.io.is_none()).collect(),
            flushes: self.flushes.map(|n| n.saturating_sub(before.flushes.unwrap_or(0))),
            ring: self.ring.zip(before.ring).map(|(after, before)| Ring {
                tail: after.tail.saturating_sub(before.tail),
                slots: after.slots,
                write_backs: after.write_backs.saturating_sub(before.write_backs),
                fences: after.fences.saturating_sub(before.fences),
            }),
            requests: self.requests.as_ref().map(|after| {
                let earlier =
                    |name| before.requests.as_ref().and_then(|all| all.get(name)).copied().unwrap_or(0);
                let new = after.iter().map(|(name, n)| (name.clone(), n.saturating_sub(earlier(name))));
                new.filter(|(_, n)| *n > 0).collect()
            }),
            server_cpu_s: (self.server_cpu_s - before.server_cpu_s).max(0.0),
            own_cpu_s: (self.own_cpu_s - before.own_cpu_s).max(0.0),
        }
    }

    /// Times around the ring, of narufs alone.
    pub fn laps(&self) -> Option<f64> {
        self.ring.filter(|ring| ring.slots > 0).map(|ring| ring.tail as f64 / ring.slots as f64)
    }

    /// Bytes of metadata that went home; of narufs alone.
    pub fn checkpoint_bytes(&self) -> Option<u64> {
        let of_checkpoints = |row: &&CauseIo| matches!(row.cause.as_str(), "checkpoint" | "double-write");
        self.ring.map(|_| self.causes.iter().filter(of_checkpoints).map(|row| row.io.write_bytes).sum())
    }
}

/// Processor seconds of this process, all threads.
fn own_cpu() -> f64 {
    let mut cpu = 0.0;
    // The clock counts every thread, those that have ended too.
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    cpu += time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    cpu
}

/// Processor seconds of children that have ended.
fn children_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse_ticks(&stat, 13).map_or(0.0, seconds)
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Processor seconds of a process.
pub fn cpu_of(pid: u32) -> io::Result<f64> {
    cpu_in_stat(pid, &[11])
}

/// Processor seconds of a process, and of those of its children that it has waited for.
pub fn cpu_with_children_of(pid: u32) -> io::Result<f64> {
    cpu_in_stat(pid, &[11, 13])
}

fn cpu_in_stat(pid: u32, fields: &[usize]) -> io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks: Option<u64> = fields.iter().map(|field| parse_ticks(&stat, *field)).sum();
    ticks.map(seconds).ok_or_else(|| io::Error::other("/proc/PID/stat cannot be understood"))
}

/// The sum of a field after the program's name, and of the next: ticks of a user's and of the kernel's.
fn parse_ticks(stat: &str, field: usize) -> Option<u64> {
    // The program's name may have spaces and brackets; the fields after the last bracket are plain.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let user: u64 = fields.nth(field)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_kernels_sectors_are_512_bytes() {
        let io = DeviceIo::parse("  10 2 16 5 20 3 32 7 0 9 9 0 0 0 0 1 1").expect("the kernel's format");
        assert_eq!(io, DeviceIo { reads: 10, read_bytes: 8192, writes: 20, write_bytes: 16384 });
        assert_eq!(DeviceIo::parse("1 2 3"), None);
        assert_eq!(DeviceIo::parse("a b c d e f g"), None);
    }

    #[test]
    fn a_programs_name_does_not_move_the_fields() {
        let stat = "1 (a) b) S 1 1 1 0 -1 4 0 0 0 0 30 12 5 3 20 0";
        assert_eq!((parse_ticks(stat, 11), parse_ticks(stat, 13)), (Some(42), Some(8)));
        assert!(cpu_of(std::process::id()).is_ok());
    }

    #[test]
    fn differences_are_taken_cause_by_cause() {
        let stats = |written: u64, tail: u64| {
            Counters::of_narufs(&json!({
                "device": [
                    {"cause": "journal", "reads": 0, "read_bytes": 0, "writes": written / 4096, "write_bytes": written},
                    {"cause": "DoubleWrite", "reads": 1, "read_bytes": 4096, "writes": 2, "write_bytes": 2 * written},
                    {"cause": "eviction", "reads": 0, "read_bytes": 0, "writes": 0, "write_bytes": 0},
                ],
                "flushes": 3,
                "requests": {"LOOKUP": tail, "INIT": 1},
                "journal": {"tail": tail, "ring_slots": 64, "write_backs": 10 * tail, "fences": tail},
            }))
        };
        let delta = stats(12288, 256).since(&stats(4096, 64));
        assert_eq!(delta.device.write_bytes, 3 * 8192);
        assert_eq!(
            delta.causes.iter().map(|row| row.cause.as_str()).collect::<Vec<_>>(),
            ["journal", "double-write"]
        );
        assert_eq!(delta.laps(), Some(3.0));
        assert_eq!(delta.checkpoint_bytes(), Some(16384));
        assert_eq!(delta.flushes, Some(0));
        assert_eq!(delta.requests, Some(BTreeMap::from([("LOOKUP".to_owned(), 192)])));
        assert_eq!(Counters::of_narufs(&json!({})).requests, None, "not every version counts them");
        assert_eq!(Counters::default().laps(), None);
    }
}
