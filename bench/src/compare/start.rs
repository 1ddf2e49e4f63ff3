//! How each contender is made, mounted, brought back for the check, and unmounted.

use super::call;
use super::contender::{Contender, Kernel, Kind, Ram, Way};
use super::media::{InRam, Places};
use super::peer::{self, Served};
use crate::killed::{self, Engine};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::target::{Directory, Library, Reopened};
use crate::{Error, Plan, Record, Result};
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::file::DataOptions;
use narufs_engine::volume::scratch::{ScratchOptions, SpillOptions};
use narufs_fuse::control;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Memory that narufs is told to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Bytes of its page cache, copies for write-back included.
    pub pages: u64,
    /// Bytes for metadata pages and inodes.
    pub metadata: u64,
    /// Bytes of its journal, which it keeps in memory too.
    pub journal: u64,
}

impl Budget {
    /// Bytes of scratch space, which has no journal.
    fn scratch(&self) -> u64 {
        self.pages + self.metadata + self.journal
    }
}

/// What a load wants of the file system that it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// Bytes of narufs's journal; what mkfs chooses otherwise.
    pub ring: Option<u64>,
    /// Files that it is told to make, if it is told.
    pub files: Option<u64>,
}

/// Bytes of a device for which mkfs.ext4 makes an inode, as its configuration comes.
const BYTES_PER_INODE: u64 = 16 << 10;

impl Wants {
    /// The inodes to ask mkfs.ext4 for, where it would make too few by itself: for the files, their directories, and
    /// some to spare.
    fn inodes(self, bytes: u64) -> Option<u64> {
        let needed = self.files.map(|files| files + files / 16 + 1024)?;
        (needed > bytes / BYTES_PER_INODE).then_some(needed)
    }
}

/// A target that is ready, and how to end it.
pub enum Ready {
    /// A mounted directory.
    Directory(Box<Directory>, Mounted),
    /// An image for the engine without a mount.
    Library(Engine),
    /// Scratch space without a mount.
    Scratch(Box<Library>),
}

impl Ready {
    /// Runs the plan on it, and ends it.
    ///
    /// # Errors
    /// The first failure; it is ended then too.
    pub fn run(self, plan: &Plan, stop: &Stop, progress: &Progress, each: impl FnMut(Record)) -> Result<()> {
        match self {
            Ready::Directory(mut directory, mounted) => {
                let done = crate::run(&mut *directory, plan, stop, progress, each);
                drop(directory);
                let ended = mounted.unmount();
                done.and(ended)
            }
            Ready::Library(engine) => killed::run(&engine, plan, stop, progress, each),
            Ready::Scratch(mut library) => {
                let done = crate::run(&mut *library, plan, stop, progress, each);
                let ended = library.unmount();
                done.and(ended)
            }
        }
    }
}

/// Unmounts when dropped.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    narufs: Option<PathBuf>,
}

impl Mounted {
    /// Nothing to be done here: the directory has what unmounts it.
    fn elsewhere() -> Mounted {
        Mounted { at: PathBuf::new(), narufs: None }
    }

    /// Unmounts.
    pub fn unmount(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let at = std::mem::take(&mut self.at);
        if at.as_os_str().is_empty() {
            return Ok(());
        }
        let shown = at.display().to_string();
        match &self.narufs {
            Some(narufs) => call(&narufs.display().to_string(), &["umount", &shown]).map(drop),
            None => call("umount", &[&shown]).map(drop),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            tracing::warn!("{e}");
        }
    }
}

