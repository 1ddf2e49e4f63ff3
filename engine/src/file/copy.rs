//! Copies between files.

use crate::file::data_path::DataPath;
use crate::file::write::At;
use crate::inode::InodeObj;
use crate::sync::Arc;
use crate::{Error, Result};

impl DataPath {
    /// Copies up to `len` bytes between files, or within one where the bytes there are to copy and their new place
    /// do not overlap (EINVAL). Less only at the end of the source.
    pub fn copy_range(
        &self,
        source: &Arc<InodeObj>,
        from: u64,
        target: &Arc<InodeObj>,
        to: u64,
        len: u64,
    ) -> Result<u64> {
        let len = len.min(source.data().size().saturating_sub(from));
        let overlaps = from < to.saturating_add(len) && to < from.saturating_add(len);
        if Arc::ptr_eq(source, target) && overlaps {
            return Err(Error::Errno(libc::EINVAL));
        }
        let mut buf = vec![0; len.min(128 << 10) as usize];
        let mut done = 0;
        while done < len {
            let step = buf.len().min((len - done) as usize);
            let got = self.read(source, from + done, &mut buf[..step])?;
            if got == 0 {
                break;
            }
            let written = self.write(target, At::Offset(to + done), &buf[..got]);
            match written {
                Ok(written) => done += written.len as u64,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
            if got < step {
                break;
            }
        }
        Ok(done)
    }
}
