//! The engine behind a conversation without a kernel: requests that a kernel sends in a moment, or of a size, that no system
//! call brings about at will.

use narufs_engine::blocking::set_hook;
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::format::ROOT_NID;
use narufs_engine::path::{Files, OpenOptions};
use narufs_engine::vfs::SetAttr;
use narufs_engine::volume::{ScratchOptions, Volume};
use narufs_fuse::binding::as_mounted;
use narufs_fuse::mount::{FuseOptions, Permissions};
use narufs_fuse::session::{Config, Negotiated, Session, negotiate};
use narufs_fuse::transport::{Channel, Reply, Service};
use narufs_fuse::wire::{
    CopyFileRangeIn, CreateIn, InHeader, InitFlags, InitIn, Opcode, OpenIn, ReadIn, RequestParts, SetattrIn,
    WriteFlags, WriteIn,
};
use narufs_fuse::{Caching, EngineOperations};
use parking_lot::Mutex;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Errors and data of the answers.
#[derive(Default)]
struct Heard(Mutex<Vec<(i32, Vec<u8>)>>);

impl Channel for Heard {
    fn send(&self, _: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        self.0.lock().push((-error, parts.concat()));
        Ok(())
    }
}

struct Asked {
    session: Session<EngineOperations>,
    heard: Arc<Heard>,
    library: Files,
    _volume: Volume,
}

fn asked(memory: u64, caching: Caching, permissions: Permissions) -> Asked {
    let volume = Volume::scratch(&ScratchOptions::with_memory(memory)).unwrap();
    let mut options = FuseOptions::new("asked");
    options.permissions = Some(permissions);
    let operations = EngineOperations::new(Arc::clone(volume.fs()), caching, &options, None);
    let offered = InitFlags::all().bits();
    let init = InitIn { major: 7, minor: 45, max_readahead: 0, flags: offered as u32 };
    let Negotiated::Agreed(features, _) = negotiate(&Config::default(), &init, (offered >> 32) as u32) else {
        panic!("the newest kernel is agreed with");
    };
    let library = Files::new(Arc::clone(volume.fs()));
    Asked {
        session: Session::new(Arc::new(operations), features),
        heard: Arc::default(),
        library,
        _volume: volume,
    }
}

impl Asked {
    /// What is answered to a user.
    fn ask(&self, user: u32, opcode: Opcode, nodeid: u64, body: &[&[u8]]) -> (i32, Vec<u8>) {
        let body = body.concat();
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: opcode as u32,
            unique: 2,
            nodeid,
            uid: user,
            gid: user,
            pid: 0,
            total_extlen: 0,
            padding: 0,
        };
        let mut buffer = vec![0; 1 << 16];
        let reply = Reply::new(header.unique, self.heard.clone(), &mut buffer);
        let parts = RequestParts { header: header.as_bytes(), first: None, body: &body };
        self.session.serve(parts, reply);
        self.heard.0.lock().pop().expect("an answer")
    }

    /// A file made by the library, with a node id as the kernel knows it.
    fn made(&self, path: &str, mode: u32, content: &[u8]) -> u64 {
        let file = self.library.create(path).unwrap();
        file.write_at(content, 0).unwrap();
        self.library.set_attributes(path, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
        self.node(path)
    }

    fn node(&self, path: &str) -> u64 {
        let name = [path.trim_start_matches('/').as_bytes(), b"\0"].concat();
        let (error, entry) = self.ask(0, Opcode::Lookup, ROOT_NID, &[&name]);
        assert_eq!(error, 0);
        u64::from_ne_bytes(*entry.first_chunk().unwrap())
    }

    fn content(&self, path: &str) -> Vec<u8> {
        let file = self.library.open(path, OpenOptions { read: true, ..Default::default() }).unwrap();
        let mut bytes = vec![0; 100];
        let read = file.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(read);
        bytes
    }
}