impl Contender {
    /// Makes the file system anew and mounts it. With a budget narufs uses no more than that, and the device of all is
    /// what is counted of every directory.
    pub fn start(
        &self,
        places: &Places,
        narufs: &Path,
        wants: Wants,
        budget: Option<Budget>,
    ) -> Result<Ready> {
        let at = places.mount.as_path();
        let counted = budget.map(|_| places.device.as_path());
        match self.kind {
            Kind::Tmpfs | Kind::TmpfsSwap => {
                let size = if self.swaps() { places.bytes.to_string() } else { "80%".into() };
                mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], at)?;
                Ok(self.directory(at, None, counted, None, Box::new(|| Ok(Reopened::Synced)))?)
            }
            Kind::Kernel(kernel) => {
                let arguments = kernel.format(places, wants)?;
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                mount(&arguments, at)?;
                let (again, point) =
                    (arguments.iter().map(ToString::to_string).collect::<Vec<_>>(), at.to_owned());
                let remount = move || {
                    call("umount", &[&point.display().to_string()])?;
                    mount(&again.iter().map(String::as_str).collect::<Vec<_>>(), &point)?;
                    Ok(Reopened::Remounted)
                };
                self.directory(at, None, counted, kernel.log(places), Box::new(remount))
            }
            Kind::Mount(nvm, options) => {
                format_narufs(places, narufs, nvm, wants.ring)?;
                let (program, image) = (narufs.display().to_string(), places.device.display().to_string());
                let point = at.to_owned();
                let options = within(options, budget);
                let start = move || {
                    call(&program, &["mount", &image, &point.display().to_string(), "-o", &options]).map(drop)
                };
                start()?;
                let point = at.to_owned();
                let kill = move || {
                    let failed = |e: std::io::Error| Error::io("kill", &point.display().to_string(), e);
                    control::kill(&point).map_err(failed)?;
                    start()?;
                    Ok(Reopened::Killed)
                };
                self.directory(at, Some(narufs.to_owned()), counted, None, Box::new(kill))
            }
            Kind::Library(nvm, options) => {
                format_narufs(places, narufs, nvm, wants.ring)?;
                let mount = killed::Mount {
                    image: places.device.clone(),
                    name: self.name.to_owned(),
                    options: vec![within(options, budget)],
                };
                Ok(Ready::Library(Engine { program: narufs.to_owned(), mount }))
            }
            Kind::Peer(peer) => {
                peer::format(peer, &places.device)?;
                let mut served = Some(Served::start(peer, &places.device, at)?);
                let (device, point) = (places.device.clone(), at.to_owned());
                // It has the server, which ends with the directory.
                let remount = move || {
                    served.take().map_or(Ok(()), Served::end)?;
                    served = Some(Served::start(peer, &device, &point)?);
                    Ok(Reopened::Remounted)
                };
                let directory = Directory::new(at, Some(&places.device))?.called(self.name, self.survives);
                let directory = directory.remounted_by(Box::new(remount));
                Ok(Ready::Directory(Box::new(directory), Mounted::elsewhere()))
            }
            Kind::Scratch(Way::Library) => {
                let usual = DataOptions::default().frames as u64 * BLOCK_SIZE as u64;
                let mut options = ScratchOptions::with_memory(budget.map_or(usual, |b| b.scratch()));
                options.metadata_memory = budget.map(|b| b.metadata);
                options.spill = Some(SpillOptions { path: places.device.clone(), size: None, force: true });
                let library = Library::scratch(&places.device, self.name, &options)?;
                Ok(Ready::Scratch(Box::new(library)))
            }
            Kind::Scratch(way) => {
                let (program, device) = (narufs.display().to_string(), places.device.display().to_string());
                let within = |b: Budget| format!(",memory={},metadata_memory={}", b.scratch(), b.metadata);
                let memory = budget.map_or(String::new(), within);
                let io = if way == Way::CachedMount { ",io=cached" } else { "" };
                let options = format!("scratch,force,spill={device}{memory}{io}");
                call(&program, &["mount", "none", &at.display().to_string(), "-o", &options])?;
                let synced = Box::new(|| Ok(Reopened::Synced));
                self.directory(at, Some(narufs.to_owned()), counted, None, synced)
            }
        }
    }

    fn directory(
        &self,
        at: &Path,
        narufs: Option<PathBuf>,
        counted: Option<&Path>,
        log: Option<&Path>,
        remount: crate::target::Remount,
    ) -> Result<Ready> {
        let mounted = Mounted { at: at.to_owned(), narufs };
        let directory = Directory::new(at, counted)?.called(self.name, self.survives).with_log_on(log);
        let directory = directory.remounted_by(remount);
        Ok(Ready::Directory(Box::new(directory), mounted))
    }
}

