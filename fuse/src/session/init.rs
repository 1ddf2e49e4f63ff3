//! INIT: what both sides can do.
//!
//! Invariant: nothing is agreed on that the kernel has not offered, so that each feature of a newer kernel falls
//! back by itself on an older one.

use crate::wire::{InitFlags, InitIn, InitOut, MAJOR, MINOR, MINOR_LEAST, OpenFlags};

/// What the server wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The largest READ or WRITE, in bytes.
    pub max_write: u32,
    /// Bytes that the kernel reads ahead at most; it may offer less.
    pub max_readahead: u32,
    /// Background requests (read-ahead, write-back, asynchronous direct I/O) in flight at most.
    pub max_background: u16,
    /// The kernel checks POSIX ACLs; this turns its checks of permissions on.
    pub posix_acl: bool,
    /// The kernel keeps dirty pages.
    pub writeback_cache: bool,
    /// fcntl and flock locks are the server's; else the kernel keeps them to itself, which costs nothing.
    pub locks: bool,
    /// The kernel looks for changes of size or time before it trusts its pages; else it trusts them until it is
    /// told otherwise.
    pub auto_inval: bool,
    /// Inodes can be found by number: NFS export.
    pub export: bool,
    /// Creating requests bring the security attributes of the new inode.
    pub security_context: bool,
    /// Parts of a long asynchronous read or write past the cache come side by side.
    pub async_dio: bool,
    /// Requests come through io_uring, from a queue for each core. A [`Server`](crate::Server) decides that by
    /// [`Transport`](crate::mount::Transport).
    pub io_uring: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            posix_acl: false,
            writeback_cache: false,
            locks: false,
            auto_inval: false,
            export: false,
            security_context: false,
            async_dio: true,
            io_uring: false,
        }
    }
}

impl Config {
    /// ATOMIC_O_TRUNC is not among it: with that flag the kernel has an open with O_RDONLY and O_TRUNC done before it
    /// finds that the file is a running program, and the program is emptied though the open fails.
    fn wanted(&self) -> InitFlags {
        let mut wanted = InitFlags::ASYNC_READ
            | InitFlags::BIG_WRITES
            | InitFlags::DONT_MASK
            | InitFlags::HAS_IOCTL_DIR
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::MAX_PAGES
            | InitFlags::CACHE_SYMLINKS
            | InitFlags::NO_OPEN_SUPPORT
            | InitFlags::NO_OPENDIR_SUPPORT
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::SETXATTR_EXT
            | InitFlags::INIT_EXT
            | InitFlags::CREATE_SUPP_GROUP
            | InitFlags::HAS_EXPIRE_ONLY
            | InitFlags::HAS_RESEND
            | InitFlags::DIRECT_IO_ALLOW_MMAP;
        wanted.set(InitFlags::POSIX_ACL, self.posix_acl);
        wanted.set(InitFlags::WRITEBACK_CACHE, self.writeback_cache);
        wanted.set(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS, self.locks);
        wanted.set(InitFlags::AUTO_INVAL_DATA, self.auto_inval);
        wanted.set(InitFlags::EXPLICIT_INVAL_DATA, !self.auto_inval);
        wanted.set(InitFlags::EXPORT_SUPPORT, self.export);
        wanted.set(InitFlags::SECURITY_CTX, self.security_context);
        wanted.set(InitFlags::ASYNC_DIO, self.async_dio);
        wanted.set(InitFlags::OVER_IO_URING, self.io_uring);
        wanted
    }
}

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// The protocol's minor version that both sides speak.
    pub minor: u32,
    /// The flags agreed on.
    pub flags: InitFlags,
    /// The largest WRITE, in bytes.
    pub max_write: u32,
    /// The furthest read-ahead, in bytes.
    pub max_readahead: u32,
}

impl Features {
    /// SETXATTR has its longer form.
    pub fn setxattr_ext(&self) -> bool {
        self.flags.contains(InitFlags::SETXATTR_EXT)
    }

    /// The umask is the server's to apply.
    pub fn dont_mask(&self) -> bool {
        self.flags.contains(InitFlags::DONT_MASK)
    }

    /// OPEN may be answered ENOSYS: the kernel then asks neither OPEN nor RELEASE.
    pub fn no_open(&self) -> bool {
        self.flags.contains(InitFlags::NO_OPEN_SUPPORT)
    }

    /// OPENDIR may be answered ENOSYS: the kernel then caches names and asks neither OPENDIR nor RELEASEDIR.
    pub fn no_opendir(&self) -> bool {
        self.flags.contains(InitFlags::NO_OPENDIR_SUPPORT)
    }

    /// The kernel keeps what is written, and sizes and times with it.
    pub fn writeback_cache(&self) -> bool {
        self.flags.contains(InitFlags::WRITEBACK_CACHE)
    }

    /// Requests come through io_uring once each of the kernel's queues is served.
    pub fn io_uring(&self) -> bool {
        self.flags.contains(InitFlags::OVER_IO_URING)
    }

    /// The kernel sends what was read and not answered once more when it is asked to (Linux 6.9).
    pub fn resends(&self) -> bool {
        self.flags.contains(InitFlags::HAS_RESEND)
    }

