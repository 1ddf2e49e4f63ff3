//! The mount end to end, over a small file system in memory. Needs root and /dev/fuse.

mod memfs;
mod session;

use memfs::MemFs;
use narufs_fuse::control::{self, ServerProcess};
use narufs_fuse::mount::{self, IfBusy, MountOptions, mountinfo};
use narufs_fuse::session::Config;
use narufs_fuse::wire::notify::Notification;
use narufs_fuse::wire::{OpenFlags, ROOT_ID};
use narufs_fuse::{Server, ServerConfig};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// A directory with nothing mounted on it any more when it goes.
struct Place(TempDir);

impl Place {
    /// `None`, and says so, where mounts cannot be made.
    fn new() -> Option<Place> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: this test needs root and /dev/fuse");
            return None;
        }
        let dir = TempDir::new().expect("a temporary directory");
        // Another user must reach the mount.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        fs::create_dir(dir.path().join("mnt")).expect("a mount point");
        Some(Place(dir))
    }

    fn point(&self) -> PathBuf {
        self.0.path().canonicalize().expect("the directory").join("mnt")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let point = self.point();
        while let Ok(Some(_)) = mountinfo::find(&point) {
            if mount::unmount(&point, IfBusy::Abort).is_err() {
                return;
            }
        }
    }
}

struct Mounted {
    // Dropped before the place that it is mounted at.
    server: Server<MemFs>,
    fs: Arc<MemFs>,
    point: PathBuf,
    _place: Place,
}

fn mounted_with(flags: OpenFlags, config: ServerConfig) -> Option<Mounted> {
    let place = Place::new()?;
    let point = place.point();
    let fs = Arc::new(MemFs::new(flags));
    let server =
        Server::start(Arc::clone(&fs), &point, &MountOptions::new("memory"), &config).expect("a mount");
    Some(Mounted { server, fs, point, _place: place })
}

fn mounted() -> Option<Mounted> {
    mounted_with(OpenFlags::empty(), ServerConfig::default())
}

/// Serves everything from one core: a request that sleeps would stall all others if it kept its lane.
fn on_one_core() -> ServerConfig {
    let cores = rustix::thread::sched_getaffinity(None).expect("own cores");
    ServerConfig {
        cores: Some((0..1024).filter(|&core| cores.is_set(core)).take(1).collect()),
        ..Default::default()
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at * 31 + seed * 7919) >> 3) as u8).collect()
}

