//! The images that this process has open, and which image and path a name stands for.
//!
//! A full name is `IMAGE::/PATH`, so that what SQLite derives from it (`-journal`, `-wal`, names of super-journals, which
//! it writes into journals) leads to the same image, in this process and in the next. Where the environment names an
//! image, names are plain paths: NARUFS_SQLITE_AT, if it is set, is the directory that stands for its root, and what lies
//! elsewhere is none of ours.
//!
//! All that use an image share one [`Fs`]. It is closed when the last file of it is; a [`Mounted`] keeps it open.

use crate::ffi::{Answer, CANTOPEN, IOERR_FSYNC, log};
use crate::shm::Shared;
use narufs::{Durability, File, FormatOptions, Fs, MountOptions, Origin, ServeOptions, Served, XattrMode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

/// Between the image and the path in it.
const BETWEEN: &str = "::/";

/// An image that is open.
pub struct Mount {
    /// Where others look in; ended before the image is closed.
    served: Option<Served>,
    pub fs: Fs,
    /// What connections share of each database in WAL mode, by its inode.
    pub shared: Mutex<HashMap<u64, Weak<Shared>>>,
    /// Real rollback journals that may be hot if the process ends now.
    pub real_journals: std::sync::atomic::AtomicUsize,
    /// The last of its fields: when it goes the image is closed.
    closed: Closed,
}

/// Tells those who wait for an image that it can be opened.
struct Closed {
    image: PathBuf,
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut open = locked(&OPEN);
        if open.get(&self.image).is_some_and(|mount| mount.strong_count() == 0) {
            open.remove(&self.image);
        }
        CLOSED.notify_all();
    }
}

/// A path in an image.
#[derive(Clone)]
pub struct Place {
    pub image: PathBuf,
    pub path: String,
}

/// Keeps an image open, whatever connections come and go.
#[derive(Clone)]
pub struct Mounted(Arc<Mount>);

impl Mounted {
    /// The file system, for everything else that the program wants of it.
    pub fn fs(&self) -> &Fs {
        &self.0.fs
    }
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted").finish_non_exhaustive()
    }
}

/// Those that are open, or that somebody is about to close.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Mount>>>> = LazyLock::new(Mutex::default);

static CLOSED: Condvar = Condvar::new();

/// How long one who opens an image waits for one who closes it.
const PATIENCE: Duration = Duration::from_secs(60);

/// All that is open, once nobody is about to close this image.
fn none_closes(image: &Path) -> MutexGuard<'static, HashMap<PathBuf, Weak<Mount>>> {
    let closes = |open: &mut HashMap<PathBuf, Weak<Mount>>| {
        open.get(image).is_some_and(|mount| mount.strong_count() == 0)
    };
    let waited = CLOSED.wait_timeout_while(locked(&OPEN), PATIENCE, closes);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// A lock whose holder may have panicked: what it guards is changed in single steps.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The one name of an image, however it is written.
