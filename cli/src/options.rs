//! The `-o` options of mount: parsed once, every unknown one named.

mod baselines;
mod fstab;

pub use fstab::is_for_mount;

use crate::metrics::address::Address;
use crate::size::Size;
pub use narufs_engine::journal::Durability;
pub use narufs_engine::volume::Origin;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

/// When reads update access times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtimePolicy {
    /// Where the access time is older than the modification, or than a day.
    Relative,
    /// Never.
    Never,
    /// Always.
    Strict,
}

pub use narufs_fuse::mount::{Idle, Io, Permissions, Transport};

/// Parsed options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionList {
    /// Nothing is written.
    pub read_only: bool,
    /// See [`Durability`].
    pub durability: Durability,
    /// Period of commits nobody asked for.
    pub commit: Duration,
    /// Every write is synchronous.
    pub sync: bool,
    /// See [`AtimePolicy`].
    pub atime: AtimePolicy,
    /// Access times are kept in memory until something else writes the inode.
    pub lazytime: bool,
    /// Extended attributes can be had through the mount.
    pub xattr: bool,
    /// Through whose page cache files are read and written.
    pub io: Io,
    /// How requests reach the server.
    pub transport: Transport,
    /// What idle cores do while requests come.
    pub idle: Idle,
    /// Whether the mount survives its server, if that was said.
    pub supervise: Option<bool>,
    /// Where a journal outside of the image lies, if that was said.
    pub journal: Option<PathBuf>,
    /// What the image is, where shared memory has the journal of another with its UUID.
    pub origin: Origin,
    /// Where counters are served.
    pub metrics: Option<Address>,
    /// Whether the server gives up what it does not need.
    pub harden: bool,
    /// Bytes of the page cache.
    pub memory: Option<u64>,
    /// Bytes for metadata pages and inodes.
    pub metadata_memory: Option<u64>,
    /// Files in memory, without an image.
    pub scratch: bool,
    /// What scratch files spill to.
    pub spill: Option<PathBuf>,
    /// Bytes of it.
    pub spill_size: Option<u64>,
    /// Whatever it holds.
    pub force: bool,
    /// Nanoseconds that each fence of an emulated journal takes longer.
    pub nvm_delay: u64,
    /// Bytes per second that write-backs to an emulated journal may reach; 0 for no limit.
    pub nvm_bandwidth: u64,
    /// Other users may enter.
    pub allow_other: Option<bool>,
    /// Who checks permissions, if that was said.
    pub permissions: Option<Permissions>,
    /// Set-user-id bits count.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs may run.
    pub exec: bool,
    /// What is done in the old way.
    #[cfg(feature = "baselines")]
    pub baselines: narufs_engine::baseline::Baselines,
}

impl Default for OptionList {
    fn default() -> Self {
        OptionList {
            read_only: false,
            durability: Durability::Power,
            commit: Duration::from_secs(5),
            sync: false,
            atime: AtimePolicy::Relative,
            lazytime: false,
            xattr: true,
            io: Io::Auto,
            transport: Transport::Auto,
            idle: Idle::Auto,
            supervise: None,
            journal: None,
            origin: Origin::Unknown,
            metrics: None,
            harden: true,
            memory: None,
            metadata_memory: None,
            scratch: false,
            spill: None,
            spill_size: None,
            force: false,
            nvm_delay: 0,
            nvm_bandwidth: 0,
            allow_other: None,
            permissions: None,
            suid: false,
            dev: false,
            exec: true,
            #[cfg(feature = "baselines")]
            baselines: Default::default(),
        }
    }
}

impl OptionList {
    /// Parses the lists of all `-o`; the error is one line for the user.
    pub fn parse(lists: &[String]) -> Result<OptionList, String> {
        let mut options = OptionList::default();
        for item in lists.iter().flat_map(|l| l.split(',')).filter(|o| !o.is_empty()) {
            options.apply(item)?;
        }
        Ok(options)
    }