#[test]
fn names_are_made_moved_listed_and_removed() {
    let Some(m) = mounted() else { return };
    let at = |name: &str| m.point.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/a"), b"text").unwrap();
    assert_eq!(File::create_new(at("d/a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::hard_link(at("d/a"), at("b")).unwrap();
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 2);
    symlink("../d/a", at("d/link")).unwrap();
    assert_eq!(fs::read_link(at("d/link")).unwrap(), Path::new("../d/a"));
    assert_eq!(fs::read(at("d/link")).unwrap(), b"text");
    fs::rename(at("b"), at("d/c")).unwrap();
    assert_eq!(fs::read(at("b")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::remove_dir(at("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    let root = File::open(&m.point).unwrap();
    rustix::fs::renameat_with(&root, "d/a", &root, "d/link", RenameFlags::EXCHANGE).unwrap();
    assert!(at("d/a").is_symlink() && !at("d/link").is_symlink());
    let taken = rustix::fs::renameat_with(&root, "d/a", &root, "d/link", RenameFlags::NOREPLACE);
    assert_eq!(taken, Err(rustix::io::Errno::EXIST));

    fs::create_dir(at("many")).unwrap();
    let wanted: Vec<_> = (0..3000).map(|n| format!("name-{n:05}-{}", "x".repeat(n % 60))).collect();
    for name in &wanted {
        File::create(at("many").join(name)).unwrap();
    }
    let mut found: Vec<_> = fs::read_dir(at("many"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().is_file());
            entry.file_name().into_string().unwrap()
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, wanted);
    fs::remove_dir_all(at("many")).unwrap();
    fs::remove_dir_all(at("d")).unwrap();
    assert_eq!(fs::read_dir(&m.point).unwrap().count(), 0);
}

#[test]
fn large_reads_and_writes_by_two_threads_are_exact() {
    for flags in [OpenFlags::empty(), OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES] {
        let Some(m) = mounted_with(flags, ServerConfig::default()) else { return };
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let path = m.point.join(format!("file-{seed}"));
                scope.spawn(move || {
                    let data = pattern(9 * 1024 * 1024 + 123, seed);
                    let mut options = OpenOptions::new();
                    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
                    for (at, piece) in data.chunks(3 * 1024 * 1024 + 77).enumerate() {
                        file.write_all_at(piece, (at * (3 * 1024 * 1024 + 77)) as u64).unwrap();
                    }
                    assert!(fs::read(&path).unwrap() == data, "{}", path.display());
                    let mut middle = vec![0; 2 * 1024 * 1024];
                    file.read_exact_at(&mut middle, 1234567).unwrap();
                    assert!(middle == data[1234567..][..middle.len()]);
                    file.set_len(5000).unwrap();
                    file.sync_all().unwrap();
                    assert_eq!(fs::read(&path).unwrap(), data[..5000]);
                });
            }
        });
    }
}

#[test]
fn attributes_of_all_kinds_pass() {
    let Some(m) = mounted() else { return };
    let path = m.point.join("file");
    let file = File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    rustix::fs::setxattr(&path, "user.one", b"1", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.two", &[7; 60000], XattrFlags::empty()).unwrap();
    let mut value = vec![0; 65536];
    assert_eq!(rustix::fs::getxattr(&path, "user.two", &mut value), Ok(60000));
    assert_eq!(rustix::fs::getxattr(&path, "user.two", &mut value[..10]), Err(rustix::io::Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(&path, "user.none", &mut value), Err(rustix::io::Errno::NODATA));
    assert_eq!(rustix::fs::listxattr(&path, &mut value), Ok(18));
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(5));
    file.set_times(times).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()), (0o640, 0, 5));
    assert_eq!(rustix::fs::statvfs(&m.point).unwrap().f_bavail, 40);
    if m.server.features().minor >= 39 {
        let got = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).unwrap();
        assert_eq!((got.stx_btime.tv_sec, got.stx_btime.tv_nsec), (7, 8));
    }
    let nameless = rustix::fs::open(&m.point, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).unwrap();
    File::from(nameless).write_all(b"gone when closed").unwrap();
    assert_eq!(fs::read_dir(&m.point).unwrap().count(), 1);
}

#[test]
fn copy_within_the_file_system_passes() {
    let Some(m) = mounted() else { return };
    let data = pattern(300_000, 3);
    fs::write(m.point.join("from"), &data).unwrap();
    let from = File::open(m.point.join("from")).unwrap();
    let to = File::create(m.point.join("to")).unwrap();
    let (mut read_at, mut write_at) = (1000, 50);
    let copied = rustix::fs::copy_file_range(&from, Some(&mut read_at), &to, Some(&mut write_at), 200_000);
    assert_eq!(copied, Ok(200_000));
    assert_eq!(fs::read(m.point.join("to")).unwrap()[50..], data[1000..][..200_000]);
}

#[test]
fn a_request_that_sleeps_stalls_nobody_on_its_core() {
    let Some(m) = mounted_with(OpenFlags::DIRECT_IO, on_one_core()) else { return };
    let gate = m.point.join("gate");
    fs::write(&gate, b"through").unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(|| fs::read(&gate).unwrap())).collect();
        m.fs.wait_for_readers(8);
        fs::write(m.point.join("other"), b"meanwhile").unwrap();
        assert_eq!(fs::read(m.point.join("other")).unwrap(), b"meanwhile");
        m.fs.open_gate();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), b"through");
        }
    });
}

