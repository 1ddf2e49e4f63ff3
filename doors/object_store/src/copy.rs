//! Copies and renames: of names alone. An object is never changed, so a copy is another name of the same file.

use crate::attributes;
use crate::error::{generic, is_there_already, not_found, of_object, of_target};
use crate::run::{Promise, check_wanted};
use crate::store::NarufsStore;
use crate::write::{When, named, there};
use narufs::{File, RenameMode};
use object_store::path::Path;
use object_store::{CopyMode, Result};

/// Whether it was done, or the object has as many names as it can.
enum Linked {
    Done,
    TooMany,
}

impl NarufsStore {
    /// Gives an object another name.
    ///
    /// # Errors
    /// As [`object_store::ObjectStore::copy_opts`].
    pub(crate) fn copy_object(&self, from: &Path, to: &Path, mode: CopyMode) -> Result<((), Promise)> {
        match self.link(from, to, mode)? {
            Linked::Done => Ok(((), self.mount.promise())),
            Linked::TooMany => self.clone_object(from, to, mode),
        }
    }

    fn link(&self, from: &Path, to: &Path, mode: CopyMode) -> Result<Linked> {
        let (old, new) = (self.object(from)?, self.object(to)?);
        let fs = &self.mount.fs;
        let _held = self.mount.hold_both(&old, &new);
        check_wanted()?;
        let source =
            there(&self.mount, &old).map_err(|e| of_object(from, e))?.ok_or_else(|| not_found(from))?;
        let target = there(&self.mount, &new).map_err(|e| of_object(to, e))?;
        if mode == CopyMode::Create && target.is_some() {
            return Err(is_there_already(to));
        }
        if target.as_ref().is_some_and(|target| target.ino() == source.ino()) {
            return Ok(Linked::Done);
        }
        if source.nlink() >= self.mount.most_links {
            return Ok(Linked::TooMany);
        }
        if target.is_none() {
            named(&self.mount, &new, || fs.hard_link(&old, &new)).map_err(generic)?;
            return Ok(Linked::Done);
        }
        let moment = self.mount.moment(&self.root);
        fs.hard_link(&old, moment.path()).map_err(generic)?;
        fs.rename(moment.path(), &new).map_err(generic)?;
        moment.moved_away();
        Ok(Linked::Done)
    }

    /// A copy that is a file of its own.
    fn clone_object(&self, from: &Path, to: &Path, mode: CopyMode) -> Result<((), Promise)> {
        let source = self.mount.fs.open(self.object(from)?).map_err(|e| of_object(from, e))?;
        let file = self.nameless(&attributes::of(&source).map_err(generic)?)?;
        append(&source, &file, 0).map_err(generic)?;
        let when = if mode == CopyMode::Create { When::Free } else { When::Always };
        let (_, promise) = self.publish(self.ordered(file)?, to, &self.object(to)?, &when)?;
        Ok(((), promise))
    }

    /// Renames.
    ///
    /// # Errors
    /// As [`object_store::ObjectStore::rename_opts`].
    pub(crate) fn move_object(&self, from: &Path, to: &Path, replace: bool) -> Result<((), Promise)> {
        let (old, new) = (self.object(from)?, self.object(to)?);
        let fs = &self.mount.fs;
        let held = self.mount.hold_both(&old, &new);
        check_wanted()?;
        let source =
            there(&self.mount, &old).map_err(|e| of_object(from, e))?.ok_or_else(|| not_found(from))?;
        let target = there(&self.mount, &new).map_err(|e| of_object(to, e))?;
        if !replace && target.is_some() {
            return Err(is_there_already(to));
        }
        if old == new {
            return Ok(((), Promise::kept()));
        }
        if target.as_ref().is_some_and(|target| target.ino() == source.ino()) {
            // rename(2) leaves two names of one file as they are.
            fs.remove_file(&old).map_err(|e| of_object(from, e))?;
        } else {
            let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
            named(&self.mount, &new, || fs.rename_to(&old, fs, &new, mode))
                .map_err(|e| of_target(to, !replace, e))?;
        }
        drop(held);
        self.prune(&old);
        Ok(((), self.mount.promise()))
    }
}

/// Copies a file to an offset of another; gives the end.
///
/// # Errors
/// ENOSPC, and those of the device.
pub(crate) fn append(from: &File, to: &File, offset: u64) -> narufs::Result<u64> {
    let size = from.metadata()?.len();
    let mut done = 0;
    while done < size {
        match from.copy_range(done, to, offset + done, size - done)? {
            0 => break,
            copied => done += copied,
        }
    }
    Ok(offset + done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::Mount;
    use narufs::{Fs, ScratchOptions};
    use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions};

    #[tokio::test]
    async fn an_object_with_too_many_names_is_copied() {
        let fs = Fs::scratch(&ScratchOptions::new(64 << 20)).expect("memory");
        let mut mount = Mount::of(fs).expect("memory");
        mount.most_links = 2;
        let store = NarufsStore::in_mount(mount.into(), "").expect("memory");
        let (one, two, three) = (Path::from("one"), Path::from("two"), Path::from("new/three"));
        let attributes = Attributes::from_iter([(Attribute::ContentType, "text/plain")]);
        let options = PutOptions { attributes: attributes.clone(), ..PutOptions::default() };
        store.put_opts(&one, "content".into(), options).await.expect("room");
        store.copy(&one, &two).await.expect("a name");
        store.copy(&one, &three).await.expect("a file");
        let tag = |path: Path| {
            let store = store.clone();
            async move { store.head(&path).await.expect("there").e_tag }
        };
        assert_eq!(tag(one.clone()).await, tag(two).await);
        assert_ne!(tag(one.clone()).await, tag(three.clone()).await);
        let copy = store.get(&three).await.expect("there");
        assert_eq!(copy.attributes, attributes);
        assert_eq!(copy.bytes().await.expect("read"), "content");
        assert!(store.copy_if_not_exists(&one, &three).await.is_err());
    }
}
