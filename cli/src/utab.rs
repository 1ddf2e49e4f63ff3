//! A mount in the table that umount(8) keeps beside the kernel's, so that it calls us.
//!
//! Of an absolute path umount(8) finds the type by statfs(2), which knows `fuse` and no subtype, and looks for no
//! helper of ours; of one that has an entry in its table, `/run/mount/utab`, it reads the kernel's own, which says
//! `fuse.narufs`. So a mount of root's gets an entry. mount(8) itself writes it and takes it away: the table is its
//! library's, with a lock of its own. `umount -r` that has only made a mount read-only takes the entry away as well. What
//! fails here costs the wait for the server, which the next mount makes up for.

use std::path::Path;
use std::process::{Command, Stdio};

const TABLE: &str = "/run/mount/utab";
/// What umount(8) is to call, and does for those who are not root by what the entry says.
const HELPER: &str = "/sbin/umount.fuse.narufs";
const OPTION: &str = "uhelper=fuse.narufs";

/// An entry, which goes with this.
pub struct Entry<'p> {
    point: &'p Path,
}

impl Entry<'_> {
    /// One that a process before this has made, if it is there.
    pub fn left(point: &Path) -> Entry<'_> {
        Entry { point }
    }
}

/// Makes an entry for what is mounted at `point`, if that is of use.
pub fn enter<'p>(source: &Path, point: &'p Path) -> Option<Entry<'p>> {
    if !rustix::process::geteuid().is_root() || !Path::new(HELPER).exists() {
        return None;
    }
    // A killed server has left it.
    if is_there(point) {
        return Some(Entry { point });
    }
    let mut mount = Command::new("mount");
    mount.args(["--internal-only", "--fake", "--no-canonicalize", "-t", "fuse.narufs", "-o", OPTION]);
    run(mount.arg("--").arg(source).arg(point)).then_some(Entry { point })
}

/// Whether the table has an entry for this place.
fn is_there(point: &Path) -> bool {
    let table = std::fs::read_to_string(TABLE).unwrap_or_default();
    let mut target = String::from("TARGET=");
    for letter in point.to_string_lossy().chars() {
        match letter {
            ' ' | '\t' | '\n' | '\\' => target.push_str(&format!("\\{:03o}", letter as u32)),
            _ => target.push(letter),
        }
    }
    table.lines().any(|line| line.split(' ').any(|field| field == target))
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        // umount(8) takes it away itself, but not everybody unmounts by it.
        if is_there(self.point) {
            run(Command::new("umount")
                .args(["--internal-only", "--fake", "--no-canonicalize", "--"])
                .arg(self.point));
        }
    }
}

fn run(command: &mut Command) -> bool {
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            tracing::debug!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
            false
        }
        Err(e) => {
            tracing::debug!("{command:?}: {e}");
            false
        }
    }
}