pub fn canonical(image: &Path) -> PathBuf {
    let absolute = std::path::absolute(image).unwrap_or_else(|_| image.to_owned());
    absolute.canonicalize().unwrap_or(absolute)
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
            let is_root = of_environment("NARUFS_SQLITE_AT").is_none();
            if is_root { format!("/{}", normal(name)) } else { absolute.to_string_lossy().into_owned() }
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

/// The images that are open now. Not to be called by who holds [`OPEN`]: the last to have one closes it.
pub fn open_mounts() -> Vec<Arc<Mount>> {
    let open = locked(&OPEN);
    open.values().filter_map(Weak::upgrade).collect()
}

/// What a name, full or not, means.
pub fn meaning(name: &str) -> Meaning {
    if let Some((image, path)) = name.split_once(BETWEEN) {
        // Canonical since it was made a full name.
        return Meaning::Ours(Place { image: image.into(), path: format!("/{}", normal(path)) });
    }
    let Some(image) = of_environment("NARUFS_SQLITE_IMAGE") else { return Meaning::Nothing };
    let image = known(&image);
    let Some(at) = of_environment("NARUFS_SQLITE_AT") else {
        return Meaning::Ours(Place { image, path: format!("/{}", normal(name)) });
    };
    let absolute = std::path::absolute(name).unwrap_or_else(|_| name.into());
    let below = format!("/{}", normal(&absolute.to_string_lossy()));
    match Path::new(&below).strip_prefix(&at) {
        Ok(path) => Meaning::Ours(Place { image, path: format!("/{}", path.display()) }),
        Err(_) => Meaning::Theirs,
    }
}

/// The canonical name of the environment's image, asked of the system once.
fn known(image: &str) -> PathBuf {
    static LAST: Mutex<Option<(String, PathBuf)>> = Mutex::new(None);
    let mut last = locked(&LAST);
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

/// How an image is to be opened, in words: of a URI's parameters or of the environment.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    pub durability: Option<String>,
    pub memory: Option<String>,
    /// Where the image is not there, one of this size is made, for a database.
    pub size: Option<String>,
    pub makes: bool,
    /// What an image is that was not closed: copied or moved.
    pub origin: Option<String>,
    /// The directory where others look in.
    pub serve: Option<String>,
}

impl Wishes {
    /// Those of the environment, for what is not wished yet; it names one directory, where its own image is served.
    fn or_environment(mut self, image: &Path) -> Wishes {
        self.durability = self.durability.or_else(|| of_environment("NARUFS_SQLITE_DURABILITY"));
        self.memory = self.memory.or_else(|| of_environment("NARUFS_SQLITE_MEMORY"));
        self.size = self.size.or_else(|| of_environment("NARUFS_SQLITE_SIZE"));
        self.origin = self.origin.or_else(|| of_environment("NARUFS_SQLITE_ORIGIN"));
        let own = of_environment("NARUFS_SQLITE_IMAGE");
        if own.is_none_or(|own| known(&own) == image) {
            self.serve = self.serve.or_else(|| of_environment("NARUFS_SQLITE_SERVE"));
        }
        self
    }

    fn options(&self) -> Result<MountOptions, String> {
        let mut options = MountOptions::new();
        if let Some(words) = &self.durability {
            options = options.durability(durability(words)?);
        }
        if let Some(words) = &self.memory {
            options = options.memory(bytes(words)?);
        }
        options = match self.origin.as_deref() {
            None => options,
            Some("copied") => options.origin(Origin::Copied),
            Some("moved") => options.origin(Origin::Moved),
            Some(words) => return Err(format!("origin={words}: say copied or moved")),
        };
        Ok(options)
    }
}

fn durability(words: &str) -> Result<Durability, String> {
    match words {
        "power" => Ok(Durability::Power),
        "process" => Ok(Durability::Process),
        _ => {
            let ms =
                words.strip_prefix("window=").and_then(|w| w.strip_suffix("ms")).and_then(|w| w.parse().ok());
            let ms = ms.ok_or_else(|| format!("durability={words}: say power, process or window=100ms"))?;
            Ok(Durability::Window(Duration::from_millis(ms)))
        }
    }
}

fn bytes(words: &str) -> Result<u64, String> {
    let wrong = || format!("{words}: say a number of bytes, or one with K, M or G");
    let (digits, unit) = match words.char_indices().last() {
        Some((at, 'K' | 'k')) => (&words[..at], 10),
        Some((at, 'M' | 'm')) => (&words[..at], 20),
        Some((at, 'G' | 'g')) => (&words[..at], 30),
        _ => (words, 0),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << unit)).ok_or_else(wrong)
}

/// The image, opened unless it is open already.
pub fn mount(image: &Path, wishes: Wishes) -> Answer<Arc<Mount>> {
    let mut open = none_closes(image);
    if let Some(mount) = open.get(image).and_then(Weak::upgrade) {
        return Ok(mount);
    }
    let wishes = wishes.or_environment(image);
    let opened = try_open(image, &wishes).map_err(|why| {
        log(CANTOPEN, &why);
        CANTOPEN
    })?;
    let mount = Arc::new(opened);
    open.insert(image.to_owned(), Arc::downgrade(&mount));
    at_exit();
    Ok(mount)
}

thread_local! {
    /// The image whose journal this thread has last begun to look through, and its name when that was written.
    static READS: RefCell<(Weak<Mount>, Vec<u8>)> = RefCell::default();
}

/// Where a journal that is a file says what its image was called.
const WRITTEN_IN: &str = "user.narufs.image";

/// A journal keeps the name by which it, and a super-journal that it names, was known.
pub fn is_written_in(mount: &Mount, journal: &File) -> narufs::Result<()> {
    journal.set_xattr(WRITTEN_IN, mount.image().as_os_str().as_bytes(), XattrMode::Any)
}

