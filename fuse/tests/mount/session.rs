//! The session without a kernel: what the kernel was told in a reply that it did not take is given back.

use crate::memfs::MemFs;
use narufs_fuse::Operations;
use narufs_fuse::session::{Config, Negotiated, Session, negotiate};
use narufs_fuse::transport::{Channel, Reply, Service};
use narufs_fuse::wire::{
    CreateIn, InHeader, InitFlags, InitIn, Opcode, OpenFlags, OpenIn, ROOT_ID, ReadIn, RequestParts,
};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A kernel that takes no reply with data while `deaf`.
#[derive(Default)]
struct Kernel {
    deaf: Mutex<bool>,
    heard: Mutex<Vec<(u64, i32, usize)>>,
}

impl Channel for Kernel {
    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        if *self.deaf.lock() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.heard.lock().push((unique, error, parts.iter().map(|part| part.len()).sum()));
        Ok(())
    }
}

struct Rig {
    fs: Arc<MemFs>,
    session: Session<MemFs>,
    kernel: Arc<Kernel>,
}

fn rig() -> Rig {
    let fs = Arc::new(MemFs::new(OpenFlags::empty()));
    let offered = InitFlags::all().bits();
    let args = InitIn { major: 7, minor: 45, max_readahead: 0, flags: offered as u32 };
    let Negotiated::Agreed(features, _) = negotiate(&Config::default(), &args, (offered >> 32) as u32) else {
        panic!("the newest kernel is agreed with");
    };
    Rig { session: Session::new(Arc::clone(&fs), features), fs, kernel: Arc::default() }
}

impl Rig {
    fn ask(&self, opcode: Opcode, nodeid: u64, body: &[u8]) {
        let len = (size_of::<InHeader>() + body.len()) as u32;
        let (unique, uid, gid, pid, total_extlen, padding) = (2, 0, 0, 0, 0, 0);
        let header =
            InHeader { len, opcode: opcode as u32, unique, nodeid, uid, gid, pid, total_extlen, padding };
        let bytes = [header.as_bytes(), body].concat();
        let mut buffer = vec![0; 1 << 16];
        let reply = Reply::new(unique, self.kernel.clone(), &mut buffer);
        self.session.serve(RequestParts::whole(&bytes).expect("a whole request"), reply);
    }

    fn list(&self) {
        self.list_from(0);
    }

    fn list_from(&self, offset: u64) {
        let (fh, size, read_flags, lock_owner, flags, padding) = (1, 4096, 0, 0, 0, 0);
        let args = ReadIn { fh, offset, size, read_flags, lock_owner, flags, padding };
        self.ask(Opcode::Readdirplus, ROOT_ID, args.as_bytes());
    }
}

const CREATE: CreateIn = CreateIn { flags: libc::O_RDWR as u32, mode: 0o100644, umask: 0, open_flags: 0 };

#[test]
fn counts_and_open_files_of_replies_not_taken_are_given_back() {
    let rig = rig();
    let create = [CREATE.as_bytes(), b"file\0"].concat();
    *rig.kernel.deaf.lock() = true;
    rig.ask(Opcode::Create, ROOT_ID, &create);
    rig.ask(Opcode::Lookup, ROOT_ID, b"file\0");
    rig.ask(Opcode::Open, 2, OpenIn { flags: 0, open_flags: 0 }.as_bytes());
    rig.ask(Opcode::Opendir, ROOT_ID, OpenIn { flags: 0, open_flags: 0 }.as_bytes());
    rig.list();
    assert_eq!((rig.fs.references(2), rig.fs.references(ROOT_ID)), (0, 0));
    *rig.kernel.deaf.lock() = false;
    rig.ask(Opcode::Lookup, ROOT_ID, b"file\0");
    rig.list();
    assert_eq!(rig.fs.references(2), 2);
}

/// What was read before a listing failed the kernel is told, with what it is to forget one day; then that it failed.
#[test]
fn a_listing_that_fails_on_its_way_gives_what_it_has_and_keeps_no_count_of_the_rest() {
    let rig = rig();
    for name in [&b"file\0"[..], b"damaged\0", b"behind\0"] {
        rig.ask(Opcode::Create, ROOT_ID, &[CREATE.as_bytes(), name].concat());
    }
    let heard = || rig.kernel.heard.lock().pop().expect("an answer");
    heard();
    let before = rig.fs.references(2);
    rig.list();
    let (_, error, len) = heard();
    assert_eq!(error, 0);
    assert!(len > 0);
    assert_eq!(rig.fs.references(2), before + 1, "the kernel knows of it");
    // The cookie of the file.
    rig.list_from(4);
    assert_eq!(heard().1, -libc::EIO);
}

#[test]
fn requests_that_have_no_reply_get_none_and_all_others_one() {
    let rig = rig();
    rig.fs.forget(ROOT_ID, 0);
    let silent = [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt, Opcode::NotifyReply];
    for opcode in silent {
        rig.ask(opcode, ROOT_ID, &[0; 8]);
        assert!(rig.kernel.heard.lock().is_empty(), "{opcode:?}");
    }
    for &opcode in Opcode::ALL.iter().filter(|opcode| !silent.contains(opcode)) {
        // As a whole request or as one that ends early.
        for body in [&[0; 128][..], &[]] {
            rig.ask(opcode, 99, body);
            assert_eq!(rig.kernel.heard.lock().drain(..).count(), 1, "{opcode:?}");
        }
    }
}
