//! Buffered reads beside asynchronous writes past the kernel's cache.

#![allow(unsafe_code, reason = "raw asynchronous writes are what is tested")]

use crate::support::{Aligned, BLOCK, Served, served_with};
use narufs_fuse::Caching;
use narufs_fuse::mount::Io;
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A context of io_submit(2), and the blocks whose writes are under way.
struct Writes<'f> {
    context: libc::c_ulong,
    file: &'f File,
    slots: Vec<(libc::iocb, Aligned)>,
}

impl<'f> Writes<'f> {
    fn new(file: &'f File, depth: usize) -> Self {
        let mut context = 0;
        // SAFETY: the kernel writes the context's number there. Guarded by the tests of this file.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        // SAFETY: a control block is numbers, for which zero is a value.
        let empty = || unsafe { std::mem::zeroed::<libc::iocb>() };
        let slots = (0..depth).map(|_| (empty(), Aligned::of(&[0; BLOCK as usize]))).collect();
        Writes { context, file, slots }
    }

    /// Begins to write a generation, many times over, to a block.
    fn begin(&mut self, slot: usize, block: u64, generation: u64) {
        const IOCB_CMD_PWRITE: u16 = 1;
        let (control, bytes) = &mut self.slots[slot];
        let bytes = bytes.bytes_mut();
        bytes.as_chunks_mut::<8>().0.fill(generation.to_ne_bytes());
        control.aio_data = slot as u64;
        control.aio_lio_opcode = IOCB_CMD_PWRITE;
        control.aio_fildes = self.file.as_raw_fd() as u32;
        control.aio_buf = bytes.as_ptr().addr() as u64;
        control.aio_nbytes = BLOCK;
        control.aio_offset = (block * BLOCK) as i64;
        let mut list = [&raw mut *control];
        // SAFETY: control block and buffer stay where they are until their completion has been taken. Guarded as above.
        let begun = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) };
        assert_eq!(begun, 1, "{}", io::Error::last_os_error());
    }

    /// Waits for a completion; gives its slot.
    fn end(&mut self) -> usize {
        let mut event = [0i64; 4];
        let nothing = std::ptr::null::<libc::timespec>();
        let ended = loop {
            // SAFETY: there is room for one event, which is four numbers. Guarded as above.
            match unsafe {
                libc::syscall(libc::SYS_io_getevents, self.context, 1, 1, event.as_mut_ptr(), nothing)
            } {
                // What the kernel has a thread do on its way out of a call interrupts it as a signal does.
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                ended => break ended,
            }
        };
        assert_eq!((ended, event[2]), (1, BLOCK as i64), "{}", io::Error::last_os_error());
        event[0] as usize
    }
}

impl Drop for Writes<'_> {
    fn drop(&mut self) {
        // SAFETY: it waits for what is under way; the control blocks go afterwards.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

fn generation(file: &File, block: u64) -> u64 {
    let mut bytes = [0; BLOCK as usize];
    file.read_exact_at(&mut bytes, block * BLOCK).unwrap();
    u64::from_ne_bytes(bytes[..8].try_into().unwrap())
}

fn open_with(path: &Path, flags: OFlags) -> File {
    File::from(open(path, flags, Mode::empty()).unwrap())
}

/// Writes blocks in turn, `depth` at a time, while others read the file through the cache; has each completion seen.
fn beside_readers(
    m: &Served,
    blocks: u64,
    depth: usize,
    writes: u64,
    mut completed: impl FnMut(&File, u64, u64),
) {
    let path = m.at("shared");
    std::fs::write(&path, vec![0; (blocks * BLOCK) as usize]).unwrap();
    let file = open_with(&path, OFlags::WRONLY | OFlags::DIRECT);
    let cached = open_with(&path, OFlags::RDONLY);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let file = open_with(&path, OFlags::RDONLY);
                let mut all = vec![0; (blocks * BLOCK) as usize];
                while !done.load(Ordering::Relaxed) {
                    file.read_exact_at(&mut all, 0).unwrap();
                }
            });
        }
        let end = Ends(&done);
        let mut under_way = Writes::new(&file, depth);
        let mut written = vec![(u64::MAX, 0); depth];
        let mut next = 0;
        let mut begin = |under_way: &mut Writes, slot: usize, written: &mut Vec<(u64, u64)>| {
            // Two writes of one block are never under way.
            while written.iter().any(|(block, _)| *block == next % blocks) {
                next += 1;
            }
            written[slot] = (next % blocks, next / blocks + 1);
            under_way.begin(slot, written[slot].0, written[slot].1);
            next += 1;
        };
        (0..depth).for_each(|slot| begin(&mut under_way, slot, &mut written));
        for nth in 0..writes {
            let slot = under_way.end();
            let (block, generation) = written[slot];
            completed(&cached, block, generation);
            if nth + (depth as u64) < writes {
                begin(&mut under_way, slot, &mut written);
            }
        }
        drop(end);
    });
}

/// Ends the readers whatever happens.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn what_an_asynchronous_write_has_written_is_read_through_the_cache() {
    for io in [Io::Auto, Io::Cached] {
        let m = served_with(Caching::Exclusive, |options| options.io = io);
        beside_readers(&m, 64, 6, 6000, |cached, block, wanted| {
            assert_eq!(generation(cached, block), wanted, "block {block}, {io:?}");
        });
    }
}

/// More at once than may wait: nothing hangs, and what is old goes.
fn many_asynchronous_writes_beside_reads_come_to_an_end() {
    let m = served_with(Caching::Exclusive, |_| {});
    let mut last = vec![0; 256];
    beside_readers(&m, 256, 200, 8000, |_, block, generation| last[block as usize] = generation);
    let cached = File::open(m.at("shared")).unwrap();
    for (block, wanted) in last.into_iter().enumerate() {
        while generation(&cached, block as u64) != wanted {
            std::thread::yield_now();
        }
    }
}

on_each_transport!(
    what_an_asynchronous_write_has_written_is_read_through_the_cache,
    many_asynchronous_writes_beside_reads_come_to_an_end,
);