    /// Whether the mount is to survive its server, where the kernel can do that.
    pub fn is_supervised(&self) -> bool {
        self.supervise.unwrap_or(true) && !self.scratch && self.transport != Transport::Uring
    }

    /// Says what does not go together.
    pub fn check(&self) -> Result<(), String> {
        if self.supervise == Some(true) && !self.is_supervised() {
            let why = if self.scratch {
                "scratch space is its server's memory"
            } else {
                "what the kernel hands over through io_uring goes with the server"
            };
            return Err(format!("supervise=yes does not go with this: {why}"));
        }
        if self.atime == AtimePolicy::Strict && self.io == Io::Cached && !self.read_only {
            let why = "strictatime does not go with io=cached: what is read from the kernel's cache changes no access \
                       time";
            return Err(why.into());
        }
        let kernel_checks = self.permissions == Some(Permissions::Kernel);
        if !self.xattr && (kernel_checks || self.io == Io::Cached) {
            let why = "noxattr does not go with permissions=kernel (default_permissions), which io=cached implies: \
                       the kernel would not see access lists";
            return Err(why.into());
        }
        if self.permissions == Some(Permissions::Server) && self.io == Io::Cached {
            let why = "io=cached does not go with permissions=server: sizes and times are the kernel's then, and who \
                       may change them";
            return Err(why.into());
        }
        self.check_baselines()?;
        let alone = match () {
            () if self.scratch && self.read_only => return Err("scratch space cannot be mounted ro".into()),
            () if self.scratch && self.journal.is_some() => return Err("scratch space has no journal".into()),
            () if self.scratch && self.origin != Origin::Unknown => {
                return Err("copied and moved are said of an image: scratch space has none".into());
            }
            () if self.scratch => None,
            () if self.spill.is_some() => Some("spill"),
            () if self.spill_size.is_some() => Some("spill_size"),
            () if self.force => Some("force"),
            () => None,
        };
        match alone {
            Some(name) => Err(format!("option {name} goes with scratch: say -o scratch, or --scratch")),
            None if self.spill.is_none() && (self.force || self.spill_size.is_some()) => {
                Err("spill_size and force go with spill: say where to spill to".into())
            }
            None => Ok(()),
        }
    }

