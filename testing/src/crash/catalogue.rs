//! The tree on which crash sequences start, and the operations that they are made of: every operation, and
//! every way of it that the engine treats differently, on few files so that two of them meet.

use crate::acl;
use crate::op::{Durable, Exists, Falloc, Node, Op, When};

const PAGE: u64 = 4096;
/// Times that nothing but utimens gives.
const LONG_AGO: (When, When) = (When::At(1 << 50), When::At(1 << 51));

fn path(p: &str) -> String {
    p.into()
}
fn create(p: &str, exclusive: bool) -> Op {
    Op::Create { path: path(p), exclusive }
}
fn mkdir(p: &str) -> Op {
    Op::Mkdir { path: path(p) }
}
fn mknod(p: &str, node: Node) -> Op {
    Op::Mknod { path: path(p), node }
}
fn symlink(target: String, p: &str) -> Op {
    Op::Symlink { target, path: path(p) }
}
fn link(from: &str, to: &str) -> Op {
    Op::Link { from: path(from), to: path(to) }
}
fn unlink(p: &str) -> Op {
    Op::Unlink { path: path(p) }
}
fn rename(from: &str, to: &str, flags: u32) -> Op {
    Op::Rename { from: path(from), to: path(to), flags }
}
fn write(p: &str, offset: u64, len: u32, fill: u8, durable: Durable) -> Op {
    Op::Write { path: path(p), offset, len, fill, durable }
}
fn direct(p: &str, block: u64, blocks: u32, fill: u8, durable: Durable) -> Op {
    Op::WriteDirect { path: path(p), block, blocks, fill, durable }
}
fn rewrite(p: &str, len: u32, fill: u8, direct: bool) -> Op {
    Op::Rewrite { path: path(p), len, fill, direct }
}
fn batch(paths: [&str; 2], offset: u64, len: u32, fill: u8, is_synced: bool) -> Op {
    Op::Batch { paths: paths.map(path), offset, len, fill, is_synced }
}
fn tmpfile(dir: &str, p: &str, len: u32, fill: u8) -> Op {
    Op::Tmpfile { dir: path(dir), path: path(p), len, fill }
}
fn truncate(p: &str, size: u64) -> Op {
    Op::Truncate { path: path(p), size }
}
fn falloc(p: &str, mode: Falloc, offset: u64, len: u64) -> Op {
    Op::Fallocate { path: path(p), mode, offset, len }
}
fn copy(from: (&str, u64), to: (&str, u64), len: u64) -> Op {
    Op::CopyRange { from: path(from.0), from_offset: from.1, to: path(to.0), to_offset: to.1, len }
}
fn xattr(p: &str, name: &str, len: u32, fill: u8, exists: Exists) -> Op {
    Op::SetXattr { path: path(p), name: path(name), len, fill, exists }
}
fn remove_xattr(p: &str, name: &str) -> Op {
    Op::RemoveXattr { path: path(p), name: path(name) }
}
fn set_acl(p: &str, default: bool, uid: u32, perm: u16) -> Op {
    Op::SetAcl { path: path(p), default, uid, perm }
}
fn chmod(p: &str, mode: u32) -> Op {
    Op::Chmod { path: path(p), mode }
}
fn chown(p: &str, uid: u32, gid: u32) -> Op {
    Op::Chown { path: path(p), uid, gid }
}
fn utimens(p: &str, (atime, mtime): (When, When)) -> Op {
    Op::Utimens { path: path(p), atime, mtime }
}

/// Makes the tree; everything is synced afterwards.
pub fn setup() -> Vec<Op> {
    let fill = |p: &str, offset, len, fill| write(p, offset, len, fill, Durable::No);
    vec![
        create("/a", true),
        fill("/a", 0, 10_000, 0xf1),
        xattr("/a", "user.a", 20, 0xf2, Exists::Any),
        create("/b", true),
        fill("/b", 0, 5000, 0xf3),
        link("/b", "/h"),
        // Data, a hole, unwritten blocks, data.
        create("/c", true),
        fill("/c", 0, 8192, 0xf4),
        falloc("/c", Falloc::Allocate, 4 * PAGE, 3 * PAGE),
        fill("/c", 7 * PAGE, 5000, 0xf5),
        mkdir("/d"),
        create("/d/x", true),
        fill("/d/x", 0, 300, 0xf6),
        mkdir("/e"),
        symlink(path("/a"), "/l"),
        mknod("/p", Node::Fifo),
        create("/g", true),
        fill("/g", 0, 12 * PAGE as u32, 0xf7),
        // What hands its group down, what hands a list down, a setuid program, a list, a device.
        mkdir("/w"),
        chown("/w", 0, 9),
        chmod("/w", 0o2775),
        mkdir("/v"),
        set_acl("/v", true, 5, 6),
        create("/q", true),
        fill("/q", 0, 100, 0xf8),
        chmod("/q", 0o6755),
        create("/r", true),
        set_acl("/r", false, 5, 7),
        mknod("/y", Node::Char(0x0103)),
        mkdir("/u"),
        mkdir("/u/u"),
        mkdir("/u/u/u"),
        mkdir("/u/u/u/u"),
        utimens("/c", LONG_AGO),
        utimens("/d", LONG_AGO),
        utimens("/w", LONG_AGO),
        Op::SyncAll,
    ]
}

