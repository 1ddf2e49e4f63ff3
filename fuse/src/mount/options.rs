//! Options of a mount.

use rustix::mount::MountFlags;

/// The name that /proc/mounts shows after `fuse.`.
pub const SUBTYPE: &str = "narufs";

/// When reading changes a file's access time. The kernel leaves access times of FUSE files to the server; the
/// operations are to heed this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atime {
    /// When it is older than the last change, or than a day.
    #[default]
    Relative,
    /// Never.
    Never,
    /// At every read.
    Strict,
}

/// Through whose page cache files are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Io {
    /// Reads through the kernel's, which each write goes through to the server; O_DIRECT goes past it.
    #[default]
    Auto,
    /// Reads and writes through the kernel's, which holds what was written until an fsync, a close, or its own
    /// time: a kill of the server loses it.
    Cached,
    /// Past the kernel's: each read and write is a request, and those of one file run beside each other.
    Direct,
}

impl Io {
    /// From its name.
    pub fn from_name(name: &str) -> Option<Io> {
        match name {
            "auto" => Some(Io::Auto),
            "cached" => Some(Io::Cached),
            "direct" => Some(Io::Direct),
            _ => None,
        }
    }
}

/// Who checks what users may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Permissions {
    /// The kernel, by modes and access lists, before it asks. It may then trust what it knows of names and attributes
    /// for as long as nothing changes, and open files without asking.
    #[default]
    Kernel,
    /// The server. Names are trusted for a moment only, and where everyone may search the directory.
    Server,
}

impl Permissions {
    /// From its name.
    pub fn from_name(name: &str) -> Option<Permissions> {
        match name {
            "kernel" => Some(Permissions::Kernel),
            "server" => Some(Permissions::Server),
            _ => None,
        }
    }
}

/// How the kernel's requests reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Through io_uring where the kernel has that and its owner has turned it on, by `/dev/fuse` otherwise.
    #[default]
    Auto,
    /// Through io_uring, which root turns on by asking for it; the mount fails where that cannot be.
    Uring,
    /// By `/dev/fuse`.
    Device,
}

impl Transport {
    /// From its name.
    pub fn from_name(name: &str) -> Option<Transport> {
        match name {
            "auto" => Some(Transport::Auto),
            "uring" => Some(Transport::Uring),
            "dev" => Some(Transport::Device),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Uring => "uring",
            Transport::Device => "dev",
        }
    }
}

/// What idle cores do while requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idle {
    /// They stay awake where that is worth most, in a virtual machine of few cores.
    #[default]
    Auto,
    /// They stay awake.
    Awake,
    /// They halt.
    Halt,
}

/// What a mount is asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FuseOptions {
    /// The source that /proc/mounts shows: the image.
    pub source: String,
    /// No changes.
    pub read_only: bool,
    /// Who checks permissions; where it is not said, the kernel, unless it could not ([`FuseOptions::permissions`]).
    pub permissions: Option<Permissions>,
    /// Users other than the one who mounts have access.
    pub allow_other: bool,
    /// The largest READ, in bytes; 0 for the kernel's own limit.
    pub max_read: u32,
    /// setuid and setgid of programs count.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Every write is as if opened with O_SYNC.
    pub sync: bool,
    /// Changes of the directory are too.
    pub dirsync: bool,
    /// Times alone are written late.
    pub lazytime: bool,
    /// Access times.
    pub atime: Atime,
    /// Extended attributes, and access lists with them, can be had through the mount. Without them the kernel asks for
    /// none before it writes.
    pub xattr: bool,
    /// Page caches.
    pub io: Io,
    /// The way of requests.
    pub transport: Transport,
    /// Cores with nothing to do.
    pub idle: Idle,
    /// Locks that programs ask for are the server's, in common with those of a program that uses the library, and not the
    /// kernel's: each lock, open and close is a request then. Not through io_uring.
    pub shares_locks: bool,
    /// User and group that what is root's is shown as.
    pub root_as: Option<(u32, u32)>,
}

impl FuseOptions {
    /// The defaults, for a source: `nosuid,nodev,relatime`, and for root `allow_other`.
    pub fn new(source: &str) -> Self {
        FuseOptions {
            source: source.to_owned(),
            read_only: false,
            permissions: None,
            allow_other: rustix::process::geteuid().is_root(),
            max_read: 0,
            suid: false,
            dev: false,
            exec: true,
            sync: false,
            dirsync: false,
            lazytime: false,
            atime: Atime::Relative,
            xattr: true,
            io: Io::Auto,
            transport: Transport::Auto,
            idle: Idle::Auto,
            shares_locks: false,
            root_as: None,
        }
    }

    /// Has what is root's shown as that of the user who serves, where that is another: a program that uses the file system
    /// by the library makes files as root there, whoever runs it.
    pub fn show_root_as_own(&mut self) {
        let user = rustix::process::geteuid();
        let own = (user.as_raw(), rustix::process::getegid().as_raw());
        self.root_as = (!user.is_root()).then_some(own);
    }

