use super::*;
use crate::binding::{Caching, EngineOperations};
use crate::mount::{Made, Setting};
use crate::session::{Negotiated, negotiate};
use crate::supervision::{Agreed, Death, Inherited, Keeper};
use crate::wire::{InitFlags, InitIn, MAJOR, MINOR};
use narufs_engine::takeover::Takeover;
use narufs_engine::volume::{ScratchOptions, Volume};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

struct Nobody;

impl Keeper for Nobody {
    fn keep(&self, _: &str, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// A successor that goes on with this, with what was agreed on with the newest kernel.
fn taken_over(
    device: OwnedFd,
    abort: Option<OwnedFd>,
    is_kept: bool,
    config: ServerConfig,
) -> io::Result<Server<EngineOperations>> {
    let volume = Volume::scratch(&ScratchOptions::with_memory(2 << 20)).expect("memory");
    let options = FuseOptions::new("left");
    let offered = InitFlags::all().bits();
    let init = InitIn { major: MAJOR, minor: MINOR, max_readahead: 0, flags: offered as u32 };
    let Negotiated::Agreed(features, _) = negotiate(&Config::default(), &init, (offered >> 32) as u32) else {
        panic!("the newest kernel is agreed with");
    };
    let memory = Takeover::create(1).expect("memory");
    memory.set_session(Agreed { features, device: (0, u32::MAX) }.to_bytes());
    let supervision = Supervision::new(memory, Box::new(Nobody), 1, Some(Death::OfItself));
    if !is_kept {
        supervision.is_left_alone();
    }
    let fs = Arc::clone(volume.fs());
    let operations = EngineOperations::new(fs, Caching::Exclusive, &options, Some(&supervision));
    let config = ServerConfig { supervision: Some(supervision), ..config };
    let left = Inherited { device, clones: Vec::new(), abort };
    let place = tempfile::tempdir().expect("a temporary directory");
    Server::take_over(Arc::new(operations), place.path(), &options, &config, left)
}

/// What is written to the file that cuts a mount off, by a successor that cannot read a request.
fn written_by_one_that_fails(is_kept: bool) -> Result<usize, Errno> {
    let device = File::options().write(true).open("/dev/null").expect("it is there");
    let (heard, abort) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
    let outcome = taken_over(device.into(), Some(abort), is_kept, ServerConfig::default());
    assert!(outcome.is_err());
    rustix::io::read(&heard, &mut [0; 8])
}

#[test]
fn a_successor_that_cannot_start_leaves_the_mount_to_the_next() {
    assert_eq!(written_by_one_that_fails(true), Err(Errno::AGAIN));
    assert!(written_by_one_that_fails(false).is_ok(), "nobody comes after it");
}

/// Tells of who is to be unmounted.
#[derive(Debug)]
struct Told(AtomicBool);

impl Broker for Told {
    fn mount(&self, _: bool) -> io::Result<Made> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn unmount(&self, _: (u32, u32), _: IfBusy) -> io::Result<bool> {
        self.0.store(true, Relaxed);
        Ok(true)
    }

    fn set(&self, _: (u32, u32), _: Setting, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_successor_that_can_use_nothing_that_is_left_unmounts_nothing() {
    let broker = Arc::new(Told(AtomicBool::new(false)));
    let device = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let config = ServerConfig { broker: Some(broker.clone()), ..ServerConfig::default() };
    let outcome = taken_over(device.expect("it is there"), None, true, config);
    assert_eq!(outcome.err().and_then(|e| e.raw_os_error()), Some(libc::EBADF));
    assert!(!broker.0.load(Relaxed));
}
