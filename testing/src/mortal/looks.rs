//! Calls that change nothing, or nothing but attributes.

use super::cases::{Case, Held, LOGS, LOOKS, OLD, RECORDS, Room, file, nothing, open_file, pattern};
use narufs_fuse::control;
use narufs_fuse::wire::Opcode;
use rustix::fs::{
    self, Advice, AtFlags, Dir, Gid, Mode, OFlags, SeekFrom, StatxFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::pread;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

fn named(prefix: &str, room: &Room, name: &str) -> io::Result<String> {
    let is = fs::statat(&room.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(format!("{prefix} {:o} {}", is.st_mode, is.st_size))
}

fn link(room: &Room) -> io::Result<Held> {
    fs::symlinkat("where it leads", &room.dir, "link")?;
    Ok(Held::default())
}

fn with_attributes(room: &Room) -> io::Result<Held> {
    let held = open_file(room)?;
    fs::fsetxattr(&held.files[0], "user.one", b"first", XattrFlags::empty())?;
    fs::fsetxattr(&held.files[0], "user.two", b"second", XattrFlags::empty())?;
    Ok(held)
}

fn forty_names(room: &Room) -> io::Result<Held> {
    for number in 0..40 {
        room.file(&format!("name-{number}"), number, 0)?;
    }
    Ok(Held::default())
}

fn list(room: &Room) -> io::Result<String> {
    let dir = room.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut names = Vec::new();
    for entry in Dir::new(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names.join(" "))
}

/// Data, a hole, data.
fn with_a_hole(room: &Room) -> io::Result<Held> {
    let file = room.file("file", 4096, 1)?;
    rustix::io::pwrite(&file, &pattern(4096, 2), 1 << 16)?;
    Ok(Held { files: vec![file] })
}

fn directory(room: &Room) -> io::Result<Held> {
    Ok(Held { files: vec![room.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?] })
}

/// Where the mount is, as those ask that take its path.
fn mount(room: &Room) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/..", room.dir.as_raw_fd()))
}

pub fn cases() -> Vec<Case> {
    use Opcode::*;
    vec![
        Case::new("look up a name", Lookup, LOOKS, file, |r, _| named("found", r, "file")).cold(),
        Case::new("look up a name that is not there", Lookup, LOOKS, nothing, |r, _| {
            named("found", r, "none")
        })
        .failing(),
        Case::new("look up a name, asked each time", Lookup, LOOKS, file, |r, _| named("found", r, "file"))
            .asked()
            .cold(),
        Case::new("stat", Getattr, LOOKS, open_file, |_, held| {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
            let is = fs::statx(&held.files[0], "", flags, StatxFlags::MODE | StatxFlags::SIZE)?;
            Ok(format!("{:o} {}", is.stx_mode, is.stx_size))
        }),
        Case::new("statx with the time of birth", Statx, LOOKS, open_file, |_, held| {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
            let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            let is = fs::statx(&held.files[0], "", flags, wanted)?;
            Ok(format!("{} {}", is.stx_size, is.stx_btime.tv_sec > OLD))
        }),
        Case::new("readlink", Readlink, LOOKS, link, |r, _| {
            Ok(format!("{:?}", fs::readlinkat(&r.dir, "link", Vec::new())?))
        })
        .cold(),
        Case::new("statfs", Statfs, LOOKS, nothing, |r, _| {
            let is = fs::fstatvfs(&r.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?)?;
            Ok(format!("{} {} {}", is.f_bsize, is.f_blocks, is.f_namemax))
        }),
        Case::new("getxattr", Getxattr, LOOKS, with_attributes, |_, held| {
            let mut value = [0u8; 64];
            let len = fs::fgetxattr(&held.files[0], "user.two", &mut value)?;
            Ok(String::from_utf8_lossy(&value[..len]).into_owned())
        }),
        Case::new("listxattr", Listxattr, LOOKS, with_attributes, |_, held| {
            let mut names = [0u8; 64];
            let len = fs::flistxattr(&held.files[0], &mut names)?;
            Ok(String::from_utf8_lossy(&names[..len]).into_owned())
        }),
        Case::new("list a directory with attributes", Readdirplus, LOOKS, forty_names, |r, _| list(r)).cold(),
        Case::new("list a directory, asked each time", Readdirplus, LOOKS, forty_names, |r, _| list(r))
            .asked()
            .cold(),
        Case::new("open a directory", Opendir, LOOKS, nothing, |r, held| {
            held.files.push(r.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?);
            Ok(String::new())
        })
        .asked(),
        Case::new("close a directory", Releasedir, LOOKS, directory, |_, held| {
            held.files.clear();
            Ok(String::new())
        })
        .asked(),
        Case::new("open", Open, LOOKS, file, |r, held| {
            held.files.push(r.open("file", OFlags::RDWR)?);
            Ok(String::new())
        })
        .asked(),
        Case::new("close", Release, LOOKS, open_file, |_, held| {
            held.files.clear();
            Ok(String::new())
        })
        .asked(),
        Case::new("access", Opcode::Access, LOOKS, file, |r, _| {
            fs::accessat(&r.dir, "file", fs::Access::READ_OK | fs::Access::WRITE_OK, AtFlags::empty())?;
            Ok(String::new())
        })
        .asked(),
        Case::new("read", Read, LOOKS, open_file, |_, held| read(held, 100, 9000)),
        Case::new("read past the kernel's cache", Read, LOOKS, open_file, |_, held| read(held, 3, 20_000))
            .asked(),
        Case::new("seek data", Lseek, LOOKS, with_a_hole, |_, held| {
            Ok(fs::seek(&held.files[0], SeekFrom::Data(5000))?.to_string())
        }),
        Case::new("seek a hole", Lseek, LOOKS, with_a_hole, |_, held| {
            Ok(fs::seek(&held.files[0], SeekFrom::Hole(0))?.to_string())
        }),
        Case::new("who starts servers", Ioctl, LOOKS, nothing, |r, _| {
            Ok(control::supervisor_pid(&mount(r))?.is_some().to_string())
        }),
        Case::new("counters", Ioctl, LOOKS, nothing, |r, _| {
            Ok(control::stats(&mount(r))?.starts_with('{').to_string())
        }),
        Case::new("sync against a loss of power", Ioctl, LOOKS, nothing, |r, _| {
            control::sync_power(&mount(r))?;
            Ok(String::new())
        }),
        Case::new("set times", Setattr, RECORDS, file, |r, _| {
            let then = Timespec { tv_sec: OLD + 5, tv_nsec: 7 };
            let times = Timestamps { last_access: then, last_modification: then };
            fs::utimensat(&r.dir, "file", &times, AtFlags::empty())?;
            Ok(String::new())
        }),
        Case::new("set a mode", Setattr, RECORDS, file, |r, _| {
            fs::chmodat(&r.dir, "file", Mode::from(0o604), AtFlags::empty())?;
            Ok(String::new())
        }),
        Case::new("set an owner", Setattr, RECORDS, file, |r, _| {
            let (uid, gid) = (Uid::from_raw(7), Gid::from_raw(8));
            fs::chownat(&r.dir, "file", Some(uid), Some(gid), AtFlags::empty())?;
            Ok(String::new())
        }),
        Case::new("set an attribute that must be new", Setxattr, LOGS, with_attributes, |_, held| {
            fs::fsetxattr(&held.files[0], "user.three", b"third", XattrFlags::CREATE)?;
            Ok(String::new())
        }),
        Case::new("replace an attribute", Setxattr, LOGS, with_attributes, |_, held| {
            fs::fsetxattr(&held.files[0], "user.one", b"another", XattrFlags::REPLACE)?;
            Ok(String::new())
        }),
        Case::new("remove an attribute", Removexattr, LOGS, with_attributes, |_, held| {
            fs::fremovexattr(&held.files[0], "user.one")?;
            Ok(String::new())
        }),
    ]
}

fn read(held: &Held, offset: u64, len: usize) -> io::Result<String> {
    fs::fadvise(&held.files[0], 0, None, Advice::DontNeed)?;
    let mut bytes = vec![0u8; len];
    let read = pread(&held.files[0], &mut bytes, offset)?;
    Ok(format!("{read} {:08x}", crc32c::crc32c(&bytes[..read])))
}
