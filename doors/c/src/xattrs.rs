//! Extended attributes, of paths and of open files.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::{bytes, put_bytes, text};
use crate::dir::at;
use crate::fail::{Failure, Outcome, done, number};
use crate::handles::with;
use crate::types::{narufs_dir, narufs_file};
use narufs::{File, XattrMode};
use std::ffi::{OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

fn mode(flags: c_int) -> Outcome<XattrMode> {
    match flags {
        0 => Ok(XattrMode::Any),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Failure::invalid("flags are 0, XATTR_CREATE or XATTR_REPLACE")),
    }
}

/// Names, each with a zero byte behind it.
fn list(names: Vec<OsString>) -> Vec<u8> {
    names.iter().flat_map(|name| name.as_bytes().iter().copied().chain([0])).collect()
}

/// The value of an extended attribute, such as "user.origin"; gives its length, or -1: ERANGE if there is too little room.
/// With a len of 0 the length alone.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_getxattr(
    dir: *mut narufs_dir,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    len: usize,
) -> libc::ssize_t {
    number(|| {
        let name = text(name)?;
        put_bytes(&at(dir, path, |dir, path| Ok(dir.xattr(path, name)?))?, value.cast(), len)
    }) as isize
}

/// Sets an extended attribute; flags are 0, XATTR_CREATE or XATTR_REPLACE.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_setxattr(
    dir: *mut narufs_dir,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    len: usize,
    flags: c_int,
) -> c_int {
    done(|| {
        let (name, value, mode) = (text(name)?, bytes(value.cast(), len)?, mode(flags)?);
        at(dir, path, |dir, path| Ok(dir.set_xattr(path, name, value, mode)?))
    })
}

/// Removes an extended attribute.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_removexattr(
    dir: *mut narufs_dir,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    done(|| {
        let name = text(name)?;
        at(dir, path, |dir, path| Ok(dir.remove_xattr(path, name)?))
    })
}

/// The names of the extended attributes, each with a zero byte behind it; gives their length, or -1, as narufs_getxattr().
#[unsafe(no_mangle)]
pub extern "C" fn narufs_listxattr(
    dir: *mut narufs_dir,
    path: *const c_char,
    names: *mut c_char,
    len: usize,
) -> libc::ssize_t {
    number(|| {
        let found = at(dir, path, |dir, path| Ok(dir.xattrs(path)?))?;
        put_bytes(&list(found), names.cast(), len)
    }) as isize
}

/// As narufs_getxattr(), of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fgetxattr(
    file: *mut narufs_file,
    name: *const c_char,
    value: *mut c_void,
    len: usize,
) -> libc::ssize_t {
    number(|| {
        let name = text(name)?;
        put_bytes(&with(file, |file: &File| Ok(file.xattr(name)?))?, value.cast(), len)
    }) as isize
}

/// As narufs_setxattr(), of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fsetxattr(
    file: *mut narufs_file,
    name: *const c_char,
    value: *const c_void,
    len: usize,
    flags: c_int,
) -> c_int {
    done(|| {
        let (name, value, mode) = (text(name)?, bytes(value.cast(), len)?, mode(flags)?);
        with(file, |file: &File| Ok(file.set_xattr(name, value, mode)?))
    })
}

/// As narufs_removexattr(), of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fremovexattr(file: *mut narufs_file, name: *const c_char) -> c_int {
    done(|| {
        let name = text(name)?;
        with(file, |file: &File| Ok(file.remove_xattr(name)?))
    })
}

/// As narufs_listxattr(), of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_flistxattr(file: *mut narufs_file, names: *mut c_char, len: usize) -> libc::ssize_t {
    number(|| {
        let found = with(file, |file: &File| Ok(file.xattrs()?))?;
        put_bytes(&list(found), names.cast(), len)
    }) as isize
}
