//! What narufs has answered, in the words of the trait.

use object_store::{Error, path::Path};

/// The name by which errors call this store.
pub(crate) const STORE: &str = "narufs";

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Whatever else has gone wrong.
pub(crate) fn generic(source: impl Into<Source>) -> Error {
    Error::Generic { store: STORE, source: source.into() }
}

/// What was asked of an object.
pub(crate) fn of_object(location: &Path, error: narufs::Error) -> Error {
    let path = location.to_string();
    match error.errno() {
        // Its directory is gone while it is looked for, or another file has the name of a directory.
        libc::ENOENT | libc::ENOTDIR => Error::NotFound { path, source: error.into() },
        libc::EEXIST => Error::AlreadyExists { path, source: error.into() },
        libc::EACCES | libc::EPERM => Error::PermissionDenied { path, source: error.into() },
        _ => generic(error),
    }
}

/// What was to get this name, and to be `new` there.
pub(crate) fn of_target(location: &Path, new: bool, error: narufs::Error) -> Error {
    if new && error.errno() == libc::EEXIST { is_there_already(location) } else { generic(error) }
}

pub(crate) fn is_there_already(location: &Path) -> Error {
    Error::AlreadyExists { path: location.to_string(), source: "it is there".into() }
}

pub(crate) fn not_found(location: &Path) -> Error {
    Error::NotFound { path: location.to_string(), source: "there is no such object".into() }
}

pub(crate) fn precondition(location: &Path, why: String) -> Error {
    Error::Precondition { path: location.to_string(), source: why.into() }
}
