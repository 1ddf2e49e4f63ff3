//! The engine in this process: no mount, no system call on the way to it.
//!
//! Sessions walk from name to name as an ordinary user, so that permissions are checked on every component, and
//! copy from and to the caller's buffers: what a program that uses the library pays for.

use super::{Description, How, Kind, Reopened, Session, Space, Survives, Target};
use crate::meter::Counters;
use crate::{Error, Result};
use narufs_engine::format::{Nid, ROOT_NID};
use narufs_engine::pmem::DurabilityLevel;
use narufs_engine::stats::Stats;
use narufs_engine::vfs::{
    self, Arrive, Context, FileHandle, FileType, InodeRef, OpenFlags, RenameFlags, SetAttr, Walked,
    WriteFlags,
};
use narufs_engine::volume::scratch::ScratchOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The user that sessions act as: not uid 0, for whom nothing is checked.
const USER: u32 = 1000;

/// How an image is mounted as a library.
pub type LibraryOptions = narufs_engine::VolumeOptions;

/// An image, or scratch space, mounted in this process. Dropped, it is left as the end of the process leaves it.
pub struct Library {
    image: PathBuf,
    name: String,
    options: LibraryOptions,
    fs: Option<narufs_engine::Fs>,
    survives: Survives,
    work: Option<(String, Nid)>,
}

fn context() -> Context {
    Context::with_groups(USER, USER, Vec::new())
}

fn failed(op: &'static str, path: &str) -> impl FnOnce(narufs_engine::Error) -> Error {
    move |e| Error::io(op, path, std::io::Error::from(e))
}

impl Library {
    /// Mounts an image; `name` is what records call it.
    ///
    /// # Errors
    /// In words, if it cannot be mounted or not be written to.
    pub fn mount(image: &Path, name: &str, options: LibraryOptions) -> Result<Library> {
        Library::over(mount(image, &options)?, image, name, options)
    }

    /// The same of a file system that is mounted already, with these options, on media of the caller's.
    ///
    /// # Errors
    /// In words, if it cannot be written to.
    pub fn over(fs: narufs_engine::Fs, image: &Path, name: &str, options: LibraryOptions) -> Result<Library> {
        let fs = sound(fs, image)?;
        let survives = match Stats::of(fs.inodes()).map_err(failed("stats", ""))?.durability {
            Some(DurabilityLevel::Power) => Survives::Power,
            Some(DurabilityLevel::Process) => Survives::Process,
            None => Survives::Nothing,
        };
        let (image, name) = (image.to_owned(), name.to_owned());
        Ok(Library { image, name, options, fs: Some(fs), survives, work: None })
    }

    /// Makes a scratch file system, which overflows to `spill`; `name` is what records call it.
    ///
    /// # Errors
    /// In words, if it cannot be made.
    pub fn scratch(spill: &Path, name: &str, options: &ScratchOptions) -> Result<Library> {
        let fs = narufs_engine::Fs::scratch(options);
        let fs = fs.map_err(|e| Error::Refused(format!("{}: {e}", spill.display())))?;
        let (image, name) = (spill.to_owned(), name.to_owned());
        let options = LibraryOptions::default();
        Ok(Library { image, name, options, fs: Some(fs), survives: Survives::Nothing, work: None })
    }

    /// Unmounts: everything is written home.
    pub fn unmount(mut self) -> Result<()> {
        let Some(fs) = self.fs.take() else { return Ok(()) };
        fs.unmount().map_err(|e| Error::Refused(format!("{}: unmount: {e}", self.image.display())))
    }

    /// The operations, and the counters behind them.
    ///
    /// # Errors
    /// If it is not mounted any more.
    pub fn inodes(&self) -> Result<&Arc<vfs::Vfs>> {
        match &self.fs {
            Some(fs) => Ok(fs.inodes()),
            None => Err(Error::Refused(format!("{}: not mounted any more", self.image.display()))),
        }
    }

    /// Takes up the work directory that another process has made.
    pub fn enter_again(&mut self, name: &str) -> Result<()> {
        let found = self.inodes()?.lookup(&Context::root(), ROOT_NID, name.as_bytes());
        let entry = found.map_err(failed("lookup", name))?;
        self.work = Some((name.to_owned(), entry.nid));
        Ok(())
    }
}

fn mount(image: &Path, options: &LibraryOptions) -> Result<narufs_engine::Fs> {
    let refused = |e| Error::Refused(format!("{}: {e}", image.display()));
    narufs_engine::Fs::mount(image, options).map_err(refused)
}

