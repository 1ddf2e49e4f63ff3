//! What this process has open, at a directory for others: the feature `mount`.

use crate::engine::{AtimePolicy, Session};
use crate::error::{Cause, Error, Result};
use crate::fs::Fs;
use narufs_fuse::mount::{Atime, FuseOptions, Idle, IfBusy};
use narufs_fuse::{Caching, EngineOperations, Server};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// How a file system is served.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ServeOptions {
    read_only: bool,
    allow_other: Option<bool>,
    source: Option<String>,
}

impl ServeOptions {
    /// For changes too; for all users where root serves, and for its own user otherwise.
    pub fn new() -> ServeOptions {
        ServeOptions::default()
    }

    /// Nothing is changed through the mount, nor by reading there. This process may go on to.
    pub fn read_only(mut self, read_only: bool) -> ServeOptions {
        self.read_only = read_only;
        self
    }

    /// Other users than the one who serves have access, as far as permissions let them. Who is not root needs
    /// `user_allow_other` in `/etc/fuse.conf` for that.
    pub fn allow_other(mut self, allow: bool) -> ServeOptions {
        self.allow_other = Some(allow);
        self
    }

    /// What `/proc/mounts` shows as its source, such as the path of the image; by default `narufs`.
    pub fn source(mut self, source: &str) -> ServeOptions {
        self.source = Some(source.to_owned());
        self
    }
}

/// A file system that this process serves at a directory, from [`Fs::serve`]. Dropped, it takes the mount away: whoever
/// still uses it gets errors (ENOTCONN). It keeps the file system open.
///
/// Where this process ends without that, the directory answers ENOTCONN until somebody unmounts it (`umount DIR`,
/// `fusermount3 -u DIR`) or the next mount there takes its place. A child that was forked has no part in it.
#[must_use = "it is served as long as this is there"]
pub struct Served {
    /// None only while it is dropped.
    server: Option<Server<EngineOperations>>,
    session: Arc<Session>,
}

impl Fs {
    /// Serves the file system at a directory, by threads of its own, while this process goes on to use it. Root may, and
    /// who has `fusermount3`.
    ///
    /// Both sides see at once what the other changes: before a call of this process that changes something returns, the
    /// kernel has been told to forget what it knew of it. Stores through a shared map are another matter: the kernel has whole
    /// pages of them, so agree on who changes a page. Locks of ranges and of whole files, too, are in each other's way,
    /// whoever takes them: a [`File`](crate::File) here, fcntl(2) and flock(2) there. What programs there have locked goes
    /// when they close the file or end.
    ///
    /// Where a user who is not root serves, what is root's is shown as that user's: so are files that are made here, unless
    /// by [`Fs::as_user`]. What is made there belongs to whoever makes it.
    ///
    /// This process uses the file system by this library, and keeps out of the directory. If it is killed in the midst of a
    /// call there, or while it tells the kernel of a change that somebody there is in the midst of asking about, it waits
    /// for itself, until the mount is cut off: by a shell that stands by for that, where one can be started, or else by
    /// somebody (`umount -f DIR`).
    ///
    /// ```no_run
    /// # use narufs::{Fs, MountOptions, ServeOptions};
    /// let fs = Fs::open("/tmp/image", &MountOptions::new())?;
    /// let served = fs.serve("/mnt/inside", &ServeOptions::new().read_only(true))?;
    /// fs.write("/note", "seen at /mnt/inside/note")?;
    /// drop(served);
    /// fs.close()?;
    /// # Ok::<(), narufs::Error>(())
    /// ```
    ///
    /// # Errors
    /// EBUSY if it is served already; of the directory and of mount(2): ENOENT, ENOTDIR, EPERM;
    /// [`Cause::Refused`](crate::Cause::Refused) in words, if the kernel's module or `fusermount3` is missing.
    pub fn serve(&self, dir: impl AsRef<Path>, options: &ServeOptions) -> Result<Served> {
        const OPERATION: &str = "serve";
        let dir = dir.as_ref();
        let session = Arc::clone(self.session());
        let policy = session.enter(OPERATION).map_err(|e| e.at(dir))?.options();
        let mut mount = FuseOptions::new(options.source.as_deref().unwrap_or("narufs"));
        mount.read_only = options.read_only || policy.read_only;
        mount.allow_other = options.allow_other.unwrap_or(mount.allow_other);
        mount.lazytime = policy.lazytime;
        mount.atime = match policy.atime {
            AtimePolicy::Relative => Atime::Relative,
            AtimePolicy::Never => Atime::Never,
            AtimePolicy::Strict => Atime::Strict,
        };
        mount.shares_locks = true;
        mount.show_root_as_own();
        // The cores are the program's.
        mount.idle = Idle::Halt;
        if session.volume.served.swap(true, SeqCst) {
            return Err(Error::of_errno(OPERATION, libc::EBUSY).at(dir));
        }
        match narufs_fuse::serve(Arc::clone(session.volume.to_serve()), dir, &mount, Caching::Shared) {
            Ok(server) => Ok(Served { server: Some(server), session }),
            Err(e) => {
                session.volume.served.store(false, SeqCst);
                let cause = e.raw_os_error().map_or_else(|| Cause::Refused(e.to_string()), Cause::Errno);
                Err(Error::new(OPERATION, cause).at(dir))
            }
        }
    }
}

impl Served {
    /// The server, in the process that serves.
    fn server(&self, operation: &'static str) -> Result<&Server<EngineOperations>> {
        self.session.enter(operation)?;
        Ok(self.server.as_ref().expect("only the drop takes it"))
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        self.server.as_ref().expect("only the drop takes it").mount().point()
    }

    /// Waits until somebody has unmounted it, and everything there is closed.
    ///
    /// # Errors
    /// None of its own.
    pub fn wait(&self) -> Result<()> {
        self.server("wait")?.wait();
        Ok(())
    }

    /// Takes the mount away unless somebody uses it.
    ///
    /// # Errors
    /// EBUSY if somebody does: it is served further. EPERM if another may have mounted it.
    pub fn unmount(&self) -> Result<()> {
        self.end("unmount", IfBusy::Refuse)
    }

    /// Takes the mount away now: whoever still uses it gets errors. As dropping it, which waits until its last request is
    /// done.
    ///
    /// # Errors
    /// EPERM if another may have mounted it.
    pub fn cut_off(&self) -> Result<()> {
        self.end("cut_off", IfBusy::Abort)
    }

    fn end(&self, operation: &'static str, busy: IfBusy) -> Result<()> {
        self.server(operation)?.unmount(busy).map_err(|e| {
            let cause = e.raw_os_error().map_or_else(|| Cause::Refused(e.to_string()), Cause::Errno);
            Error::new(operation, cause).at(self.dir())
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let server = self.server.take();
        if self.session.is_ours() {
            drop(server);
            self.session.volume.served.store(false, SeqCst);
        } else {
            // The parent's: its threads are not here, and its mount is not to be touched.
            std::mem::forget(server);
        }
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("dir", &self.dir()).finish_non_exhaustive()
    }
}
