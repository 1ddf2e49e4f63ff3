//! Which files a server may still open, made known to the kernel by Landlock.
//!
//! What is open already stays as it is. Names are told apart from what they stand for at once: a rule is one of the file or
//! directory that is found under the name now.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    make_bitflags,
};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What is asked for is what this version knows; of that, what the kernel knows is had.
const VERSION: ABI = ABI::V7;

/// What a server opens after it has begun.
#[derive(Debug, Default)]
pub struct Needs {
    /// The image, or spill space: it is opened anew where damage is found.
    pub image: Option<PathBuf>,
    /// The file that the journal is in, or its staging; made already, if it is to be.
    pub journal: Option<PathBuf>,
    /// That file goes with a clean unmount.
    pub removes_journal: bool,
    /// The kernel is told to offer io_uring to servers.
    pub turns_uring_on: bool,
}

type Rights = BitFlags<AccessFs>;

/// Holds this thread to these files, and those that it starts from now on; the version of Landlock that does it, 0 for
/// none.
///
/// # Errors
/// Those of a kernel that has Landlock and refuses.
pub fn restrict(needs: &Needs) -> Result<u32, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?;
    for (path, rights) in needs.rules() {
        rules = allow(rules, &path, rights)?;
    }
    let RestrictionStatus { ruleset, landlock, .. } = rules.restrict_self()?;
    match landlock {
        LandlockStatus::Available { effective_abi, .. } if ruleset != RulesetStatus::NotEnforced => {
            Ok(effective_abi as u32)
        }
        status => {
            tracing::debug!("files stay reachable: Landlock: {status:?}");
            Ok(0)
        }
    }
}

/// What is not there needs no rule.
fn allow(rules: RulesetCreated, path: &Path, rights: Rights) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(file) => rules.add_rule(PathBeneath::new(file, rights)),
        Err(e) => {
            tracing::debug!("{}: {e}", path.display());
            Ok(rules)
        }
    }
}

impl Needs {
    fn rules(&self) -> Vec<(PathBuf, Rights)> {
        let read: Rights = AccessFs::ReadFile.into();
        let write = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate});
        let device = write | AccessFs::IoctlDev;
        let of = |path: &str, rights| (PathBuf::from(path), rights);
        let mut rules = vec![
            // The groups of who asks, the machine's cores and memory, what is mounted.
            of("/proc", read),
            of("/sys", read),
            // Each lane has a descriptor of its own.
            of("/dev/fuse", device),
            of("/dev/cpu_dma_latency", AccessFs::WriteFile.into()),
            // What is written to nowhere.
            of("/dev/null", write),
            // A panic names functions by it.
            of("/proc/self/exe", read),
        ];
        if self.turns_uring_on {
            rules.push(of("/sys/module/fuse/parameters/enable_uring", write));
        }
        let file = |path: &Path| if is_device(path) { device } else { write };
        rules.extend(self.image.iter().map(|image| (image.clone(), file(image))));
        if let Some(journal) = &self.journal {
            rules.push((journal.clone(), file(journal)));
            // Names are a directory's: any file there could be removed that the user may remove, and none be read or made.
            let parent = journal.parent().filter(|_| self.removes_journal);
            rules.extend(parent.map(|parent| (parent.to_owned(), AccessFs::RemoveFile.into())));
        }
        rules
    }
}

fn is_device(path: &Path) -> bool {
    let kind = path.metadata().map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_block_device() || kind.is_char_device())
}
