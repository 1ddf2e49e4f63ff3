//! Puts: an object is written without a name, and gets it when its content is sure to come before the name in the journal.
//!
//! Few bytes are a batch of their own, one record that waits for nothing; more are written home, and ordered before what
//! is recorded next by the one operation of narufs that promises so, a rename over another file. Of few bytes one
//! flush then covers content, name and directories, whoever asks for it; where more were written home, narufs has flushed
//! those before.

use crate::attributes;
use crate::error::{generic, is_there_already, of_object, of_target, precondition};
use crate::mount::{Moment, Mount};
use crate::run::{Promise, check_wanted};
use crate::store::NarufsStore;
use narufs::{Commit, File, Metadata, OpenOptions, RenameMode};
use object_store::path::Path;
use object_store::{Attributes, PutMode, PutPayload, PutResult, Result};

/// What is no longer than this is written with its record.
pub(crate) const MOST_IN_RECORD: usize = 64 << 10;

/// How often a directory is made anew that others have removed because it was empty.
const MOST_TRIES: usize = 1000;

/// A file that is to be an object, and its content in the journal, or on its way before what follows.
pub(crate) struct Ready<'m> {
    pub(crate) file: File,
    /// The name that it has meanwhile, if it has one.
    pub(crate) moment: Option<Moment<'m>>,
}

/// What must be true of the name that an object is to get.
pub(crate) enum When {
    Always,
    Free,
    Has(String),
}

impl When {
    pub(crate) fn of(mode: PutMode) -> Result<When> {
        match mode {
            PutMode::Overwrite => Ok(When::Always),
            PutMode::Create => Ok(When::Free),
            PutMode::Update(version) => version
                .e_tag
                .map(When::Has)
                .ok_or_else(|| generic("an update needs the ETag of what it replaces")),
        }
    }

    fn check(&self, location: &Path, there: Option<&Metadata>) -> Result<()> {
        match (self, there) {
            (When::Free, Some(_)) => Err(is_there_already(location)),
            (When::Has(_), None) => Err(precondition(location, "there is no such object".into())),
            (When::Has(wanted), Some(there)) => {
                let found = attributes::e_tag(there);
                if *wanted == found {
                    Ok(())
                } else {
                    Err(precondition(location, format!("{found} does not match {wanted}")))
                }
            }
            (When::Always, _) | (When::Free, None) => Ok(()),
        }
    }
}

/// What narufs knows of an object, if it is there. What is no file is none, and may be in the way of one.
pub(crate) fn there(mount: &Mount, path: &str) -> narufs::Result<Option<Metadata>> {
    match mount.fs.symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata).filter(Metadata::is_file)),
        Err(e) if e.errno() == libc::ENOENT => Ok(None),
        Err(e) => Err(e),
    }
}

/// Does what gives a name, and makes the directories above it as often as they are missing.
pub(crate) fn named<T>(
    mount: &Mount,
    path: &str,
    mut name: impl FnMut() -> narufs::Result<T>,
) -> narufs::Result<T> {
    let mut tries = 0;
    loop {
        match name() {
            Err(e) if e.errno() == libc::ENOENT && tries < MOST_TRIES => {
                tries += 1;
                match path.rsplit_once('/').map(|(above, _)| mount.fs.create_dir_all(above)) {
                    // One above it was removed meanwhile, or removed and made by another.
                    Some(Err(e)) if !matches!(e.errno(), libc::ENOENT | libc::EEXIST) => return Err(e),
                    _ => {}
                }
            }
            done => return done,
        }
    }
}

impl NarufsStore {
    /// A file without a name.
    pub(crate) fn nameless(&self, attributes: &Attributes) -> Result<File> {
        let mut options = OpenOptions::new();
        let file =
            self.mount.fs.open_temporary(self.dir(), options.read(true).write(true)).map_err(generic)?;
        attributes::set(&file, attributes)?;
        Ok(file)
    }

    fn written(&self, payload: &PutPayload, attributes: &Attributes) -> Result<Ready<'_>> {
        let file = self.nameless(attributes)?;
        let parts = payload.iter().scan(0, |end, part| {
            let offset = *end;
            *end += part.len() as u64;
            Some((offset, part))
        });
        if payload.content_length() > MOST_IN_RECORD {
            for (offset, part) in parts {
                file.write_all_at(part, offset).map_err(generic)?;
            }
            return self.ordered(file);
        }
        let mut batch = self.mount.fs.batch();
        for (offset, part) in parts {
            batch.write_all_at(&file, part, offset).map_err(generic)?;
        }
        batch.commit(Commit::Ordered).map_err(generic)?;
        Ok(Ready { file, moment: None })
    }

    /// Has the content of a file come before all that is recorded from now on: what replaces another file by its name
    /// does, and for that it replaces an empty one.
    pub(crate) fn ordered(&self, file: File) -> Result<Ready<'_>> {
        let fs = &self.mount.fs;
        let (empty, full) = (self.mount.moment(&self.root), self.mount.moment(&self.root));
        fs.create_new(empty.path()).map_err(generic)?;
        fs.link_file(&file, full.path()).map_err(generic)?;
        fs.rename(full.path(), empty.path()).map_err(generic)?;
        full.moved_away();
        Ok(Ready { file, moment: Some(empty) })
    }

    /// Writes an object.
    ///
    /// # Errors
    /// As [`object_store::ObjectStore::put_opts`].
    pub(crate) fn put_object(
        &self,
        location: &Path,
        payload: &PutPayload,
        when: &When,
        attributes: &Attributes,
    ) -> Result<(PutResult, Promise)> {
        let path = self.object(location)?;
        if !matches!(when, When::Always) {
            // Whoever comes too late writes nothing.
            when.check(location, there(&self.mount, &path).map_err(|e| of_object(location, e))?.as_ref())?;
        }
        let ready = self.written(payload, attributes)?;
        self.publish(ready, location, &path, when)
    }

    /// Gives what is ready its name.
    ///
    /// # Errors
    /// As [`object_store::ObjectStore::put_opts`].
    pub(crate) fn publish(
        &self,
        ready: Ready<'_>,
        location: &Path,
        path: &str,
        when: &When,
    ) -> Result<(PutResult, Promise)> {
        let fs = &self.mount.fs;
        let Ready { file, mut moment } = ready;
        let held = self.mount.hold(path);
        check_wanted()?;
        let before = there(&self.mount, path).map_err(|e| of_object(location, e))?;
        when.check(location, before.as_ref())?;
        if before.is_some() && moment.is_none() {
            let name = self.mount.moment(&self.root);
            fs.link_file(&file, name.path()).map_err(generic)?;
            moment = Some(name);
        }
        // Who comes by another way than this lock is not replaced either.
        let (free, mode) = match when {
            When::Free => (true, RenameMode::NoReplace),
            _ => (false, RenameMode::Replace),
        };
        named(&self.mount, path, || match &moment {
            Some(moment) => fs.rename_to(moment.path(), fs, path, mode),
            None => fs.link_file(&file, path),
        })
        .map_err(|e| of_target(location, free, e))?;
        drop(held);
        if let Some(moment) = moment {
            moment.moved_away();
        }
        let e_tag = Some(attributes::e_tag(&file.metadata().map_err(generic)?));
        let promise = Promise::of(|told| file.sync_all_then(told));
        Ok((PutResult { e_tag, version: None, extensions: Default::default() }, promise))
    }
}
