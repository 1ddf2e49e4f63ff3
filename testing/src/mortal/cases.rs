//! One call each: what is there before, and which steps its request passes.

use super::tree::{attributes, content};
use super::{bytes, looks, names};
use narufs_engine::planted::kill::Step;
use narufs_fuse::wire::Opcode;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// When everything was changed last that a call finds, in seconds.
pub const OLD: i64 = 1_000_000_000;

/// How requests reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The kernel keeps names, attributes, open files and what was read.
    Usual,
    /// The server is asked each time: it opens files, checks permissions, and reads.
    Asked,
}

impl Way {
    /// Both.
    pub const ALL: [Way; 2] = [Way::Usual, Way::Asked];

    /// The mount's options.
    pub fn options(self) -> &'static str {
        match self {
            Way::Usual => "io=auto",
            Way::Asked => "io=direct,permissions=server",
        }
    }
}

/// A directory in which one call is made.
pub struct Room {
    path: PathBuf,
    /// The directory: the way to it costs no request.
    pub dir: OwnedFd,
}

/// What is open beside it.
#[derive(Default)]
pub struct Held {
    /// Files.
    pub files: Vec<OwnedFd>,
}

/// One call.
pub struct Case {
    /// What it does.
    pub name: &'static str,
    /// Of its request.
    pub opcode: Opcode,
    /// Which mount it is made on.
    pub way: Way,
    /// What is there before.
    pub prepare: fn(&Room) -> io::Result<Held>,
    /// The call, and what it returned besides.
    pub call: fn(&Room, &mut Held) -> io::Result<String>,
    /// Which steps its request passes.
    pub passes: &'static [Step],
    /// Whether the kernel is to know nothing of what is there.
    pub is_cold: bool,
    /// Whether it fails.
    pub fails: bool,
    /// Whether the room that files take is a part of the outcome.
    pub is_measured: bool,
}

/// The steps of a request between its being noted and its answer, with those of every request around them.
macro_rules! passes {
    ($($step:ident)*) => {
        &[Step::Read, Step::Noted, $(Step::$step,)* Step::Answering, Step::Answered, Step::Freed]
    };
}

/// Every request passes these.
pub const LOOKS: &[Step] = passes!();

/// One that a record decides. It may take other records first: room for it is made beside it, by whichever comes first.
pub const LOGS: &[Step] = passes!(Reserved Decided Persisted Applied Sealed Unlocked);

/// The same, and gives its locks back when it has answered.
pub const MAKES: &[Step] = passes!(Reserved Decided Persisted Applied Sealed);

/// One whose records may be made again.
pub const RECORDS: &[Step] =
    passes!(BesideReserved BesideWriting BesidePersisted BesideApplied BesideSealed Unlocked);

/// One that has records made of what was changed before.
pub const COMMITS: &[Step] = passes!(BesideReserved BesideWriting BesidePersisted BesideApplied BesideSealed);

/// One that leaves bytes for records to come.
pub const WRITES: &[Step] = passes!(Copied Wrote Unlocked);

/// One whose bytes go home before the answer.
pub const WRITES_THROUGH: &[Step] = passes!(
    BesideReserved BesideWriting BesidePersisted BesideApplied BesideSealed Copied Wrote Unlocked
);

/// One that changes what was not recorded yet.
pub const MOVES: &[Step] = passes!(Unlocked);

impl Case {
    /// Of a mount as usual.
    pub const fn new(
        name: &'static str,
        opcode: Opcode,
        passes: &'static [Step],
        prepare: fn(&Room) -> io::Result<Held>,
        call: fn(&Room, &mut Held) -> io::Result<String>,
    ) -> Case {
        Case {
            name,
            opcode,
            way: Way::Usual,
            prepare,
            call,
            passes,
            is_cold: false,
            fails: false,
            is_measured: false,
        }
    }

    /// Whether it does not hang on others whether the request passes a step: one that is decided by a record takes more
    /// of them only if it is the first to need room.
    pub fn is_sure(&self, step: Step) -> bool {
        !self.passes.contains(&Step::Decided) || !COMMITS.contains(&step) || LOOKS.contains(&step)
    }

    /// The same on a mount that asks its server.
    pub const fn asked(self) -> Case {
        Case { way: Way::Asked, ..self }
    }

    /// The same where the kernel knows nothing of what is there.
    pub const fn cold(self) -> Case {
        Case { is_cold: true, ..self }
    }

    /// The same, and it fails.
    pub const fn failing(self) -> Case {
        Case { fails: true, ..self }
    }

    /// The same, and room counts.
    pub const fn measured(self) -> Case {
        Case { is_measured: true, ..self }
    }
}

/// Every one.
pub fn cases() -> Vec<Case> {
    [looks::cases(), names::cases(), bytes::cases()].into_iter().flatten().collect()
}

/// Nothing is there.
pub fn nothing(_: &Room) -> io::Result<Held> {
    Ok(Held::default())
}

/// A file of some bytes.
pub fn file(room: &Room) -> io::Result<Held> {
    room.file("file", 10_000, 1)?;
    Ok(Held::default())
}

/// The same, open.
pub fn open_file(room: &Room) -> io::Result<Held> {
    Ok(Held { files: vec![room.file("file", 10_000, 1)?] })
}

/// Two files.
pub fn two_files(room: &Room) -> io::Result<Held> {
    room.file("file", 10_000, 1)?;
    room.file("other", 5000, 2)?;
    Ok(Held::default())
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

impl Room {
    /// Makes it.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn make(path: &Path) -> io::Result<Room> {
        std::fs::create_dir(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Room { path: path.to_owned(), dir: fs::open(path, flags, Mode::empty())? })
    }

    /// The same for those calls that take paths alone: a path that does not lead through the mount's names.
    pub fn at(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd())
    }

    /// A new file with bytes, that nothing has synced.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn file(&self, name: &str, len: usize, seed: u8) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = self.open(name, flags)?;
        let mut written = 0;
        let bytes = pattern(len, seed);
        while written < len {
            written += rustix::io::pwrite(&file, &bytes[written..], written as u64)?;
        }
        Ok(file)
    }

    /// Opens a name.
    ///
    /// # Errors
    /// Those of the call.
    pub fn open(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(fs::openat(&self.dir, name, flags | OFlags::CLOEXEC, Mode::from(0o640))?)
    }

    /// Gives everything there a time of the past, the directory last.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn date(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            old(&entry?.path())?;
        }
        old(&self.path)
    }
}

fn old(path: &Path) -> io::Result<()> {
    let then = Timespec { tv_sec: OLD, tv_nsec: 0 };
    let times = Timestamps { last_access: then, last_modification: then };
    Ok(fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

impl Held {
    /// What is open says of itself.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn look(&self) -> io::Result<String> {
        let mut said = String::new();
        for file in &self.files {
            said += &format!("; {}", attributes(file, Path::new(""))?);
            if fs::FileType::from_raw_mode(fs::fstat(file)?.st_mode) == fs::FileType::RegularFile {
                said += &format!(" {}", content(file, false)?);
            }
        }
        Ok(said)
    }
}
