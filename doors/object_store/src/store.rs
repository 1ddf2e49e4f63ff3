//! The store: how it is opened, and which call of the trait is answered by what.

use crate::error::generic;
use crate::mount::{self, Mount};
use crate::names;
use crate::run::{blocking, durable, durable_here};
use crate::write::{MOST_IN_RECORD, When};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use narufs::{AccessTimes, Fs, MountOptions};
use object_store::path::{self, Path};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, RenameTargetMode, Result,
};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Objects in an image of narufs. A clone is the same store.
///
/// What is acknowledged is durable, deletes too: it survives what [`narufs::Durability`] says, by default a loss of power.
///
/// ```
/// # async fn objects() -> object_store::Result<()> {
/// # let place = tempfile::tempdir().unwrap();
/// # let image = place.path().join("image");
/// use narufs_object_store::NarufsStore;
/// use object_store::{ObjectStore, ObjectStoreExt, PutMode, path::Path};
///
/// let store = NarufsStore::builder(&image).size(64 << 20).build()?; // made if it is not there
/// let key = Path::from("tables/one/manifest");
/// store.put_opts(&key, "version 1".into(), PutMode::Create.into()).await?; // durable now
/// let found = store.get(&key).await?;
/// let replaces = PutMode::Update(object_store::UpdateVersion { e_tag: found.meta.e_tag.clone(), version: None });
/// store.put_opts(&key, "version 2".into(), replaces.into()).await?; // of many who try, one
/// store.delete(&key).await?;
/// store.close()?;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(objects()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct NarufsStore {
    pub(crate) mount: Arc<Mount>,
    /// The directory of the image that it lies in, without a slash at the end.
    pub(crate) root: Arc<str>,
}

/// How a store is opened.
#[derive(Debug, Clone)]
#[must_use]
pub struct NarufsStoreBuilder {
    image: PathBuf,
    size: Option<u64>,
    directory: String,
    options: MountOptions,
}

impl NarufsStoreBuilder {
    /// Makes the image, so many bytes long, if it is not there.
    pub fn size(mut self, bytes: u64) -> NarufsStoreBuilder {
        self.size = Some(bytes);
        self
    }

    /// The directory of the image that the objects lie in; by default its root. It is made if it is not there. Stores in
    /// directories of each other see each other's files as none of theirs, mostly: let them lie beside each other. `..`
    /// is refused, and a symbolic link is not taken for what it leads to: updates by the two do not know of each other.
    pub fn directory(mut self, path: impl Into<String>) -> NarufsStoreBuilder {
        self.directory = path.into();
        self
    }

    /// How the image is opened, if this process has not opened it yet: what a sync waits for, memory and the rest. By
    /// default as [`MountOptions::new`], without access times.
    pub fn mount_options(mut self, options: MountOptions) -> NarufsStoreBuilder {
        self.options = options;
        self
    }

    /// Opens the store. Stores of one image share it, whatever their options say; it is closed when the last of them is
    /// dropped, and the last object that is still read.
    ///
    /// # Errors
    /// [`object_store::Error::Generic`] with what [`Fs::open`] says, as that the image is open in another process.
    pub fn build(self) -> Result<NarufsStore> {
        let mount = mount::open(&self.image, self.size, &self.options)?;
        NarufsStore::in_mount(mount, &self.directory)
    }
}

impl NarufsStore {
    /// The store at the root of an image, which must be there.
    ///
    /// # Errors
    /// As [`NarufsStoreBuilder::build`].
    pub fn open(image: impl Into<PathBuf>) -> Result<NarufsStore> {
        NarufsStore::builder(image).build()
    }

    /// How a store is opened; to begin with as [`NarufsStore::open`] does it.
    pub fn builder(image: impl Into<PathBuf>) -> NarufsStoreBuilder {
        let options = MountOptions::new().access_times(AccessTimes::Never);
        NarufsStoreBuilder { image: image.into(), size: None, directory: String::new(), options }
    }

    /// A store in a directory of a file system that the program has opened, which is made if it is not there. Others in the
    /// same file system: [`NarufsStore::beside`], so that their conditional puts know of each other.
    ///
    /// # Errors
    /// [`object_store::Error::Generic`] with what narufs says.
    pub fn new(fs: Fs, directory: &str) -> Result<NarufsStore> {
        NarufsStore::in_mount(Arc::new(Mount::of(fs)?), directory)
    }

    /// A store in another directory of the same image.
    ///
    /// # Errors
    /// As [`NarufsStore::new`].
    pub fn beside(&self, directory: &str) -> Result<NarufsStore> {
        NarufsStore::in_mount(Arc::clone(&self.mount), directory)
    }

    pub(crate) fn in_mount(mount: Arc<Mount>, directory: &str) -> Result<NarufsStore> {
        // Locks go by names: each directory has one.
        let mut root = String::new();
        for part in directory.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if part == ".." {
                return Err(generic(format!(
                    "{directory}: name the directory that it leads to, without `..`"
                )));
            }
            root.push('/');
            root.push_str(part);
        }
        mount.prepare(&root).map_err(generic)?;
        Ok(NarufsStore { mount, root: root.into() })
    }

    /// The file system, for everything else that the program wants of it: objects are to be changed by stores alone.
    pub fn fs(&self) -> &Fs {
        &self.mount.fs
    }

    /// Closes the image, and says what went wrong with that, which a drop does not.
    ///
    /// # Errors
    /// [`object_store::Error::Generic`] if something else of it is still in use; what was acknowledged is durable, and it is
    /// closed when the last is dropped. What narufs says.
    pub fn close(self) -> Result<()> {
        let busy =
            || generic("the image is still in use, by another store or by an object that is being read");
        Arc::into_inner(self.mount).ok_or_else(busy)?.close()
    }

    /// The directory, as narufs names it.
    pub(crate) fn dir(&self) -> &str {
        if self.root.is_empty() { "/" } else { &self.root }
    }

    /// The file of an object.
    pub(crate) fn object(&self, location: &Path) -> Result<String> {
        let is_root = || path::Error::EmptySegment { path: location.to_string() };
        Ok(names::object_path(&self.root, location).ok_or_else(is_root)?)
    }
}

impl std::fmt::Display for NarufsStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NarufsStore({})", self.dir())
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for NarufsStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let when = When::of(opts.mode)?;
        if payload.content_length() <= MOST_IN_RECORD && self.mount.room.is_enough() {
            return durable_here(&self.mount, || {
                self.put_object(location, &payload, &when, &opts.attributes)
            })
            .await;
        }
        let (store, location) = (self.clone(), location.clone());
        durable(move || store.put_object(&location, &payload, &when, &opts.attributes)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let (store, location) = (self.clone(), location.clone());
        let upload = blocking(move || store.begin_upload(&location, &opts.attributes)).await?;
        Ok(Box::new(upload))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.read(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (store, location, ranges) = (self.clone(), location.clone(), ranges.to_vec());
        blocking(move || store.read_ranges(&location, &ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.remove_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (store, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        blocking(move || store.level(&prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (store, from, to) = (self.clone(), from.clone(), to.clone());
        durable(move || store.copy_object(&from, &to, options.mode)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let (store, from, to) = (self.clone(), from.clone(), to.clone());
        let replace = options.target_mode == RenameTargetMode::Overwrite;
        durable(move || store.move_object(&from, &to, replace)).await
    }
}
