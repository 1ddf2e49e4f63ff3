//! How long programs wait while one server follows another, and what ends their wait before that.
//!
//! From Linux 6.13 on the system can bound how long a request may wait for its answer: the kernel then cuts the mount off,
//! as if it had no server. That holds while a server is restarted as well, so a bound below [`LONGEST`] may end a mount that
//! would have gone on.

use crate::holder::PATIENCE;
use std::path::Path;
use std::time::Duration;

/// What a restart takes at the most where nothing is wrong: the locks of a server that is being ended are waited for, and as
/// much again is for a full journal on a slow device.
pub const LONGEST: Duration = PATIENCE.saturating_mul(2);

const SYSCTLS: &str = "/proc/sys/fs/fuse";

/// What the user should know of the system's bounds.
pub fn warning() -> Option<String> {
    warning_of(Path::new(SYSCTLS))
}

/// The same of a system whose settings lie in this directory.
pub fn warning_of(sysctls: &Path) -> Option<String> {
    let bound = |name: &'static str| {
        // Absent before Linux 6.13; 0: none.
        let seconds: u64 = std::fs::read_to_string(sysctls.join(name)).ok()?.trim().parse().ok()?;
        (seconds > 0).then_some((seconds, name))
    };
    let bounds = [bound("max_request_timeout"), bound("default_request_timeout")];
    let (seconds, name) = bounds.into_iter().flatten().min()?;
    let longest = LONGEST.as_secs();
    (seconds < longest).then(|| {
        format!(
            "fs.fuse.{name} is {seconds} s: where a call waits longer for its answer the kernel ends the mount, and while \
             a server is restarted it may wait up to {longest} s; set it to 0, or to {longest} at least, and mount again"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_told_of_that_a_restart_may_exceed() {
        let dir = tempfile::tempdir().expect("room");
        let set = |name: &str, value: &str| std::fs::write(dir.path().join(name), value).expect("room");
        assert_eq!(warning_of(dir.path()), None, "a kernel that has none");
        for (most, usual, told) in [
            ("0", "0", None),
            ("20", "0", None),
            ("19", "0", Some("max_request_timeout is 19 s")),
            ("0", "15", Some("default_request_timeout is 15 s")),
            ("16", "15", Some("default_request_timeout is 15 s")),
            ("65535", "60", None),
            ("nonsense", "", None),
        ] {
            set("max_request_timeout", &format!("{most}\n"));
            set("default_request_timeout", &format!("{usual}\n"));
            let said = warning_of(dir.path());
            assert_eq!(said.is_some(), told.is_some(), "{most} {usual}: {said:?}");
            assert!(told.is_none_or(|told| said.is_some_and(|said| said.contains(told))), "{most} {usual}");
        }
    }
}