/// The operations. What they write differs by `round`, so that it shows which of two wrote a byte.
pub fn operations(round: u8) -> Vec<Op> {
    let mut fill = if round == 0 { 0x01 } else { 0x71 };
    let mut next = || {
        fill += 1;
        fill
    };
    let mut all = names();
    all.extend(renames());
    all.extend(writes(&mut next));
    all.extend(ranges());
    all.extend(attributes(&mut next));
    all
}

fn names() -> Vec<Op> {
    vec![
        create("/n", true),
        create("/d/n", true),
        create("/a", false),
        create(&format!("/{}", "n".repeat(255)), true),
        create("/u/u/u/u/n", true),
        mkdir("/m"),
        mkdir("/d/m"),
        mkdir("/u/u/u/u/m"),
        mknod("/f", Node::File),
        mknod("/f", Node::Fifo),
        mknod("/f", Node::Socket),
        mknod("/f", Node::Char(0x0105)),
        mknod("/f", Node::Block(0x0701)),
        mknod("/d/f", Node::Socket),
        symlink(path("/d/x"), "/s"),
        symlink(format!("/{}", "t".repeat(200)), "/d/s"),
        link("/a", "/k"),
        link("/d/x", "/e/x"),
        link("/p", "/k"),
        link("/l", "/d/k"),
        unlink("/a"),
        unlink("/b"),
        unlink("/h"),
        unlink("/d/x"),
        unlink("/l"),
        unlink("/p"),
        unlink("/g"),
        unlink("/r"),
        unlink("/y"),
        Op::Rmdir { path: path("/e") },
        Op::Rmdir { path: path("/d") },
        Op::Rmdir { path: path("/v") },
        Op::Rmdir { path: path("/u/u/u/u") },
        // In a directory that hands down its group, and one that hands down a list.
        create("/w/n", true),
        mkdir("/w/m"),
        mknod("/w/f", Node::Fifo),
        create("/v/n", true),
        mkdir("/v/m"),
        mknod("/v/f", Node::Socket),
    ]
}

/// New names, over files and directories, to other parents, exchanged.
fn renames() -> Vec<Op> {
    vec![
        rename("/a", "/n", 0),
        rename("/a", "/b", 0),
        rename("/d/x", "/b", 0),
        rename("/a", "/d/x", 0),
        rename("/n", "/a", 0),
        rename("/e", "/d/e", 0),
        rename("/d", "/e", 0),
        rename("/d", "/m", 0),
        rename("/l", "/b", 0),
        rename("/a", &format!("/d/{}", "r".repeat(255)), 0),
        rename("/u/u/u", "/m", 0),
        rename("/a", "/w/a", 0),
        rename("/a", "/k", libc::RENAME_NOREPLACE),
        rename("/a", "/b", libc::RENAME_NOREPLACE),
        rename("/a", "/b", libc::RENAME_EXCHANGE),
        rename("/a", "/d", libc::RENAME_EXCHANGE),
        rename("/d/x", "/g", libc::RENAME_EXCHANGE),
        rename("/d", "/e", libc::RENAME_EXCHANGE),
        rename("/l", "/p", libc::RENAME_EXCHANGE),
    ]
}

