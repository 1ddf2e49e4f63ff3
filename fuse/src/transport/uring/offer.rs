//! What the kernel offers: whether servers may have io_uring, and how many queues a mount has.

use std::io;

/// Whether the kernel offers io_uring to servers.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the kernel offers io_uring to servers that ask; `Err` if it cannot.
pub fn is_enabled() -> io::Result<bool> {
    Ok(std::fs::read_to_string(SWITCH)?.trim() == "Y")
}

/// Whether a server that asks for it is served so: the kernel offers it, or may be told to.
pub fn can_be_had() -> bool {
    is_enabled().unwrap_or(false) || std::fs::OpenOptions::new().write(true).open(SWITCH).is_ok()
}

/// Has the kernel offer it, to every server that asks. Takes root.
pub fn enable() -> io::Result<()> {
    std::fs::write(SWITCH, "Y")
}

/// The kernel's queues: numbers below this one, as many as there may ever be cores.
pub fn queues() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_of(&text).ok_or_else(|| io::Error::other("/sys tells no possible cores"))
}

/// The numbers in a list like `0-3,5`.
pub(in crate::transport) fn count_of(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |count, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let more = last.parse::<u16>().ok()?.checked_sub(first.parse().ok()?)?;
        count.checked_add(more)?.checked_add(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_cores_are_counted() {
        for (list, count) in
            [("0\n", Some(1)), ("0-1\n", Some(2)), ("0-3,8-127\n", Some(124)), ("0,2", Some(2))]
        {
            assert_eq!(count_of(list), count);
        }
        for bad in ["", "3-1", "0-65535", "a"] {
            assert_eq!(count_of(bad), None);
        }
    }
}