/// One that can be written to.
fn sound(fs: narufs_engine::Fs, image: &Path) -> Result<narufs_engine::Fs> {
    let shown = image.display();
    match fs.damage() {
        Some(why) => Err(Error::Refused(format!("{shown}: it cannot be written to: {why}"))),
        None => Ok(fs),
    }
}

impl Target for Library {
    type Session = LibrarySession;

    fn describe(&self) -> Description {
        let costs = &self.options.costs;
        let mut note = "no system calls".to_owned();
        if costs.persist_delay_ns > 0 {
            note += &format!(", fences {} ns longer", costs.persist_delay_ns);
        }
        if costs.bytes_per_second > 0 {
            note += &format!(", write-backs at {} MB/s", costs.bytes_per_second / 1_000_000);
        }
        Description {
            name: self.name.clone(),
            filesystem: "narufs".into(),
            survives: self.survives,
            note: Some(note),
        }
    }

    fn enter(&mut self, name: &str) -> Result<()> {
        let (fs, root) = (self.inodes()?, Context::root());
        let refused = |e: narufs_engine::Error| {
            Error::Refused(format!("{}: cannot write here: {e}", self.image.display()))
        };
        let entry = fs.mkdir(&root, ROOT_NID, name.as_bytes(), 0o755).map_err(refused)?;
        let owner = SetAttr { uid: Some(USER), gid: Some(USER), ..SetAttr::default() };
        fs.setattr(&root, entry.nid, None, &owner).map_err(refused)?;
        self.work = Some((name.to_owned(), entry.nid));
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        let Some((name, nid)) = self.work.take() else { return Ok(()) };
        let fs = Arc::clone(self.inodes()?);
        let work = fs.reach(nid).map_err(failed("stat", &name))?;
        LibrarySession { fs: Arc::clone(&fs), caller: context(), work }.remove_below("")?;
        fs.forget(nid, 1);
        fs.rmdir(&Context::root(), ROOT_NID, name.as_bytes()).map_err(failed("rmdir", &name))
    }

    fn session(&self) -> Result<LibrarySession> {
        match &self.work {
            Some((name, nid)) => {
                let fs = Arc::clone(self.inodes()?);
                let work = fs.reach(*nid).map_err(failed("stat", name))?;
                Ok(LibrarySession { fs, caller: context(), work })
            }
            None => Err(Error::Refused(format!("{}: no run is at work here", self.name))),
        }
    }

    fn sync_all(&self) -> Result<()> {
        self.inodes()?.syncfs().map_err(failed("sync", ""))
    }

    fn space(&self) -> Result<Space> {
        let room = self.inodes()?.statfs().map_err(failed("statfs", ""))?;
        let bytes = room.blocks_available * u64::from(room.block_size);
        Ok(Space { bytes, files: Some(room.files_free) })
    }

    fn counters(&self) -> Result<Counters> {
        let stats = Stats::of(self.inodes()?).map_err(failed("stats", ""))?;
        let stats = serde_json::to_value(stats).map_err(|e| Error::Refused(format!("stats: {e}")))?;
        Ok(Counters::of_narufs(&stats))
    }

    fn reopen(&mut self) -> Result<Reopened> {
        // What brings back what is there is a kill of this process: see `killed`.
        self.sync_all().map(|()| Reopened::Synced)
    }
}

/// One thread's calls on the engine.
pub struct LibrarySession {
    fs: Arc<vfs::Vfs>,
    caller: Context,
    work: InodeRef,
}

/// An open file.
pub struct LibraryFile {
    handle: FileHandle,
}

fn flags(how: How) -> OpenFlags {
    match how {
        How::Read => OpenFlags::empty(),
        How::Write => OpenFlags::READ_WRITE,
        How::Append => OpenFlags::READ_WRITE | OpenFlags::APPEND,
    }
}

impl LibrarySession {
    /// Where a path leads. Workloads make no symbolic links.
    fn walk(&self, path: &str, arrive: Arrive) -> narufs_engine::Result<InodeRef> {
        match self.fs.walk(&self.caller, &self.work, path.as_bytes(), true, arrive)? {
            Walked::There(found) => Ok(found),
            Walked::Link { .. } => Err(narufs_engine::Error::Errno(libc::ELOOP)),
        }
    }

    /// Calls with the directory of a path, and the name in it.
    fn in_parent<T>(
        &self,
        path: &str,
        call: impl FnOnce(&InodeRef, &[u8]) -> narufs_engine::Result<T>,
    ) -> narufs_engine::Result<T> {
        match path.rsplit_once('/') {
            Some((above, name)) => call(&self.walk(above, Arrive::Looking)?, name.as_bytes()),
            None => call(&self.work, path.as_bytes()),
        }
    }

