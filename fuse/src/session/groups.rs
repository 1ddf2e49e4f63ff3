//! The caller's supplementary groups.
//!
//! The protocol does not carry them, but permission depends on them; /proc does. They are read only when a check
//! turns on them, and kept a short while: a caller that changes its groups without changing user or group keeps
//! its former ones for `KEPT`.
//!
//! They are kept for the whole process, since callers are the same whichever mount they ask.
//!
//! What is kept is keyed by thread, user and group, so that a thread that changes identity is looked up anew; a
//! thread id is not given out again within so short a time.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// How long groups are kept.
const KEPT: Duration = Duration::from_millis(50);
/// Callers that are kept at most.
const MOST_CALLERS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Caller {
    pid: u32,
    uid: u32,
    gid: u32,
}

/// When the groups were read, and which they were.
type Found = (Instant, Arc<[u32]>);

static RECENT: LazyLock<GroupCache> = LazyLock::new(GroupCache::default);

/// The supplementary groups of a thread; none if it is of another pid name space (0) or gone.
pub fn groups(pid: u32, uid: u32, gid: u32) -> Arc<[u32]> {
    RECENT.groups(pid, uid, gid)
}

/// Groups of recent callers.
#[derive(Debug, Default)]
struct GroupCache {
    recent: Mutex<HashMap<Caller, Found>>,
}

impl GroupCache {
    fn groups(&self, pid: u32, uid: u32, gid: u32) -> Arc<[u32]> {
        if pid == 0 {
            return Arc::new([]);
        }
        let caller = Caller { pid, uid, gid };
        let now = Instant::now();
        if let Some((since, groups)) = self.recent.lock().get(&caller)
            && now.duration_since(*since) < KEPT
        {
            return Arc::clone(groups);
        }
        let groups: Arc<[u32]> = match std::fs::read_to_string(format!("/proc/{pid}/status")) {
            Ok(status) => parse(&status).into(),
            Err(e) => {
                tracing::debug!(pid, "groups not known: {e}");
                Arc::new([])
            }
        };
        let mut recent = self.recent.lock();
        if recent.len() >= MOST_CALLERS {
            recent.retain(|_, (since, _)| now.duration_since(*since) < KEPT);
            if recent.len() >= MOST_CALLERS {
                recent.clear();
            }
        }
        recent.insert(caller, (now, Arc::clone(&groups)));
        groups
    }
}

fn parse(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.into_iter().flat_map(str::split_ascii_whitespace).filter_map(|gid| gid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_groups_is_read() {
        assert_eq!(parse("Name:\tcat\nGroups:\t4 24 1000 \nNStgid:\t7\n"), [4, 24, 1000]);
        assert!(parse("Name:\tcat\nGroups:\t\n").is_empty());
        assert!(parse("Name:\tGroups: 5\n").is_empty());
    }

    #[test]
    fn our_own_groups_are_those_that_the_kernel_tells() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let own: Vec<u32> =
            rustix::process::getgroups().expect("own groups").iter().map(|gid| gid.as_raw()).collect();
        let cache = GroupCache::default();
        for _ in 0..2 {
            assert_eq!(*cache.groups(tid, 0, 0), *own);
        }
        assert!(cache.groups(0, 0, 0).is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let cache = GroupCache::default();
        for uid in 0..3 * MOST_CALLERS as u32 {
            cache.groups(u32::MAX, uid, 0);
        }
        assert!(cache.recent.lock().len() <= MOST_CALLERS);
    }
}
