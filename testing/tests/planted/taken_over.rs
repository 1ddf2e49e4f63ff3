//! Bugs of a successor: what it makes of the memory that a killed server has left.

use narufs_engine::Error;
use narufs_engine::format::ROOT_NID;
use narufs_engine::sim::SimMedia;
use narufs_engine::takeover::{Requests, Takeover};
use narufs_engine::vfs::{Context, OpenFlags, WriteFlags};
use narufs_testing::lab::{Lab, Live, Ring};
use std::mem::forget;
use std::sync::Arc;

fn told(e: Error) -> String {
    e.to_string()
}

/// A server, and its media; killed by being forgotten, for who is killed gives nothing back.
fn first() -> Result<(Lab, SimMedia, Arc<Takeover>, Live), String> {
    let lab = Lab::roomy(Ring::Ssd);
    let sim = lab.format();
    let memory = Takeover::create(64).map_err(told)?;
    let live = lab.mount_with(&sim, Some(Arc::clone(&memory))).map_err(told)?;
    Ok((lab, sim, memory, live))
}

fn next(lab: &Lab, sim: &SimMedia, memory: &Takeover) -> Result<(Arc<Takeover>, Live), String> {
    let file = memory.descriptor().try_clone_to_owned().map_err(|e| e.to_string())?;
    let memory = Takeover::adopt(file).map_err(told)?;
    let live = lab.mount_with(sim, Some(Arc::clone(&memory))).map_err(told)?;
    Ok((memory, live))
}

/// All of a file, as the next server has it.
fn read_by_next(lab: &Lab, sim: &SimMedia, memory: &Takeover, nid: u64) -> Result<Vec<u8>, String> {
    let (_memory, live) = next(lab, sim, memory)?;
    let size = live.fs().getattr(nid).map_err(told)?.size;
    let file = live.fs().borrow(nid, OpenFlags::empty(), None).map_err(told)?;
    // One more than there is: nothing is behind the end.
    let mut bytes = vec![0; size as usize + 1];
    let len = live.fs().read(&file, 0, &mut bytes).map_err(told)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// What was written, and not synced, is there, as long as it was.
pub fn unsynced_writes_of_a_killed_server() -> Result<(), String> {
    let (lab, sim, memory, live) = first()?;
    let fs = Arc::clone(live.fs());
    let made = fs.create(&Context::root(), ROOT_NID, b"a", 0o644, OpenFlags::READ_WRITE).map_err(told)?;
    fs.write(&Context::root(), &made.1, 0, &[7; 10_000], WriteFlags::empty()).map_err(told)?;
    let nid = made.0.nid;
    forget((made, fs, live));
    let bytes = read_by_next(&lab, &sim, &memory, nid)?;
    if bytes != [7; 10_000] {
        return Err(format!("{} bytes of 10000 are there, or others", bytes.len()));
    }
    Ok(())
}

/// What was written home after a sync, with none since, is there.
pub fn writes_home_of_a_killed_server_after_a_sync() -> Result<(), String> {
    let (lab, sim, memory, live) = first()?;
    let fs = Arc::clone(live.fs());
    let made = fs.create(&Context::root(), ROOT_NID, b"a", 0o644, OpenFlags::READ_WRITE).map_err(told)?;
    fs.write(&Context::root(), &made.1, 0, &[7; 300], WriteFlags::empty()).map_err(told)?;
    fs.fsync(&made.1, false).map_err(told)?;
    fs.write(&Context::root(), &made.1, 100, &[8; 100], WriteFlags::DIRECT).map_err(told)?;
    let nid = made.0.nid;
    forget((made, fs, live));
    let bytes = read_by_next(&lab, &sim, &memory, nid)?;
    if bytes.len() != 300 || bytes[100..200] != [8; 100] {
        return Err(format!("{} bytes of 300 are there, or older ones", bytes.len()));
    }
    Ok(())
}

/// A directory that was made for a caller that has no answer yet was made.
pub fn requests_of_a_killed_server() -> Result<(), String> {
    const UNIQUE: u64 = 2;
    let (lab, sim, memory, live) = first()?;
    let taken = Requests::take(&memory, UNIQUE, 0, ROOT_NID).ok_or("no free slot")?;
    {
        let _entered = taken.enter();
        live.fs().mkdir(&Context::root(), ROOT_NID, b"d", 0o755).map_err(told)?;
    }
    forget((taken, live));
    let (memory, _live) = next(&lab, &sim, &memory)?;
    match memory.requests().all_left().first() {
        Some(left) if left.unique == UNIQUE && left.done => Ok(()),
        left => Err(format!("it would be made once more: {left:?}")),
    }
}

/// A file that has lost its last name, and that the kernel may hold, is there.
pub fn an_inode_that_the_kernel_holds() -> Result<(), String> {
    const REGULAR: u32 = 0o100_000;
    let (lab, sim, memory, live) = first()?;
    let made = live.fs().mknod(&Context::root(), ROOT_NID, b"a", REGULAR | 0o644, 0).map_err(told)?;
    forget(live);
    let (_memory, live) = next(&lab, &sim, &memory)?;
    live.fs().unlink(&Context::root(), ROOT_NID, b"a").map_err(told)?;
    live.fs().getattr(made.nid).map(drop).map_err(|e| format!("it is gone: {e}"))
}

/// A file that has lost its last name, and that the kernel holds by one of two lookups, is there.
pub fn an_inode_that_is_forgotten_in_part() -> Result<(), String> {
    const REGULAR: u32 = 0o100_000;
    let (_, _, _memory, live) = first()?;
    let (fs, ctx) = (live.fs(), Context::root());
    let made = fs.mknod(&ctx, ROOT_NID, b"a", REGULAR | 0o644, 0).map_err(told)?;
    fs.lookup(&ctx, ROOT_NID, b"a").map_err(told)?;
    fs.forget(made.nid, 1);
    fs.unlink(&ctx, ROOT_NID, b"a").map_err(told)?;
    fs.getattr(made.nid).map(drop).map_err(|e| format!("it is gone: {e}"))
}