    /// Files opened for direct I/O can be mapped shared.
    pub fn direct_io_allows_mmap(&self) -> bool {
        self.flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP)
    }

    /// The flags of open files that this kernel knows.
    pub fn open_flags(&self) -> OpenFlags {
        let since = [
            (28, OpenFlags::CACHE_DIR),
            (31, OpenFlags::STREAM),
            (35, OpenFlags::NOFLUSH),
            (38, OpenFlags::PARALLEL_DIRECT_WRITES),
        ];
        let always = OpenFlags::DIRECT_IO | OpenFlags::KEEP_CACHE | OpenFlags::NONSEEKABLE;
        since.iter().filter(|(minor, _)| self.minor >= *minor).fold(always, |all, (_, flag)| all | *flag)
    }
}

/// What to answer to INIT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Negotiated {
    /// The conversation begins.
    Agreed(Features, InitOut),
    /// The kernel speaks a newer major version and will ask again with ours.
    AskAgain(InitOut),
    /// The kernel is too old; the sentence says so.
    Refused(String),
}

/// Answers INIT.
pub fn negotiate(config: &Config, args: &InitIn, flags2: u32) -> Negotiated {
    let mut answer = InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: 0,
        flags: 0,
        max_background: 0,
        congestion_threshold: 0,
        max_write: 0,
        time_gran: 0,
        max_pages: 0,
        map_alignment: 0,
        flags2: 0,
        max_stack_depth: 0,
        request_timeout: 0,
        unused: [0; 11],
    };
    if args.major > MAJOR {
        return Negotiated::AskAgain(answer);
    }
    if args.major < MAJOR || args.minor < MINOR_LEAST {
        return Negotiated::Refused(format!(
            "this kernel speaks FUSE {}.{}; {MAJOR}.{MINOR_LEAST} (Linux 5.4) is the least that is served",
            args.major, args.minor
        ));
    }
    let mut offered = InitFlags::from_bits_truncate(u64::from(args.flags));
    if offered.contains(InitFlags::INIT_EXT) {
        offered |= InitFlags::from_bits_truncate(u64::from(flags2) << 32);
    }
    let flags = offered & config.wanted();
    let page = rustix::param::page_size() as u32;
    // Without MAX_PAGES a request carries 32 pages.
    let most = if flags.contains(InitFlags::MAX_PAGES) { page * 0xffff } else { page * 32 };
    let features = Features {
        minor: args.minor.min(MINOR),
        flags,
        max_write: config.max_write.clamp(page, most).next_multiple_of(page),
        max_readahead: config.max_readahead.min(args.max_readahead),
    };
    answer.minor = features.minor;
    answer.max_readahead = features.max_readahead;
    answer.flags = flags.bits() as u32;
    answer.flags2 = (flags.bits() >> 32) as u32;
    answer.max_background = config.max_background;
    answer.congestion_threshold = config.max_background / 4 * 3;
    answer.max_write = features.max_write;
    answer.max_pages = features.max_write.div_ceil(page) as u16;
    answer.time_gran = 1;
    Negotiated::Agreed(features, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(major: u32, minor: u32, flags: InitFlags) -> (InitIn, u32) {
        let args = InitIn { major, minor, max_readahead: 131072, flags: flags.bits() as u32 };
        (args, (flags.bits() >> 32) as u32)
    }

    #[test]
    fn everything_wanted_and_offered_is_agreed_on_and_nothing_else() {
        let (args, flags2) = init(7, 46, InitFlags::all());
        let config = Config { posix_acl: true, ..Config::default() };
        let Negotiated::Agreed(features, answer) = negotiate(&config, &args, flags2) else { panic!() };
        assert_eq!(features.flags, config.wanted());
        assert_eq!((answer.minor, features.max_readahead, answer.max_pages), (45, 131072, 256));
        let never = [
            InitFlags::PASSTHROUGH,
            InitFlags::HAS_INODE_DAX,
            InitFlags::WRITEBACK_CACHE,
            InitFlags::ATOMIC_O_TRUNC,
        ];
        for never in never {
            assert!(!features.flags.intersects(never));
        }
    }

    #[test]
    fn the_kernel_of_debian_12_falls_back() {
        let offered = InitFlags::all() & InitFlags::from_bits_truncate((1 << 34) - 1);
        let (args, flags2) = init(7, 37, offered);
        let Negotiated::Agreed(features, _) = negotiate(&Config::default(), &args, flags2) else { panic!() };
        assert!(!features.direct_io_allows_mmap());
        assert!(!features.open_flags().contains(OpenFlags::PARALLEL_DIRECT_WRITES));
        assert!(features.open_flags().contains(OpenFlags::NOFLUSH));
        assert!(features.setxattr_ext() && features.no_opendir());
    }

    #[test]
    fn an_old_kernel_without_flags2_or_max_pages_is_served_in_small_pieces() {
        let (args, _) = init(7, 31, InitFlags::ASYNC_READ | InitFlags::BIG_WRITES);
        let Negotiated::Agreed(features, answer) = negotiate(&Config::default(), &args, u32::MAX) else {
            panic!()
        };
        assert_eq!(features.max_write, 32 * rustix::param::page_size() as u32);
        assert_eq!(answer.flags2, 0);
    }

    #[test]
    fn other_major_versions_are_asked_again_or_refused() {
        let (newer, _) = init(8, 0, InitFlags::empty());
        assert!(matches!(negotiate(&Config::default(), &newer, 0), Negotiated::AskAgain(a) if a.major == 7));
        for (major, minor) in [(6, 99), (7, 30)] {
            let (older, _) = init(major, minor, InitFlags::empty());
            assert!(matches!(negotiate(&Config::default(), &older, 0), Negotiated::Refused(_)));
        }
    }
}
