//! The objects below a directory, one after the other, in the order of the directories: nothing is collected.

use crate::attributes;
use crate::error::generic;
use crate::mount::Mount;
use crate::names::{self, Meaning};
use narufs::{DirEntry, DirPosition, ReadDir};
use object_store::path::Path;
use object_store::{ObjectMeta, Result};
use std::sync::Arc;

/// Between the levels of a place.
const BETWEEN: char = '/';

/// What a walk comes by.
pub(crate) enum Found {
    Object(ObjectMeta),
    /// A directory with at least one object in it, where those are not wanted.
    Prefix(Path),
}

/// What a walk is for.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Keys that begin so, part or no part.
    pub(crate) begin: String,
    /// Keys behind this one.
    pub(crate) behind: Option<String>,
    /// Directories, not what is in them.
    pub(crate) one_level: bool,
}

/// A directory on the way.
struct Level {
    entries: ReadDir,
    /// Its name in the one above.
    name: String,
    /// What keys in it begin with.
    key: String,
}

/// A walk. The directories go before the image.
pub(crate) struct Walk {
    levels: Vec<Level>,
    wanted: Wanted,
    mount: Arc<Mount>,
}

fn is_gone(error: &narufs::Error) -> bool {
    matches!(error.errno(), libc::ENOENT | libc::ENOTDIR)
}

impl Wanted {
    fn wants_key(&self, key: &str) -> bool {
        key.starts_with(&self.begin) && self.behind.as_ref().is_none_or(|behind| key > behind.as_str())
    }

    /// Whether there may be wanted keys that begin so.
    fn wants_below(&self, key: &str) -> bool {
        (key.starts_with(&self.begin) || self.begin.starts_with(key))
            && self.behind.as_ref().is_none_or(|behind| key > behind.as_str() || behind.starts_with(key))
    }
}

impl Walk {
    /// From the directory of a prefix on.
    ///
    /// # Errors
    /// What narufs says; a directory that is not there is an empty one.
    pub(crate) fn from(mount: Arc<Mount>, root: &str, prefix: &Path, wanted: Wanted) -> Result<Walk> {
        let path = names::dir_path(root, prefix);
        let path = if path.is_empty() { "/" } else { &path };
        let mut key = prefix.to_string();
        if !key.is_empty() {
            key.push('/');
        }
        let mut walk = Walk { levels: Vec::new(), wanted, mount };
        match walk.mount.fs.read_dir(path) {
            Ok(entries) => walk.levels.push(Level { entries, name: String::new(), key }),
            Err(e) if is_gone(&e) => {}
            Err(e) => return Err(generic(e)),
        }
        Ok(walk)
    }

    /// Where it is: what was found up to now lies before. None at the end.
    pub(crate) fn place(&self) -> String {
        let mut place = String::new();
        for level in &self.levels {
            if !place.is_empty() {
                place = place + &level.name + &BETWEEN.to_string();
            }
            place += &format!("{:x}{BETWEEN}", level.entries.position().to_u64());
        }
        place
    }

    /// Goes on from a place. Of directories that are gone by now nothing is left.
    ///
    /// # Errors
    /// What is no place; what narufs says.
    pub(crate) fn go_on(&mut self, root: &str, prefix: &Path, place: &str) -> Result<()> {
        let wrong = || generic(format!("{place}: this is no page token of this store"));
        let mut path = names::dir_path(root, prefix);
        let mut words = place.split_terminator(BETWEEN);
        loop {
            let position =
                words.next().and_then(|word| u64::from_str_radix(word, 16).ok()).ok_or_else(wrong)?;
            let Some(level) = self.levels.last_mut() else { return Ok(()) };
            level.entries.seek(DirPosition::from_u64(position));
            let Some(name) = words.next() else { return Ok(()) };
            path = path + "/" + name;
            let key = below(&level.key, name).ok_or_else(wrong)?;
            match self.mount.fs.read_dir(&path) {
                Ok(entries) => self.levels.push(Level { entries, name: name.to_owned(), key }),
                Err(e) if is_gone(&e) => return Ok(()),
                Err(e) => return Err(generic(e)),
            }
        }
    }

    /// What comes next.
    ///
    /// # Errors
    /// What narufs says.
    pub(crate) fn next(&mut self) -> Result<Option<Found>> {
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            let entry = match level.entries.next() {
                Some(Ok(entry)) => entry,
                Some(Err(e)) if !is_gone(&e) => return Err(generic(e)),
                _ => {
                    self.levels.pop();
                    continue;
                }
            };
            let Some(name) = entry.file_name().to_str() else { continue };
            if entry.file_type().is_file() {
                if let Some(object) = self.object(&entry, name)? {
                    return Ok(Some(Found::Object(object)));
                }
            } else if entry.file_type().is_dir()
                && let Some(prefix) = self.descend(&entry, name)?
            {
                return Ok(Some(Found::Prefix(prefix)));
            }
        }
    }

    fn key(&self) -> &str {
        self.levels.last().map_or("", |level| &level.key)
    }

    fn object(&self, entry: &DirEntry, name: &str) -> Result<Option<ObjectMeta>> {
        let Meaning::Object(name) = names::of_file(name) else { return Ok(None) };
        let key = format!("{}{name}", self.key());
        if !self.wanted.wants_key(&key) {
            return Ok(None);
        }
        // What has such a name, and no key has it.
        let Ok(location) = Path::parse(&key) else { return Ok(None) };
        match entry.metadata() {
            Ok(metadata) => Ok(Some(attributes::meta(location, &metadata))),
            Err(e) if is_gone(&e) => Ok(None),
            Err(e) => Err(generic(e)),
        }
    }

    /// Goes into a directory, or gives it where that is not wanted.
    fn descend(&mut self, entry: &DirEntry, name: &str) -> Result<Option<Path>> {
        let Some(key) = below(self.key(), name) else { return Ok(None) };
        if !self.wanted.wants_below(&key) {
            return Ok(None);
        }
        let entries = match self.mount.fs.read_dir(entry.path()) {
            Ok(entries) => entries,
            Err(e) if is_gone(&e) => return Ok(None),
            Err(e) => return Err(generic(e)),
        };
        if !self.wanted.one_level || !key.ends_with('/') {
            self.levels.push(Level { entries, name: name.to_owned(), key });
            return Ok(None);
        }
        let Ok(prefix) = Path::parse(&key) else { return Ok(None) };
        // A put that was not ended, or a delete, has left a directory with nothing in it.
        let (wanted, mount) = (Wanted::default(), Arc::clone(&self.mount));
        let level = Level { entries, name: String::new(), key };
        let mut inside = Walk { levels: vec![level], wanted, mount };
        Ok(inside.next()?.map(|_| prefix))
    }
}

/// What keys in a directory begin with, by its name and that of keys in the one above.
fn below(key: &str, name: &str) -> Option<String> {
    match names::of_dir(name) {
        Meaning::Part(part) => Some(format!("{key}{part}/")),
        Meaning::Begin(begin) => Some(format!("{key}{begin}")),
        _ => None,
    }
}
