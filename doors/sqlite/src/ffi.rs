//! SQLite's own types, as far as a VFS needs them, and the functions of SQLite that it calls.
//!
//! The layouts are those of sqlite3.h and sqlite3ext.h, which SQLite keeps for ever: fields are only added at the end.

#![allow(
    unsafe_code,
    reason = "a leaf module: types of a C library and calls of its functions; tests/stock.rs"
)]
#![allow(missing_docs, reason = "the names are SQLite's, and its documents say what they are")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// A result code, without SQLITE_OK.
pub type Code = c_int;
/// What a method of a file or of the VFS gives.
pub type Answer<T = ()> = Result<T, Code>;

macro_rules! constants { ($($name:ident = $value:expr;)*) => { $(pub const $name: c_int = $value;)* } }

constants! {
    OK = 0; ERROR = 1; BUSY = 5; BUSY_RECOVERY = 261; NOMEM = 7; READONLY = 8; IOERR = 10; NOTFOUND = 12; FULL = 13;
    CANTOPEN = 14; IOERR_READ = 266; IOERR_SHORT_READ = 522; IOERR_WRITE = 778; IOERR_FSYNC = 1034;
    IOERR_TRUNCATE = 1546; IOERR_FSTAT = 1802; IOERR_UNLOCK = 2058; IOERR_DELETE = 2570;
    IOERR_ACCESS = 3338; IOERR_CHECKRESERVEDLOCK = 3594; IOERR_LOCK = 3850; IOERR_SHMOPEN = 4618;
    IOERR_SHMLOCK = 5130; IOERR_SHMMAP = 5386;
    IOERR_DELETE_NOENT = 5898; IOERR_COMMIT_ATOMIC = 7690;
    OK_LOAD_PERMANENTLY = 256;

    OPEN_READONLY = 0x1; OPEN_READWRITE = 0x2; OPEN_CREATE = 0x4; OPEN_DELETEONCLOSE = 0x8; OPEN_EXCLUSIVE = 0x10;
    OPEN_MAIN_DB = 0x100; OPEN_TEMP_DB = 0x200; OPEN_TRANSIENT_DB = 0x400; OPEN_MAIN_JOURNAL = 0x800;
    OPEN_TEMP_JOURNAL = 0x1000; OPEN_SUBJOURNAL = 0x2000; OPEN_SUPER_JOURNAL = 0x4000;
    OPEN_WAL = 0x80000;

    LOCK_NONE = 0; LOCK_SHARED = 1; LOCK_RESERVED = 2; LOCK_PENDING = 3; LOCK_EXCLUSIVE = 4;

    FCNTL_LOCKSTATE = 1; FCNTL_SIZE_HINT = 5; FCNTL_PERSIST_WAL = 10; FCNTL_VFSNAME = 12;
    FCNTL_POWERSAFE_OVERWRITE = 13; FCNTL_HAS_MOVED = 20; FCNTL_SYNC = 21; FCNTL_COMMIT_PHASETWO = 22;
    FCNTL_BEGIN_ATOMIC_WRITE = 31; FCNTL_COMMIT_ATOMIC_WRITE = 32; FCNTL_ROLLBACK_ATOMIC_WRITE = 33;
    FCNTL_CKPT_DONE = 37; FCNTL_CKPT_START = 39;

    IOCAP_POWERSAFE_OVERWRITE = 0x1000; IOCAP_BATCH_ATOMIC = 0x4000;

    ACCESS_EXISTS = 0; ACCESS_READWRITE = 1;

    SHM_LOCK = 2; SHM_SHARED = 4; SHM_EXCLUSIVE = 8; SHM_NLOCK = 8;
}

/// sqlite3_file: the methods, and what a VFS keeps behind them.
#[repr(C)]
pub struct File {
    pub methods: *const Methods,
}

/// sqlite3_io_methods, version 2.
#[repr(C)]
pub struct Methods {
    pub version: c_int,
    pub close: unsafe extern "C" fn(*mut File) -> c_int,
    pub read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int,
    pub write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int,
    pub truncate: unsafe extern "C" fn(*mut File, i64) -> c_int,
    pub sync: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub file_size: unsafe extern "C" fn(*mut File, *mut i64) -> c_int,
    pub lock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub unlock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub check_reserved_lock: unsafe extern "C" fn(*mut File, *mut c_int) -> c_int,
    pub file_control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int,
    pub sector_size: unsafe extern "C" fn(*mut File) -> c_int,
    pub device_characteristics: unsafe extern "C" fn(*mut File) -> c_int,
    pub shm_map: unsafe extern "C" fn(*mut File, c_int, c_int, c_int, *mut *mut c_void) -> c_int,
    pub shm_lock: unsafe extern "C" fn(*mut File, c_int, c_int, c_int) -> c_int,
    pub shm_barrier: unsafe extern "C" fn(*mut File),
    pub shm_unmap: unsafe extern "C" fn(*mut File, c_int) -> c_int,
}

/// Any function: what is called by nobody here.
pub type Any = Option<unsafe extern "C" fn()>;

/// sqlite3_vfs, version 3.
#[repr(C)]
pub struct Vfs {
    pub version: c_int,
    pub file_bytes: c_int,
    pub longest_path: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub app: *mut c_void,
    pub open: unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    pub delete: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int,
    pub access: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int,
    pub full_pathname: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int,
    /// Those of loading, of randomness, time and sleep: the system's own, which take a VFS and do not look at it.
    pub of_the_system: [Any; 9],
    pub system_calls: [Any; 3],
}