#[test]
fn a_waiting_lock_occupies_no_thread_and_ends_when_its_caller_is_killed() {
    let config = ServerConfig { session: Config { locks: true, ..Config::default() }, ..on_one_core() };
    let Some(m) = mounted_with(OpenFlags::empty(), config) else { return };
    let path = m.point.join("file");
    let file = File::create(&path).unwrap();
    file.lock().unwrap();
    assert!(matches!(File::open(&path).unwrap().try_lock(), Err(fs::TryLockError::WouldBlock)));
    let waiter =
        || Command::new("flock").arg(&path).args(["echo", "held"]).stdout(Stdio::piped()).spawn().unwrap();
    let (mut killed, patient) = (waiter(), waiter());
    m.fs.wait_for_lockers(2);
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success());
    m.fs.wait_for_lockers(1);
    file.unlock().unwrap();
    assert_eq!(patient.wait_with_output().unwrap().stdout, b"held\n");
    file.lock().unwrap();
}

#[test]
fn supplementary_groups_of_the_caller_are_known() {
    let Some(m) = mounted() else { return };
    let path = m.point.join("file");
    fs::write(&path, b"for the group").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&path, None, Some(4242)).unwrap();
    let read_with_groups = |groups: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--groups", groups, "cat"]).arg(&path).output().unwrap()
    };
    assert_eq!(read_with_groups("7,4242").stdout, b"for the group");
    assert!(!read_with_groups("7").status.success());
}

