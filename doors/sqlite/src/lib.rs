//! SQLite on narufs, in the process of the program: a VFS named `narufs`.
//!
//! A loadable extension (`libnarufs_sqlite.so`), a static library and this crate: [`register`] takes the functions of
//! whatever SQLite the program has, 3.32 or later. `docs/doors/SQLITE.md` is for users; this is how it works.
//!
//! # The protocol
//! SQLite's rollback journal makes a transaction whole by writing what it overwrites to a file first: a file made, a
//! flush, the database's pages, a flush, the file removed. Here a transaction is an atomic batch of the file system
//! ([`narufs::Batch`]): one record, one flush. SQLite needs not know. What it does, and what that is here:
//!
//! | call of SQLite | here |
//! | --- | --- |
//! | xLock to RESERVED and beyond | from now on writes to the database are staged, in the memory of this connection |
//! | xOpen, xWrite, xSync of `-journal` | into memory; nothing is durable, nor need be |
//! | xWrite of the database (at a spill of the cache, at the commit) | staged: a layer above the file, through which this connection reads, and which has a size of its own |
//! | FCNTL_SYNC with no super-journal, xSync | **the commit**: the layer becomes one batch, durable when the call returns |
//! | xDelete, xTruncate to 0, or zeros at the head of `-journal` | forgets the journal in memory |
//! | FCNTL_COMMIT_PHASETWO | the commit of what was not synced (`synchronous=OFF`): ordered, not durable, and forgotten if it fails; in WAL mode what the log has outlives the process from now on |
//! | xTruncate of the database | directly, if nothing is staged and nothing could be undone; else the layer's size, and the file is cut right after the batch |
//! | xUnlock below RESERVED | nothing stays staged: what FCNTL_SYNC has called whole is committed, the rest forgotten; see *failures* |
//! | xWrite without RESERVED, or from CKPT_START to CKPT_DONE (a checkpoint of a log) | directly: others are to see it |
//! | CKPT_START, CKPT_DONE | the log, and then the database, are made durable, whatever `synchronous` says |
//!
//! *A crash* at any point before the batch leaves the old database and no journal; after it the new one and no journal.
//! Between batch and cut it leaves a file that is longer than its header says, which is how SQLite itself leaves it
//! between the removal of the journal and the cut, and which the next transaction mends.
//!
//! *A rollback* while pages are staged is SQLite's: it plays the journal back from memory, over the layer, and commits
//! that. Where the commit itself has failed, pages of the layer that the file has already are dropped first, so that a
//! rollback needs no room.
//!
//! *More than a batch takes* (E2BIG, or 256 MiB staged): the journal in memory, which has all that it must, for SQLite
//! syncs it before it writes a page, is written to `-journal` and made durable; after that the staged pages go home as
//! ordinary writes. Until the end of this transaction pages are staged further, and go home whenever memory is full and at
//! the commit; what the journal has got by then is made durable first, which with `synchronous=OFF` nobody else does. A
//! crash then leaves a hot journal, which the next connection (of this VFS, or of a stock SQLite through a mount) plays
//! back. Ends of such a journal (removal, truncation, zeros) are the commit: before them the database is made durable, and
//! they are at once. A journal that has no room is removed, and the rollback goes on in memory, however large. In
//! `journal_mode=MEMORY` and `OFF` there is no journal that could be written, and such a transaction is as unsafe as
//! SQLite says; smaller ones are whole there too.
//!
//! *Super-journals* (several databases that are ATTACHed): SQLite makes a file that lists the journals, names it in
//! each, and its removal commits all. Here it is in memory; FCNTL_SYNC tells its name, so the xSync that follows leaves
//! the layer staged, and xDelete of the super-journal commits all layers as one batch, with one flush. If that is too
//! much, or if one of the databases has a real journal, the super-journal is made a real file before any real journal
//! is, or can name it (a journal whose super-journal is not there counts as finalized). Names in them begin with the
//! image's path; a real journal keeps that in an attribute, so that they are found in its own image where that was moved
//! or copied since. With NARUFS_SQLITE_AT they are plain, and a second attribute has what that meant: where it means
//! another image by now, one that is not there is a failure as well. What another image would have that is not found is
//! a failure, and not taken for gone. xDelete without a sync of the directory is SQLite's clean-up of one that has
//! failed, and commits nothing. Databases in different images get a batch each, one after the other: a crash may fall
//! between, which is what SQLite promises of super-journals across file systems that do not know of each other.
//!
//! *A database elsewhere* (another VFS) has a journal that would name what is in memory here, or where its own VFS does not
//! look: after a crash in its pages it would count as finalized, and that database be torn. So xSync of a super-journal
//! that lists one is an error, before any journal names it, and SQLite rolls all back; unless nothing was written to that
//! journal yet: then nothing will be (`supers.rs`). Where the main database is elsewhere
//! the super-journal is as well, and who opens that database first takes it away, whatever journals here would name it.
//! So they do not (`journal.rs`): databases here are committed by themselves then, and each is whole. SQLite looks at no answer
//! once that super-journal is gone: what may fail for want of room or of a device does so before, at FCNTL_SYNC; a real
//! journal that cannot be removed then is ended by zeros, and while that fails too its database is refused (`stuck.rs`): it
//! is tried again by all that would lock the database, write a journal of it or commit, at its close, and at the image's.
//!
//! *Failures.* A connection that gives its lock up while its journal is hot (SQLite could not roll back) forgets the
//! layer, which is a rollback; if a batch of this transaction may have reached the journal (EIO at the commit), the
//! journal is written out for the next to play back.
//!
//! *A hot journal that is really there*, of a process without this VFS or of a transaction as above, is an ordinary file,
//! and SQLite plays it back. The connection that does has it as if it had written it: pages go home as above, which needs
//! no room, and are durable before the file is removed.
//!
//! *Builds with SQLITE_ENABLE_BATCH_ATOMIC_WRITE* see SQLITE_IOCAP_BATCH_ATOMIC: BEGIN_ATOMIC_WRITE stages, COMMIT_ commits
//! durably, ROLLBACK_ forgets; where the batch is too large COMMIT_ fails and SQLite goes back to its journal.
//!
//! *Write-ahead logs* are ordinary files; the index is in the heap (`shm.rs`), one process. Others, at a directory where
//! the image is served, are kept away, or keep this one away, by the lock of SQLite's own VFS. With `locking_mode=EXCLUSIVE` there is no index to share.
//!
//! *Locks* are those bytes that SQLite locks everywhere, in the file system's own table, one owner for each connection.
//! Where the image is served at a directory as well ([`narufs::Fs::serve`]), that table has the locks of its users too:
//! SQLite's own VFS there and this one here exclude each other as two processes on one file system do. A commit is told
//! to the kernel before its call returns, so before its lock goes: who gets a lock there reads what was committed here.
//!
//! *Temporary files* are the system's VFS's: nothing of them is to survive.
//!
//! # What is left to others
//! What a commit survives is said by the image's durability (docs/CONSISTENCY.md, sentence 16). A name that SQLite writes
//! into a journal, that of a super-journal, means something to this VFS alone: a hot journal that names one is to be
//! played back by it, and not through a mount.

mod db;
mod ffi;
mod journal;
mod locks;
mod methods;
#[cfg(feature = "mortal")]
mod mortal;
mod mount;
mod names;
mod open;
mod outside;
mod owners;
mod plain;
mod shm;
mod stage;
mod stuck;
mod supers;
mod vfs;
mod wishes;

pub use ffi::Functions;
pub use mount::{Mounted, keep_open};
pub use vfs::{register, sqlite3_narufssqlite_init};
