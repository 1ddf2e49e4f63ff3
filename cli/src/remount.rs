//! `narufs mount -o remount,...`, which mount(8) calls as well: changes between read-only and writable, and the
//! flags that the kernel keeps to itself. The server goes on as it was started.

use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::options::{Durability, OptionList, is_for_mount};
use crate::umount;
use narufs_fuse::control;
use narufs_fuse::mount::{Atime, FuseOptions, Permissions, mountinfo};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::path::Path;

/// What mount(8) adds of what it reads in /proc/mounts.
const TAKEN_ALONG: [&str; 4] = ["remount", "user_id", "group_id", "rootmode"];
/// An attribute that nobody has.
const NOT_THERE: &str = "user.narufs.not-there";

/// Whether this is to be a remount.
pub fn is_wanted(args: &Mount) -> bool {
    items(args).any(|item| item == "remount")
}

fn items(args: &Mount) -> impl Iterator<Item = &str> {
    args.options.iter().flat_map(|list| list.split(',')).filter(|item| !item.is_empty())
}

/// Remounts.
pub fn run(args: &Mount) -> Result<(), Failure> {
    let point = umount::point_of(args.dir())?;
    let dir = args.dir().display();
    let stats = || control::stats(&point).ok().and_then(|stats| serde_json::from_str(&stats).ok());
    let options = changed(options_of(&point), args, stats).map_err(|name| {
        let why = format!("{name} cannot be changed by a remount: unmount {dir} and mount it anew");
        Failure::new(Status::MountUsage, why)
    })?;
    set(args.dir(), &point, &options)?.map_err(|e| match e {
        Errno::BUSY => {
            failed(args.dir(), "files are open for writing (fuser -vm shows them): close them first")
        }
        e => failed(args.dir(), &e.to_string()),
    })?;
    // The kernel does not ask the server whether it can write; an attribute that is not there does.
    if !options.read_only && rustix::fs::removexattr(&point, NOT_THERE) == Err(Errno::ROFS) {
        let _ = mount_remount(&point, options.flags() | MountFlags::RDONLY, c"");
        return Err(failed(args.dir(), "its server has the image read-only: unmount it and mount it anew"));
    }
    Ok(())
}

/// Has the kernel give a mount these options; `dir` is what the user calls it. The kernel tells a server of no remount: of one that
/// is to be read-only all is written down before, so that one that cannot be stays as it is, and after it what came meanwhile.
///
/// # Errors
/// Not everything could be written down. Within: the kernel refuses.
pub fn set(dir: &Path, point: &Path, options: &FuseOptions) -> Result<Result<(), Errno>, Failure> {
    let sync = |what: &str| {
        let why = |e| failed(dir, &format!("{what}not everything could be written down: {e}"));
        if options.read_only { control::sync(point).map_err(why) } else { Ok(()) }
    };
    sync("")?;
    if let Err(e) = mount_remount(point, options.flags(), c"") {
        return Ok(Err(e));
    }
    sync("read-only now, but ")?;
    Ok(Ok(()))
}

/// What a mount with these options has after what is asked for; or the name of what cannot be changed. Its server is asked for
/// its counters where those tell.
fn changed(
    mut options: FuseOptions,
    args: &Mount,
    stats: impl Fn() -> Option<serde_json::Value>,
) -> Result<FuseOptions, String> {
    let (atime, checks) = (options.atime, options.permissions());
    for item in items(args) {
        let name = item.split('=').next().unwrap_or(item);
        // mount(8) says all that fstab has, whatever it was asked for.
        let stays = || {
            let asked = args.helper.then(|| OptionList::parse(&[item.to_owned()]));
            asked.is_some_and(|asked| {
                asked.is_ok_and(|asked| name != "durability" || may_be(asked.durability, stats().as_ref()))
            })
        };
        let ignored = TAKEN_ALONG.contains(&name) || is_for_mount(name);
        // Access times are the server's: the kernel would show another option, and nothing else would change.
        if !(ignored || options.apply(item) && options.atime == atime || stays()) {
            return Err(name.to_owned());
        }
        options.atime = atime;
    }
    // As at the mount; mount(8) says `dev` unasked.
    options.dev &= checks == Permissions::Kernel;
    Ok(options)
}

