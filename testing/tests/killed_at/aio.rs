//! Writes of pages that nobody waits for.

#![allow(unsafe_code, reason = "raw asynchronous writes are what is tested")]

use crate::waits::PAGE;
use rustix::fd::AsRawFd;
use std::fs::File;
use std::io;
use std::mem::zeroed;

/// As the kernel counts the ways of a control block.
const IOCB_CMD_PWRITE: u16 = 1;

/// A page where O_DIRECT takes it.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    pub fn of(byte: u8) -> Aligned {
        let memory = vec![byte; 2 * PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Aligned { memory, start }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..PAGE]
    }
}

/// A context of io_submit(2), and what its writes have in hand. Its end waits for them.
pub struct Writes<'f> {
    context: libc::c_ulong,
    file: &'f File,
    #[allow(clippy::vec_box, reason = "the kernel knows where each is, which a list that grows would move")]
    begun: Vec<Box<(libc::iocb, Aligned)>>,
}

impl<'f> Writes<'f> {
    /// For so many at a time.
    pub fn new(file: &'f File, depth: usize) -> io::Result<Self> {
        let mut context = 0;
        // SAFETY: the kernel writes the context's number there. Guarded by the tests of `recalls`.
        match unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) } {
            0 => Ok(Writes { context, file, begun: Vec::new() }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Begins to fill a page.
    pub fn begin(&mut self, page: u8, byte: u8) -> io::Result<()> {
        // SAFETY: a control block is numbers, for which zero is a value. Guarded as above.
        let mut begun = Box::new((unsafe { zeroed::<libc::iocb>() }, Aligned::of(byte)));
        let (control, bytes) = &mut *begun;
        control.aio_data = u64::from(page);
        control.aio_lio_opcode = IOCB_CMD_PWRITE;
        control.aio_fildes = self.file.as_raw_fd() as u32;
        control.aio_buf = bytes.bytes().as_ptr().expose_provenance() as u64;
        control.aio_nbytes = PAGE as u64;
        control.aio_offset = i64::from(page) * PAGE as i64;
        let mut list = [&raw mut *control];
        // SAFETY: control block and page stay where they are until the context has ended. Guarded as above.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) };
        let outcome = if submitted == 1 { Ok(()) } else { Err(io::Error::last_os_error()) };
        self.begun.push(begun);
        outcome
    }

    /// The page of a write that has ended, if one has.
    ///
    /// # Errors
    /// It has failed, or has written a part.
    pub fn ended(&mut self) -> io::Result<Option<u8>> {
        let mut event = [0i64; 4];
        let mut at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there is room for one event, which is four numbers. Guarded as above.
        let got = unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, 0, 1, event.as_mut_ptr(), &raw mut at_once)
        };
        let [page, _, result, _] = event;
        match got {
            0 => Ok(None),
            1 if result == PAGE as i64 => Ok(Some(page as u8)),
            1 => Err(io::Error::other(format!("the write of page {page} gave {result}"))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Writes<'_> {
    fn drop(&mut self) {
        // SAFETY: it waits for what is under way; control blocks and pages go afterwards. Guarded as above.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
