//! Operations as data: generated from a seed, printed, replayed on the model, the library and a mount.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// What makes a write durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// Nothing.
    No,
    /// O_DSYNC on the open file.
    Dsync,
    /// O_SYNC on the open file.
    Sync,
    /// fsync after it.
    Fsync,
    /// fdatasync after it.
    Fdatasync,
}

/// The modes of fallocate(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Falloc {
    /// 0
    Allocate,
    /// KEEP_SIZE
    AllocateKeep,
    /// PUNCH_HOLE | KEEP_SIZE
    Punch,
    /// ZERO_RANGE
    Zero,
    /// ZERO_RANGE | KEEP_SIZE
    ZeroKeep,
    /// COLLAPSE_RANGE
    Collapse,
    /// INSERT_RANGE
    Insert,
}

impl Falloc {
    /// Every mode.
    pub const ALL: [Falloc; 7] = [
        Falloc::Allocate,
        Falloc::AllocateKeep,
        Falloc::Punch,
        Falloc::Zero,
        Falloc::ZeroKeep,
        Falloc::Collapse,
        Falloc::Insert,
    ];

    /// The kernel's `FALLOC_FL_*` bits.
    pub fn bits(self) -> u32 {
        let bits = match self {
            Falloc::Allocate => 0,
            Falloc::AllocateKeep => libc::FALLOC_FL_KEEP_SIZE,
            Falloc::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            Falloc::Zero => libc::FALLOC_FL_ZERO_RANGE,
            Falloc::ZeroKeep => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
            Falloc::Collapse => libc::FALLOC_FL_COLLAPSE_RANGE,
            Falloc::Insert => libc::FALLOC_FL_INSERT_RANGE,
        };
        bits as u32
    }
}

