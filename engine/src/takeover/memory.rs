//! The memory itself: a file of the kernel's without a name (`backing`), mapped whole.
//!
//! | part | bytes |
//! | --- | --- |
//! | header | 4096 |
//! | request slots | 64 each |
//! | inode slots | 64 each |
//! | newer homes | 64 each |
//! | frame table | 64 for each frame |
//! | frames | 4096 each, from a boundary of 2 MiB on |
//!
//! Pages that nobody has touched take no memory.

#![allow(unsafe_code, reason = "a leaf module: a mapping that processes share one after the other")]

use super::backing;
use super::flushes::LostFlushes;
use super::homes::{HomeSlot, Homes};
use super::image::{IMAGE_WORDS, OfImage};
use super::inodes::{InodeSlot, Inodes};
use super::layout::{HEADER, HOMES, Layout, SLOT};
use super::life::{Life, LifeWords, Phase};
use super::notices::{MOST_NOTICES, Notices};
use super::requests::{Lanes, RequestSlot, Requests};
use super::unrecalled::Unrecalled;
use crate::planted::kill::{self, Step};
use crate::{Error, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"naruTAKE");
/// Raised with each change of the layout, or of what any part of it means.
const LAYOUT: u32 = 4;
/// Bytes of what was agreed on with the kernel.
pub const SESSION_BYTES: usize = 64;

/// Requests in service at a time. All of their slots are looked at by each server, so a fuzzer, which starts thousands of
/// those a minute, has fewer.
const REQUESTS: u32 = if cfg!(fuzzing) { 1 << 8 } else { 1 << 14 };
/// Files whose size or times run ahead of the journal.
const INODES: u32 = 1 << 20;
/// All of these.
const COUNTS: [u32; 3] = [REQUESTS, INODES, HOMES];

/// The first page.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    layout: AtomicU32,
    requests: AtomicU32,
    inodes: AtomicU32,
    incarnation: AtomicU32,
    frames: AtomicU64,
    /// Whether `session` counts.
    has_session: AtomicU64,
    session: [AtomicU64; SESSION_BYTES / 8],
    longest_pause: AtomicU64,
    notices: Notices<MOST_NOTICES>,
    life: LifeWords,
    image: OfImage,
    flushes: LostFlushes,
    unrecalled: Unrecalled,
}

const _: () = assert!(size_of::<Header>() <= HEADER);
const _: () = assert!(size_of::<RequestSlot>() == SLOT && size_of::<InodeSlot>() == SLOT);
const _: () = assert!(size_of::<HomeSlot>() == SLOT);

/// The shared memory of one mount, see the module above.
#[derive(Debug)]
pub struct Takeover {
    pub(super) layout: Layout,
    pub(super) file: OwnedFd,
    lanes: Lanes,
    inodes: Inodes,
    homes: Homes,
    /// Flushes that had failed when this process came.
    pub(super) lost_before: u64,
    /// This process gives up: what others have left stays as it is.
    is_left: AtomicBool,
    /// The last: what lies in it goes first.
    mapping: Arc<Mapping>,
}

/// A part of the address space where the file's bytes are, as long as this value lives.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and has no thread affinity; what lies in it is atomic words, and the
// frames, whose access `crate::cache` orders. Guarded by the tests below.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping of `map`, whole, and nobody borrows from it any more. A failure would leave it
        // mapped, which harms nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn refused(why: impl std::fmt::Display) -> Error {
    Error::Refused(format!("the memory that a mount leaves to its next server: {why}"))
}

