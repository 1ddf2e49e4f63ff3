//! Which image and path a name stands for.
//!
//! A full name is `IMAGE::/PATH`, so that what SQLite derives from it (`-journal`, `-wal`, names of super-journals, which
//! it writes into journals) leads to the same image, in this process and in the next. With NARUFS_SQLITE_AT, the
//! directory that stands for the root of the environment's image, names are plain paths: what lies elsewhere is none of
//! ours, and programs are to find the names that they know. What plain names mean may be another image in the next
//! process, so a journal that is a file keeps what they meant when it was written.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Between the image and the path in it.
const BETWEEN: &str = "::/";

/// A path in an image.
#[derive(Clone)]
pub struct Place {
    pub image: PathBuf,
    pub path: String,
}

/// A variable of the environment that says something.
pub fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// How many symbolic links in a row the system follows.
const MOST_LINKS: usize = 40;

/// The one name of an image, however it is written; of one that is yet to be made, the one that it will have.
pub fn canonical(image: &Path) -> PathBuf {
    let mut absolute = std::path::absolute(image).unwrap_or_else(|_| image.to_owned());
    for _ in 0..MOST_LINKS {
        let there = absolute.canonicalize();
        let Some((dir, name)) = absolute.parent().zip(absolute.file_name()).filter(|_| there.is_err()) else {
            return there.unwrap_or(absolute);
        };
        let Ok(dir) = dir.canonicalize() else { return absolute };
        absolute = dir.join(name);
        // What it leads to is what is made.
        let Ok(to) = absolute.read_link() else { return absolute };
        absolute = dir.join(to);
    }
    absolute
}

impl Place {
    /// The full name.
    pub fn name(&self) -> String {
        format!("{}::{}", self.image.display(), self.path)
    }
}

/// The full name for one that a user gives, with the image that a URI names beside it, if any.
pub fn full_name(name: &str, image: Option<&str>) -> String {
    let place = |image: &str, path: &str| {
        Place { image: canonical(Path::new(image)), path: format!("/{}", normal(path)) }.name()
    };
    match (image, name.split_once(BETWEEN)) {
        (Some(image), _) => place(image, name),
        (None, Some((image, path))) => place(image, path),
        (None, None) => {
            let absolute = std::path::absolute(name).unwrap_or_else(|_| name.into());
            if of_environment("NARUFS_SQLITE_AT").is_some() {
                return absolute.to_string_lossy().into_owned();
            }
            match of_environment("NARUFS_SQLITE_IMAGE") {
                Some(image) => Place { image: known(&image), path: format!("/{}", normal(name)) }.name(),
                None => format!("/{}", normal(name)),
            }
        }
    }
}

/// A path from the root on without its first slash, and without what leads nowhere.
pub fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// What a name means.
pub enum Meaning {
    /// A path in an image.
    Ours(Place),
    /// A file of the system: the system's VFS has it.
    Theirs,
    /// Nothing: no image is named.
    Nothing,
}

/// Whether a name is a full one, of an image.
pub fn meant_in_an_image(name: &str) -> bool {
    name.contains(BETWEEN)
}

/// What a name, full or not, means.
pub fn meaning(name: &str) -> Meaning {
    if let Some((image, path)) = name.split_once(BETWEEN) {
        // Canonical since it was made a full name.
        return Meaning::Ours(Place { image: image.into(), path: format!("/{}", normal(path)) });
    }
    match Environment::now() {
        Some(environment) => environment.meaning(name),
        None => Meaning::Nothing,
    }
}

/// What gives plain names a meaning.
pub struct Environment {
    pub image: PathBuf,
    pub at: Option<String>,
}

impl Environment {
    /// That of this process.
    pub fn now() -> Option<Environment> {
        let image = known(&of_environment("NARUFS_SQLITE_IMAGE")?);
        Some(Environment { image, at: of_environment("NARUFS_SQLITE_AT") })
    }

    /// What a plain name means.
    pub fn meaning(&self, name: &str) -> Meaning {
        let image = self.image.clone();
        let Some(at) = &self.at else {
            return Meaning::Ours(Place { image, path: format!("/{}", normal(name)) });
        };
        let absolute = std::path::absolute(name).unwrap_or_else(|_| name.into());
        let below = format!("/{}", normal(&absolute.to_string_lossy()));
        match Path::new(&below).strip_prefix(at) {
            Ok(path) => Meaning::Ours(Place { image, path: format!("/{}", path.display()) }),
            Err(_) => Meaning::Theirs,
        }
    }

    /// In one piece, for an attribute.
    pub fn in_bytes(&self) -> Vec<u8> {
        let mut bytes = self.image.as_os_str().as_bytes().to_vec();
        if let Some(at) = &self.at {
            bytes.push(0);
            bytes.extend_from_slice(at.as_bytes());
        }
        bytes
    }

    /// What [`Environment::in_bytes`] has made.
    pub fn of_bytes(bytes: &[u8]) -> Environment {
        let mut parts = bytes.splitn(2, |byte| *byte == 0);
        let image = PathBuf::from(OsStr::from_bytes(parts.next().unwrap_or_default()));
        Environment { image, at: parts.next().map(|at| String::from_utf8_lossy(at).into_owned()) }
    }
}

/// The canonical name of the environment's image, asked of the system once.
pub fn known(image: &str) -> PathBuf {
    static LAST: Mutex<Option<(String, PathBuf)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*last {
        Some((name, canonical)) if name == image => canonical.clone(),
        _ => {
            let canonical = canonical(Path::new(image));
            // One that is yet to be made may have another then.
            *last = canonical.exists().then(|| (image.to_owned(), canonical.clone()));
            canonical
        }
    }
}
