//! The VFS as SQLite calls it: registered, and asked for files by their names.

#![allow(unsafe_code, reason = "a leaf module: what C calls, with C's pointers; tests/stock.rs")]

use crate::ffi::{self, Answer, CANTOPEN, File, Functions, OK, Vfs};
use crate::methods::{self, Opened, changes, guarded};
use crate::mount::{locked, names_the_system_s};
use crate::names::{Meaning, Place, full_name, meaning};
use crate::open::{self, Asked, Handle};
use crate::wishes::Wishes;
use crate::{outside, owners, supers};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Mutex;

/// The name by which a URI asks for it.
const NAME: &std::ffi::CStr = c"narufs";

/// What is not for narufs: it has no name that outlives its connection.
const TEMPORARY: c_int =
    ffi::OPEN_TEMP_DB | ffi::OPEN_TRANSIENT_DB | ffi::OPEN_TEMP_JOURNAL | ffi::OPEN_SUBJOURNAL;

/// What SQLite puts behind the name of a database, at the most: that of a super-journal is one as well.
const LONGEST_SUFFIX: usize = "-mjXXXXXX9XX".len();

/// The one that was registered, once there is one.
static REGISTERED: Mutex<Option<usize>> = Mutex::new(None);

/// Registers the VFS, as the default or beside that; again, with another word about the default, it does no harm.
pub fn register(functions: &Functions, default: bool) -> Answer {
    let functions = functions.keep();
    let mut registered = crate::mount::locked(&REGISTERED);
    // SAFETY: these are functions of SQLite, given to us as such. What is registered lives for ever.
    unsafe {
        let vfs = match *registered {
            Some(at) => at as *mut Vfs,
            None => {
                let unix =
                    [c"unix".as_ptr(), std::ptr::null()].map(|name| (functions.vfs_find)(name).cast::<Vfs>());
                let unix = unix.into_iter().find(|vfs| !vfs.is_null()).ok_or(ffi::ERROR)?;
                Box::into_raw(Box::new(made(unix)))
            }
        };
        let code = (functions.vfs_register)(vfs.cast(), c_int::from(default));
        if code != OK {
            return Err(code);
        }
        *registered = Some(vfs as usize);
    }
    Ok(())
}

/// # Safety
/// `unix` is a VFS that is registered for ever.
unsafe fn made(unix: *mut Vfs) -> Vfs {
    // SAFETY: as the caller says.
    let below = unsafe { &*unix };
    Vfs {
        version: below.version.min(3),
        file_bytes: below.file_bytes.max(size_of::<Opened>() as c_int),
        // SQLite's own buffers for names, of pages and on the stack, have room for no more than its own VFS takes.
        longest_path: below.longest_path,
        next: std::ptr::null_mut(),
        name: NAME.as_ptr(),
        app: unix.cast(),
        open: x_open,
        delete: x_delete,
        access: x_access,
        full_pathname: x_full_pathname,
        of_the_system: below.of_the_system,
        system_calls: below.system_calls,
    }
}

/// Runs `call` at the end of the process.
pub fn at_exit(call: extern "C" fn()) {
    // SAFETY: a function that lives as long as the library, which is loaded for good. If there is no room for one more,
    // what was not synced is lost with the process, as it may be.
    unsafe { libc::atexit(call) };
}

/// Whether a file lies on F2FS: builds of SQLite for its atomic batches have journals in memory there, up to the commit.
pub fn keeps_journals_back(path: &str) -> bool {
    let Ok(path) = CString::new(path) else { return true };
    // SAFETY: the name ends, and all bits are what a kernel may have put there.
    unsafe {
        let mut there: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &raw mut there) != 0 || there.f_type == libc::F2FS_SUPER_MAGIC
    }
}

/// The header of a database of the system, read by the system's own VFS: closed by anything else, it would lose all locks that
/// this process has on it.
pub fn header_of(db: &str) -> Option<[u8; 100]> {
    let ours = (*locked(&REGISTERED))?;
    // SQLite looks for what a URI says behind a name, and for its beginning before it.
    let name = [&[0; 4], db.as_bytes(), &[0; 5]].concat();
    let mut header = [0; 100];
    // SAFETY: what was registered lives for ever, and so does what it was made of. The file has the room that is asked for, and
    // is closed before that goes, and its name.
    unsafe {
        let below = below(ours as *mut Vfs);
        let mut room = vec![0_u64; (below.file_bytes.max(0) as usize).div_ceil(size_of::<u64>())];
        let file = room.as_mut_ptr().cast::<File>();
        let flags = ffi::OPEN_READONLY | ffi::OPEN_MAIN_DB;
        let opened = (below.open)(below, name.as_ptr().add(4).cast(), file, flags, std::ptr::null_mut());
        let methods = (*file).methods.as_ref()?;
        let is_read =
            opened == OK && (methods.read)(file, header.as_mut_ptr().cast(), header.len() as c_int, 0) == OK;
        (methods.close)(file);
        is_read.then_some(header)
    }
}

// SAFETY of all that follows: SQLite calls these with the VFS that was registered, names that end, and places that have
// room for what is asked for.

