//! The tree on which crash sequences start, and the operations that they are made of: every operation, and
//! every way of it that the engine treats differently, on few files so that two of them meet.

use crate::op::{Durable, Falloc, Op};

const PAGE: u64 = 4096;

/// Makes the tree; everything is synced afterwards.
pub fn setup() -> Vec<Op> {
    let create = |path: &str| Op::Create { path: path.into(), exclusive: true };
    let write = |path: &str, offset, len, fill| Op::Write {
        path: path.into(),
        offset,
        len,
        fill,
        durable: Durable::No,
    };
    let falloc = |path: &str, mode, offset, len| Op::Fallocate { path: path.into(), mode, offset, len };
    vec![
        create("/a"),
        write("/a", 0, 10_000, 0xf1),
        Op::SetXattr { path: "/a".into(), name: "user.a".into(), len: 20, fill: 0xf2 },
        create("/b"),
        write("/b", 0, 5000, 0xf3),
        Op::Link { from: "/b".into(), to: "/h".into() },
        // Data, a hole, unwritten blocks, data.
        create("/c"),
        write("/c", 0, 8192, 0xf4),
        falloc("/c", Falloc::Allocate, 4 * PAGE, 3 * PAGE),
        write("/c", 7 * PAGE, 5000, 0xf5),
        Op::Mkdir { path: "/d".into() },
        create("/d/x"),
        write("/d/x", 0, 300, 0xf6),
        Op::Mkdir { path: "/e".into() },
        Op::Symlink { target: "/a".into(), path: "/l".into() },
        Op::Mkfifo { path: "/p".into() },
        create("/g"),
        write("/g", 0, 12 * PAGE as u32, 0xf7),
        Op::SyncAll,
    ]
}

