//! The memory that a killed server has left to the next one, and what a fuzzer's bytes make of it.

use super::media::{self, CHANGE, Fresh, MOST_CHANGES, assemble_options, mount_options, populate};
use super::{MOST_ENTRIES, read, write};
use crate::device::BLOCK_SIZE;
use crate::format::{JournalKind, Nid, ROOT_NID};
use crate::sync::{Arc, OnceLock};
use crate::takeover::{Prober, Requests, Takeover};
use crate::vfs::{Context, FallocateMode, OpenFlags, Vfs, WriteFlags};
use crate::volume::{AssembleOptions, ImageOptions, Media, Running, mount};
use crate::{Error, Result};
use rustix::fs::FallocateFlags;
use std::cell::Cell;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Which part of the memory a change concerns.
const PART: u8 = 7;
/// It concerns the media instead, as a change of theirs.
const MEDIA: u8 = 64;
/// Frames of the page cache: as many as `assemble_options` has room for.
const FRAMES: usize = 256;
const FIRST_REQUEST: u64 = 2;
/// How long a server may take to end after it was told to.
const MOST_AFTER: Duration = Duration::from_millis(50);

/// What a server that was killed has left.
struct Base {
    media: media::Base,
    /// Pages that are not all zeros, by their offset.
    memory: Vec<(u64, Vec<u8>)>,
    parts: [Range<usize>; 6],
}

/// A kernel that holds every other inode.
struct Half;

impl Prober for Half {
    fn kernel_holds(&self, nid: Nid) -> bool {
        nid.is_multiple_of(2)
    }
}

fn options(memory: &Arc<Takeover>) -> (ImageOptions, AssembleOptions) {
    let takeover = Some(Arc::clone(memory));
    (
        ImageOptions { takeover: takeover.clone(), ..mount_options(false) },
        AssembleOptions { takeover, ..assemble_options(false) },
    )
}

/// What runs ahead of the journal, and requests that nobody has answered: `fs` is of a server that is to be killed.
fn leave(fs: &Vfs, memory: &Arc<Takeover>) -> Result<()> {
    let ctx = Context::root();
    let mut unique = FIRST_REQUEST;
    let mut ask = |operation: &mut dyn FnMut() -> Result<()>| {
        let taken = Requests::take(memory, unique, 0, ROOT_NID).ok_or(Error::Errno(libc::EAGAIN))?;
        unique += 2;
        let entered = taken.enter();
        let outcome = operation();
        drop(entered);
        // It is never answered.
        std::mem::forget(taken);
        outcome
    };
    let page = BLOCK_SIZE as u64;
    for n in 0..6u64 {
        let name = format!("left {n}");
        let (_, handle, _) = fs.create(&ctx, ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE)?;
        fs.write(&ctx, &handle, 0, &[9; 3 * BLOCK_SIZE], WriteFlags::empty())?;
        fs.fsync(&handle, false)?;
        ask(&mut || fs.write(&ctx, &handle, n * page, &[8; 6000], WriteFlags::empty()).map(drop))?;
        if n == 4 {
            // Its pages go home newer than the journal has them.
            fs.fallocate(&ctx, &handle, FallocateMode::Insert, 3 * page, page)?;
        }
        if n == 5 {
            fs.unlink(&ctx, ROOT_NID, name.as_bytes())?;
        }
        std::mem::forget(handle);
    }
    let found = fs.lookup(&ctx, ROOT_NID, b"left 1")?;
    let emptied = fs.open(&ctx, found.nid, OpenFlags::READ_WRITE | OpenFlags::TRUNCATE)?;
    fs.write(&ctx, &emptied, 0, b"new", WriteFlags::empty())?;
    std::mem::forget(emptied);
    ask(&mut || fs.mkdir(&ctx, ROOT_NID, b"made", 0o755).map(drop))?;
    ask(&mut || fs.tmpfile(&ctx, ROOT_NID, 0, OpenFlags::READ_WRITE).map(std::mem::forget))?;
    ask(&mut || fs.rmdir(&ctx, ROOT_NID, b"not there").or(Ok(())))?;
    memory.set_session([7; crate::takeover::SESSION_BYTES]);
    memory.notices().put(ROOT_NID);
    memory.unrecalled().put(ROOT_NID);
    memory.unrecalled().set_others(true);
    Ok(())
}

