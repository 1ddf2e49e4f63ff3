//! Words among a mount's options that are not for the file system.

/// Whether fstab and mount(8) say this to themselves.
pub fn is_for_mount(name: &str) -> bool {
    const NAMES: [&str; 20] = [
        "defaults",
        "auto",
        "noauto",
        "nofail",
        "_netdev",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "loop",
        "mand",
        "nomand",
        "diratime",
        "nodiratime",
        "silent",
        "loud",
        "uhelper",
        "helper",
        "comment",
    ];
    NAMES.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}