type VfsFind = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type VfsRegister = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;
type FilenameOf = unsafe extern "C" fn(*const c_char) -> *const c_char;
type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
type LibversionNumber = unsafe extern "C" fn() -> c_int;

/// The functions of SQLite that the VFS calls. A program that links SQLite gives its own; an extension is given them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Functions {
    pub vfs_find: VfsFind,
    pub vfs_register: VfsRegister,
    pub uri_parameter: UriParameter,
    pub filename_journal: FilenameOf,
    pub filename_wal: FilenameOf,
    pub malloc: Malloc,
    pub log: Log,
    pub libversion_number: LibversionNumber,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// The oldest SQLite that has all of them: 3.32.
const OLDEST: c_int = 3_032_000;

impl Functions {
    /// Those that an extension is given: sqlite3_api_routines, by their places in it.
    ///
    /// # Safety
    /// `routines` is what SQLite has called an extension's entry point with.
    pub unsafe fn of_routines(routines: *const c_void) -> Option<Functions> {
        if routines.is_null() {
            return None;
        }
        let table = routines.cast::<*const c_void>();
        // SAFETY: the table has had libversion_number at that place since 3.3, and the others since the version that
        // is looked for before they are read. Each entry is a pointer to a function of the type that it is given here.
        unsafe {
            let libversion_number = std::mem::transmute::<*const c_void, LibversionNumber>(*table.add(67));
            if libversion_number() < OLDEST {
                return None;
            }
            Functions::found(|name| {
                let at = match name.to_bytes() {
                    b"sqlite3_libversion_number" => 67,
                    b"sqlite3_malloc" => 68,
                    b"sqlite3_vfs_find" => 141,
                    b"sqlite3_vfs_register" => 142,
                    b"sqlite3_log" => 167,
                    b"sqlite3_uri_parameter" => 189,
                    b"sqlite3_filename_journal" => 247,
                    b"sqlite3_filename_wal" => 248,
                    _ => return None,
                };
                Some(*table.add(at))
            })
        }
    }

    /// Those that are found by their names; none if one of them is not.
    ///
    /// # Safety
    /// What is found is SQLite's function of that name.
    pub unsafe fn found(find: impl Fn(&CStr) -> Option<*const c_void>) -> Option<Functions> {
        // SAFETY: as the caller says: these are their types.
        unsafe {
            Some(Functions {
                vfs_find: std::mem::transmute::<*const c_void, VfsFind>(find(c"sqlite3_vfs_find")?),
                vfs_register: std::mem::transmute::<*const c_void, VfsRegister>(find(
                    c"sqlite3_vfs_register",
                )?),
                uri_parameter: std::mem::transmute::<*const c_void, UriParameter>(find(
                    c"sqlite3_uri_parameter",
                )?),
                filename_journal: std::mem::transmute::<*const c_void, FilenameOf>(find(
                    c"sqlite3_filename_journal",
                )?),
                filename_wal: std::mem::transmute::<*const c_void, FilenameOf>(find(
                    c"sqlite3_filename_wal",
                )?),
                malloc: std::mem::transmute::<*const c_void, Malloc>(find(c"sqlite3_malloc")?),
                log: std::mem::transmute::<*const c_void, Log>(find(c"sqlite3_log")?),
                libversion_number: std::mem::transmute::<*const c_void, LibversionNumber>(find(
                    c"sqlite3_libversion_number",
                )?),
            })
        }
    }

    /// Makes these the ones that are called: the first that come stay.
    pub fn keep(self) -> Functions {
        *FUNCTIONS.get_or_init(|| self)
    }
}

/// Those that are called, once the VFS is registered.
pub fn functions() -> Option<&'static Functions> {
    FUNCTIONS.get()
}

/// Tells the program's log (sqlite3_config(SQLITE_CONFIG_LOG), `.log` of the shell) in one line.
pub fn log(code: Code, words: &str) {
    let (Some(functions), Ok(words)) = (functions(), CString::new(format!("narufs: {words}"))) else {
        return;
    };
    // SAFETY: a format of one string, and a string.
    unsafe { (functions.log)(code, c"%s".as_ptr(), words.as_ptr()) }
}

/// A copy of words in memory of SQLite's, which is the receiver's to free.
pub fn given(words: &CStr) -> *mut c_char {
    let Some(functions) = functions() else { return std::ptr::null_mut() };
    let bytes = words.to_bytes_with_nul();
    let Ok(len) = c_int::try_from(bytes.len()) else { return std::ptr::null_mut() };
    // SAFETY: what malloc gives has room for as many bytes as it was asked for, if it gives anything.
    unsafe {
        let room = (functions.malloc)(len).cast::<c_char>();
        if !room.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast::<c_char>(), room, bytes.len());
        }
        room
    }
}

/// The words behind a pointer that SQLite has given; none for a null or for what is no UTF-8.
///
/// # Safety
/// It is null or a string of C that lives as long as the answer is used.
pub unsafe fn words<'a>(at: *const c_char) -> Option<&'a str> {
    // SAFETY: as the caller says.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }).and_then(|words| words.to_str().ok())
}

/// A parameter of the URI by which a database was opened.
///
/// # Safety
/// `name` is a name as SQLite gives it to xOpen or, for a database, to xFullPathname.
pub unsafe fn parameter<'a>(name: *const c_char, key: &CStr) -> Option<&'a str> {
    let functions = functions()?;
    // SAFETY: as the caller says; what it gives lives as long as the name.
    unsafe { words((functions.uri_parameter)(name, key.as_ptr())) }
}