fn make() -> Result<Base> {
    let fresh = Fresh::make(JournalKind::Emulated)?;
    let memory = Takeover::create(FRAMES)?;
    let (image_options, file_options) = options(&memory);
    let mounted = mount(fresh.media(), &image_options)?;
    let running = Running::start(mounted.checkpointer(), &file_options)?;
    populate(running.fs(), 0)?;
    running.fs().syncfs()?;
    leave(running.fs(), &memory)?;
    let media = fresh.bytes()?;
    // Killed: who is gives nothing back.
    std::mem::forget((running, mounted));
    Ok(Base { media, memory: pages_of(&memory)?, parts: memory.parts() })
}

/// The pages that are not all zeros.
fn pages_of(memory: &Takeover) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut whole = vec![0; memory.parts().last().map_or(0, |part| part.end)];
    let count = rustix::io::pread(memory.descriptor(), &mut whole, 0);
    assert_eq!(count, Ok(whole.len()), "memory is read whole");
    let pages = (0..).step_by(BLOCK_SIZE).zip(whole.chunks(BLOCK_SIZE));
    Ok(pages
        .filter(|(_, page)| page.iter().any(|byte| *byte != 0))
        .map(|(at, page)| (at, page.to_vec()))
        .collect())
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| make().expect("memory"))
}

impl Base {
    /// The memory, but for what a change says: its place is a word of 8 bytes in a part of it, its offset a byte there;
    /// the value lies at either end of a number of 64 bits, for sizes and positions beyond all bounds.
    fn spoil(&self, file: BorrowedFd<'_>, change: &[u8]) {
        let word = |at: usize| usize::from(u16::from_le_bytes([change[at], change[at + 1]]));
        let (place, offset, value, flags) = (word(0), word(2), word(4) as u64, change[6]);
        let part = &self.parts[usize::from(flags & PART) % self.parts.len()];
        let at = part.start + (place * 8 + offset % 8) % (part.len() - 8);
        let bytes = match flags >> 4 & 3 {
            0 => value.to_le_bytes().to_vec(),
            1 => (value << 48).to_le_bytes().to_vec(),
            2 => (!value).to_le_bytes().to_vec(),
            _ => (value as u16).to_le_bytes().to_vec(),
        };
        put(file, at as u64, &bytes);
    }
}

fn put(file: BorrowedFd<'_>, at: u64, bytes: &[u8]) {
    assert_eq!(rustix::io::pwrite(file, bytes, at), Ok(bytes.len()), "it is memory");
}

/// A file of such memory. To make one is to mount a tmpfs, which takes the kernel longer than all that is done with it: the
/// next input gets the same file, empty.
struct Spare(OwnedFd);

impl Spare {
    fn take() -> Spare {
        let Some(Spare(file)) = SPARE.take() else {
            let memory = Takeover::create(FRAMES).expect("memory");
            return Spare(memory.descriptor().try_clone_to_owned().expect("a descriptor"));
        };
        let len = rustix::fs::fstat(&file).expect("it is a file").st_size as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, 0, len).expect("its memory goes back");
        Spare(file)
    }

    /// Gives it back once the server has ended: the thread that asks the kernel does so a moment after the rest. Of one that
    /// does not end in time, nobody gets the file.
    fn give(self, memory: &Arc<Takeover>) {
        let begun = Instant::now();
        while Arc::strong_count(memory) > 1 {
            if begun.elapsed() > MOST_AFTER {
                return;
            }
            std::thread::yield_now();
        }
        SPARE.set(Some(self));
    }
}

