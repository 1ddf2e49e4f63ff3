//! Requests that the kernel sends once more, without a kernel.

use crate::memfs::MemFs;
use narufs_engine::takeover::{Requests, Takeover};
use narufs_fuse::session::{Config, Negotiated, Session, negotiate};
use narufs_fuse::supervision::{Death, Keeper, Supervision};
use narufs_fuse::transport::{Channel, Reply, Service};
use narufs_fuse::wire::{
    InHeader, InitFlags, InitIn, MkdirIn, Opcode, OpenFlags, ROOT_ID, RequestParts, UNIQUE_RESEND,
};
use parking_lot::Mutex;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

const UNIQUE: u64 = 10;

#[derive(Default)]
struct Kernel {
    heard: Mutex<Vec<(u64, i32)>>,
}

impl Channel for Kernel {
    fn send(&self, unique: u64, error: i32, _: &[&[u8]]) -> io::Result<()> {
        self.heard.lock().push((unique, error));
        Ok(())
    }
}

struct Nobody;

impl Keeper for Nobody {
    fn keep(&self, _: &str, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

fn next(memory: &Takeover) -> Arc<Takeover> {
    let file = memory.descriptor().try_clone_to_owned().expect("a descriptor");
    Takeover::adopt(file).expect("it is there")
}

/// The kernel sends a MKDIR once more to a server that has this memory; what it hears.
fn asked_again(memory: &Arc<Takeover>, death: Death) -> Vec<(u64, i32)> {
    let offered = InitFlags::all().bits();
    let args = InitIn { major: 7, minor: 45, max_readahead: 0, flags: offered as u32 };
    let Negotiated::Agreed(features, _) = negotiate(&Config::default(), &args, (offered >> 32) as u32) else {
        panic!("the newest kernel is agreed with");
    };
    let supervision = Supervision::new(Arc::clone(memory), Box::new(Nobody), 1, Some(death));
    let fs = Arc::new(MemFs::new(OpenFlags::empty()));
    let session = Session::new(fs, features).supervised(Some(supervision));
    let kernel = Arc::new(Kernel::default());
    let body = [MkdirIn { mode: 0o755, umask: 0 }.as_bytes(), b"dir\0"].concat();
    let unique = UNIQUE | UNIQUE_RESEND;
    let header = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode: Opcode::Mkdir as u32,
        unique,
        nodeid: ROOT_ID,
        uid: 0,
        gid: 0,
        pid: 0,
        total_extlen: 0,
        padding: 0,
    };
    let bytes = [header.as_bytes(), &body].concat();
    let mut buffer = vec![0; 1 << 12];
    let reply = Reply::new(unique, kernel.clone(), &mut buffer);
    session.serve(RequestParts::whole(&bytes).expect("a whole request"), reply);
    let heard = kernel.heard.lock();
    heard.clone()
}

/// Memory of a server that has died with the request in service, so often before, each time of itself or not.
fn left_by(deaths: &[Death]) -> Arc<Takeover> {
    let mut memory = Takeover::create(1).expect("memory");
    std::mem::forget(Requests::take(&memory, UNIQUE, Opcode::Mkdir as u32, ROOT_ID).expect("a free slot"));
    for death in deaths {
        memory = next(&memory);
        let (_, taken) = Requests::resume(&memory, UNIQUE).expect("it was left");
        taken.add_attempts(if *death == Death::OfItself { 3 } else { 0 });
        std::mem::forget(taken);
    }
    next(&memory)
}

#[test]
fn what_was_not_done_is_done_and_answered_under_the_number_that_it_came_with() {
    let memory = left_by(&[]);
    assert_eq!(asked_again(&memory, Death::Killed), [(UNIQUE | UNIQUE_RESEND, 0)]);
    assert_eq!(next(&memory).requests().all_left(), [], "it is answered");
}

#[test]
fn a_request_that_two_servers_have_died_of_is_refused() {
    let eio = [(UNIQUE | UNIQUE_RESEND, -libc::EIO)];
    let done = [(UNIQUE | UNIQUE_RESEND, 0)];
    assert_eq!(asked_again(&left_by(&[]), Death::OfItself), done);
    assert_eq!(asked_again(&left_by(&[Death::OfItself]), Death::OfItself), eio);
    // Those that were killed have not died of it, unless that goes on.
    assert_eq!(asked_again(&left_by(&[Death::OfItself]), Death::Killed), done);
    assert_eq!(asked_again(&left_by(&[Death::Killed; 6]), Death::Killed), done);
    assert_eq!(asked_again(&left_by(&[Death::Killed; 7]), Death::Killed), eio);
}

#[test]
fn a_server_that_has_not_taken_it_up_has_not_died_of_it() {
    let done = [(UNIQUE | UNIQUE_RESEND, 0)];
    let memory = next(&left_by(&[Death::OfItself]));
    assert_eq!(asked_again(&memory, Death::OfItself), done);
    let memory = (0..20).fold(left_by(&[Death::Killed; 6]), |memory, _| next(&memory));
    assert_eq!(asked_again(&memory, Death::Killed), done);
}