impl Takeover {
    /// Memory for a mount with so many frames, that nobody has used yet.
    ///
    /// # Errors
    /// [`Error::Refused`] where the system gives none.
    pub fn create(frames: usize) -> Result<Arc<Takeover>> {
        let layout = Layout::new(REQUESTS, INODES, frames as u64)
            .ok_or_else(|| refused(format!("{frames} frames are more than any has")))?;
        let file = backing::create(layout.end).map_err(refused)?;
        let memory = Takeover::map(file, layout, COUNTS)?;
        let header = memory.header();
        header.requests.store(REQUESTS, Ordering::Relaxed);
        header.inodes.store(INODES, Ordering::Relaxed);
        header.frames.store(frames as u64, Ordering::Relaxed);
        header.layout.store(LAYOUT, Ordering::Relaxed);
        // Release: rule 2: what is there counts from here on.
        header.magic.store(MAGIC, Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// The memory that a predecessor has left; this process is its next incarnation.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is of another layout, which another version has made, or is none.
    pub fn adopt(file: OwnedFd) -> Result<Arc<Takeover>> {
        let memory = Takeover::look(file)?;
        // Relaxed: nobody else has the memory (rule 1).
        memory.header().incarnation.fetch_add(1, Ordering::Relaxed);
        let left = memory.requests().count_left();
        let phase = memory.header().life.follow(left);
        tracing::info!(?phase, ?left, "the server before has ended");
        kill::step(Step::Adopted);
        Ok(Arc::new(memory))
    }

    /// Whether this version can take such memory over; changes nothing.
    ///
    /// # Errors
    /// As [`Takeover::adopt`].
    pub fn check(file: OwnedFd) -> Result<()> {
        Takeover::look(file).map(drop)
    }

    fn look(file: OwnedFd) -> Result<Takeover> {
        if !backing::is_ours(&file).map_err(refused)? {
            return Err(refused("it is not sealed"));
        }
        let size = rustix::fs::fstat(&file).map_err(refused)?.st_size;
        let size = usize::try_from(size).map_err(refused)?;
        if size < HEADER {
            return Err(refused("it is too short"));
        }
        // Of the header alone, to learn the rest.
        let head = Layout { requests: 0, inodes: 0, homes: 0, table: 0, frames: 0, end: HEADER };
        let (file, layout) = {
            let first = Takeover::map(file, head, [0; 3])?;
            let header = first.header();
            // Acquire: pairs with the Release of `create`, in another process.
            if header.magic.load(Ordering::Acquire) != MAGIC {
                return Err(refused("it is none"));
            }
            let layout = header.layout.load(Ordering::Relaxed);
            if layout != LAYOUT {
                return Err(refused(format!(
                    "its layout is {layout}, this version knows {LAYOUT}: unmount, and mount with this version"
                )));
            }
            let counts = (header.requests.load(Ordering::Relaxed), header.inodes.load(Ordering::Relaxed));
            let frames = header.frames.load(Ordering::Relaxed);
            let layout = Layout::new(REQUESTS, INODES, frames)
                .filter(|layout| layout.end == size && counts == (REQUESTS, INODES))
                .ok_or_else(|| refused("its parts do not fit its size"))?;
            let again = first.file.try_clone().map_err(refused)?;
            (again, layout)
        };
        Takeover::map(file, layout, COUNTS)
    }

    fn map(file: OwnedFd, layout: Layout, counts: [u32; 3]) -> Result<Takeover> {
        let [requests, inodes, homes] = counts.map(|count| count as usize);
        // SAFETY: a new mapping at a place that the kernel chooses; nothing else is touched. Guarded by the tests below.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                layout.end,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )
        }
        .map_err(|e| refused(format!("cannot map {} bytes: {e}", layout.end)))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| refused("it lies at address 0"))?;
        let mapping = Arc::new(Mapping { base, len: layout.end });
        // SAFETY: these are the last parts of the mapping; their bytes stay as they are. A kernel without huge pages for
        // such a file ignores it. Guarded by the tests below.
        let _ = unsafe {
            let table = base.add(layout.table).as_ptr();
            let len = layout.end - layout.table;
            rustix::mm::madvise(table.cast(), len, rustix::mm::Advice::LinuxHugepage)
        };
        // SAFETY: all three parts lie within the mapping, as the layout says, on boundaries of 64 bytes; any bytes are valid
        // atomic words; the requests keep the mapping, the others are dropped before it. Guarded by the tests below.
        let (requests, inodes, homes) = unsafe {
            let requests = std::slice::from_raw_parts(
                base.add(layout.requests).cast::<RequestSlot>().as_ptr(),
                requests,
            );
            let inodes =
                std::slice::from_raw_parts(base.add(layout.inodes).cast::<InodeSlot>().as_ptr(), inodes);
            let homes = std::slice::from_raw_parts(base.add(layout.homes).cast::<HomeSlot>().as_ptr(), homes);
            (Requests::new(requests, Arc::clone(&mapping)), Inodes::new(inodes), Homes::new(homes))
        };
        let (lanes, is_left) = (Lanes::new(requests), AtomicBool::new(false));
        let mut memory = Takeover { layout, file, lanes, inodes, homes, lost_before: 0, is_left, mapping };
        memory.lost_before = memory.flushes().count();
        Ok(memory)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the header, page-aligned, of atomic words alone, for which any bytes are valid.
        // Guarded by the tests below.
        unsafe { self.mapping.base.cast::<Header>().as_ref() }
    }

    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.layout.end, "a place within the memory");
        // SAFETY: within the mapping, or its end. Guarded by the tests below.
        unsafe { self.mapping.base.add(offset) }
    }

    /// Where its parts lie in the file.
    #[cfg(any(all(test, not(any(loom, shuttle))), fuzzing, feature = "sim"))]
    pub(crate) fn parts(&self) -> [std::ops::Range<usize>; 6] {
        self.layout.parts()
    }

    /// The descriptor by which it is kept for a successor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// How many servers the mount has had before this one.
    pub fn incarnation(&self) -> u32 {
        self.header().incarnation.load(Ordering::Relaxed)
    }

    /// Frames that there is room for.
    pub fn frames(&self) -> usize {
        usize::try_from(self.header().frames.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// What was agreed on with the kernel, if that was noted.
    pub fn session(&self) -> Option<[u8; SESSION_BYTES]> {
        let header = self.header();
        // Acquire: pairs with the Release below.
        if header.has_session.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut bytes = [0; SESSION_BYTES];
        for (word, from) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&header.session) {
            *word = from.load(Ordering::Relaxed).to_le_bytes();
        }
        Some(bytes)
    }

    /// The same, of memory that is not to be mapped.
    pub fn session_in(file: BorrowedFd<'_>) -> Option<[u8; SESSION_BYTES]> {
        let (mut noted, mut bytes) = ([0; 8], [0; SESSION_BYTES]);
        let read = |into: &mut [u8], at: usize| {
            let wanted = into.len();
            rustix::io::pread(file, into, at as u64).is_ok_and(|read| read == wanted)
        };
        let is_read = read(&mut noted, offset_of!(Header, has_session))
            && read(&mut bytes, offset_of!(Header, session));
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = u64::from_ne_bytes(*word).to_le_bytes();
        }
        (is_read && noted != [0; 8]).then_some(bytes)
    }

    /// Notes what was agreed on with the kernel.
    pub fn set_session(&self, bytes: [u8; SESSION_BYTES]) {
        let header = self.header();
        for (word, to) in bytes.as_chunks::<8>().0.iter().zip(&header.session) {
            to.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        // Release: rule 2.
        header.has_session.store(1, Ordering::Release);
    }

    /// Whether the mount is of this image. That of its first server is.
    pub(crate) fn is_of(&self, image: [u64; IMAGE_WORDS]) -> bool {
        self.header().image.is_of(image)
    }

    /// Whether nobody else has had it since.
    pub(crate) fn image(&self) -> &OfImage {
        &self.header().image
    }

    /// That flushes of the device have failed.
    pub(super) fn flushes(&self) -> &LostFlushes {
        &self.header().flushes
    }

    /// This process gives up what it has begun to take over, for good: slots of files that it drops stay for the next that
    /// tries.
    pub(crate) fn leave(&self) {
        // Release: who drops something after this sees it, on whatever thread.
        self.is_left.store(true, Ordering::Release);
    }

    /// Whether it does.
    pub(crate) fn is_left(&self) -> bool {
        // Acquire: pairs with `leave`.
        self.is_left.load(Ordering::Acquire)
    }

    /// This server does something else from now on.
    pub fn enter(&self, phase: Phase) {
        self.header().life.enter(phase);
    }

    /// When the server before has ended, in nanoseconds of the monotonic clock: its successor counts its own time from there.
    pub fn follows_end_at(&self, nanosecond: u64) {
        self.header().life.enter_at(Phase::Starting, nanosecond);
    }

    /// How far servers have come.
    pub fn life(&self) -> Life {
        self.header().life.look()
    }

    /// The longest time between a server's end and the next one's beginning, in nanoseconds.
    pub fn longest_pause(&self) -> u64 {
        self.header().longest_pause.load(Ordering::Relaxed)
    }

    /// Notes how long nobody has served, in nanoseconds.
    pub fn note_pause(&self, nanoseconds: u64) {
        self.header().longest_pause.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// What the kernel is still to be told.
    pub fn notices(&self) -> &Notices<MOST_NOTICES> {
        &self.header().notices
    }

    /// What was answered before the kernel has dropped pages of it.
    pub fn unrecalled(&self) -> &Unrecalled {
        &self.header().unrecalled
    }

    /// The requests in service.
    pub fn requests(&self) -> &Requests {
        self.lanes.own()
    }

    /// The same, for each lane.
    pub(super) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The pages in place that are newer than the journal.
    pub fn homes(&self) -> &Homes {
        &self.homes
    }

    /// The files that run ahead of the journal.
    pub fn inodes(&self) -> &Inodes {
        &self.inodes
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::BLOCK_SIZE;
    use rustix::fs::{MemfdFlags, SealFlags};

    fn again(memory: &Takeover) -> OwnedFd {
        memory.descriptor().try_clone_to_owned().expect("a descriptor")
    }

    #[test]
    fn a_successor_finds_what_was_left() {
        let memory = Takeover::create(100).expect("memory");
        assert_eq!((memory.incarnation(), memory.session()), (0, None));
        assert_eq!(Takeover::session_in(memory.descriptor()), None);
        assert!(memory.is_of([4; IMAGE_WORDS]));
        let session = std::array::from_fn(|at| at as u8);
        memory.set_session(session);
        assert_eq!(Takeover::session_in(memory.descriptor()), Some(session));
        memory.note_pause(5);
        memory.note_pause(3);
        let file = again(&memory);
        drop(memory);
        Takeover::check(file.try_clone().expect("a descriptor")).expect("it can be taken over");
        let next = Takeover::adopt(file).expect("it is there");
        assert_eq!((next.incarnation(), next.frames()), (1, 100));
        assert_eq!((next.session(), next.longest_pause()), (Some(session), 5));
        assert!(next.frame_region().is_inherited());
        assert!(next.is_of([4; IMAGE_WORDS]));
        assert!(!next.is_of([4, 4, 4, 4, 4, 5]));
        let region = next.frame_region();
        assert!(region.bytes().addr().get().is_multiple_of(BLOCK_SIZE));
        region.release(90, 20);
    }

    #[test]
    fn what_is_no_such_memory_or_of_another_layout_is_refused() {
        let plain =
            rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        assert!(matches!(Takeover::adopt(plain.try_clone().expect("fd")), Err(Error::Refused(_))));
        rustix::fs::fcntl_add_seals(&plain, SealFlags::SHRINK).expect("sealed");
        assert!(matches!(Takeover::adopt(plain.try_clone().expect("fd")), Err(Error::Refused(_))));
        rustix::fs::ftruncate(&plain, 1 << 20).expect("longer");
        assert!(matches!(Takeover::adopt(plain), Err(Error::Refused(_))));
        for spoil in [
            |header: &Header| header.layout.store(LAYOUT + 1, Ordering::Relaxed),
            |header: &Header| header.frames.store(u64::MAX, Ordering::Relaxed),
            |header: &Header| header.requests.store(3, Ordering::Relaxed),
            |header: &Header| header.inodes.store(u32::MAX, Ordering::Relaxed),
            |header: &Header| header.magic.store(1, Ordering::Relaxed),
        ] {
            let memory = Takeover::create(10).expect("memory");
            spoil(memory.header());
            assert!(matches!(Takeover::adopt(again(&memory)), Err(Error::Refused(_))));
        }
    }
}