thread_local! {
    static SPARE: Cell<Option<Spare>> = const { Cell::new(None) };
}

/// A server takes over what another has left of memory, and of its image; it may refuse that.
pub fn take_over(input: &[u8]) {
    let base = base();
    let changes = || input.chunks_exact(CHANGE).take(MOST_CHANGES);
    let spare = Spare::take();
    let file = spare.0.as_fd();
    base.memory.iter().for_each(|(at, page)| put(file, *at, page));
    changes().filter(|change| change[6] & MEDIA == 0).for_each(|change| base.spoil(file, change));
    let Ok(memory) = Takeover::adopt(spare.0.try_clone().expect("a descriptor")) else {
        return SPARE.set(Some(spare));
    };
    // What a change of the media says besides.
    serve(base.media.changed(changes().filter(|change| change[6] & MEDIA != 0)), &memory);
    spare.give(&memory);
}

/// Serves what can be served: all is read, and a little of everything done.
fn serve(media: Media, memory: &Arc<Takeover>) {
    let (image_options, file_options) = options(memory);
    let Ok(mounted) = mount(media, &image_options) else { return };
    if mounted.store().failed().is_some() {
        return;
    }
    let Ok(running) = Running::start(mounted.checkpointer(), &file_options) else { return };
    let fs = running.fs();
    answer_left(fs, memory);
    read(fs);
    // An error ends the writing, and that is all.
    let _ = write(fs);
    if running.stop().is_ok() {
        let _ = mounted.unmount();
    }
}

/// As a server does: what is sent once more is answered or done, what its predecessor has made is held for the kernel.
fn answer_left(fs: &Arc<Vfs>, memory: &Arc<Takeover>) {
    for one in memory.requests().all_left().into_iter().take(MOST_ENTRIES) {
        let Some((left, taken)) = Requests::resume(memory, one.unique) else { continue };
        if left.done && left.nid != 0 {
            let _ = fs.made_before(left.nid);
        }
        taken.add_attempts(1);
        let _entered = taken.enter();
    }
    memory.requests().forget_left();
    let _ = fs.ask_kernel(std::sync::Arc::new(Half));
    memory.notices().left().into_iter().for_each(|nid| memory.notices().take(nid));
    let (unrecalled, others) = memory.unrecalled().left();
    unrecalled.into_iter().for_each(|nid| memory.unrecalled().take(nid));
    if others {
        (0..MOST_ENTRIES as u64).map_while(|part| fs.possible_nids(part)).for_each(drop);
        memory.unrecalled().set_others(false);
    }
    let _ = (memory.life(), memory.session(), memory.longest_pause());
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    /// What was left is there, and nothing is found that is not as it should be.
    #[test]
    fn what_is_left_is_sound() {
        let base = base();
        let has = |part: &Range<usize>| base.memory.iter().any(|(at, _)| part.contains(&(*at as usize)));
        assert!(base.parts.iter().all(has), "each part has something");
        take_over(&[]);
    }

    #[test]
    fn arbitrary_memory_is_taken_over_without_harm() {
        for seed in 0..150 {
            let mut random = StdRng::seed_from_u64(seed);
            let count = random.random_range(1..12);
            let change = |random: &mut StdRng| {
                let place: u16 = random.random_range(0..80);
                let value: u16 =
                    if random.random_bool(0.5) { random.random_range(0..300) } else { random.random() };
                let kind = random.random_range(0..64) & !MEDIA;
                let flags: u8 = if random.random_bool(0.1) { MEDIA | 1 } else { kind };
                [&place.to_le_bytes()[..], &[random.random_range(0..8), 0], &value.to_le_bytes(), &[flags]]
                    .concat()
            };
            let input: Vec<u8> = (0..count).flat_map(|_| change(&mut random)).collect();
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| take_over(&input)));
            assert!(outcome.is_ok(), "seed {seed}");
        }
    }
}
