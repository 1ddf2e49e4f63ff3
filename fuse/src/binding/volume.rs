//! Control calls that concern the file system as a whole. Those that change it are for root and for whoever serves the
//! mount.

use super::engine::EngineOperations;
use crate::control::{self, Growth};
use crate::session::RequestContext;
use crate::session::requests::Count;
use crate::types::{Errno, Result};
use narufs_engine::stats::Stats;
use std::collections::BTreeMap;

/// What `narufs stats` shows of a mount.
#[derive(serde::Serialize)]
struct ServedStats {
    server_pid: u32,
    /// How requests reach it.
    transport: &'static str,
    /// How many there were, by name.
    requests: BTreeMap<String, u64>,
    /// Those of them that a caller waited for.
    requests_awaited: BTreeMap<String, u64>,
    #[serde(flatten)]
    stats: Stats,
}

impl EngineOperations {
    fn check_master(ctx: &RequestContext<'_>) -> Result<()> {
        match ctx.uid {
            0 => Ok(()),
            uid if uid == rustix::process::geteuid().as_raw() => Ok(()),
            _ => Err(Errno(libc::EPERM)),
        }
    }

    /// Answers [`control::STATS`].
    pub(super) fn stats(&self, ctx: &RequestContext<'_>) -> Result<Vec<u8>> {
        let counts = ctx.requests().counts();
        let by_name = |number: fn(&Count) -> u64| {
            counts.iter().map(|count| (count.opcode.name(), number(count))).collect()
        };
        let stats = ServedStats {
            server_pid: std::process::id(),
            transport: self.transport.get().copied().unwrap_or_default().name(),
            requests: by_name(|count| count.sent),
            requests_awaited: by_name(|count| count.awaited),
            stats: Stats::of(self.fs())?,
        };
        serde_json::to_vec(&stats).map_err(|_| Errno(libc::EIO))
    }

    /// Answers [`control::TRIM`].
    pub(super) fn trim(&self, ctx: &RequestContext<'_>, data: &[u8]) -> Result<Vec<u8>> {
        Self::check_master(ctx)?;
        let [start, length, least] = numbers(data)?;
        let trimmed = self.fs().trim(start..start.saturating_add(length), least)?;
        Ok([start, trimmed, least].iter().flat_map(|n| n.to_ne_bytes()).collect())
    }

    /// Answers [`control::RESIZE`].
    pub(super) fn resize(&self, ctx: &RequestContext<'_>, data: &[u8]) -> Result<Vec<u8>> {
        Self::check_master(ctx)?;
        let (growth, sparse) = control::asked(data).ok_or(Errno(libc::EINVAL))?;
        let bytes = match growth {
            Growth::ToDevice => None,
            Growth::To(bytes) => Some(bytes),
            Growth::By(more) => Some(self.fs().size().saturating_add(more)),
        };
        Ok(control::resized(self.fs().resize(bytes, sparse).map_err(|e| e.to_string())))
    }
}

/// The numbers of a question.
fn numbers<const N: usize>(data: &[u8]) -> Result<[u64; N]> {
    let (numbers, _) = data.as_chunks::<8>();
    let numbers = numbers.first_chunk::<N>().ok_or(Errno(libc::EINVAL))?;
    Ok(numbers.map(u64::from_ne_bytes))
}
