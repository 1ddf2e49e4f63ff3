//! The names under which mkfs(8), mount(8), umount(8) and fsck(8) call this program, and what they leave unsaid.
//!
//! mount(8) keeps `suid` and `dev` to itself: they are what every file system of the kernel begins with. What takes
//! them away it hands on, `nosuid` and `nodev` and what `user`, `users`, `owner` and `group` stand for. Under its names
//! root's options therefore begin with `suid,dev`; `narufs mount` is careful unless asked. Those who are not root get
//! neither from the kernel. Its `-f` is a dry run.

use std::ffi::OsString;
use std::path::Path;

/// The names, and the command that each stands for.
pub const NAMES: [(&str, &str); 6] = [
    ("mkfs.narufs", "mkfs"),
    ("fsck.narufs", "fsck"),
    ("mount.narufs", "mount"),
    ("mount.fuse.narufs", "mount"),
    ("umount.narufs", "umount"),
    ("umount.fuse.narufs", "umount"),
];

/// The command line as if the program had been called `narufs COMMAND ...`.
pub fn arguments(mut given: Vec<OsString>, by_root: bool) -> Vec<OsString> {
    let name = given.first().map(|n| Path::new(n).file_name().unwrap_or(n).to_string_lossy().into_owned());
    let Some((_, command)) = NAMES.iter().find(|(called, _)| name.as_deref() == Some(called)) else {
        return given;
    };
    let words: &[&str] = match *command {
        "mount" if by_root => &["mount", "--helper", "-o", "suid,dev"],
        "mount" => &["mount", "--helper"],
        _ => &[command],
    };
    given.splice(1..1, words.iter().map(OsString::from));
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, Mount};
    use crate::options::OptionList;
    use clap::Parser;

    fn mount(line: &str, by_root: bool) -> (Mount, OptionList) {
        let given = line.split(' ').map(OsString::from).collect();
        let cli = Cli::try_parse_from(arguments(given, by_root)).expect("it is understood");
        let Command::Mount(args) = cli.command else { panic!("{line} mounts") };
        let options = OptionList::parse(&args.options).expect("they are known");
        (args, options)
    }

    #[test]
    fn mount_8_gets_what_it_does_not_say_and_users_and_the_command_itself_do_not() {
        let suid_dev_exec = |line: &str, by_root| {
            let (_, options) = mount(line, by_root);
            (options.suid, options.dev, options.exec)
        };
        for (options, expected) in [
            ("rw", (true, true, true)),
            ("rw,nosuid", (false, true, true)),
            ("rw,nodev", (true, false, true)),
            // As it hands on `user`, `user,exec`, `users,suid` and `owner`.
            ("rw,noexec,nosuid,nodev,user,_netdev", (false, false, false)),
            ("rw,nosuid,nodev,user,exec", (false, false, true)),
            ("rw,noexec,nodev,users,suid", (true, false, false)),
            ("rw,nosuid,nodev", (false, false, true)),
            ("ro,user=somebody,uhelper=fuse.narufs,helper=fuse.narufs", (true, true, true)),
        ] {
            for name in ["/sbin/mount.narufs", "mount.fuse.narufs"] {
                let line = format!("{name} image dir -o {options}");
                assert_eq!(suid_dev_exec(&line, true), expected, "{line}");
            }
        }
        assert_eq!(suid_dev_exec("mount.narufs image dir -o rw", false), (false, false, true));
        assert_eq!(suid_dev_exec("narufs mount image dir -o rw", true), (false, false, true));
    }

    #[test]
    fn what_mount_8_and_umount_8_say_besides_is_understood() {
        let (args, _) =
            mount("mount.fuse.narufs image dir -s -n -v -o rw -t fuse.narufs -N /proc/1/ns/mnt", true);
        assert!(!args.is_dry_run() && !args.foreground && args.namespace.is_some());
        assert!(mount("mount.narufs image dir -f -n -v -o rw", true).0.is_dry_run());
        for line in
            ["umount.narufs dir -n -l -v", "umount.fuse.narufs dir -f -r -t fuse.narufs -N /proc/self/fd/3"]
        {
            let given = line.split(' ').map(OsString::from).collect();
            let cli = Cli::try_parse_from(arguments(given, true)).expect("it is understood");
            assert!(matches!(cli.command, Command::Umount(args) if args.lazy != args.force));
        }
        let (args, _) = mount("narufs mount image dir -f", true);
        assert!(args.foreground && !args.is_dry_run());
    }
}
