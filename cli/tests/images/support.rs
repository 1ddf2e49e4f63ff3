//! Images made by the command and left by a killed process, and the command run on them.

use narufs_engine::path::Fs;
use narufs_engine::volume::{Origin, VolumeOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A directory for images; what their journals leave in shared memory goes with it.
pub struct Work {
    dir: TempDir,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Checks that it was refused in one line on standard error, with this status and these words.
    pub fn refused(&self, status: i32, words: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.contains(words), "{words}: {self:?}");
    }

    /// Checks that it succeeded without a word on standard error.
    pub fn done(&self) {
        assert_eq!((self.status, self.err.as_str()), (0, ""), "{self:?}");
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

fn said(mut command: Command) -> Said {
    let output = command.output().expect("it is run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = output.status.code().expect("it ends by itself");
    Said { status, out: text(&output.stdout), err: text(&output.stderr) }
}

/// Runs `narufs` with these words.
pub fn narufs(words: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
    command.args(words);
    said(command)
}

/// Runs it with no more than so many KiB of addresses.
pub fn narufs_with_address_space(kib: u64, words: &[&str]) -> Said {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {kib} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_narufs")]).args(words);
    said(command)
}

/// Runs it where shared memory has so many KiB. Takes root.
pub fn narufs_in_small_memory(kib: u32, words: &[&str]) -> Said {
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_narufs")]).args(words);
        command
    };
    let mount = format!("mount -t tmpfs -o size={kib}k small /dev/shm");
    let tried = unshare(&mount).output();
    assert!(tried.is_ok_and(|tried| tried.status.success()), "missing: root and unshare(1)");
    said(unshare(&format!("{mount} && exec \"$0\" \"$@\"")))
}

impl Work {
    pub fn new() -> Work {
        Work { dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory") }
    }

    /// The path of a file here.
    pub fn at(&self, name: &str) -> String {
        self.dir.path().join(name).into_os_string().into_string().expect("a plain path")
    }

    /// Makes an image of 64 MiB, with these words besides.
    pub fn mkfs(&self, name: &str, words: &[&str]) -> String {
        let image = self.at(name);
        narufs(&[&["mkfs", &image, "--size", "64M", "--sparse"], words].concat()).done();
        image
    }

    /// An image with its journal in a file.
    pub fn emulated(&self, name: &str) -> (String, String) {
        let ring = self.at(&format!("{name}.ring"));
        (self.mkfs(name, &["--journal-emulated", &ring, "--journal-size", "1M"]), ring)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.dir.path()) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some(staging) = staging_of(&path) else { continue };
            let shared = staging.parent().and_then(|shared| std::fs::read_dir(shared).ok());
            // Of copies there may be more, whose names begin so.
            for left in shared.into_iter().flatten().flatten().map(|entry| entry.path()) {
                if left.to_string_lossy().starts_with(&*staging.to_string_lossy()) {
                    let _ = std::fs::remove_file(left);
                }
            }
        }
    }
}

/// Where the staging of an image's journal would be.
pub fn staging_of(image: &Path) -> Option<PathBuf> {
    let mut uuid = [0; 16];
    std::fs::File::open(image).ok()?.read_exact_at(&mut uuid, 16).ok()?;
    Some(narufs_engine::volume::staging_path(&uuid))
}

/// Mounts in this process and does something; the image is clean afterwards.
pub fn used(image: &str, work: impl FnOnce(&Fs)) {
    let fs = Fs::mount(image, &VolumeOptions::default()).expect("a good image");
    work(&fs);
    fs.unmount().expect("it works");
}

/// Writes and syncs a file of `fill` bytes, and goes as a killed process goes.
pub fn killed_after_sync(image: &str, fill: u8) {
    let fs = Fs::mount(image, &VolumeOptions::default()).expect("a good image");
    let options = narufs_engine::path::OpenOptions { write: true, create: true, ..Default::default() };
    let file = fs.open("/synced", options).expect("made");
    // The second time it has its blocks, and a fast journal absorbs it.
    for fill in [0, fill] {
        file.write_at(&[fill; 3000], 0).expect("room");
        file.sync_all().expect("it works");
    }
    drop(file);
    drop(fs);
}

/// The synced file as a mount shows it.
pub fn synced(image: &str, read_only: bool) -> Vec<u8> {
    let mut options = VolumeOptions::default();
    options.image.read_only = read_only;
    let fs = Fs::mount(image, &options).expect("a good image");
    let bytes = fs.read("/synced").expect("it is there");
    if !read_only {
        fs.unmount().expect("it works");
    }
    bytes
}

/// Overwrites bytes of a file.
pub fn overwrite(path: &str, at: u64, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().write(true).open(path).expect("it is there");
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(at)).expect("a file");
    file.write_all(bytes).expect("room");
}

/// How to mount an image that is said to be this.
pub fn options(origin: Origin) -> VolumeOptions {
    let mut options = VolumeOptions::default();
    options.image.origin = origin;
    options
}

/// One that is mounted so.
pub fn mounted(image: &str, origin: Origin) -> Fs {
    Fs::mount(image, &options(origin)).expect("a good image")
}
