//! What a call has failed with.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call has failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// What a system call would have answered: ENOENT, EEXIST, EACCES and their like.
    Errno(i32),
    /// The device has failed a request.
    Device {
        /// What was being done.
        context: &'static str,
        /// What the device has answered.
        error: io::Error,
    },
    /// Something that was read does not verify; the words say what, and where it lies.
    Damaged(String),
    /// Nothing may be changed any more: the journal has failed or media are damaged. The words say which.
    ReadOnly(String),
    /// Another process has opened the image, or its journal; the words say what to do.
    InUse(String),
    /// The image, its journal or the options are of no use; the words say why, and what to do.
    Refused(String),
    /// The file ends before what was asked for.
    EndOfFile,
    /// This process was forked from one that had a file system open: it can use none, neither that one nor one of its
    /// own, until it starts a program.
    Forked,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Errno(errno) => io::Error::from_raw_os_error(*errno).fmt(f),
            Cause::Device { context, error } => write!(f, "device: {context}: {error}"),
            Cause::Damaged(words) | Cause::InUse(words) | Cause::Refused(words) => f.write_str(words),
            Cause::ReadOnly(words) => write!(f, "the file system is read-only: {words}"),
            Cause::EndOfFile => f.write_str("the file ends before"),
            Cause::Forked => {
                f.write_str("this process was forked from one that had a file system open, and can use none")
            }
        }
    }
}

struct Inner {
    operation: &'static str,
    path: Option<PathBuf>,
    cause: Cause,
}

/// What a call has failed with: the cause, the operation, and the path if it was given one.
///
/// Shown, it names all three. It converts into an [`io::Error`] of the same kind that keeps it:
/// ```
/// # use narufs::{Error, Fs, ScratchOptions};
/// let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// let error = fs.open("/missing").unwrap_err();
/// assert_eq!(error.errno(), libc::ENOENT);
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert_eq!(error.path(), Some("/missing".as_ref()));
///
/// let error = std::io::Error::from(error);
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// let inside = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
/// assert_eq!(inside.map(Error::errno), Some(libc::ENOENT));
/// # Ok::<(), Error>(())
/// ```
pub struct Error(Box<Inner>);

impl Error {
    pub(crate) fn new(operation: &'static str, cause: Cause) -> Error {
        Error(Box::new(Inner { operation, path: None, cause }))
    }

    pub(crate) fn of_errno(operation: &'static str, errno: i32) -> Error {
        Error::new(operation, Cause::Errno(errno))
    }

    /// The same, of a path.
    pub(crate) fn at(mut self, path: &Path) -> Error {
        self.0.path = Some(path.to_owned());
        self
    }

    /// The errno that a system call would have given.
    pub fn errno(&self) -> i32 {
        match &self.0.cause {
            Cause::Errno(errno) => *errno,
            Cause::Device { .. } | Cause::Damaged(_) => libc::EIO,
            Cause::ReadOnly(_) => libc::EROFS,
            Cause::InUse(_) => libc::EBUSY,
            Cause::Refused(_) => libc::EINVAL,
            Cause::EndOfFile => libc::ENODATA,
            Cause::Forked => libc::ECHILD,
        }
    }

    /// The kind that the standard library gives such an error.
    pub fn kind(&self) -> io::ErrorKind {
        match &self.0.cause {
            Cause::Forked => io::ErrorKind::Unsupported,
            Cause::EndOfFile => io::ErrorKind::UnexpectedEof,
            Cause::Errno(libc::EILSEQ) => io::ErrorKind::InvalidData,
            _ => io::Error::from_raw_os_error(self.errno()).kind(),
        }
    }

    /// Why the call has failed.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// What was asked for: the name of the call.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The path that was given; the first, if there were two. Calls of a [`File`](crate::File) have none.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.operation)?;
        if let Some(path) = &self.0.path {
            write!(f, " {}", path.display())?;
        }
        write!(f, ": {}", self.0.cause)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("operation", &self.0.operation)
            .field("path", &self.0.path)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl std::error::Error for Error {
    /// What the device has answered, if it was the device.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.cause {
            Cause::Device { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