/// Within a page, whole pages, growing, into holes and unwritten blocks, synced and not; and the syncs.
fn writes(fill: &mut impl FnMut() -> u8) -> Vec<Op> {
    vec![
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
        write("/d/x", 200, 5000, fill(), Durable::Sync),
        write("/g", 2 * PAGE, 30_000, fill(), Durable::No),
        write("/g", 0, 13 * PAGE as u32, fill(), Durable::Fsync),
        write("/g", 12 * PAGE - 10, 400, fill(), Durable::Dsync),
        write("/n", 0, 5000, fill(), Durable::No),
        write("/n", 0, 700, fill(), Durable::Fsync),
        Op::Append { path: path("/a"), len: 30, fill: fill() },
        Op::Append { path: path("/d/x"), len: 9000, fill: fill() },
        rewrite("/a", 3000, fill(), false),
        rewrite("/a", 9000, fill(), true),
        rewrite("/d/x", 6000, fill(), false),
        rewrite("/g", 100, fill(), false),
        rewrite("/g", 5 * PAGE as u32, fill(), true),
        direct("/a", 0, 1, fill(), Durable::No),
        direct("/a", 3, 2, fill(), Durable::No),
        direct("/a", 1, 1, fill(), Durable::Dsync),
        direct("/c", 3, 3, fill(), Durable::Fsync),
        direct("/g", 11, 2, fill(), Durable::Sync),
        // In one record, and by way of a staging file: over the end, over holes.
        batch(["/a", "/b"], 200, 300, fill(), true),
        batch(["/b", "/g"], 2 * PAGE + 10, 5 * PAGE as u32, fill(), true),
        batch(["/c", "/d/x"], PAGE, 6 * PAGE as u32, fill(), true),
        // Which nobody waits for.
        batch(["/a", "/g"], 0, 3000, fill(), false),
        batch(["/g", "/d/x"], PAGE, 5 * PAGE as u32, fill(), false),
        tmpfile("/", "/t", 5000, fill()),
        tmpfile("/d", "/n", 100, fill()),
        tmpfile("/w", "/w/t", 10, fill()),
        tmpfile("/v", "/v/t", 10, fill()),
        copy(("/g", 100), ("/a", 2000), 9000),
        copy(("/c", 0), ("/b", PAGE), 20_000),
        copy(("/g", 0), ("/c", 2 * PAGE), 6 * PAGE),
        copy(("/g", 0), ("/g", 8 * PAGE), 6 * PAGE),
        Op::Fsync { path: path("/a") },
        Op::Fdatasync { path: path("/g") },
        Op::Fsync { path: path("/b") },
        Op::FsyncDir { path: path("/") },
        Op::FsyncDir { path: path("/d") },
        Op::SyncAll,
        Op::Read { path: path("/a"), offset: 0, len: 20_000 },
    ]
}

/// Sizes, and every mode of fallocate.
fn ranges() -> Vec<Op> {
    vec![
        truncate("/a", 0),
        truncate("/a", 4096),
        truncate("/a", 5000),
        truncate("/a", 20_000),
        truncate("/b", 0),
        truncate("/c", 0),
        truncate("/c", 5 * PAGE + 1),
        truncate("/d/x", 100),
        truncate("/g", 0),
        truncate("/g", 7 * PAGE),
        falloc("/a", Falloc::Allocate, 8000, 12_000),
        falloc("/a", Falloc::AllocateKeep, 12_288, 8192),
        falloc("/c", Falloc::AllocateKeep, 0, 8 * PAGE),
        falloc("/a", Falloc::Punch, 1000, 6000),
        falloc("/a", Falloc::Punch, 0, 3 * PAGE),
        falloc("/c", Falloc::Punch, 3 * PAGE, 3 * PAGE),
        falloc("/g", Falloc::Punch, PAGE, 4 * PAGE),
        falloc("/a", Falloc::Zero, 3000, 9000),
        falloc("/g", Falloc::Zero, 10 * PAGE, 4 * PAGE),
        falloc("/c", Falloc::ZeroKeep, PAGE, 8 * PAGE),
        falloc("/a", Falloc::Collapse, 0, PAGE),
        falloc("/g", Falloc::Collapse, 2 * PAGE, 3 * PAGE),
        falloc("/c", Falloc::Collapse, PAGE, 2 * PAGE),
        falloc("/a", Falloc::Insert, 0, PAGE),
        falloc("/g", Falloc::Insert, 3 * PAGE, 2 * PAGE),
        falloc("/c", Falloc::Insert, PAGE, PAGE),
    ]
}

fn attributes(fill: &mut impl FnMut() -> u8) -> Vec<Op> {
    vec![
        xattr("/a", "user.a", 50, fill(), Exists::Any),
        xattr("/a", "user.a", 30, fill(), Exists::Yes),
        xattr("/a", "user.b", 900, fill(), Exists::Any),
        xattr("/a", "user.b", 6000, fill(), Exists::No),
        xattr("/b", "user.c", 10, fill(), Exists::No),
        xattr("/d", "user.a", 10, fill(), Exists::Any),
        xattr("/a", "trusted.t", 10, fill(), Exists::Any),
        xattr("/b", "security.s", 10, fill(), Exists::Any),
        remove_xattr("/a", "user.a"),
        set_acl("/a", false, 7, 6),
        set_acl("/r", false, 8, 4),
        set_acl("/d", true, 7, 5),
        set_acl("/v", true, 7, 7),
        remove_xattr("/r", acl::ACCESS),
        remove_xattr("/v", acl::DEFAULT),
        chmod("/a", 0o600),
        chmod("/a", 0o4711),
        chmod("/d", 0o2750),
        chmod("/p", 0o600),
        chmod("/r", 0o640),
        chown("/b", 7, 8),
        chown("/d", 7, 8),
        chown("/l", 7, 8),
        chown("/q", 7, 8),
        Op::KillSuid { path: path("/q") },
        utimens("/a", LONG_AGO),
        utimens("/d", LONG_AGO),
        utimens("/a", (When::Now, When::Now)),
        utimens("/c", (When::Omit, When::At(1 << 49))),
        utimens("/c", (When::At(1 << 49), When::Omit)),
        utimens("/d", (When::Omit, When::Now)),
        utimens("/l", LONG_AGO),
    ]
}