/// One operation. Paths are absolute in the tested tree, without "." and "..".
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the system calls and their arguments")]
pub enum Op {
    Create {
        path: String,
        exclusive: bool,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Unlink {
        path: String,
    },
    Mkfifo {
        path: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    /// `flags`: 0, RENAME_NOREPLACE or RENAME_EXCHANGE.
    Rename {
        from: String,
        to: String,
        flags: u32,
    },
    Write {
        path: String,
        offset: u64,
        len: u32,
        fill: u8,
        durable: Durable,
    },
    Append {
        path: String,
        len: u32,
        fill: u8,
    },
    /// open with O_TRUNC, write, close.
    Rewrite {
        path: String,
        len: u32,
        fill: u8,
    },
    /// O_DIRECT; offset and length in blocks of 4096.
    WriteDirect {
        path: String,
        block: u64,
        blocks: u32,
        fill: u8,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Fallocate {
        path: String,
        mode: Falloc,
        offset: u64,
        len: u64,
    },
    CopyRange {
        from: String,
        from_offset: u64,
        to: String,
        to_offset: u64,
        len: u64,
    },
    /// O_TMPFILE, write, linkat.
    Tmpfile {
        dir: String,
        path: String,
        len: u32,
        fill: u8,
    },
    Fsync {
        path: String,
    },
    Fdatasync {
        path: String,
    },
    FsyncDir {
        path: String,
    },
    SyncAll,
    SetXattr {
        path: String,
        name: String,
        len: u32,
        fill: u8,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    Utimens {
        path: String,
        atime: i64,
        mtime: i64,
    },
    Read {
        path: String,
        offset: u64,
        len: u32,
    },
}

impl Op {
    /// Whether the operation makes what came before it durable when it succeeds.
    pub fn syncs(&self) -> bool {
        match self {
            Op::Fsync { .. } | Op::Fdatasync { .. } | Op::FsyncDir { .. } | Op::SyncAll => true,
            Op::Write { durable, .. } => *durable != Durable::No,
            _ => false,
        }
    }
}

/// Generates operations on few names, so that they meet.
#[derive(Debug)]
pub struct Generator {
    rng: StdRng,
    dirs: Vec<String>,
    names: Vec<&'static str>,
    /// Largest offset of writes.
    pub span: u64,
}

impl Generator {
    /// A generator whose whole stream follows from the seed.
    pub fn new(seed: u64) -> Generator {
        Generator {
            rng: StdRng::seed_from_u64(seed),
            dirs: ["", "/d", "/e", "/d/f"].map(String::from).to_vec(),
            names: vec!["a", "b", "c", "d", "e", "f"],
            span: 96 * 1024,
        }
    }

    fn dir(&mut self) -> String {
        let d = self.dirs.choose(&mut self.rng).cloned().unwrap_or_default();
        if d.is_empty() { "/".into() } else { d }
    }

    fn path(&mut self) -> String {
        let dir = self.dirs.choose(&mut self.rng).cloned().unwrap_or_default();
        let name = self.names.choose(&mut self.rng).copied().unwrap_or("a");
        format!("{dir}/{name}")
    }

    fn offset(&mut self) -> u64 {
        let at = self.rng.random_range(0..self.span);
        match self.rng.random_range(0..3) {
            0 => at & !4095,
            1 => at,
            _ => at % 9000,
        }
    }

    fn len(&mut self) -> u32 {
        match self.rng.random_range(0..4) {
            0 => self.rng.random_range(1..200),
            1 => 4096,
            2 => self.rng.random_range(1..9000),
            _ => self.rng.random_range(1..40_000),
        }
    }

    fn fill(&mut self) -> u8 {
        self.rng.random_range(1..=255)
    }

    fn durable(&mut self) -> Durable {
        [
            Durable::No,
            Durable::No,
            Durable::No,
            Durable::Dsync,
            Durable::Sync,
            Durable::Fsync,
            Durable::Fdatasync,
        ]
        .choose(&mut self.rng)
        .copied()
        .unwrap_or(Durable::No)
    }

    /// The next operation.
    pub fn next_op(&mut self) -> Op {
        let path = self.path();
        match self.rng.random_range(0..100) {
            0..12 => Op::Create { path, exclusive: self.rng.random() },
            12..19 => Op::Mkdir { path },
            19..22 => Op::Rmdir { path },
            22..28 => Op::Unlink { path },
            28..29 => Op::Mkfifo { path },
            29..31 => Op::Symlink { target: self.path(), path },
            31..35 => Op::Link { from: path, to: self.path() },
            35..43 => {
                let flags = [0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE]
                    .choose(&mut self.rng)
                    .copied()
                    .unwrap_or(0);
                Op::Rename { from: path, to: self.path(), flags }
            }
            43..56 => Op::Write {
                path,
                offset: self.offset(),
                len: self.len(),
                fill: self.fill(),
                durable: self.durable(),
            },
            56..60 => Op::Append { path, len: self.len(), fill: self.fill() },
            60..63 => Op::Rewrite { path, len: self.len(), fill: self.fill() },
            63..66 => Op::WriteDirect {
                path,
                block: self.rng.random_range(0..24),
                blocks: self.rng.random_range(1..4),
                fill: self.fill(),
            },
            66..71 => Op::Truncate { path, size: self.offset() },
            71..79 => {
                let mode = Falloc::ALL.choose(&mut self.rng).copied().unwrap_or(Falloc::Punch);
                let (mut offset, mut len) = (self.offset(), u64::from(self.len()));
                if matches!(mode, Falloc::Collapse | Falloc::Insert) && self.rng.random_range(0..4) != 0 {
                    offset &= !4095;
                    len = (len + 4095) & !4095;
                }
                Op::Fallocate { path, mode, offset, len }
            }
            79..81 => Op::CopyRange {
                from: path,
                from_offset: self.offset(),
                to: self.path(),
                to_offset: self.offset(),
                len: u64::from(self.len()),
            },
            81..83 => Op::Tmpfile { dir: self.dir(), path, len: self.len(), fill: self.fill() },
            83..86 => Op::Fsync { path },
            86..87 => Op::Fdatasync { path },
            87..88 => Op::FsyncDir { path: self.dir() },
            88..89 => Op::SyncAll,
            89..92 => Op::SetXattr {
                path,
                name: ["user.a", "user.b"].choose(&mut self.rng).copied().unwrap_or("user.a").into(),
                len: self.rng.random_range(0..300),
                fill: self.fill(),
            },
            92..93 => Op::RemoveXattr { path, name: "user.a".into() },
            93..95 => Op::Chmod { path, mode: self.rng.random_range(0..0o1000) },
            95..96 => Op::Chown { path, uid: self.rng.random_range(0..3), gid: self.rng.random_range(0..3) },
            96..97 => Op::Utimens {
                path,
                atime: self.rng.random_range(0..1 << 60),
                mtime: self.rng.random_range(0..1 << 60),
            },
            _ => Op::Read { path, offset: self.offset(), len: self.len() },
        }
    }
}
