use super::*;
use crate::binding::{Caching, EngineOperations};
use crate::session::{Negotiated, negotiate};
use crate::supervision::{Agreed, Death, Inherited, Keeper};
use crate::wire::{InitFlags, InitIn, MAJOR, MINOR};
use narufs_engine::takeover::Takeover;
use narufs_engine::volume::{ScratchOptions, Volume};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::os::fd::BorrowedFd;

struct Nobody;

impl Keeper for Nobody {
    fn keep(&self, _: &str, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// What is written to the file that cuts a mount off, by a successor that cannot read a request.
fn written_by_one_that_fails(is_kept: bool) -> Result<usize, Errno> {
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
    let config = ServerConfig { supervision: Some(supervision), ..ServerConfig::default() };
    let device = File::options().write(true).open("/dev/null").expect("it is there");
    let (heard, abort) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
    let left = Inherited { device: device.into(), clones: Vec::new(), abort: Some(abort) };
    let place = tempfile::tempdir().expect("a temporary directory");
    let outcome = Server::take_over(Arc::new(operations), place.path(), &options, &config, left);
    assert!(outcome.is_err());
    rustix::io::read(&heard, &mut [0; 8])
}

#[test]
fn a_successor_that_cannot_start_leaves_the_mount_to_the_next() {
    assert_eq!(written_by_one_that_fails(true), Err(Errno::AGAIN));
    assert!(written_by_one_that_fails(false).is_ok(), "nobody comes after it");
}
