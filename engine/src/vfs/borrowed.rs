//! Handles of files that others keep open.
//!
//! The kernel, in front of a mount, can keep open files to itself: it checks what may be done with them, and holds
//! their inodes by lookup counts for as long as they are open. For one call such a file is *borrowed*; nothing is given
//! back afterwards.
//!
//! What this leaves to others: everything that is done with the handle, and which failure has been told already (the
//! mark, which the borrower brings along).
//!
//! # Invariants
//! A borrowed handle counts nowhere as open. So nothing may hang on the close of a file: what is done there for callers
//! that open files here is for their sake alone.

use super::*;

impl Vfs {
    /// Borrows a file or directory that the caller holds by a lookup count. `mark` says what the borrower has been
    /// told of failures; without one it is told of all that are remembered.
    ///
    /// # Errors
    /// ESTALE: it is gone.
    pub fn borrow(&self, nid: Nid, flags: OpenFlags, mark: Option<Arc<ErrorMark>>) -> Result<FileHandle> {
        let inode = self.meta.inode(nid)?;
        let is_file = inode.file_type() == FileType::Regular;
        let mark = is_file.then(|| mark.unwrap_or_else(|| Arc::new(ErrorMark::of(None))));
        Ok(FileHandle { inode, flags, mark })
    }

    /// From now on closes of files are not told. What a caller waits for, because it may be closed just now, is then
    /// waited for as if it were.
    pub fn closes_are_not_told(&self) {
        self.pending_eviction.closes_are_not_told();
    }
}
