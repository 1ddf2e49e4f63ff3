//! One error type for the whole engine. It is made where the cause is known and maps to one errno.

/// The result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A request that POSIX answers with an errno: ENOENT, EEXIST, EACCES and their like.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    /// The device failed a request.
    #[error("device: {context}: {}", std::io::Error::from_raw_os_error(*.errno))]
    Device {
        /// What was being done.
        context: &'static str,
        /// The errno of the device.
        errno: i32,
    },
    /// Something read from media does not verify.
    #[error("damaged {what} at {place}: {detail}")]
    Corrupt {
        /// The kind of structure.
        what: &'static str,
        /// Where it lies, in words (block, slot, nid).
        place: String,
        /// What does not hold.
        detail: String,
    },
    /// The journal failed or media are damaged: the file system is read-only until it is mounted anew.
    #[error("the file system is read-only: {0}")]
    ReadOnly(String),
    /// Another process holds the image or its journal; the sentence says which and what to do.
    #[error("{0}")]
    InUse(String),
    /// The image or its journal cannot be used; the sentence says why and what to do.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// The errno that a system call would return.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Errno(e) => *e,
            Error::Device { .. } | Error::Corrupt { .. } => libc::EIO,
            Error::ReadOnly(_) => libc::EROFS,
            Error::InUse(_) => libc::EBUSY,
            Error::Refused(_) => libc::EINVAL,
        }
    }
}

/// What damage means to who loads something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnDamage {
    /// There is nothing then.
    Fail,
    /// Nothing is to be changed: what can be read is loaded, and the first damage is noted.
    Note(Option<String>),
}

impl OnDamage {
    /// Bears with an error, or gives it back.
    ///
    /// # Errors
    /// It is no damage, or damage is not to be borne with.
    pub fn bear(&mut self, e: Error) -> Result<()> {
        match (self, e) {
            (OnDamage::Note(first), e @ Error::Corrupt { .. }) => {
                first.get_or_insert_with(|| e.to_string());
                Ok(())
            }
            (_, e) => Err(e),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(e: Error) -> Self {
        match e {
            Error::Errno(n) => std::io::Error::from_raw_os_error(n),
            other => std::io::Error::other(other.to_string()),
        }
    }
}
