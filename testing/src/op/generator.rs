//! Random operations that follow from a seed.

use super::{Durable, Exists, Falloc, Node, Op, When};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Generates operations on few names, so that they meet.
#[derive(Debug)]
pub struct Generator {
    rng: StdRng,
    dirs: Vec<String>,
    names: Vec<&'static str>,
    /// Largest offset of writes.
    pub span: u64,
    /// Whether there are batches among them.
    pub batches: bool,
}

impl Generator {
    /// A generator whose whole stream follows from the seed.
    pub fn new(seed: u64) -> Generator {
        Generator {
            rng: StdRng::seed_from_u64(seed),
            dirs: ["", "/d", "/e", "/d/f"].map(String::from).to_vec(),
            names: vec!["a", "b", "c", "d", "e", "f"],
            span: 96 * 1024,
            batches: false,
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

    fn when(&mut self) -> When {
        match self.rng.random_range(0..6) {
            0 => When::Omit,
            1 => When::Now,
            _ => When::At(self.rng.random_range(0..1 << 60)),
        }
    }

    /// The next operation.
    pub fn next_op(&mut self) -> Op {
        let path = self.path();
        if self.batches && self.rng.random_range(0..16) == 0 {
            let (paths, offset) = ([path, self.path()], self.offset());
            let is_synced = self.rng.random();
            return Op::Batch { paths, offset, len: self.len(), fill: self.fill(), is_synced };
        }
        match self.rng.random_range(0..100) {
            0..12 => Op::Create { path, exclusive: self.rng.random() },
            12..19 => Op::Mkdir { path },
            19..22 => Op::Rmdir { path },
            22..28 => Op::Unlink { path },
            28..29 => {
                let node = [Node::Fifo, Node::Socket, Node::File].choose(&mut self.rng).copied();
                Op::Mknod { path, node: node.unwrap_or(Node::Fifo) }
            }
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
            60..63 => Op::Rewrite {
                path,
                len: self.len(),
                fill: self.fill(),
                direct: self.rng.random_range(0..3) == 0,
            },
            63..66 => Op::WriteDirect {
                path,
                block: self.rng.random_range(0..24),
                blocks: self.rng.random_range(1..4),
                fill: self.fill(),
                durable: self.durable(),
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
                exists: [Exists::Any, Exists::Any, Exists::No, Exists::Yes]
                    .choose(&mut self.rng)
                    .copied()
                    .unwrap_or(Exists::Any),
            },
            92..93 => Op::RemoveXattr { path, name: "user.a".into() },
            93..95 => Op::Chmod { path, mode: self.rng.random_range(0..0o1000) },
            95..96 => Op::Chown { path, uid: self.rng.random_range(0..3), gid: self.rng.random_range(0..3) },
            96..97 => {
                let (atime, mtime) = (self.when(), self.when());
                // Where both are omitted Linux does not even look at the path.
                let both = atime == When::Omit && mtime == When::Omit;
                Op::Utimens { path, atime, mtime: if both { When::Now } else { mtime } }
            }
            _ => Op::Read { path, offset: self.offset(), len: self.len() },
        }
    }
}
