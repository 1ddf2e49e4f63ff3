//! Calls that change names.

use super::cases::{Case, Held, LOGS, LOOKS, MAKES, Room, file, nothing, open_file, two_files};
use narufs_fuse::wire::Opcode;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use std::io;

fn directory(room: &Room) -> io::Result<Held> {
    fs::mkdirat(&room.dir, "dir", Mode::from(0o750))?;
    Ok(Held::default())
}

fn full_directory(room: &Room) -> io::Result<Held> {
    let held = directory(room)?;
    fs::mkdirat(&room.dir, "dir/below", Mode::from(0o750))?;
    Ok(held)
}

fn two_names(room: &Room) -> io::Result<Held> {
    let held = file(room)?;
    fs::linkat(&room.dir, "file", &room.dir, "other", AtFlags::empty())?;
    Ok(held)
}

fn file_and_directory(room: &Room) -> io::Result<Held> {
    let held = file(room)?;
    directory(room)?;
    Ok(held)
}

fn rename(room: &Room, from: &str, to: &str, flags: RenameFlags) -> io::Result<String> {
    fs::renameat_with(&room.dir, from, &room.dir, to, flags)?;
    Ok(String::new())
}

fn unlink(room: &Room, name: &str) -> io::Result<String> {
    fs::unlinkat(&room.dir, name, AtFlags::empty())?;
    Ok(String::new())
}

fn node(room: &Room, kind: FileType) -> io::Result<String> {
    fs::mknodat(&room.dir, "node", kind, Mode::from(0o640), fs::makedev(5, 6))?;
    Ok(String::new())
}

/// What was made is used, lest it be another's.
fn create(room: &Room, held: &mut Held) -> io::Result<String> {
    let made = room.open("new", OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
    rustix::io::pwrite(&made, b"through the file that was made", 0)?;
    held.files.push(made);
    Ok(String::new())
}

fn tmpfile(room: &Room, held: &mut Held) -> io::Result<String> {
    let made = room.open(".", OFlags::RDWR | OFlags::TMPFILE)?;
    rustix::io::pwrite(&made, b"through the file that was made", 0)?;
    held.files.push(made);
    Ok(String::new())
}

pub fn cases() -> Vec<Case> {
    use Opcode::*;
    vec![
        Case::new("mkdir", Mkdir, LOGS, nothing, |r, _| {
            fs::mkdirat(&r.dir, "dir", Mode::from(0o751))?;
            Ok(String::new())
        }),
        Case::new("mkdir, asked each time", Mkdir, LOGS, nothing, |r, _| {
            fs::mkdirat(&r.dir, "dir", Mode::from(0o751))?;
            Ok(String::new())
        })
        .asked(),
        Case::new("mknod of a file", Mknod, LOGS, nothing, |r, _| node(r, FileType::RegularFile)),
        Case::new("mknod of a device", Mknod, LOGS, nothing, |r, _| node(r, FileType::CharacterDevice)),
        Case::new("symlink", Symlink, LOGS, nothing, |r, _| {
            fs::symlinkat("somewhere", &r.dir, "link")?;
            Ok(String::new())
        }),
        Case::new("a long symlink", Symlink, LOGS, nothing, |r, _| {
            fs::symlinkat("some/where/".repeat(200), &r.dir, "link")?;
            Ok(String::new())
        }),
        Case::new("link", Link, LOGS, file, |r, _| {
            fs::linkat(&r.dir, "file", &r.dir, "another", AtFlags::empty())?;
            Ok(String::new())
        }),
        Case::new("create", Create, LOGS, nothing, create),
        Case::new("create, opened by the server", Create, LOGS, nothing, create).asked(),
        Case::new("make a file without a name", Tmpfile, MAKES, nothing, tmpfile),
        Case::new("make a file without a name, opened by the server", Tmpfile, MAKES, nothing, tmpfile)
            .asked(),
        Case::new("unlink", Unlink, LOGS, file, |r, _| unlink(r, "file")),
        Case::new("unlink an open file", Unlink, LOGS, open_file, |r, _| unlink(r, "file")),
        Case::new("unlink an open file, opened by the server", Unlink, LOGS, open_file, |r, _| {
            unlink(r, "file")
        })
        .asked(),
        Case::new("unlink one of two names", Unlink, LOGS, two_names, |r, _| unlink(r, "file")),
        Case::new("rmdir", Rmdir, LOGS, directory, |r, _| {
            fs::unlinkat(&r.dir, "dir", AtFlags::REMOVEDIR)?;
            Ok(String::new())
        }),
        Case::new("rmdir of what is not empty", Rmdir, LOOKS, full_directory, |r, _| {
            fs::unlinkat(&r.dir, "dir", AtFlags::REMOVEDIR)?;
            Ok(String::new())
        })
        .failing(),
        Case::new("rename", Rename, LOGS, file, |r, _| rename(r, "file", "moved", RenameFlags::empty())),
        Case::new("rename of a directory", Rename, LOGS, full_directory, |r, _| {
            rename(r, "dir", "moved", RenameFlags::empty())
        }),
        Case::new("rename into a directory", Rename, LOGS, file_and_directory, |r, _| {
            rename(r, "file", "dir/moved", RenameFlags::empty())
        }),
        Case::new("rename over a file", Rename, LOGS, two_files, |r, _| {
            rename(r, "file", "other", RenameFlags::empty())
        }),
        Case::new("rename over an open file", Rename, LOGS, room_with_open_other, |r, _| {
            rename(r, "file", "other", RenameFlags::empty())
        }),
        Case::new("rename where nothing may be", Rename2, LOGS, file, |r, _| {
            rename(r, "file", "moved", RenameFlags::NOREPLACE)
        }),
        Case::new("exchange", Rename2, LOGS, two_files, |r, _| {
            rename(r, "file", "other", RenameFlags::EXCHANGE)
        }),
        Case::new("exchange with a directory", Rename2, LOGS, file_and_directory, |r, _| {
            rename(r, "file", "dir", RenameFlags::EXCHANGE)
        }),
    ]
}

fn room_with_open_other(room: &Room) -> io::Result<Held> {
    file(room)?;
    Ok(Held { files: vec![room.file("other", 5000, 2)?] })
}