/// The kernel has found that a name is free, and asks for a new file; meanwhile a program makes one through the library. The
/// kernel has checked nothing of that: it is to look anew.
#[test]
fn what_the_library_makes_before_a_create_arrives_is_not_opened_unchecked() {
    let asked = asked(4 << 20, Caching::Shared, Permissions::Kernel);
    asked.made("/x", 0o600, b"private");
    let create = |flags: i32| {
        let create = CreateIn { flags: flags as u32, mode: 0o100644, umask: 0, open_flags: 0 };
        asked.ask(1000, Opcode::Create, ROOT_NID, &[create.as_bytes(), b"x\0"]).0
    };
    assert_eq!(create(libc::O_RDWR | libc::O_CREAT), libc::ESTALE);
    assert_eq!(create(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC), libc::ESTALE);
    assert_eq!(create(libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL), libc::EEXIST);
    assert_eq!(asked.content("/x"), b"private");
}

/// A change is told of inodes that the kernel has, and it has this one only when the answer is there.
#[test]
fn what_comes_with_a_name_is_trusted_for_no_time_where_others_change_it() {
    for (caching, is_trusted) in [(Caching::Shared, false), (Caching::Exclusive, true)] {
        let asked = asked(4 << 20, caching, Permissions::Kernel);
        asked.made("/x", 0o600, b"");
        let (error, entry) = asked.ask(0, Opcode::Lookup, ROOT_NID, &[b"x\0"]);
        assert_eq!(error, 0);
        // Seconds: the name's behind the number and the generation, then the attributes'.
        let seconds = |at: usize| u64::from_ne_bytes(*entry[at..].first_chunk().unwrap());
        assert_eq!((seconds(16) > 0, seconds(24) > 0), (true, is_trusted));
        // Nor what has been set: the answer begins with the attributes' time.
        let set = SetattrIn { valid: 1, mode: 0o100640, ..FromZeros::new_zeroed() };
        let (error, attributes) = asked.ask(0, Opcode::Setattr, asked.node("/x"), &[set.as_bytes()]);
        assert_eq!((error, u64::from_ne_bytes(*attributes.first_chunk().unwrap()) > 0), (0, is_trusted));
    }
}

/// The kernel takes pages of its cache for written unless it is told of an error.
#[test]
fn pages_written_back_in_part_are_told_as_an_error() {
    const LAST: u64 = (16 << 40) - BLOCK_SIZE as u64;
    let asked = asked(2 << 20, Caching::Exclusive, Permissions::Kernel);
    let node = asked.made("/f", 0o600, b"");
    let write = |offset: u64, len: usize| {
        let (fh, size, lock_owner, flags, padding) = (0, len as u32, 0, libc::O_RDWR as u32, 0);
        let write_flags = WriteFlags::CACHE.bits();
        let write = WriteIn { fh, offset, size, write_flags, lock_owner, flags, padding };
        asked.ask(0, Opcode::Write, node, &[write.as_bytes(), &vec![1; len]]).0
    };
    assert_eq!(write(LAST - BLOCK_SIZE as u64, 2 * BLOCK_SIZE), 0);
    assert_eq!(write(LAST, 2 * BLOCK_SIZE), libc::EFBIG);
    let piece = 1 << 20;
    assert_eq!((0..4).map(|n| write(n * piece as u64, piece)).find(|error| *error != 0), Some(libc::ENOSPC));
    // What has room has its bytes, and the next is told again.
    assert_eq!(write(4 * piece as u64, piece), libc::ENOSPC);
}

/// What the kernel has sent of a direct write counts as a whole: of a part it makes EIO.
#[test]
fn a_direct_write_without_room_for_all_of_it_is_told_so_and_writes_nothing() {
    let asked = asked(16 << 20, Caching::Exclusive, Permissions::Kernel);
    let node = asked.made("/f", 0o600, b"");
    let piece = (1 << 20) - 5 * BLOCK_SIZE;
    let write = |offset: u64, open_flags: i32| {
        let (fh, size, lock_owner, flags, padding) = (0, piece as u32, 0, open_flags as u32, 0);
        let write_flags = WriteFlags::LOCKOWNER.bits();
        let write = WriteIn { fh, offset, size, write_flags, lock_owner, flags, padding };
        let (error, answer) = asked.ask(0, Opcode::Write, node, &[write.as_bytes(), &vec![1; piece]]);
        (error, answer.first_chunk().map_or(0, |size| u32::from_ne_bytes(*size) as usize))
    };
    let mut whole = 0;
    let last = loop {
        match write(whole, libc::O_RDWR | libc::O_DIRECT) {
            (0, len) if len == piece => whole += len as u64,
            other => break other,
        }
    };
    assert_eq!((last.0, asked.library.metadata("/f").unwrap().size), (libc::ENOSPC, whole));
    // Others have what fits.
    let (error, len) = write(whole, libc::O_RDWR);
    assert!(error == 0 && (1..piece).contains(&len), "{error}, {len}");
}

