//! How a file is opened.

use crate::engine::{self, OpenFlags};
use crate::error::{Error, Result};

/// How a file is opened, as [`std::fs::OpenOptions`]; used by [`Dir::open_with`](crate::Dir::open_with).
///
/// ```
/// # use narufs::{Fs, OpenOptions, ScratchOptions};
/// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// let log = fs.open_with("/log", OpenOptions::new().append(true).create(true).mode(0o600))?;
/// assert_eq!(log.append(b"first")?.offset, 0);
/// assert_eq!(log.append(b"second")?.offset, 5);
/// # Ok::<(), narufs::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct OpenOptions {
    asked: engine::OpenOptions,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is allowed yet; what is made gets mode 0644.
    pub fn new() -> OpenOptions {
        OpenOptions { asked: engine::OpenOptions::default() }
    }

    /// For reading.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.asked.read = read;
        self
    }

    /// For writing.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.asked.write = write;
        self
    }

    /// For writing; every write goes to the end of the file, whatever its offset.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.asked.append = append;
        self
    }

    /// Empties the file. It must be opened for writing.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.asked.truncate = truncate;
        self
    }

    /// Makes the file if it is not there. It must be opened for writing.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.asked.create = create;
        self
    }

    /// Makes the file, which must not be there; `create` and `truncate` mean nothing then. A
    /// [temporary file](crate::Dir::open_temporary) that is opened so can never get a name.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.asked.create_new = create_new;
        self
    }

    /// Permissions of a file that is made; there is no umask. By default 0644.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.asked.mode = mode;
        self
    }

    /// Fails with ELOOP where the last name of the path is a symlink's.
    pub fn no_follow(&mut self, no_follow: bool) -> &mut OpenOptions {
        self.asked.custom.set(OpenFlags::NO_FOLLOW, no_follow);
        self
    }

    /// Past the page cache, as O_DIRECT.
    pub fn direct(&mut self, direct: bool) -> &mut OpenOptions {
        self.asked.custom.set(OpenFlags::DIRECT, direct);
        self
    }

    /// Each write returns when it and all attributes are durable, as O_SYNC.
    pub fn sync(&mut self, sync: bool) -> &mut OpenOptions {
        self.asked.custom.set(OpenFlags::SYNC, sync);
        self
    }

    /// Each write returns when it is durable and can be read back, as O_DSYNC.
    pub fn data_sync(&mut self, data_sync: bool) -> &mut OpenOptions {
        // A part of O_SYNC.
        if !self.asked.custom.contains(OpenFlags::SYNC) {
            self.asked.custom.set(OpenFlags::DSYNC, data_sync);
        }
        self
    }

    /// Reading leaves the access time, as O_NOATIME: for the owner of the file, and for root.
    pub fn no_access_time(&mut self, no_access_time: bool) -> &mut OpenOptions {
        self.asked.custom.set(OpenFlags::NO_ATIME, no_access_time);
        self
    }

    /// The same for the engine.
    ///
    /// # Errors
    /// EINVAL for what makes no sense, as in the standard library.
    pub(crate) fn to_engine(&self, operation: &'static str) -> Result<engine::OpenOptions> {
        let asked = self.asked;
        let opens = asked.read || asked.write || asked.append;
        let makes_or_cuts = asked.truncate || asked.create || asked.create_new;
        let wants_write = makes_or_cuts && !asked.write && !asked.append;
        let cuts_appended = asked.append && asked.truncate && !asked.create_new;
        if !opens || wants_write || cuts_appended {
            return Err(Error::of_errno(operation, libc::EINVAL));
        }
        Ok(engine::OpenOptions { truncate: asked.truncate && !asked.create_new, ..asked })
    }
}
