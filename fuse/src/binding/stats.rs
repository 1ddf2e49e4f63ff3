//! The counters of a live mount, as JSON.

use super::engine::EngineOperations;
use crate::control::{Times, latencies_from};
use crate::mount::process::Hardening;
use crate::server::Counters;
use crate::session::RequestContext;
use crate::session::requests::{Count, Requests};
use crate::types::{Errno, Result};
use narufs_engine::cache::available_memory;
use narufs_engine::stats::Stats;
use narufs_engine::takeover::Life;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// What `narufs stats` shows of a mount.
#[derive(serde::Serialize)]
struct ServedStats {
    /// Of the server's program.
    version: &'static str,
    /// When the server began to count, in nanoseconds since 1970.
    started_ns: u64,
    server_pid: u32,
    /// Who starts the next server; 0: nobody.
    supervisor_pid: u32,
    /// Servers that the mount had before this one.
    incarnation: u32,
    /// The longest time without a server.
    longest_pause_ns: u64,
    /// How far they have come, and where they have ended.
    servers: Option<Life>,
    memory: ProcessMemory,
    /// What the server has given up.
    hardening: Hardening,
    /// How requests reach it.
    transport: &'static str,
    /// The minor version of the protocol that was agreed on with the kernel.
    protocol_minor: u32,
    /// What was agreed on beyond it, by the kernel's names.
    protocol_features: Vec<&'static str>,
    /// How many there were, by name.
    requests: BTreeMap<String, u64>,
    /// Those of them that a caller waited for.
    requests_awaited: BTreeMap<String, u64>,
    #[serde(flatten)]
    stats: Stats,
}

/// What the server has of memory, in bytes.
#[derive(serde::Serialize)]
struct ProcessMemory {
    /// In memory now, what it shares with a successor included.
    resident: u64,
    /// What it may have: the least of its control groups' limits and the machine's memory.
    limit: u64,
}

impl ProcessMemory {
    fn now() -> ProcessMemory {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        ProcessMemory { resident: pages * rustix::param::page_size() as u64, limit: available_memory() }
    }
}

impl EngineOperations {
    /// Answers [`STATS`](crate::control::STATS).
    pub(super) fn stats(&self, ctx: &RequestContext<'_>) -> Result<Vec<u8>> {
        serde_json::to_vec(&self.served_stats(ctx.requests())?).map_err(|_| Errno(libc::EIO))
    }

    fn served_stats(&self, requests: &Requests) -> Result<ServedStats> {
        let transport = self.transport.get().copied().unwrap_or_default().name();
        let counts = requests.counts();
        let by_name = |number: fn(&Count) -> u64| {
            counts.iter().map(|count| (count.opcode.name(), number(count))).collect()
        };
        let supervision = self.supervision.as_ref();
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let agreed = self.features.get();
        Ok(ServedStats {
            version: env!("CARGO_PKG_VERSION"),
            started_ns: started.as_nanos() as u64,
            server_pid: std::process::id(),
            supervisor_pid: supervision.map_or(0, |supervision| supervision.supervisor()),
            incarnation: supervision.map_or(0, |supervision| supervision.memory().incarnation()),
            longest_pause_ns: supervision.map_or(0, |supervision| supervision.memory().longest_pause()),
            servers: supervision.map(|supervision| supervision.memory().life()),
            memory: ProcessMemory::now(),
            hardening: self.hardening.clone(),
            transport,
            protocol_minor: agreed.map_or(0, |agreed| agreed.minor),
            protocol_features: agreed
                .map(|agreed| agreed.flags.iter_names().map(|(name, _)| name).collect())
                .unwrap_or_default(),
            requests: by_name(|count| count.sent),
            requests_awaited: by_name(|count| count.awaited),
            stats: Stats::of(&self.fs)?,
        })
    }
}

/// All counters of a mount, as [`control::stats`](crate::control::stats) and
/// [`control::latencies`](crate::control::latencies) read them.
#[derive(serde::Serialize)]
struct AllCounters {
    #[serde(flatten)]
    stats: ServedStats,
    latencies: BTreeMap<String, Times>,
}

impl Counters<EngineOperations> {
    /// All counters, as JSON.
    ///
    /// # Errors
    /// Those of the file system, which may have failed.
    pub fn read(&self) -> Result<serde_json::Value> {
        let stats = self.session.operations().served_stats(self.session.requests())?;
        let latencies = latencies_from(&self.session.latencies().sums());
        serde_json::to_value(AllCounters { stats, latencies }).map_err(|_| Errno(libc::EIO))
    }
}