/// A request that copies for long could not be given up, might outlast what the kernel waits for, and would hold up who else is
/// on its core.
#[test]
fn a_long_copy_is_answered_in_pieces_and_lets_others_be_served() {
    let asked = asked(100 << 20, Caching::Exclusive, Permissions::Kernel);
    let (from, to) = (asked.made("/from", 0o600, b"x"), asked.made("/to", 0o600, b""));
    asked
        .library
        .open("/from", OpenOptions { write: true, ..Default::default() })
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let sleeps = Rc::new(Cell::new(0));
    let seen = Rc::clone(&sleeps);
    set_hook(Some(Box::new(move || seen.set(seen.get() + 1))));
    let copy = |len: u64| {
        let (off_in, off_out, fh_in, fh_out, flags) = (0, 0, 0, 0, 0);
        let copy = CopyFileRangeIn { fh_in, off_in, nodeid_out: to, fh_out, off_out, len, flags };
        let (error, answer) = asked.ask(0, Opcode::CopyFileRange64, from, &[copy.as_bytes()]);
        assert_eq!(error, 0);
        u64::from_ne_bytes(*answer.first_chunk().unwrap())
    };
    assert_eq!(copy(3000), 3000);
    // What it needed is there now.
    sleeps.set(0);
    assert_eq!((copy(3000), sleeps.get()), (3000, 0));
    assert_eq!(copy(i64::MAX as u64), 64 << 20);
    assert!(sleeps.get() > 0);
    set_hook(None);
}

/// Who may read a directory and not search it sees names, and nothing more.
#[test]
fn a_directory_that_may_be_read_alone_is_listed() {
    let asked = asked(4 << 20, Caching::Exclusive, Permissions::Server);
    asked.library.create_dir("/d").unwrap();
    drop(asked.library.create("/d/name").unwrap());
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let node = asked.node("/d");
    for (allowed, known) in [(0o444, 0), (0o555, 1)] {
        asked.library.set_attributes("/d", &mode(allowed)).unwrap();
        let (error, opened) =
            asked.ask(1000, Opcode::Opendir, node, &[OpenIn { flags: 0, open_flags: 0 }.as_bytes()]);
        assert_eq!(error, 0);
        let fh = u64::from_ne_bytes(*opened.first_chunk().unwrap());
        let (offset, size, read_flags, lock_owner, flags, padding) = (0, 4096, 0, 0, 0, 0);
        let read = ReadIn { fh, offset, size, read_flags, lock_owner, flags, padding };
        let (error, names) = asked.ask(1000, Opcode::Readdirplus, node, &[read.as_bytes()]);
        assert_eq!(error, 0);
        assert!(names.windows(4).any(|part| part == b"name"));
        assert_eq!(narufs_fuse::wire::dirent::looked_up(&names).count(), known);
        let looked_up = asked.ask(1000, Opcode::Lookup, node, &[b"name\0"]).0;
        assert_eq!(looked_up, if known == 0 { libc::EACCES } else { 0 });
    }
}

/// The kernel opens devices without asking the server, and checks nobody by itself there.
#[test]
fn devices_are_not_opened_where_the_server_checks_permissions() {
    let mut options = FuseOptions::new("devices");
    options.dev = true;
    for (permissions, may_be) in [(Permissions::Kernel, true), (Permissions::Server, false)] {
        options.permissions = Some(permissions);
        assert_eq!(as_mounted(&options, Caching::Exclusive).unwrap().dev, may_be);
    }
}
