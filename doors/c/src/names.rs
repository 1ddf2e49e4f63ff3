//! What is asked of paths. They begin at a directory's handle, with a slash or without.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::{self, Room, put};
use crate::dir::{Place, at};
use crate::fail::{Failure, Outcome, done, guarded, number};
use crate::handles::with;
use crate::types::{self, narufs_dir, narufs_file, narufs_stat};
use narufs::{File, RenameMode};
use std::ffi::{c_char, c_int, c_void};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

/// Attributes; of a symlink those of what it leads to.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_stat(dir: *mut narufs_dir, path: *const c_char, stat: *mut narufs_stat) -> c_int {
    done(|| put(stat, types::stat(&at(dir, path, |dir, path| Ok(dir.metadata(path)?))?)))
}

/// Attributes; of a symlink its own.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_lstat(dir: *mut narufs_dir, path: *const c_char, stat: *mut narufs_stat) -> c_int {
    done(|| put(stat, types::stat(&at(dir, path, |dir, path| Ok(dir.symlink_metadata(path)?))?)))
}

/// Whether a path leads to something: 1, 0, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_exists(dir: *mut narufs_dir, path: *const c_char) -> c_int {
    guarded(-1, || at(dir, path, |dir, path| Ok(dir.try_exists(path)?.into())))
}

/// Whether the caller may: a sum of R_OK, W_OK and X_OK, or F_OK; as access(2).
#[unsafe(no_mangle)]
pub extern "C" fn narufs_access(dir: *mut narufs_dir, path: *const c_char, mode: c_int) -> c_int {
    done(|| {
        let mask = u32::try_from(mode).ok().filter(|mask| *mask <= 7);
        let mask =
            mask.ok_or_else(|| Failure::invalid("a mode of access is a sum of R_OK, W_OK and X_OK"))?;
        at(dir, path, |dir, path| Ok(dir.access(path, mask)?))
    })
}

/// Sets the permissions: the twelve lowest bits of mode.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_chmod(dir: *mut narufs_dir, path: *const c_char, mode: u32) -> c_int {
    done(|| at(dir, path, |dir, path| Ok(dir.set_permissions(path, Permissions::from_mode(mode))?)))
}

/// Sets owner and group; (uint32_t)-1 stays.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_chown(dir: *mut narufs_dir, path: *const c_char, uid: u32, gid: u32) -> c_int {
    done(|| at(dir, path, |dir, path| Ok(dir.set_owner(path, types::owner(uid), types::owner(gid))?)))
}

/// As narufs_chown(), of a symlink itself.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_lchown(dir: *mut narufs_dir, path: *const c_char, uid: u32, gid: u32) -> c_int {
    let (uid, gid) = (types::owner(uid), types::owner(gid));
    done(|| at(dir, path, |dir, path| Ok(dir.set_symlink_owner(path, uid, gid)?)))
}

/// Sets the times of access and change, two of them, as utimensat(2): UTIME_NOW, UTIME_OMIT, and NULL for now.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_utimens(
    dir: *mut narufs_dir,
    path: *const c_char,
    times: *const libc::timespec,
) -> c_int {
    done(|| {
        let times = types::times(times)?;
        at(dir, path, |dir, path| Ok(dir.set_times(path, times)?))
    })
}

/// As narufs_utimens(), of a symlink itself.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_lutimens(
    dir: *mut narufs_dir,
    path: *const c_char,
    times: *const libc::timespec,
) -> c_int {
    done(|| {
        let times = types::times(times)?;
        at(dir, path, |dir, path| Ok(dir.set_symlink_times(path, times)?))
    })
}

/// Makes a directory; there is no umask.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_mkdir(dir: *mut narufs_dir, path: *const c_char, mode: u32) -> c_int {
    done(|| at(dir, path, |dir, path| Ok(dir.create_dir_with_mode(path, mode & 0o7777)?)))
}

/// Makes a directory and those above it, as far as they are missing, with mode 0755.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_mkdir_all(dir: *mut narufs_dir, path: *const c_char) -> c_int {
    done(|| at(dir, path, |dir, path| Ok(dir.create_dir_all(path)?)))
}

/// Removes a name of what is no directory.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_unlink(dir: *mut narufs_dir, path: *const c_char) -> c_int {
    done(|| at(dir, path, |dir, path| Ok(dir.remove_file(path)?)))
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_rmdir(dir: *mut narufs_dir, path: *const c_char) -> c_int {
    done(|| at(dir, path, |dir, path| Ok(dir.remove_dir(path)?)))
}

/// Removes a directory with all that is in it; a symlink is removed, not followed.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_remove_all(dir: *mut narufs_dir, path: *const c_char) -> c_int {
    done(|| at(dir, path, |dir, path| Ok(dir.remove_dir_all(path)?)))
}

