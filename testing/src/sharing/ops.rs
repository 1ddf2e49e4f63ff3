//! The operations that are traced, each on its own lane and with its own names, so that any two commute.

use narufs_engine::format::{JournalKind, Nid, ROOT_NID};
use narufs_engine::mkfs::FormatOptions;
use narufs_engine::vfs::{self, Context, OpenFlags, SetAttr, WriteFlags};
use narufs_engine::{Fs, VolumeOptions, volume};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Files in the directory that both lanes use: many buckets.
const SHARED_FILES: u32 = 3000;
/// Files in a lane's own directory.
const OWN_FILES: u32 = 300;
const PAGE: u64 = 4096;
/// The threads of the mount have nothing to do by themselves.
const NEVER: Duration = Duration::from_secs(86_400);

/// What is done in the traced window; what it returns is dropped outside.
pub type Act<'f> = Box<dyn FnOnce() -> Box<dyn std::any::Any> + 'f>;

/// Prepares an operation of a lane for its n-th time.
type Prepare = for<'f> fn(&'f Lane<'f>, u32) -> Act<'f>;

/// Every operation: its name, and how it is prepared.
pub const OPERATIONS: [(&str, Prepare); 18] = [
    ("lookup, own directory", |lane, n| lane.lookup(lane.own, format!("f{n}"))),
    ("lookup, shared directory", |lane, n| lane.lookup(lane.shared, lane.shared_name(n))),
    ("getattr", |lane, n| {
        let nid = lane.nid(lane.own, &format!("f{}", 20 + n));
        act(move || lane.fs.getattr(nid).expect("there"))
    }),
    ("readdir, own directory", |lane, _| {
        let handle = lane.fs.opendir(&lane.caller, lane.own).expect("there");
        act(move || {
            let mut entries = 0;
            lane.fs
                .readdir(&handle, 0, &mut |_| {
                    entries += 1;
                    entries < 10
                })
                .expect("whole");
            handle
        })
    }),
    ("read, own file", |lane, n| lane.read(&format!("f{n}"), 0)),
    ("read, shared page", |lane, _| lane.read("/shared", 0)),
    ("overwrite, own file", |lane, n| lane.write(&format!("f{n}"), 0)),
    ("overwrite, shared file", |lane, n| lane.write("/shared", lane.page(n))),
    ("append, own file", |lane, n| lane.write(&format!("f{n}"), PAGE * 2)),
    ("fsync, own file", |lane, n| {
        let handle = lane.opened(&format!("f{}", 60 + n));
        lane.fs.write(&lane.caller, &handle, 0, &[1; 1000], WriteFlags::empty()).expect("room");
        act(move || {
            lane.fs.fsync(&handle, false).expect("memory");
            handle
        })
    }),
    ("chmod", |lane, n| {
        let nid = lane.nid(lane.own, &format!("f{}", 80 + n));
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        act(move || lane.fs.setattr(&lane.caller, nid, None, &set).expect("root may"))
    }),
    ("create, own directory", |lane, n| lane.create(lane.own, format!("new{n}"))),
    ("create, shared directory", |lane, n| lane.create(lane.shared, lane.shared_new(n))),
    ("mkdir", |lane, n| {
        let name = format!("dir{n}");
        act(move || lane.fs.mkdir(&lane.caller, lane.own, name.as_bytes(), 0o755).expect("new"))
    }),
    ("unlink, own directory", |lane, n| lane.unlink(lane.own, format!("f{}", 100 + n))),
    ("unlink, shared directory", |lane, n| lane.unlink(lane.shared, lane.shared_name(100 + n))),
    ("rename, own directory", |lane, n| lane.rename(lane.own, format!("f{}", 120 + n), format!("moved{n}"))),
    ("rename, shared directory", |lane, n| {
        lane.rename(lane.shared, lane.shared_name(200 + n), lane.shared_new(300 + n))
    }),
];