/// Where a name leads; the system's VFS, if it is its business. That of a database is none that a journal has.
unsafe fn place(name: *const c_char, is_database: bool) -> Answer<Option<Place>> {
    // SAFETY: see above.
    let name = unsafe { ffi::words(name) }.ok_or(CANTOPEN)?;
    if let Some(place) = outside::meaning(name) {
        return Ok(Some(place));
    }
    match meaning(name) {
        Meaning::Ours(place) => Ok(Some(place)),
        Meaning::Theirs => Ok(None),
        Meaning::Nothing if !is_database && (names_the_system_s() || supers::lists(name)) => Ok(None),
        Meaning::Nothing => {
            ffi::log(
                CANTOPEN,
                &format!(
                    "{name}: no image is named; say file:{name}?vfs=narufs&image=PATH, or set NARUFS_SQLITE_IMAGE"
                ),
            );
            Err(CANTOPEN)
        }
    }
}

unsafe fn below<'a>(vfs: *mut Vfs) -> &'a mut Vfs {
    // SAFETY: what `made` has put there.
    unsafe { &mut *(*vfs).app.cast::<Vfs>() }
}

unsafe extern "C" fn x_open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    got: *mut c_int,
) -> c_int {
    // SAFETY: see above. If there is nothing to close, SQLite is to see that.
    unsafe { (*file).methods = std::ptr::null() };
    let mut theirs = name.is_null() || flags & TEMPORARY != 0;
    let outcome = guarded(|| {
        if theirs {
            return Ok(());
        }
        // SAFETY: see above.
        let Some(place) = (unsafe { place(name, flags & ffi::OPEN_MAIN_DB != 0)? }) else {
            theirs = true;
            return Ok(());
        };
        // SAFETY: see above; a database's name can be asked for parameters.
        if flags & ffi::OPEN_MAIN_DB != 0 && unsafe { ffi::parameter(name, c"nolock") }.is_some_and(is_yes) {
            // Whether a write belongs to a transaction is seen by the locks.
            let name = place.name();
            let why = "nolock=1: without locks no transaction is whole after a crash; leave nolock out";
            ffi::log(CANTOPEN, &format!("{name}: {why}"));
            return Err(CANTOPEN);
        }
        let end = match flags & (ffi::OPEN_MAIN_JOURNAL | ffi::OPEN_WAL) {
            ffi::OPEN_MAIN_JOURNAL => Some("-journal"),
            ffi::OPEN_WAL => Some("-wal"),
            _ => None,
        };
        let owner = end.and_then(|end| owners::owner(name.addr(), &place, end));
        // SAFETY: see above; a database's name can be asked for parameters.
        let asked = unsafe { Asked { flags, wishes: wishes(name, flags), db: owner } };
        let (handle, flags) = open::open(&place, asked)?;
        if let Handle::Db(db) = &handle
            && let Some(functions) = ffi::functions()
        {
            // SAFETY: the name of a database, as above.
            let (journal, log, psow) = unsafe {
                (
                    (functions.filename_journal)(name),
                    (functions.filename_wal)(name),
                    ffi::parameter(name, c"psow"),
                )
            };
            owners::opened([journal.addr(), log.addr()], db);
            if psow.is_some_and(is_no) {
                locked(&db.state).powersafe = false;
            }
        }
        // SAFETY: see above.
        unsafe {
            methods::put(file, handle);
            if !got.is_null() {
                got.write(flags);
            }
        }
        Ok(())
    });
    if theirs {
        // SAFETY: see above: there is room for the system's own, and it is given its own VFS.
        return unsafe { (below(vfs).open)(below(vfs), name, file, flags, got) };
    }
    outcome
}

/// Whether a parameter says no, to SQLite.
fn is_no(word: &str) -> bool {
    ["0", "no", "off", "false"].iter().any(|no| word.eq_ignore_ascii_case(no))
}

/// A name that leads to nothing may say so to SQLite, unless a journal in play means another thing by it.
fn is_nowhere(name: &str) -> Answer {
    let Some(why) = outside::is_elsewhere(name) else { return Ok(()) };
    ffi::log(ffi::IOERR_ACCESS, &format!("{name}: {why}"));
    Err(ffi::IOERR_ACCESS)
}

/// Whether a parameter says yes, to SQLite. What is a number but 0 does.
fn is_yes(word: &str) -> bool {
    let is_number = word.starts_with(|first: char| first.is_ascii_digit());
    is_number && !is_no(word) || ["on", "yes", "true"].iter().any(|yes| word.eq_ignore_ascii_case(yes))
}

/// # Safety
/// `name` is one that SQLite has given to xOpen.
unsafe fn wishes(name: *const c_char, flags: c_int) -> Wishes {
    if flags & ffi::OPEN_MAIN_DB == 0 {
        return Wishes::default();
    }
    // SAFETY: as the caller says; a database's name can be asked for parameters.
    let wish = |key| unsafe { ffi::parameter(name, key).map(str::to_owned) };
    Wishes {
        durability: wish(c"durability"),
        memory: wish(c"memory"),
        size: wish(c"size"),
        origin: wish(c"origin"),
        serve: wish(c"serve"),
        makes: true,
    }
}