    fn apply(&mut self, item: &str) -> Result<(), String> {
        let (name, value) = item.split_once('=').map_or((item, None), |(n, v)| (n, Some(v)));
        let is_taken = Cell::new(value.is_none());
        let wanted = || {
            is_taken.set(true);
            value.ok_or_else(|| format!("option {name} needs a value: {name}=..."))
        };
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "durability" => {
                self.durability = match wanted()? {
                    "power" => Durability::Power,
                    "process" => Durability::Process,
                    other => match other.strip_prefix("window=") {
                        Some(value) => Durability::Window(window(value)?),
                        None => {
                            return Err(format!(
                                "durability={other}: say durability=power, durability=window=100ms or \
                                 durability=process"
                            ));
                        }
                    },
                }
            }
            "commit" => {
                let seconds: u64 = number(name, wanted()?)?;
                if !(1..=3600).contains(&seconds) {
                    return Err(format!("commit={seconds}: say 1 to 3600 seconds"));
                }
                self.commit = Duration::from_secs(seconds);
            }
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "relatime" | "atime" => self.atime = AtimePolicy::Relative,
            "noatime" => self.atime = AtimePolicy::Never,
            "strictatime" => self.atime = AtimePolicy::Strict,
            "lazytime" => self.lazytime = true,
            "nolazytime" => self.lazytime = false,
            "xattr" => self.xattr = true,
            "noxattr" => self.xattr = false,
            "io" => {
                let how = wanted()?;
                self.io = Io::from_name(how)
                    .ok_or_else(|| format!("io={how}: say io=auto, io=cached or io=direct"))?;
            }
            "transport" => {
                let how = wanted()?;
                self.transport = Transport::from_name(how).ok_or_else(|| {
                    format!("transport={how}: say transport=auto, transport=uring or transport=dev")
                })?;
            }
            "supervise" => {
                self.supervise = match wanted()? {
                    "yes" => Some(true),
                    "no" => Some(false),
                    other => return Err(format!("supervise={other}: say supervise=yes or supervise=no")),
                }
            }
            "harden" => {
                self.harden = match wanted()? {
                    "yes" => true,
                    "no" => false,
                    other => return Err(format!("harden={other}: say harden=yes or harden=no")),
                }
            }
            "awake" => self.idle = Idle::Awake,
            "noawake" => self.idle = Idle::Halt,
            "journal" => {
                let path = PathBuf::from(wanted()?);
                if !path.is_absolute() {
                    // The server is at home elsewhere.
                    return Err(format!("journal={}: a path from the root is needed", path.display()));
                }
                self.journal = Some(path);
            }
            "copied" => self.origin = Origin::Copied,
            "moved" => self.origin = Origin::Moved,
            "metrics" => self.metrics = Some(Address::parse(wanted()?)?),
            "memory" => self.memory = Some(size(name, wanted()?)?),
            "metadata_memory" => self.metadata_memory = Some(size(name, wanted()?)?),
            "nvm_delay" => {
                let delay = number(name, wanted()?)?;
                if delay > LONGEST_DELAY {
                    return Err(format!("nvm_delay={delay}: say 0 to {LONGEST_DELAY} nanoseconds"));
                }
                self.nvm_delay = delay;
            }
            "nvm_bandwidth" => self.nvm_bandwidth = size(name, wanted()?)?,
            "scratch" => self.scratch = true,
            "spill" => self.spill = Some(wanted()?.into()),
            "spill_size" => self.spill_size = Some(size(name, wanted()?)?),
            "force" => self.force = true,
            "allow_other" => self.allow_other = Some(true),
            "default_permissions" => self.permissions = Some(Permissions::Kernel),
            "permissions" => {
                let who = wanted()?;
                let checks = Permissions::from_name(who).ok_or_else(|| {
                    format!("permissions={who}: say permissions=kernel or permissions=server")
                })?;
                self.permissions = Some(checks);
            }
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "baseline" => self.choose_baselines(wanted()?)?,
            "norecovery" | "noload" => {
                return Err(format!(
                    "there is no {name}: say ro, which shows everything that recovery would bring back, and writes \
                     nothing"
                ));
            }
            _ if is_for_mount(name) => is_taken.set(true),
            _ => return Err(format!("unknown option {name}: `narufs mount --help` lists the options")),
        }
        // What `ro=no` means is not to be guessed.
        if !is_taken.get() {
            return Err(format!("option {name} takes no value"));
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}={value}: not a number"))
}

/// A second for each fence of an emulated journal, in nanoseconds.
const LONGEST_DELAY: u64 = 1_000_000_000;

/// A time in ms or s.
fn window(value: &str) -> Result<Duration, String> {
    let say = || format!("durability=window={value}: say 1ms to 60s");
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| say())?;
    let window = match &value[digits.len()..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return Err(say()),
    };
    if Durability::WINDOWS.contains(&window) { Ok(window) } else { Err(say()) }
}