fn act<'f, T: 'static>(f: impl FnOnce() -> T + 'f) -> Act<'f> {
    Box::new(move || Box::new(f()))
}

/// A file system in memory whose own threads sleep.
pub struct Bench {
    fs: Fs,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// Makes it, with everything that the operations need.
    pub fn new() -> Bench {
        let dir = tempfile::TempDir::new_in("/dev/shm").expect("memory for files");
        let at = |name: &str| dir.path().join(name);
        let options = FormatOptions {
            blocks: Some(32 << 10),
            journal: JournalKind::Emulated,
            journal_path: Some(at("ring").display().to_string()),
            sparse: true,
            uuid: Some([1; 16]),
            ring_uuid: Some([2; 16]),
            hash_key: Some([3; 16]),
            ..FormatOptions::default()
        };
        narufs_engine::format(at("image"), &options).expect("room");
        let fs = mounted(&at("image"));
        let bench = Bench { fs, _dir: dir };
        bench.fill();
        bench
    }

    fn fill(&self) {
        let fs = self.fs.inodes();
        let caller = Context::root();
        let make = |parent: Nid, name: &str| {
            let made =
                fs.create(&caller, parent, name.as_bytes(), 0o644, OpenFlags::READ_WRITE).expect("room");
            fs.write(&caller, &made.1, 0, &[7; PAGE as usize], WriteFlags::empty()).expect("room");
            fs.release(made.1, None);
        };
        let dir = |name: &str| fs.mkdir(&caller, ROOT_NID, name.as_bytes(), 0o755).expect("new").nid;
        let shared = dir("shared-dir");
        for n in 0..SHARED_FILES {
            make(shared, &format!("s{n}"));
        }
        for lane in 0..2 {
            let own = dir(&format!("own{lane}"));
            for n in 0..OWN_FILES {
                make(own, &format!("f{n}"));
            }
        }
        make(ROOT_NID, "shared");
        let nid = fs.lookup(&caller, ROOT_NID, b"shared").expect("made").nid;
        let handle = fs.open(&caller, nid, OpenFlags::READ_WRITE).expect("made");
        fs.write(&caller, &handle, 0, &[8; 256 << 10], WriteFlags::empty()).expect("room");
        fs.release(handle, None);
        fs.syncfs().expect("memory");
        // With room in the ring, as between two rounds of a checkpoint.
        fs.meta().store().checkpoint().expect("memory");
    }

    /// The operations.
    pub fn inodes(&self) -> &Arc<vfs::Vfs> {
        self.fs.inodes()
    }
}

impl Default for Bench {
    fn default() -> Self {
        Bench::new()
    }
}

fn mounted(image: &Path) -> Fs {
    let options = VolumeOptions {
        image: volume::ImageOptions { lanes: 2, commit_interval: NEVER, ..volume::ImageOptions::default() },
        ..VolumeOptions::default()
    };
    Fs::mount(image, &options).expect("a new image")
}

/// One lane and its directories.
pub struct Lane<'f> {
    fs: &'f vfs::Vfs,
    own: Nid,
    shared: Nid,
    lane: u32,
    caller: Context,
}

impl<'f> Lane<'f> {
    /// The view of a lane.
    pub fn new(fs: &'f vfs::Vfs, lane: u32) -> Lane<'f> {
        let caller = Context::root();
        let nid = |name: &str| fs.lookup(&caller, ROOT_NID, name.as_bytes()).expect("made").nid;
        let (own, shared) = (nid(&format!("own{lane}")), nid("shared-dir"));
        Lane { fs, own, shared, lane, caller }
    }
}

impl Lane<'_> {
    /// The n-th of this lane's names in the shared directory.
    fn shared_name(&self, n: u32) -> String {
        format!("s{}", self.lane * 1000 + n)
    }

    fn shared_new(&self, n: u32) -> String {
        format!("lane{}-{n}", self.lane)
    }

    /// A page of the shared file that is this lane's.
    fn page(&self, n: u32) -> u64 {
        u64::from(8 + self.lane * 24 + n) * PAGE
    }

    fn nid(&self, parent: Nid, name: &str) -> Nid {
        self.fs.lookup(&self.caller, parent, name.as_bytes()).expect("made").nid
    }

    /// A file of the lane's directory, or with a slash of the root.
    fn opened(&self, name: &str) -> vfs::FileHandle {
        let (parent, name) = name.strip_prefix('/').map_or((self.own, name), |name| (ROOT_NID, name));
        self.fs.open(&self.caller, self.nid(parent, name), OpenFlags::READ_WRITE).expect("made")
    }

    fn lookup(&self, parent: Nid, name: String) -> Act<'_> {
        act(move || self.fs.lookup(&self.caller, parent, name.as_bytes()).expect("made"))
    }

    fn read(&self, name: &str, offset: u64) -> Act<'_> {
        let handle = self.opened(name);
        let mut bytes = vec![0; PAGE as usize];
        act(move || {
            self.fs.read(&handle, offset, &mut bytes).expect("whole");
            (handle, bytes)
        })
    }

    fn write(&self, name: &str, offset: u64) -> Act<'_> {
        let handle = self.opened(name);
        let bytes = vec![9; PAGE as usize];
        act(move || {
            self.fs.write(&self.caller, &handle, offset, &bytes, WriteFlags::empty()).expect("room");
            (handle, bytes)
        })
    }

    fn create(&self, parent: Nid, name: String) -> Act<'_> {
        act(move || {
            let flags = OpenFlags::READ_WRITE;
            self.fs.create(&self.caller, parent, name.as_bytes(), 0o644, flags).expect("room")
        })
    }

    fn unlink(&self, parent: Nid, name: String) -> Act<'_> {
        act(move || self.fs.unlink(&self.caller, parent, name.as_bytes()).expect("there"))
    }

    fn rename(&self, parent: Nid, from: String, to: String) -> Act<'_> {
        act(move || {
            let flags = vfs::RenameFlags::empty();
            let (from, to) = (from.as_bytes(), to.as_bytes());
            self.fs.rename(&self.caller, parent, from, parent, to, flags).expect("there");
        })
    }
}