/// A journal is looked through: what it names is found by [`mount_of`].
pub fn reads(mount: &Arc<Mount>, journal: &File) {
    READS.replace((Arc::downgrade(mount), journal.xattr(WRITTEN_IN).unwrap_or_default()));
}

/// The image of a file that is no database. An image that this process has not open is named by a journal alone; where it
/// is the journal's own as it was called when that was written, it may have been moved or copied since.
pub fn mount_of(place: &Place) -> Answer<Arc<Mount>> {
    let is_open = locked(&OPEN).get(&place.image).is_some_and(|mount| mount.strong_count() > 0);
    if !is_open
        && let Some(mount) = READS.with_borrow(|(mount, name)| {
            let same = name.as_slice() == place.image.as_os_str().as_bytes();
            mount.upgrade().filter(|_| same)
        })
    {
        return Ok(mount);
    }
    let opened = mount(&place.image, Wishes::default());
    if opened.is_err() {
        let name = place.name();
        log(
            CANTOPEN,
            &format!("{name}: named by a journal; its image must have that path again to play that back"),
        );
    }
    opened
}

fn try_open(image: &Path, wishes: &Wishes) -> Result<Mount, String> {
    let options = wishes.options()?;
    if let Some(size) = &wishes.size
        && wishes.makes
        && !image.exists()
    {
        let options = FormatOptions::new().size(bytes(size)?);
        Fs::format(image, &options).map_err(|e| e.to_string())?;
    }
    let fs = Fs::open(image, &options).map_err(|e| e.to_string())?;
    let served = wishes.serve.as_deref().map(|dir| serve(&fs, image, dir)).transpose()?;
    Ok(Mount { served, ..Mount::new(fs, image) })
}

fn serve(fs: &Fs, image: &Path, dir: &str) -> Result<Served, String> {
    let options = ServeOptions::new().source(&image.to_string_lossy());
    fs.serve(dir, &options).map_err(|e| match e.errno() {
        libc::EPERM => format!("{e}: it takes root, or fusermount3 (the package fuse3)"),
        _ => e.to_string(),
    })
}

impl Mount {
    /// What it is called.
    pub fn image(&self) -> &Path {
        &self.closed.image
    }

    /// Where others look in.
    pub fn served_at(&self) -> Option<&Path> {
        self.served.as_ref().map(Served::dir)
    }

    fn new(fs: Fs, image: &Path) -> Mount {
        let closed = Closed { image: image.to_owned() };
        Mount { served: None, fs, shared: Mutex::default(), real_journals: 0.into(), closed }
    }
}

/// Opens an image for this process and keeps it open.
///
/// # Errors
/// In words: what [`Fs::open`] says, or what is wrong with the options.
pub fn keep_open(image: &Path, options: &MountOptions) -> Result<Mounted, String> {
    let image = canonical(image);
    let mut open = none_closes(&image);
    if open.get(&image).is_some_and(|mount| mount.strong_count() > 0) {
        return Err(format!("{}: this process has it open already", image.display()));
    }
    let fs = Fs::open(&image, options).map_err(|e| e.to_string())?;
    let mount = Arc::new(Mount::new(fs, &image));
    open.insert(image, Arc::downgrade(&mount));
    at_exit();
    Ok(Mounted(mount))
}

/// Lets what a program has not closed survive its end: transactions with `synchronous=OFF` are in memory until then.
fn at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| crate::vfs::at_exit(sync_all));
}

extern "C" fn sync_all() {
    // What belongs to the thread that ends the process is gone by now; another has its own.
    let syncing = std::thread::Builder::new().spawn(|| {
        // Whoever holds this lock now never lets go of it.
        let Ok(open) = OPEN.try_lock() else { return };
        for mount in open.values().filter_map(Weak::upgrade) {
            // First, so that what those have written who come through the directory is synced as well, to the last that
            // they were answered for. Left alone the directory would stay, and answer nobody.
            let cut_off = |served: &Served| served.cut_off().and_then(|()| served.wait());
            for outcome in [mount.served.as_ref().map_or(Ok(()), cut_off), mount.fs.sync()] {
                if let Err(e) = outcome {
                    log(IOERR_FSYNC, &e.to_string());
                }
            }
            // Closing needs threads that the end of the process may have stopped.
            std::mem::forget(mount);
        }
    });
    if let Ok(syncing) = syncing {
        // It has said what has failed.
        let _ = syncing.join();
    }
}