/// Whether a mount with these counters may have been asked for that: what fsync waits for is no small matter, and whether
/// it comes from fstab, which has it so already, or from who wants another now, mount(8) does not say.
fn may_be(asked: Durability, stats: Option<&serde_json::Value>) -> bool {
    let Some(stats) = stats.filter(|stats| stats["durability"].is_string()) else { return true };
    let window = stats["window_ns"].as_u64().map(u128::from);
    match asked {
        Durability::Window(asked) => window == Some(asked.as_nanos()),
        // A journal in emulated memory survives a process alone, whatever was asked for.
        Durability::Power => window.is_none(),
        Durability::Process => window.is_none() && stats["durability"] == "process",
    }
}

/// The flags that a mount has.
pub fn options_of(point: &Path) -> FuseOptions {
    let shown = mountinfo::find(point).ok().flatten().map(|entry| entry.options).unwrap_or_default();
    options_shown(&shown)
}

/// The flags that these, as the kernel shows them, are of.
fn options_shown(shown: &str) -> FuseOptions {
    let mut options = FuseOptions::new("");
    // The kernel shows what is taken away, that it checks permissions, and nothing of access times where each read changes
    // them.
    (options.suid, options.dev, options.atime) = (true, true, Atime::Strict);
    options.permissions = Some(Permissions::Server);
    for option in shown.split(',') {
        // Those that are no flags do not change.
        options.apply(option);
    }
    options
}

fn failed(dir: &Path, why: &str) -> Failure {
    Failure::about(Status::MountFailed, dir, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::called::arguments;
    use clap::Parser;
    use serde_json::json;
    use std::time::Duration;

    /// After a mount that the kernel shows like this was asked for a remount.
    fn remounted(shown: &str, line: &str) -> Result<FuseOptions, String> {
        let given = line.split(' ').map(Into::into).collect();
        let cli = Cli::try_parse_from(arguments(given, true)).expect("it is understood");
        let Command::Mount(args) = cli.command else { panic!("{line} mounts") };
        changed(options_shown(shown), &args, || None)
    }

    #[test]
    fn devices_stay_closed_where_the_server_checks_permissions() {
        let dev = |shown, line| remounted(shown, line).expect("it can be changed").dev;
        let by_mount = "mount.narufs image dir -o rw,remount";
        assert!(!dev("rw,nosuid,nodev,relatime,rw,user_id=0", by_mount));
        assert!(!dev("rw,nodev,relatime,rw", "narufs mount image dir -o remount,dev,permissions=kernel"));
        assert!(dev("rw,nodev,relatime,rw,default_permissions", by_mount));
        assert!(!dev("rw,nodev,relatime,rw,default_permissions", "narufs mount image dir -o remount,ro"));
    }

    #[test]
    fn what_mount_8_has_from_fstab_stays_as_it_is() {
        let shown = "rw,relatime,rw,default_permissions";
        let line = "mount.narufs image dir -o rw,noatime,memory=64M,durability=process,nofail,remount,ro";
        let options = remounted(shown, line).expect("it is what fstab has");
        assert!(options.read_only && options.atime == Atime::Relative);
        let name = |line| remounted(shown, line).expect_err("it cannot be changed");
        assert_eq!(name("mount.narufs image dir -o remount,nonsense"), "nonsense");
        assert_eq!(name("narufs mount image dir -o remount,memory=64M"), "memory");
        assert_eq!(name("narufs mount image dir -o remount,noatime"), "noatime");
    }

    #[test]
    fn what_fsync_waits_for_is_not_changed_without_a_word() {
        let (window, power) = (Durability::Window(Duration::from_millis(100)), Durability::Power);
        let runs = |level: &str, window: Option<u64>| json!({ "durability": level, "window_ns": window });
        let may_be = |asked, stats: &serde_json::Value| may_be(asked, Some(stats));
        assert!(may_be(window, &runs("process", Some(100_000_000))) && may_be(power, &runs("power", None)));
        assert!(may_be(Durability::Process, &runs("process", None)));
        assert!(!may_be(Durability::Process, &runs("power", None)) && !may_be(window, &runs("power", None)));
        assert!(!may_be(window, &runs("process", Some(1_000_000))));
        assert!(!may_be(power, &runs("process", Some(100_000_000))));
        assert!(may_be(power, &json!({ "durability": null })), "scratch space has none");
    }

    #[test]
    fn access_times_are_told_from_what_the_kernel_shows() {
        let atime = |shown| options_shown(shown).atime;
        assert_eq!(atime("rw,nosuid,relatime,rw,user_id=0"), Atime::Relative);
        assert_eq!(atime("rw,noatime,rw"), Atime::Never);
        assert_eq!(atime("rw,nosuid,rw,user_id=0"), Atime::Strict);
    }
}
