//! What can go wrong, in one line for the user.

use std::io;

/// The result of what this crate does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request makes no sense; the sentence says what would.
    #[error("{0}")]
    Usage(String),
    /// The target cannot be used; the sentence says why and what to do.
    #[error("{0}")]
    Refused(String),
    /// A call failed.
    #[error("{op}{}{path}: {source}", if .path.is_empty() { "" } else { " " })]
    Io {
        /// The call.
        op: &'static str,
        /// What it was about; empty for an open file.
        path: Box<str>,
        /// Why.
        source: io::Error,
    },
    /// What was written is not what is there.
    #[error("wrong content: {0}")]
    Wrong(String),
    /// The user has interrupted the run.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// A call about a path that failed.
    pub fn io(op: &'static str, path: &str, source: impl Into<io::Error>) -> Error {
        Error::Io { op, path: path.into(), source: source.into() }
    }

    /// The errno of a failed call.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// The same with the workload's name in front, where the error is not one of the user's making.
    pub fn in_workload(self, name: &str) -> Error {
        match self {
            Error::Io { op, path, source } if source.raw_os_error() == Some(libc::ENOSPC) => {
                Error::Refused(format!(
                    "{name}: {}: no space left; give the target more room, or the workload less to do (--files, --size)",
                    Error::Io { op, path, source }.first_words()
                ))
            }
            Error::Io { .. } => Error::Refused(format!("{name}: {self}")),
            Error::Wrong(what) => Error::Wrong(format!("{name}: {what}")),
            other => other,
        }
    }

    fn first_words(&self) -> String {
        match self {
            Error::Io { op, path, .. } if !path.is_empty() => format!("{op} {path}"),
            Error::Io { op, .. } => (*op).to_owned(),
            other => other.to_string(),
        }
    }
}