fn size(name: &str, value: &str) -> Result<u64, String> {
    value.parse::<Size>().map(|s| s.0).map_err(|e| format!("{name}={e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<OptionList, String> {
        OptionList::parse(&[list.to_string()])
    }

    #[test]
    fn the_last_word_counts() {
        let o = parse("ro,noatime,rw,relatime,copied,moved").unwrap();
        assert!(!o.read_only);
        assert_eq!(o.origin, Origin::Moved);
        assert_eq!(o.atime, AtimePolicy::Relative);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse("memory=64MiB").unwrap().memory, Some(64 << 20));
        assert!(parse("memory=lots").unwrap_err().contains("not a size"));
        assert!(parse("ro=no").unwrap_err().contains("takes no value"));
    }

    #[test]
    fn what_fstab_says_to_mount_is_ignored() {
        assert_eq!(parse("defaults,nofail,x-systemd.automount,_netdev").unwrap(), OptionList::default());
    }

    #[test]
    fn a_server_is_hardened_unless_told_otherwise() {
        let harden = |list| parse(list).map(|options| options.harden);
        assert_eq!(
            (harden(""), harden("harden=no"), harden("harden=no,harden=yes")),
            (Ok(true), Ok(false), Ok(true))
        );
        assert!(harden("harden=maybe").unwrap_err().contains("harden=yes"));
    }

    #[test]
    fn a_journal_has_a_path_from_the_root_and_an_image() {
        let journal = |list| parse(list).map(|options| options.journal);
        assert_eq!(journal("journal=/dev/shm/ring"), Ok(Some("/dev/shm/ring".into())));
        assert!(journal("journal=ring").unwrap_err().contains("from the root"));
        assert!(parse("scratch,journal=/ring").expect("parsed").check().is_err());
    }

    #[test]
    fn a_window_has_a_unit_and_bounds() {
        let window = |ms| Ok(Durability::Window(Duration::from_millis(ms)));
        assert_eq!(parse("durability=window=100ms").map(|o| o.durability), window(100));
        assert_eq!(parse("durability=window=1ms").map(|o| o.durability), window(1));
        assert_eq!(parse("durability=window=60s").map(|o| o.durability), window(60_000));
        for bad in ["0ms", "61s", "100", "fast", "", "1.5s", "99999999999999999999s", "18446744073709551615s"]
        {
            let said = parse(&format!("durability=window={bad}")).unwrap_err();
            assert_eq!(said, format!("durability=window={bad}: say 1ms to 60s"));
        }
        assert!(parse("durability=window").unwrap_err().contains("durability=window=100ms"));
    }

    #[test]
    fn the_kernel_checks_permissions_only_where_it_sees_access_lists() {
        assert!(!parse("noxattr").unwrap().xattr && parse("noxattr,xattr").unwrap().xattr);
        for list in ["noxattr", "noxattr,io=direct", "default_permissions", "io=cached"] {
            assert_eq!(parse(list).unwrap().check(), Ok(()), "{list}");
        }
        for list in ["noxattr,default_permissions", "io=cached,noxattr", "permissions=kernel,noxattr"] {
            assert!(parse(list).unwrap().check().unwrap_err().contains("access lists"), "{list}");
        }
        let list = "io=cached,permissions=server";
        assert!(parse(list).unwrap().check().unwrap_err().contains("permissions=server"));
        assert!(parse("permissions=me").unwrap_err().contains("permissions=kernel"));
    }

    #[test]
    fn reads_are_seen_where_each_changes_an_access_time() {
        for list in ["strictatime", "strictatime,io=direct", "io=cached", "io=cached,strictatime,ro"] {
            assert_eq!(parse(list).unwrap().check(), Ok(()), "{list}");
        }
        assert!(parse("strictatime,io=cached").unwrap().check().unwrap_err().contains("strictatime"));
    }

    #[test]
    fn a_mount_without_recovery_is_one_that_only_reads() {
        for name in ["norecovery", "noload"] {
            let said = parse(&format!("ro,{name}")).unwrap_err();
            assert!(said.contains(name) && said.contains("say ro,") && said.lines().count() == 1, "{said}");
        }
    }

    #[test]
    fn a_bad_option_is_named() {
        assert!(parse("durability=maybe").unwrap_err().contains("durability=maybe"));
        assert!(parse("colour").unwrap_err().contains("colour"));
        assert!(parse("commit").unwrap_err().contains("needs a value"));
        assert!(parse("io=both").unwrap_err().contains("io=auto"));
        assert!(parse("transport=mail").unwrap_err().contains("transport=uring"));
        assert!(parse("commit=0").unwrap_err().contains("1 to 3600"));
        assert_eq!(parse("nvm_delay=1000000000").unwrap().nvm_delay, 1_000_000_000);
        assert!(parse("nvm_delay=18446744073709551615").unwrap_err().contains("0 to 1000000000"));
    }
}
