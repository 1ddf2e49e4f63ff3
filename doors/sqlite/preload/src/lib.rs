//! A preload for programs that know nothing of narufs: `LD_PRELOAD=libnarufs_sqlite_preload.so`, with
//! NARUFS_SQLITE_IMAGE set.
//!
//! It stands in front of the functions that open a database, registers the VFS as the default before the first is
//! opened, and again after SQLite was shut down, and hands on to SQLite's own; nothing else is changed. It does nothing where the image is not named, and it
//! needs a SQLite that is a shared library: one that a program has inside is not reached.

#![allow(
    unsafe_code,
    reason = "a leaf: functions of C in front of others of the same name; tests/preload.rs"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Once, OnceLock};

/// The name by which programs have SQLite, for those that load it for themselves alone.
const LIBRARY: &CStr = c"libsqlite3.so.0";

type Open = unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> c_int;
type OpenV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int;

/// SQLITE_CANTOPEN.
const CANTOPEN: c_int = 14;

/// SQLite's function of this name.
fn next(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: both calls take names that end, and give null or what is there for as long as the library is.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        if !found.is_null() {
            return Some(found);
        }
        let library = libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let found = libc::dlsym(library, name.as_ptr());
        (!found.is_null()).then_some(found)
    }
}

fn functions() -> Option<narufs_sqlite::Functions> {
    // SAFETY: these are SQLite's functions of those names.
    unsafe { narufs_sqlite::Functions::found(|name| next(name).map(<*mut c_void>::cast_const)) }
}

/// Registers the VFS; again where SQLite was shut down, for it begins anew with its own as the default.
fn register() {
    static FIRST: Once = Once::new();
    static IS_NAMED: OnceLock<bool> = OnceLock::new();
    if !IS_NAMED.get_or_init(|| std::env::var_os("NARUFS_SQLITE_IMAGE").is_some()) {
        return;
    }
    FIRST.call_once(register_as_default);
    if functions().is_some_and(|functions| begins_anew(&functions)) {
        register_as_default();
    }
}

/// Whether the default is the VFS that SQLite has by itself. One of the program's stays.
fn begins_anew(functions: &narufs_sqlite::Functions) -> bool {
    // SAFETY: the function takes null, or a name that ends. It gives null where SQLite does not begin, and the program is told
    // why by the function that opens.
    let [default, own] =
        [std::ptr::null(), c"unix".as_ptr()].map(|name| unsafe { (functions.vfs_find)(name) });
    !default.is_null() && default == own
}

fn register_as_default() {
    let registered = functions().map(|functions| narufs_sqlite::register(&functions, true));
    if !matches!(registered, Some(Ok(()))) {
        // The program would go on with files elsewhere, and believe that they are in the image.
        eprintln!(
            "narufs: this SQLite cannot be served: it must be {}, 3.32 or later",
            LIBRARY.to_string_lossy()
        );
        std::process::exit(1);
    }
}

/// SQLite's own, after the VFS is registered.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open(name: *const c_void, db: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller says.
    unsafe { open(c"sqlite3_open", name, db) }
}

/// SQLite's own, after the VFS is registered.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open16(name: *const c_void, db: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller says.
    unsafe { open(c"sqlite3_open16", name, db) }
}

unsafe fn open(function: &CStr, name: *const c_void, db: *mut *mut c_void) -> c_int {
    register();
    let Some(next) = next(function) else { return CANTOPEN };
    // SAFETY: SQLite's function of this name has this type, and the caller keeps to what it asks.
    unsafe { std::mem::transmute::<*mut c_void, Open>(next)(name, db) }
}

/// SQLite's own, after the VFS is registered.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open_v2(
    name: *const c_char,
    db: *mut *mut c_void,
    flags: c_int,
    vfs: *const c_char,
) -> c_int {
    register();
    let Some(next) = next(c"sqlite3_open_v2") else { return CANTOPEN };
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, OpenV2>(next)(name, db, flags, vfs) }
}
