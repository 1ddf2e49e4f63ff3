//! The entries of a directory, one after the other.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::put;
use crate::dir::at;
use crate::fail::{Failure, Outcome, done, guarded, handle};
use crate::handles::{self, Object, with_ours};
use crate::table::Table;
use crate::types::{self, narufs_dir, narufs_entries, narufs_entry, narufs_stat};
use narufs::{DirEntry, DirPosition, FileType, ReadDir};
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

/// What a narufs_entries stands for: one thread at a time goes on in it.
struct Listing(Mutex<(ReadDir, Option<DirEntry>)>);

impl Object for Listing {
    type Opaque = narufs_entries;
    fn table() -> &'static Table<Listing> {
        static TABLE: Table<Listing> = Table::new(3);
        &TABLE
    }
}

fn list<R>(
    entries: *mut narufs_entries,
    call: impl FnOnce(&mut ReadDir, &mut Option<DirEntry>) -> Outcome<R>,
) -> Outcome<R> {
    with_ours(entries, |listing: &Listing| {
        // A panic in between has left it between two entries.
        let (entries, last) = &mut *listing.0.lock().unwrap_or_else(PoisonError::into_inner);
        call(entries, last)
    })
}

fn kind(of: FileType) -> u8 {
    let kinds = [
        (of.is_file(), libc::DT_REG),
        (of.is_dir(), libc::DT_DIR),
        (of.is_symlink(), libc::DT_LNK),
        (of.is_fifo(), libc::DT_FIFO),
        (of.is_socket(), libc::DT_SOCK),
        (of.is_block_device(), libc::DT_BLK),
        (of.is_char_device(), libc::DT_CHR),
    ];
    kinds.iter().find(|(is, _)| *is).map_or(libc::DT_UNKNOWN, |(_, kind)| *kind)
}

/// Begins to list a directory, without "." and "..".
#[unsafe(no_mangle)]
pub extern "C" fn narufs_read_dir(dir: *mut narufs_dir, path: *const c_char) -> *mut narufs_entries {
    handle(|| at(dir, path, |dir, path| handles::open(Listing(Mutex::new((dir.read_dir(path)?, None))))))
}

/// The next entry: 1, 0 at the end, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_entries_next(entries: *mut narufs_entries, entry: *mut narufs_entry) -> c_int {
    guarded(-1, || {
        list(entries, |entries, last| {
            let Some(next) = entries.next() else { return Ok(0) };
            let next = next?;
            let name = next.file_name().as_bytes();
            let mut told = narufs_entry {
                ino: next.ino(),
                position: next.position().to_u64(),
                kind: kind(next.file_type()).into(),
                name_len: 0,
                name: [0; 256],
            };
            // A name has 255 bytes at the most.
            for (place, byte) in told.name[..255].iter_mut().zip(name) {
                *place = byte.cast_signed();
                told.name_len += 1;
            }
            put(entry, told)?;
            *last = Some(next);
            Ok(1)
        })
    })
}

/// Attributes of what has the name by now that the last entry has told; of a symlink its own. ENOENT if it is gone.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_entries_stat(entries: *mut narufs_entries, stat: *mut narufs_stat) -> c_int {
    done(|| {
        let metadata = list(entries, |_, last| {
            let last = last.as_ref().ok_or_else(|| Failure::invalid("no entry was asked for yet"))?;
            Ok(last.metadata()?)
        })?;
        put(stat, types::stat(&metadata))
    })
}

/// Goes on behind a position that an entry has told, also long ago; 0 is the beginning.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_entries_seek(entries: *mut narufs_entries, position: u64) -> c_int {
    done(|| {
        list(entries, |entries, _| {
            entries.seek(DirPosition::from_u64(position));
            Ok(())
        })
    })
}

/// Where it is: behind the entry that was told last.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_entries_tell(entries: *mut narufs_entries, position: *mut u64) -> c_int {
    done(|| put(position, list(entries, |entries, _| Ok(ReadDir::position(entries).to_u64()))?))
}

/// Ends the listing.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_entries_close(entries: *mut narufs_entries) -> c_int {
    done(|| handles::end::<Listing>(entries))
}