unsafe extern "C" fn x_delete(vfs: *mut Vfs, name: *const c_char, durable: c_int) -> c_int {
    let mut theirs = false;
    let outcome = changes(|| {
        // SAFETY: see above.
        match unsafe { place(name, false)? } {
            Some(place) => open::delete(&place, durable != 0),
            None => {
                theirs = true;
                Ok(())
            }
        }
    });
    // SAFETY: see above.
    if theirs { unsafe { (below(vfs).delete)(below(vfs), name, durable) } } else { outcome }
}

unsafe extern "C" fn x_access(vfs: *mut Vfs, name: *const c_char, how: c_int, is: *mut c_int) -> c_int {
    let mut theirs = false;
    let outcome = guarded(|| {
        // SAFETY: see above.
        let Some(place) = (unsafe { place(name, false)? }) else {
            theirs = true;
            return Ok(());
        };
        let there = open::access(&place, how)?;
        // SAFETY: see above.
        let name = unsafe { ffi::words(name) }.ok_or(CANTOPEN)?;
        if !there {
            is_nowhere(name)?;
        }
        if !there && outside::is_others(name, &place) {
            ffi::log(
                ffi::IOERR_ACCESS,
                &format!(
                    "{name}: named by a journal that was written through a directory; serve the image there again, or \
                     mount it there and open the database with stock SQLite, which plays that back"
                ),
            );
            return Err(ffi::IOERR_ACCESS);
        }
        // SAFETY: see above.
        unsafe { is.write(c_int::from(there)) };
        Ok(())
    });
    if !theirs {
        return outcome;
    }
    // SAFETY: see above.
    let code = unsafe { (below(vfs).access)(below(vfs), name, how, is) };
    guarded(|| {
        // SAFETY: see above; what was answered is there.
        let is_nothing = code == OK && unsafe { *is == 0 };
        if is_nothing
            // SAFETY: see above.
            && let Some(name) = unsafe { ffi::words(name) }
        {
            is_nowhere(name)?;
        }
        if code == OK { Ok(()) } else { Err(code) }
    })
}

unsafe extern "C" fn x_full_pathname(
    vfs: *mut Vfs,
    name: *const c_char,
    room: c_int,
    into: *mut c_char,
) -> c_int {
    let mut theirs = false;
    let outcome = guarded(|| {
        // SAFETY: see above; SQLite asks for the full name of a database alone, as a URI gave it.
        let (words, image) = unsafe { (ffi::words(name).ok_or(CANTOPEN)?, ffi::parameter(name, c"image")) };
        theirs = image.is_none() && matches!(meaning(words), Meaning::Theirs);
        if theirs {
            return Ok(());
        }
        let full = full_name(words, image);
        let bytes = full.as_bytes();
        let most = (room.max(0) as usize).saturating_sub(LONGEST_SUFFIX + 1);
        if bytes.len() > most {
            ffi::log(CANTOPEN, &format!("SQLite takes full names of {most} bytes at the most: {full}"));
            return Err(CANTOPEN);
        }
        // SAFETY: see above; the name and its end fit.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), into, bytes.len());
            into.add(bytes.len()).write(0);
        }
        Ok(())
    });
    // SAFETY: see above. Where symbolic links lead the system's VFS finds out here, for it opens none.
    if theirs { unsafe { (below(vfs).full_pathname)(below(vfs), name, room, into) } } else { outcome }
}

/// The entry point of the extension, for `load_extension` and for `sqlite3_auto_extension` of a program that links the
/// static library: registers the VFS, as the default if NARUFS_SQLITE_IMAGE is set.
///
/// # Safety
/// SQLite calls it, with its table of functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_narufssqlite_init(
    _db: *mut c_void,
    _error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(functions) = (unsafe { Functions::of_routines(routines) }) else { return ffi::ERROR };
    let default = std::env::var_os("NARUFS_SQLITE_IMAGE").is_some();
    match register(&functions, default) {
        // Connections go on to use it when the one that has loaded it is closed. From an automatic extension that answer
        // would be a failure, where a connection has asked for extended codes.
        Ok(()) => {
            if stays_loaded() {
                OK
            } else {
                ffi::OK_LOAD_PERMANENTLY
            }
        }
        Err(code) => code,
    }
}

/// The object that has this address loaded: where, and by which name.
fn object_at(address: *const c_void) -> Option<(*mut c_void, *const c_char)> {
    // SAFETY: the call takes any address, and fills in what is given if it knows it.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(address, &raw mut info) != 0).then_some((info.dli_fbase, info.dli_fname))
    }
}

/// Has what this is a part of stay loaded to the end of the process. The program itself does in any case.
fn stays_loaded() -> bool {
    let Some((base, name)) = object_at(sqlite3_narufssqlite_init as *const c_void) else { return true };
    // SAFETY: the call takes a number, and gives an address of the program.
    let program = object_at(unsafe { libc::getauxval(libc::AT_ENTRY) } as *const c_void);
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is one that the loader has given; nothing is loaded that is not there.
    program.is_some_and(|(program, _)| program == base) || unsafe { !libc::dlopen(name, flags).is_null() }
}