/// Mount options of narufs, with its memory where that has a limit.
fn within(options: &str, budget: Option<Budget>) -> String {
    match budget {
        Some(b) => format!("{options},memory={},metadata_memory={}", b.pages, b.metadata),
        None => options.to_owned(),
    }
}

fn mount(arguments: &[&str], at: &Path) -> Result<()> {
    let shown = at.display().to_string();
    call("mount", &[arguments, &[&shown]].concat()).map(drop)
}

fn format_narufs(places: &Places, narufs: &Path, nvm: bool, ring: Option<u64>) -> Result<()> {
    let (device, memory) = (places.device.display().to_string(), &places.nvm);
    if let Err(e) = std::fs::remove_file(memory)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        return Err(Error::io("remove", &memory.display().to_string(), e));
    }
    let memory = memory.display().to_string();
    let mut arguments = vec!["mkfs", &device, "--force"];
    let size = ring.map(|bytes| bytes.to_string());
    arguments.extend(size.iter().flat_map(|size| ["--journal-size", size]));
    if nvm {
        arguments.extend(["--journal-emulated", &memory]);
    }
    call(&narufs.display().to_string(), &arguments).map(drop)
}

impl Kernel {
    /// The devices in RAM that it lies on.
    pub(super) fn in_ram(self) -> InRam {
        let journal = matches!(self.ram, Ram::Ext4Journal | Ram::XfsLog);
        InRam { everything: self.ram == Ram::Everything, journal }
    }

    /// The device of its journal or log, where that lies elsewhere.
    fn log(self, places: &Places) -> Option<&Path> {
        places.journal.as_deref().filter(|_| self.in_ram().journal)
    }

    /// Makes it, and says with which arguments it is mounted.
    fn format(&self, places: &Places, wants: Wants) -> Result<Vec<String>> {
        let shown = |device: &Option<PathBuf>| match device {
            Some(device) => Ok(device.display().to_string()),
            None => Err(Error::Refused("no device in RAM was made for it".into())),
        };
        let device = match self.ram {
            Ram::Everything => shown(&places.ram)?,
            _ => places.device.display().to_string(),
        };
        let journal = if self.in_ram().journal { shown(&places.journal)? } else { String::new() };
        let program = format!("mkfs.{}", self.filesystem);
        let mut options = self.mount.to_owned();
        let mut make: Vec<&str> = self.make.to_vec();
        let ext4 = format!("device={journal}");
        let xfs = format!("logdev={journal}");
        match self.ram {
            Ram::Ext4Journal => {
                call("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "journal_dev", &journal])?;
                make.extend(["-b", "4096", "-J", &ext4]);
            }
            Ram::XfsLog => {
                make.extend(["-l", &xfs]);
                options = xfs.clone();
            }
            Ram::Unused | Ram::Everything => {}
        }
        let inodes = wants.inodes(places.bytes).filter(|_| self.filesystem == "ext4");
        let inodes = inodes.map(|inodes| inodes.to_string());
        make.extend(inodes.iter().flat_map(|inodes| ["-N", inodes]));
        make.push(&device);
        call(&program, &make)?;
        Ok(["-t", self.filesystem, "-o", &options, &device].map(str::to_owned).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_asked_for_where_there_would_be_too_few() {
        let inodes = |files, bytes| Wants { ring: None, files }.inodes(bytes);
        assert_eq!(inodes(None, 1 << 30), None);
        assert_eq!(inodes(Some(50_000), 1 << 30), None);
        assert!(inodes(Some(3_000_000), 20 << 30).is_some_and(|inodes| inodes > 3_000_000 + 3_000_000 / 128));
    }
}
