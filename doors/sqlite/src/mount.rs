//! The images that this process has open.
//!
//! All that use an image share one [`Fs`]. It is closed when the last file of it is; a [`Mounted`] keeps it open.

use crate::ffi::{Answer, CANTOPEN, IOERR_FSYNC, log};
use crate::names::{Environment, Meaning, Place, canonical, meaning};
use crate::shm::Shared;
use crate::stuck::Stuck;
use crate::wishes::{Wishes, bytes};
use narufs::{File, FormatOptions, Fs, MountOptions, ServeOptions, Served, XattrMode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

/// An image that is open.
pub struct Mount {
    /// Where others look in; ended before the image is closed.
    served: Option<Served>,
    /// Journals that undo what is committed and could not be ended yet; tried once more before the image is closed.
    pub stuck: Stuck,
    pub fs: Fs,
    /// What connections share of each database in WAL mode, by its inode.
    pub shared: Mutex<HashMap<u64, Weak<Shared>>>,
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

/// The images that are open now. Not to be called by who holds [`OPEN`]: the last to have one closes it.
pub fn open_mounts() -> Vec<Arc<Mount>> {
    let open = locked(&OPEN);
    open.values().filter_map(Weak::upgrade).collect()
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
    /// The journal that this thread has last begun to look through.
    static READS: RefCell<Reads> = RefCell::default();
}

/// What is known of a journal that is looked through.
#[derive(Default)]
struct Reads {
    /// Its image, and the name of that when it was written.
    mount: Weak<Mount>,
    name: Vec<u8>,
    /// What plain names meant then: nothing, where the environment had none. None if that was not kept.
    environment: Option<Vec<u8>>,
    /// Until it has been played back.
    plays: bool,
}

/// Where a journal that is a file says what its image was called.
const WRITTEN_IN: &str = "user.narufs.image";

/// And what plain names meant.
const WRITTEN_WITH: &str = "user.narufs.environment";

/// A journal keeps the name by which it, and a super-journal that it names, was known.
pub fn is_written_in(mount: &Mount, journal: &File) -> narufs::Result<()> {
    journal.set_xattr(WRITTEN_IN, mount.image().as_os_str().as_bytes(), XattrMode::Any)?;
    let environment = Environment::now().map(|now| now.in_bytes()).unwrap_or_default();
    journal.set_xattr(WRITTEN_WITH, &environment, XattrMode::Any)
}

/// A journal is looked through: what it names is found by [`mount_of`].
pub fn reads(mount: &Arc<Mount>, journal: &File) {
    READS.replace(Reads {
        mount: Arc::downgrade(mount),
        name: journal.xattr(WRITTEN_IN).unwrap_or_default(),
        environment: journal.xattr(WRITTEN_WITH).ok(),
        plays: true,
    });
}

/// A journal was played back, or could not be: names that are asked for are those of new ones.
pub fn has_read() {
    // At the end of a thread there is none any more.
    let _ = READS.try_with(|reads| reads.borrow_mut().plays = false);
}

/// Whether plain names that the journal has which this thread has last begun to look through were the system's: without
/// an environment a database of an image has no other.
pub fn names_the_system_s() -> bool {
    // At the end of a thread there is none any more.
    READS.try_with(|reads| reads.borrow().environment.as_ref().is_some_and(Vec::is_empty)).unwrap_or(false)
}

/// Why a plain name that a journal in play has means something else than it did, if so. What it leads to then says
/// nothing of that journal.
pub fn misleads(name: &str) -> Option<String> {
    READS.with_borrow(|reads| {
        let own = reads.mount.upgrade().filter(|_| reads.plays)?;
        let own_name = Path::new(OsStr::from_bytes(&reads.name));
        let now = match meaning(name) {
            // As [`mount_of`] finds it.
            Meaning::Ours(place) if !is_open(&place.image) && place.image == own_name => {
                Some(Place { image: own.image().to_owned(), ..place })
            }
            Meaning::Ours(place) => Some(place),
            _ => None,
        };
        let then = reads.environment.as_deref();
        let environment = then.filter(|then| !then.is_empty()).map(Environment::of_bytes);
        let meant = match environment.as_ref().map(|environment| environment.meaning(name)) {
            // Its own image may have been moved or copied since.
            Some(Meaning::Ours(place)) if place.image == own_name => {
                Some(Place { image: own.image().to_owned(), ..place })
            }
            Some(Meaning::Ours(place)) => Some(place),
            _ if then.is_some() => None,
            // Who kept nothing of it was in a process with that image, or at a directory where it was.
            _ => now.clone().map(|place| Place { image: own.image().to_owned(), ..place }),
        };
        if now.is_none() && reads.name.is_empty() {
            let image = own.image().display();
            return Some(format!(
                "named by a journal in {image} that was written through a directory; mount the image there and open \
                 the database with stock SQLite, which plays that back"
            ));
        }
        if now.as_ref().map(Place::name) == meant.as_ref().map(Place::name) {
            return None;
        }
        let what_to_do = match &meant {
            Some(place) => {
                let at = environment.and_then(|environment| environment.at);
                let at = at.map_or(String::new(), |at| format!(" and NARUFS_SQLITE_AT={at}"));
                format!("set NARUFS_SQLITE_IMAGE={}{at} to play that back", place.image.display())
            }
            None => "it was a file of the system; set NARUFS_SQLITE_AT to a directory that it is not below, to \
                     play that back"
                .to_owned(),
        };
        Some(format!("named by a journal in {}, and leads elsewhere now: {what_to_do}", own.image().display()))
    })
}

/// Whether this process has an image open.
fn is_open(image: &Path) -> bool {
    locked(&OPEN).get(image).is_some_and(|mount| mount.strong_count() > 0)
}

/// The image of a file that is no database. An image that this process has not open is named by a journal alone; where it
/// is the journal's own as it was called when that was written, it may have been moved or copied since.
pub fn mount_of(place: &Place) -> Answer<Arc<Mount>> {
    if !is_open(&place.image)
        && let Some(mount) = READS.with_borrow(|reads| {
            let same = reads.name.as_slice() == place.image.as_os_str().as_bytes();
            reads.mount.upgrade().filter(|_| same)
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
        Mount { served: None, fs, shared: Mutex::default(), stuck: Stuck::default(), closed }
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
            let cut_off = mount.served.as_ref().map_or(Ok(()), cut_off);
            mount.stuck.end_all();
            for outcome in [cut_off, mount.fs.sync()] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::open::Handle;
    use crate::plain::Plain;

    /// Those are told with a lock held, and nobody waits for that in vain who has closed it.
    #[test]
    fn an_image_is_closed_before_those_are_told_who_wait_for_it() {
        let room = tempfile::tempdir().expect("room");
        let image = canonical(&room.path().join("image"));
        let database = |mount, file| Handle::Db(Arc::new(Db::new(mount, "/a".to_owned(), file)));
        let other = |mount, file| Handle::Plain(Arc::new(Plain::new(mount, file, false)));
        for last in [database as fn(Arc<Mount>, File) -> Handle, other] {
            let (size, memory) = (Some("16M".to_owned()), Some("64M".to_owned()));
            let wishes = Wishes { size, memory, makes: true, ..Wishes::default() };
            let mounted = mount(&image, wishes).expect("room");
            let file = mounted.fs.create("/a").expect("room");
            let last = last(mounted, file);
            let telling = locked(&OPEN);
            let closing = std::thread::spawn(move || drop(last));
            // Each looks for a while by itself.
            let options = MountOptions::new().memory(64 << 20);
            let next = (0..5).find_map(|_| Fs::open(&image, &options).ok());
            drop(telling);
            closing.join().expect("it is closed");
            assert!(next.is_some(), "it is told that it is closed while it is not");
        }
    }
}