    fn open_at(&self, path: &str, flags: OpenFlags) -> narufs_engine::Result<LibraryFile> {
        let found = self.walk(path, Arrive::Opening)?;
        self.fs.open_at(&self.caller, found, flags).map(|handle| LibraryFile { handle })
    }

    fn write(&self, op: &'static str, file: &LibraryFile, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.fs.write(&self.caller, &file.handle, offset, bytes, WriteFlags::empty()) {
            Ok(len) if len == bytes.len() => Ok(()),
            Ok(_) => Err(Error::io(op, "", std::io::Error::from_raw_os_error(libc::ENOSPC))),
            Err(e) => Err(failed(op, "")(e)),
        }
    }

    fn remove_below(&mut self, path: &str) -> Result<()> {
        let mut entries = Vec::new();
        self.list(path, &mut |name, kind| entries.push((name.to_owned(), kind)))?;
        for (name, kind) in entries {
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            match kind {
                Kind::File => self.unlink(&below)?,
                Kind::Directory => {
                    self.remove_below(&below)?;
                    self.in_parent(&below, |dir, name| self.fs.rmdir_at(&self.caller, dir, name))
                        .map_err(failed("rmdir", &below))?;
                }
            }
        }
        Ok(())
    }
}

impl Session for LibrarySession {
    type File = LibraryFile;

    fn mkdir(&mut self, path: &str) -> Result<bool> {
        match self.in_parent(path, |dir, name| self.fs.mkdir_at(&self.caller, dir, name, 0o755)) {
            Ok(()) => Ok(true),
            Err(narufs_engine::Error::Errno(libc::EEXIST)) => Ok(false),
            Err(e) => Err(failed("mkdir", path)(e)),
        }
    }

    fn create(&mut self, path: &str, how: How) -> Result<LibraryFile> {
        let flags = flags(how) | OpenFlags::EXCLUSIVE;
        let made = self.in_parent(path, |dir, name| self.fs.create_at(&self.caller, dir, name, 0o644, flags));
        made.map(|handle| LibraryFile { handle }).map_err(failed("create", path))
    }

    fn open(&mut self, path: &str, how: How) -> Result<LibraryFile> {
        self.open_at(path, flags(how)).map_err(failed("open", path))
    }

    fn close(&mut self, file: LibraryFile) -> Result<()> {
        self.fs.release(file.handle, None);
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> Result<()> {
        self.in_parent(path, |dir, name| self.fs.unlink_at(&self.caller, dir, name))
            .map_err(failed("unlink", path))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let renamed = self.in_parent(from, |old, name| {
            self.in_parent(to, |new, to| {
                self.fs.rename_at(&self.caller, (old, name), (new, to), RenameFlags::empty())
            })
        });
        renamed.map_err(failed("rename", from))
    }

    fn read_at(&mut self, file: &LibraryFile, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.fs.read(&file.handle, offset, into).map_err(failed("read", ""))
    }

    fn write_at(&mut self, file: &LibraryFile, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write("write", file, offset, bytes)
    }

    fn append(&mut self, file: &LibraryFile, bytes: &[u8]) -> Result<()> {
        self.write("append", file, 0, bytes)
    }

    fn truncate(&mut self, file: &LibraryFile, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let done = self.fs.setattr_open(&self.caller, &file.handle, &set);
        done.map(drop).map_err(failed("truncate", ""))
    }

    fn fsync(&mut self, file: &LibraryFile) -> Result<()> {
        self.fs.fsync(&file.handle, false).map_err(failed("fsync", ""))
    }

    fn fdatasync(&mut self, file: &LibraryFile) -> Result<()> {
        self.fs.fsync(&file.handle, true).map_err(failed("fdatasync", ""))
    }

    fn size(&mut self, path: &str) -> Result<u64> {
        let found = self.walk(path, Arrive::Looking).map_err(failed("stat", path))?;
        Ok(self.fs.getattr_at(&found).size)
    }

    fn list(&mut self, path: &str, each: &mut dyn FnMut(&str, Kind)) -> Result<u64> {
        let at = || failed("list", path);
        let found = self.walk(path, Arrive::Opening).map_err(at())?;
        let handle = self.fs.open_at(&self.caller, found, OpenFlags::DIRECTORY).map_err(at())?;
        let mut count = 0;
        let read = self.fs.readdir(&handle, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                let kind = if entry.file_type == FileType::Directory { Kind::Directory } else { Kind::File };
                each(&String::from_utf8_lossy(entry.name), kind);
                count += 1;
            }
            true
        });
        self.fs.releasedir(handle);
        read.map(|()| count).map_err(at())
    }
}