/// The operations. What they write differs by `round`, so that it shows which of two wrote a byte.
pub fn operations(round: u8) -> Vec<Op> {
    let mut fill = if round == 0 { 0x01 } else { 0x71 };
    let mut fill = || {
        fill += 1;
        fill
    };
    fn path(p: &str) -> String {
        p.into()
    }
    let create = |p: &str, exclusive| Op::Create { path: path(p), exclusive };
    let rename = |from: &str, to: &str, flags| Op::Rename { from: path(from), to: path(to), flags };
    let symlink = |target: String, p: &str| Op::Symlink { target, path: path(p) };
    let link = |from: &str, to: &str| Op::Link { from: path(from), to: path(to) };
    let unlink = |p: &str| Op::Unlink { path: path(p) };
    let write = |p: &str, offset, len, fill, durable| Op::Write { path: path(p), offset, len, fill, durable };
    let truncate = |p: &str, size| Op::Truncate { path: path(p), size };
    let falloc = |p: &str, mode, offset, len| Op::Fallocate { path: path(p), mode, offset, len };
    let xattr = |p: &str, name: &str, len, fill| Op::SetXattr { path: path(p), name: path(name), len, fill };
    vec![
        // Names.
        create("/n", true),
        create("/d/n", true),
        create("/a", false),
        Op::Mkdir { path: path("/m") },
        Op::Mkdir { path: path("/d/m") },
        Op::Mkfifo { path: path("/f") },
        symlink(path("/d/x"), "/s"),
        symlink(format!("/{}", "t".repeat(200)), "/d/s"),
        link("/a", "/k"),
        link("/d/x", "/e/x"),
        unlink("/a"),
        unlink("/b"),
        unlink("/d/x"),
        unlink("/l"),
        unlink("/p"),
        unlink("/g"),
        Op::Rmdir { path: path("/e") },
        Op::Rmdir { path: path("/d") },
        // Renames: new names, over files and directories, to other parents, exchanged.
        rename("/a", "/n", 0),
        rename("/a", "/b", 0),
        rename("/d/x", "/b", 0),
        rename("/a", "/d/x", 0),
        rename("/n", "/a", 0),
        rename("/e", "/d/e", 0),
        rename("/d", "/e", 0),
        rename("/d", "/m", 0),
        rename("/a", "/k", libc::RENAME_NOREPLACE),
        rename("/a", "/b", libc::RENAME_NOREPLACE),
        rename("/a", "/b", libc::RENAME_EXCHANGE),
        rename("/a", "/d", libc::RENAME_EXCHANGE),
        rename("/d/x", "/g", libc::RENAME_EXCHANGE),
        rename("/d", "/e", libc::RENAME_EXCHANGE),
        rename("/l", "/b", 0),
        // Writes: within a page, whole pages, growing, into holes and unwritten blocks, synced and not.
        write("/a", 100, 50, fill(), Durable::No),
        write("/a", 4000, 5000, fill(), Durable::No),
        write("/a", 9000, 6000, fill(), Durable::No),
        write("/a", 60_000, 100, fill(), Durable::No),
        write("/a", 5000, 200, fill(), Durable::Fsync),
        write("/a", 9990, 3000, fill(), Durable::Fdatasync),
        write("/a", 4096, 4096, fill(), Durable::Dsync),
        write("/b", 4900, 300, fill(), Durable::Sync),
        write("/c", 3 * PAGE - 100, 4200, fill(), Durable::No),
        write("/c", 4 * PAGE + 10, 6000, fill(), Durable::No),
        write("/c", 5 * PAGE, 100, fill(), Durable::Fsync),
        write("/g", 2 * PAGE, 30_000, fill(), Durable::No),
        write("/g", 0, 13 * PAGE as u32, fill(), Durable::Fsync),
        write("/n", 0, 5000, fill(), Durable::No),
        write("/n", 0, 700, fill(), Durable::Fsync),
        Op::Append { path: path("/a"), len: 30, fill: fill() },
        Op::Append { path: path("/d/x"), len: 9000, fill: fill() },
        Op::Rewrite { path: path("/a"), len: 3000, fill: fill() },
        Op::Rewrite { path: path("/d/x"), len: 6000, fill: fill() },
        Op::WriteDirect { path: path("/a"), block: 0, blocks: 1, fill: fill() },
        Op::WriteDirect { path: path("/a"), block: 3, blocks: 2, fill: fill() },
        // Sizes.
        truncate("/a", 0),
        truncate("/a", 4096),
        truncate("/a", 5000),
        truncate("/a", 20_000),
        truncate("/c", 5 * PAGE + 1),
        truncate("/g", 0),
        // Ranges.
        falloc("/a", Falloc::Allocate, 8000, 12_000),
        falloc("/a", Falloc::AllocateKeep, 12_288, 8192),
        falloc("/a", Falloc::Punch, 1000, 6000),
        falloc("/g", Falloc::Punch, PAGE, 4 * PAGE),
        falloc("/a", Falloc::Zero, 3000, 9000),
        falloc("/c", Falloc::ZeroKeep, PAGE, 8 * PAGE),
        falloc("/g", Falloc::Collapse, 2 * PAGE, 3 * PAGE),
        falloc("/c", Falloc::Collapse, PAGE, 2 * PAGE),
        falloc("/g", Falloc::Insert, 3 * PAGE, 2 * PAGE),
        falloc("/c", Falloc::Insert, PAGE, PAGE),
        Op::CopyRange { from: path("/g"), from_offset: 100, to: path("/a"), to_offset: 2000, len: 9000 },
        Op::CopyRange { from: path("/c"), from_offset: 0, to: path("/b"), to_offset: 4096, len: 20_000 },
        Op::Tmpfile { dir: path("/"), path: path("/t"), len: 5000, fill: fill() },
        Op::Tmpfile { dir: path("/d"), path: path("/n"), len: 100, fill: fill() },
        // Syncs.
        Op::Fsync { path: path("/a") },
        Op::Fdatasync { path: path("/g") },
        Op::Fsync { path: path("/b") },
        Op::FsyncDir { path: path("/") },
        Op::SyncAll,
        // Attributes.
        xattr("/a", "user.a", 50, fill()),
        xattr("/a", "user.b", 900, fill()),
        xattr("/d", "user.a", 10, fill()),
        Op::RemoveXattr { path: path("/a"), name: path("user.a") },
        Op::Chmod { path: path("/a"), mode: 0o600 },
        Op::Chown { path: path("/b"), uid: 7, gid: 8 },
        Op::Utimens { path: path("/a"), atime: 1 << 50, mtime: 1 << 51 },
        Op::Utimens { path: path("/d"), atime: 1 << 50, mtime: 1 << 51 },
        Op::Read { path: path("/a"), offset: 0, len: 20_000 },
    ]
}
