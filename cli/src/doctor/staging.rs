//! What servers that were killed have left in shared memory: the newest of their images' journals.

use super::Finding;
use crate::holder;
use crate::size::Size;
use narufs_engine::volume::Staged;
use std::path::Path;

const ABOUT: &str = "left journals";

/// What lies there, and nobody uses. A server that follows another has it in a moment.
pub(super) fn left(memory: &Path) -> Option<Finding> {
    let entries = std::fs::read_dir(memory).ok()?.flatten();
    let mut left: Vec<(String, u64)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| is_staging(name))?;
            let found = entry.path().symlink_metadata().ok().filter(|found| found.is_file())?;
            holder::process(&found).is_none().then_some((name, found.len()))
        })
        .collect();
    left.sort();
    let (first, _) = left.first()?;
    let all = Size(left.iter().map(|(_, bytes)| bytes).sum());
    let found = format!("killed servers have left {}, {all} ({first})", files(left.len()));
    let remedy = format!(
        "mount their images once (`narufs info IMAGE` shows the UUID that is in the name); `rm` those in {} whose images \
         are gone",
        memory.display()
    );
    Some(Finding::better(ABOUT, found, remedy))
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".into() } else { format!("{count} files") }
}

/// Names have a UUID, and perhaps more.
fn is_staging(name: &str) -> bool {
    let uuid = name.strip_prefix("narufs-").and_then(|rest| Some((rest.get(..36)?, rest.get(36..)?)));
    uuid.is_some_and(|(uuid, rest)| {
        let is_hex = |(at, c): (usize, char)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        };
        uuid.char_indices().all(is_hex) && (rest.is_empty() || rest.starts_with('-'))
    })
}

/// What an unclean image has to expect, of which this was found.
pub(super) fn of_unclean(staged: &Staged) -> Option<Finding> {
    let Staged::Others(path) = staged else { return None };
    Some(Finding::better(
        "journal",
        format!(
            "{} is of another file or device with the same UUID: this image may be a copy, or moved",
            path.display()
        ),
        "mount that first, or say `-o copied` (`-o moved`) if the mount asks",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};

    #[test]
    fn what_nobody_uses_is_told_of() {
        let memory = tempfile::tempdir().expect("room");
        let uuid = "narufs-0b3e2c4e-7e5a-4a0f-8d34-0123456789ab";
        let names = [uuid, &format!("{uuid}-1f.2.3"), "narufs-demo.ring", "narufs-0b3e2c4e", &uuid[7..]];
        for name in names {
            std::fs::write(memory.path().join(name), [0; 4096]).expect("room");
        }
        let said = |finding: Option<Finding>| finding.map(|finding| finding.found).unwrap_or_default();
        let all = said(left(memory.path()));
        assert!(all.contains("2 files, 8.0 KiB") && all.contains(uuid), "{all}");
        let used = std::fs::File::open(memory.path().join(uuid)).expect("there");
        flock(&used, FlockOperation::LockExclusive).expect("nobody has it");
        let other = said(left(memory.path()));
        assert!(other.contains("1 file, 4.0 KiB") && other.contains("-1f.2.3"), "{other}");
        assert!(left(&memory.path().join("none")).is_none());
    }
}