    /// Applies one option as `-o` has it. False: it is not one of a mount.
    pub fn apply(&mut self, option: &str) -> bool {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "default_permissions" => self.permissions = Some(Permissions::Kernel),
            "allow_other" => self.allow_other = true,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "lazytime" => self.lazytime = true,
            "nolazytime" => self.lazytime = false,
            "noatime" => self.atime = Atime::Never,
            "relatime" | "atime" => self.atime = Atime::Relative,
            "strictatime" => self.atime = Atime::Strict,
            "awake" => self.idle = Idle::Awake,
            "noawake" => self.idle = Idle::Halt,
            _ => match option.split_once('=') {
                Some(("fsname", name)) => self.source = name.to_owned(),
                // The subtype is ours whatever a mount helper passes on.
                Some(("subtype", _)) => {}
                Some(("io", name)) => match Io::from_name(name) {
                    Some(io) => self.io = io,
                    None => return false,
                },
                Some(("transport", name)) => match Transport::from_name(name) {
                    Some(transport) => self.transport = transport,
                    None => return false,
                },
                Some(("permissions", name)) => match Permissions::from_name(name) {
                    Some(permissions) => self.permissions = Some(permissions),
                    None => return false,
                },
                Some(("max_read", bytes)) => match bytes.parse() {
                    Ok(bytes) => self.max_read = bytes,
                    Err(_) => return false,
                },
                _ => return false,
            },
        }
        true
    }

    /// Who checks permissions. Without extended attributes the kernel would not see access lists: the server, then.
    pub fn permissions(&self) -> Permissions {
        let usual = if self.xattr { Permissions::Kernel } else { Permissions::Server };
        self.permissions.unwrap_or(usual)
    }

    /// The flags of mount(2).
    pub fn flags(&self) -> MountFlags {
        let mut flags = match self.atime {
            Atime::Relative => MountFlags::RELATIME,
            Atime::Never => MountFlags::NOATIME,
            Atime::Strict => MountFlags::STRICTATIME,
        };
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.suid);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOEXEC, !self.exec);
        flags.set(MountFlags::SYNCHRONOUS, self.sync);
        flags.set(MountFlags::DIRSYNC, self.dirsync);
        flags.set(MountFlags::LAZYTIME, self.lazytime);
        flags
    }

    /// Options of the file system itself that both ways of mounting pass.
    pub(super) fn fuse_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        if self.permissions() == Permissions::Kernel {
            options.push("default_permissions".to_owned());
        }
        if self.allow_other {
            options.push("allow_other".to_owned());
        }
        if self.max_read != 0 {
            options.push(format!("max_read={}", self.max_read));
        }
        options
    }

    /// All options as `fusermount3` takes them.
    pub(super) fn helper_options(&self) -> String {
        let mut options = self.fuse_options();
        options.push(format!("fsname={}", self.source.replace('\\', "\\\\").replace(',', "\\,")));
        options.push(format!("subtype={SUBTYPE}"));
        let flags = [
            (if self.read_only { "ro" } else { "rw" }, true),
            (if self.suid { "suid" } else { "nosuid" }, true),
            (if self.dev { "dev" } else { "nodev" }, true),
            ("noexec", !self.exec),
            ("sync", self.sync),
            ("dirsync", self.dirsync),
            ("noatime", self.atime == Atime::Never),
        ];
        options.extend(flags.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()));
        options.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_safe_unless_asked_otherwise() {
        let mut options = FuseOptions::new("image");
        assert!(options.flags().contains(MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME));
        for option in ["ro", "suid", "dev", "noatime", "sync", "max_read=65536", "io=direct", "awake"] {
            assert!(options.apply(option), "{option}");
        }
        assert_eq!(options.flags(), MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::SYNCHRONOUS);
        assert_eq!((options.io, options.idle), (Io::Direct, Idle::Awake));
        assert!(options.apply("noawake") && options.idle == Idle::Halt);
        for foreign in ["io=both", "commit=5", "durability=power", "max_read=much", ""] {
            assert!(!options.apply(foreign), "{foreign}");
        }
    }

    #[test]
    fn the_kernel_checks_permissions_where_it_can_and_nothing_else_was_said() {
        let mut options = FuseOptions::new("image");
        assert_eq!(options.permissions(), Permissions::Kernel);
        assert!(options.fuse_options().contains(&"default_permissions".to_owned()));
        options.xattr = false;
        assert_eq!(options.permissions(), Permissions::Server);
        assert!(options.apply("default_permissions"));
        assert_eq!(options.permissions(), Permissions::Kernel);
        assert!(options.apply("permissions=server") && !options.apply("permissions=nobody"));
        assert_eq!(options.permissions(), Permissions::Server);
        assert!(!options.fuse_options().contains(&"default_permissions".to_owned()));
    }

    #[test]
    fn a_source_cannot_smuggle_options_in() {
        let mut options = FuseOptions::new("a,suid\\");
        options.allow_other = false;
        options.permissions = Some(Permissions::Server);
        assert_eq!(options.helper_options(), "fsname=a\\,suid\\\\,subtype=narufs,rw,nosuid,nodev");
    }
}