/// What has the new name is replaced.
pub const NARUFS_RENAME_REPLACE: c_int = 0;
/// What has the new name stays: EEXIST.
pub const NARUFS_RENAME_NOREPLACE: c_int = 1;
/// The two names are exchanged; both must be there.
pub const NARUFS_RENAME_EXCHANGE: c_int = 2;

/// Renames, whole or not at all, also in a crash. how is one of NARUFS_RENAME_....
#[unsafe(no_mangle)]
pub extern "C" fn narufs_rename(
    dir: *mut narufs_dir,
    from: *const c_char,
    to_dir: *mut narufs_dir,
    to: *const c_char,
    how: c_int,
) -> c_int {
    done(|| {
        let mode = match how {
            NARUFS_RENAME_REPLACE => RenameMode::Replace,
            NARUFS_RENAME_NOREPLACE => RenameMode::NoReplace,
            NARUFS_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Failure::invalid("none of NARUFS_RENAME_...")),
        };
        at(dir, from, |dir, from| at(to_dir, to, |to_dir, to| Ok(dir.rename_to(from, to_dir, to, mode)?)))
    })
}

/// Gives a file another name. A symlink is not followed.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_link(
    dir: *mut narufs_dir,
    from: *const c_char,
    to_dir: *mut narufs_dir,
    to: *const c_char,
) -> c_int {
    done(|| at(dir, from, |dir, from| at(to_dir, to, |to_dir, to| Ok(dir.hard_link_to(from, to_dir, to)?))))
}

/// Gives an open file another name, or its first if it was opened with O_TMPFILE.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_link_file(
    dir: *mut narufs_dir,
    file: *mut narufs_file,
    path: *const c_char,
) -> c_int {
    done(|| at(dir, path, |dir, path| with(file, |file: &File| Ok(dir.link_file(file, path)?))))
}

/// Makes a symlink at path that leads to target.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_symlink(target: *const c_char, dir: *mut narufs_dir, path: *const c_char) -> c_int {
    done(|| {
        let target = args::path(target)?;
        at(dir, path, |dir, path| Ok(dir.symlink(target, path)?))
    })
}

/// What a symlink leads to, without a zero byte, as much as there is room for; gives the number of bytes, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_readlink(
    dir: *mut narufs_dir,
    path: *const c_char,
    target: *mut c_char,
    len: usize,
) -> libc::ssize_t {
    number(|| {
        let found = at(dir, path, |dir, path| Ok(dir.read_link(path)?))?;
        let found = found.as_os_str().as_bytes();
        let room = args::bytes_mut(target.cast(), len)?;
        let put = found.len().min(room.len());
        room[..put].copy_from_slice(&found[..put]);
        Ok(put)
    }) as isize
}

/// Copies the content and the permissions of a file, holes as holes; gives the number of bytes, or -1. EINVAL: both are
/// the same file.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_copy(dir: *mut narufs_dir, from: *const c_char, to: *const c_char) -> i64 {
    number(|| {
        let to = args::path(to)?;
        at(dir, from, |dir, from| Ok(dir.copy(from, to)?))
    })
}

/// The length of a file as one of memory.
fn whole(len: u64) -> Outcome<usize> {
    usize::try_from(len).map_err(|_| Failure::of(libc::ENOMEM, "the file is longer than memory can be"))
}

/// The whole content of a file in memory of its own, with a zero byte behind, for narufs_free(); gives the number of bytes,
/// or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_read_file(
    dir: *mut narufs_dir,
    path: *const c_char,
    content: *mut *mut c_void,
) -> i64 {
    number(|| {
        put(content, std::ptr::null_mut())?;
        let file = at(dir, path, |dir, path| Ok(dir.open(path)?))?;
        let there = file.metadata()?;
        if there.is_dir() {
            return Err(Failure::of(libc::EISDIR, "a directory has no content to be read"));
        }
        let (mut room, mut read) = (Room::new(whole(there.len())?)?, 0);
        // Until there is nothing more, however long it has become meanwhile.
        loop {
            if read == room.bytes().len() {
                if whole(file.metadata()?.len())? <= read {
                    break;
                }
                room.grow(read.saturating_mul(2).max(4096))?;
            }
            match file.read_at(&mut room.bytes()[read..], read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        put(content, room.give(read).cast())?;
        Ok(read)
    })
}

/// Makes a file of this content, or replaces that of a file. A crash in between may leave less.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_write_file(
    dir: *mut narufs_dir,
    path: *const c_char,
    content: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        let content: &[u8] = args::bytes(content.cast(), len)?;
        let path = args::path(path)?;
        with(dir, |place: &Place| Ok(place.write(path, content)?))
    })
}
