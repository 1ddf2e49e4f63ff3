//! The counters of a live mount, as JSON.

use super::engine::EngineOperations;
use crate::session::RequestContext;
use crate::session::requests::Count;
use crate::types::{Errno, Result};
use narufs_engine::stats::Stats;
use narufs_engine::takeover::Life;
use std::collections::BTreeMap;

/// What `narufs stats` shows of a mount.
#[derive(serde::Serialize)]
struct ServedStats {
    server_pid: u32,
    /// Who starts the next server; 0: nobody.
    supervisor_pid: u32,
    /// Servers that the mount had before this one.
    incarnation: u32,
    /// The longest time without a server.
    longest_pause_ns: u64,
    /// How far they have come, and where they have ended.
    servers: Option<Life>,
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

impl EngineOperations {
    /// Answers [`STATS`](crate::control::STATS).
    pub(super) fn stats(&self, ctx: &RequestContext<'_>) -> Result<Vec<u8>> {
        let transport = self.transport.get().copied().unwrap_or_default().name();
        let counts = ctx.requests().counts();
        let by_name = |number: fn(&Count) -> u64| {
            counts.iter().map(|count| (count.opcode.name(), number(count))).collect()
        };
        let supervision = self.supervision.as_ref();
        let agreed = self.features.get();
        let stats = ServedStats {
            server_pid: std::process::id(),
            supervisor_pid: supervision.map_or(0, |supervision| supervision.supervisor()),
            incarnation: supervision.map_or(0, |supervision| supervision.memory().incarnation()),
            longest_pause_ns: supervision.map_or(0, |supervision| supervision.memory().longest_pause()),
            servers: supervision.map(|supervision| supervision.memory().life()),
            transport,
            protocol_minor: agreed.map_or(0, |agreed| agreed.minor),
            protocol_features: agreed
                .map(|agreed| agreed.flags.iter_names().map(|(name, _)| name).collect())
                .unwrap_or_default(),
            requests: by_name(|count| count.sent),
            requests_awaited: by_name(|count| count.awaited),
            stats: Stats::of(&self.fs)?,
        };
        serde_json::to_vec(&stats).map_err(|_| Errno(libc::EIO))
    }
}