#[test]
fn what_the_kernel_has_cached_is_dropped_on_notice() {
    let Some(m) = mounted() else { return };
    let path = m.point.join("file");
    fs::write(&path, b"old").unwrap();
    let file = File::open(&path).unwrap();
    let read = || {
        let mut text = [0; 3];
        file.read_exact_at(&mut text, 0).unwrap();
        text
    };
    assert_eq!(&read(), b"old");
    let nodeid = m.fs.replace(b"file", b"new");
    assert_eq!(&read(), b"old");
    let notifier = m.server.notifier();
    notifier.send(&Notification::InvalInode { nodeid, offset: 0, len: 0 }).unwrap();
    assert_eq!(&read(), b"new");
    let name = b"file";
    notifier.send(&Notification::InvalEntry { parent: ROOT_ID, name, expire_only: false }).unwrap();
    let unknown = notifier.send(&Notification::Delete { parent: ROOT_ID, child: 99, name: b"none" });
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn a_sync_reaches_the_server() {
    let Some(m) = mounted() else { return };
    control::sync(&m.point).unwrap();
    assert_eq!(m.fs.syncs(), 1);
    assert_eq!(control::sync(Path::new("/proc")).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
}

#[test]
fn an_unmount_ends_the_server_in_order() {
    let Some(m) = mounted() else { return };
    let file = File::create(m.point.join("file")).unwrap();
    let busy = m.server.unmount(IfBusy::Refuse).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    drop(file);
    m.server.unmount(IfBusy::Refuse).unwrap();
    m.server.wait();
    assert!(m.fs.is_destroyed());
    assert!(!mount::is_dead(&m.point) && mountinfo::find(&m.point).unwrap().is_none());
}

#[test]
fn an_abort_ends_the_server_even_if_the_mount_is_in_use() {
    let Some(m) = mounted() else { return };
    let mut file = File::create(m.point.join("file")).unwrap();
    m.server.unmount(IfBusy::Abort).unwrap();
    m.server.wait();
    let gone = file.write_all(b"x").unwrap_err();
    assert!(matches!(gone.raw_os_error(), Some(libc::ENOTCONN | libc::EIO | libc::ECONNABORTED)), "{gone}");
}

#[test]
fn a_server_that_goes_cuts_off_users_of_a_detached_mount() {
    let Some(Mounted { server, fs, point, _place }) = mounted() else { return };
    let file = File::create(point.join("file")).unwrap();
    server.unmount(IfBusy::Detach).unwrap();
    assert!(mountinfo::find(&point).unwrap().is_none());
    file.set_len(5).unwrap();
    drop(server);
    assert!(fs.is_destroyed());
    assert!(file.set_len(6).is_err());
}

#[test]
fn a_mount_is_safe_unless_asked_otherwise_and_can_be_read_only() {
    let Some(place) = Place::new() else { return };
    let mut options = MountOptions::new("an image");
    assert!(options.apply("ro"));
    let fs = Arc::new(MemFs::new(OpenFlags::empty()));
    let _server = Server::start(fs, &place.point(), &options, &ServerConfig::default()).unwrap();
    let entry = mountinfo::find(&place.point()).unwrap().unwrap();
    assert!(entry.is_ours());
    assert_eq!(entry.source, "an image");
    for wanted in ["ro", "nosuid", "nodev", "relatime", "allow_other"] {
        assert!(entry.options.split(',').any(|option| option == wanted), "{wanted} in {}", entry.options);
    }
    assert_eq!(File::create(place.point().join("x")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn the_helper_for_those_who_are_not_root_mounts_the_same() {
    let Some(place) = Place::new() else { return };
    if Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: this test needs fusermount3 (package fuse3)");
        return;
    }
    let options = MountOptions::new("an, image");
    let fd = mount::helper::mount(&place.point(), &options).unwrap();
    let entry = mountinfo::find(&place.point()).unwrap().unwrap();
    assert!(entry.is_ours());
    assert_eq!(entry.source, "an, image");
    assert!(entry.options.contains("nosuid") && entry.options.contains("nodev"), "{}", entry.options);
    drop(fd);
    assert!(mount::is_dead(&place.point()));
    mount::helper::unmount(&place.point(), true).unwrap();
    assert!(mountinfo::find(&place.point()).unwrap().is_none());
    assert!(mount::helper::unmount(&place.point(), true).is_err());
}

const SERVE_AT: &str = "NARUFS_FUSE_TEST_SERVE_AT";

/// Not a test by itself: the process that the tests below start and kill.
#[test]
fn serve_in_a_process_of_its_own() {
    let Some(dir) = std::env::var_os(SERVE_AT) else { return };
    let fs = Arc::new(MemFs::new(OpenFlags::empty()));
    let options = MountOptions::new("child");
    let server = Server::start(fs, Path::new(&dir), &options, &ServerConfig::default()).unwrap();
    println!("\nserving");
    server.wait();
}

struct Child(std::process::Child);

impl Child {
    fn serve(dir: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serve_in_a_process_of_its_own", "--nocapture"]).env(SERVE_AT, dir);
        let mut child = Child(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "serving"), "the server did not start");
        // Its last words need somewhere to go.
        std::thread::spawn(move || lines.for_each(drop));
        child
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn after_a_killed_server_the_place_is_dead_and_can_be_mounted_anew() {
    let Some(place) = Place::new() else { return };
    let mut child = Child::serve(&place.point());
    let path = place.point().join("file");
    fs::write(&path, b"lost with its server").unwrap();
    let mut open = File::open(&path).unwrap();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert_eq!(fs::metadata(place.point()).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    assert!(mount::is_dead(&place.point()));
    assert!(open.read(&mut [0]).is_err() || open.metadata().is_err());
    let fs = Arc::new(MemFs::new(OpenFlags::empty()));
    let options = MountOptions::new("memory");
    let server = Server::start(fs, &place.point(), &options, &ServerConfig::default()).unwrap();
    assert_eq!(fs::read(&path).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&path, b"new").unwrap();
    drop(server);
    assert!(mountinfo::find(&place.point()).unwrap().is_none());
}

#[test]
fn who_unmounts_can_wait_for_the_server() -> io::Result<()> {
    let Some(place) = Place::new() else { return Ok(()) };
    let mut child = Child::serve(&place.point());
    let server = ServerProcess::of(&place.point())?;
    assert_eq!(server.pid.as_raw_nonzero().get() as u32, child.0.id());
    mount::unmount(&place.point(), IfBusy::Refuse)?;
    server.wait()?;
    assert!(child.0.wait()?.success());
    assert_eq!(ServerProcess::of(&place.point()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    Ok(())
}
