//! Rounds over pages that lie scattered: one inode changes in each of many node blocks, drawn at random.

use super::volume::Volume;
use narufs_engine::Result;
use narufs_engine::checkpoint::{CheckpointStats, Phase, PhaseCount};
use narufs_engine::format::{INODES_PER_BLOCK, Nid, ROOT_NID};
use narufs_engine::vfs::{Context, SetAttr, Vfs};

/// What rounds have done.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Nanoseconds in rounds.
    pub ns: u64,
    /// Bytes that went home.
    pub home_bytes: u64,
    /// Requests that took them there.
    pub requests: u64,
    /// Nanoseconds and bytes of each phase, in the order of [`Phase::ALL`].
    pub phases: Vec<(u64, u64)>,
}

impl Found {
    /// Bytes home a second, all phases among the time.
    pub fn bytes_per_second(&self) -> f64 {
        self.home_bytes as f64 * 1e9 / self.ns.max(1) as f64
    }

    /// What rounds have done between two looks.
    pub fn between(before: &CheckpointStats, after: &CheckpointStats) -> Found {
        let phase = |(b, a): (&PhaseCount, &PhaseCount)| (a.ns - b.ns, a.bytes - b.bytes);
        let phases: Vec<_> = before.phases.iter().zip(&after.phases).map(phase).collect();
        Found {
            ns: after.ns - before.ns,
            home_bytes: phases[Phase::WriteHome as usize].1,
            requests: after.home_requests - before.home_requests,
            phases,
        }
    }
}

/// Makes files that fill `blocks` node blocks; one of each.
///
/// # Errors
/// What the file system says.
pub fn scattered(fs: &Vfs, blocks: usize) -> Result<Vec<Nid>> {
    let root = Context::root();
    let mut files = Vec::new();
    for block in 0..blocks {
        // A directory for each hundred blocks.
        if block % 100 == 0 {
            let name = format!("blocks-{block}");
            files.push((fs.mkdir(&root, ROOT_NID, name.as_bytes(), 0o755)?.nid, Vec::new()));
        }
        let Some((dir, first)) = files.last_mut() else { continue };
        for n in 0..INODES_PER_BLOCK {
            let name = format!("{block}-{n}");
            let made = fs.mknod(&root, *dir, name.as_bytes(), libc::S_IFREG | 0o644, 0)?;
            fs.forget(made.nid, 1);
            if n == 0 {
                first.push(made.nid);
            }
        }
    }
    fs.checkpointer().checkpoint()?;
    Ok(files.into_iter().flat_map(|(_, first)| first).collect())
}

/// Changes `count` of the files, and brings that home; so `times`.
///
/// # Errors
/// What the file system says.
pub fn measure(volume: &Volume, files: &[Nid], count: usize, times: u32, random: &mut u64) -> Result<Found> {
    let (fs, root) = (volume.fs(), Context::root());
    let mut files = files.to_vec();
    let before = volume.stats();
    for _ in 0..times {
        for at in 0..count {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let other = at + (*random >> 33) as usize % (files.len() - at);
            files.swap(at, other);
            let mode = 0o600 + (*random >> 60) as u32;
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            fs.setattr(&root, files[at], None, &set)?;
        }
        volume.checkpoint()?;
    }
    Ok(Found::between(&before, &volume.stats()))
}
