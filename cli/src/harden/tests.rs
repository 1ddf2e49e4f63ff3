//! What a process that has given up the rest is refused, tried from inside, and what it still can do.
//!
//! It is tried in a process of its own: this program again, which runs the one test below for it.

use super::{Needs, close, give_up_here, install, is_alone};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that says that this is that process, and in which directory its files are.
const INSIDE: &str = "NARUFS_TEST_HARDENED";

#[test]
fn what_is_given_up_is_refused_and_what_is_needed_is_not() {
    match std::env::var_os(INSIDE) {
        Some(dir) => inside(Path::new(&dir)),
        None => try_inside(),
    }
}

fn try_inside() {
    let dir = tempfile::tempdir().expect("room");
    let mut again = Command::new(std::env::current_exe().expect("a program"));
    let name = "harden::tests::what_is_given_up_is_refused_and_what_is_needed_is_not";
    again.args(["--exact", "--nocapture", name]).env(INSIDE, dir.path()).stdin(Stdio::null());
    let out = again.output().expect("it starts");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

/// What is tried, and what came of it.
type Try<'t> = (&'static str, Box<dyn Fn() -> io::Result<()> + 't>);

fn inside(dir: &Path) {
    let at = |name: &str| dir.join(name);
    for name in ["beside", "shared"] {
        std::fs::create_dir(at(name)).expect("room");
    }
    for name in ["image", "outside", "beside/file", "shared/journal", "shared/other"] {
        std::fs::write(at(name), b"text").expect("room");
    }
    let needs = Needs {
        image: Some(at("image")),
        journal: Some(at("shared/journal")),
        removes_journal: true,
        ..Needs::default()
    };
    let given_up = give_up_here(&needs);
    assert!(given_up.no_capabilities && given_up.no_new_privileges && given_up.seccomp, "{given_up:?}");
    assert!(given_up.landlock > 0, "missing: Landlock (CONFIG_SECURITY_LANDLOCK, and lsm=landlock)");

    let open = |path: PathBuf| File::open(path).map(drop);
    let write = |path: PathBuf| std::fs::write(path, b"new");
    let refused: Vec<Try<'_>> = vec![
        ("read /etc/shadow", Box::new(|| open("/etc/shadow".into()))),
        ("read /etc/passwd", Box::new(|| open("/etc/passwd".into()))),
        ("read outside", Box::new(|| open(at("outside")))),
        ("write outside", Box::new(|| write(at("outside")))),
        ("make a file", Box::new(|| write(at("beside/new")))),
        ("make a file beside the journal", Box::new(|| write(at("shared/new")))),
        ("read a file beside the journal", Box::new(|| open(at("shared/other")))),
        ("write a file beside the journal", Box::new(|| write(at("shared/other")))),
        ("list what is beside the journal", Box::new(|| std::fs::read_dir(at("shared")).map(drop))),
        ("remove a file", Box::new(|| std::fs::remove_file(at("beside/file")))),
        ("list a directory", Box::new(|| std::fs::read_dir(dir).map(drop))),
        ("make a directory", Box::new(|| std::fs::create_dir(at("shared/dir")))),
        ("make a link", Box::new(|| std::os::unix::fs::symlink("/", at("shared/link")))),
        ("rename", Box::new(|| std::fs::rename(at("shared/journal"), at("beside/journal")))),
        ("change a mode", Box::new(|| Ok(rustix::fs::chmod(at("image"), Mode::from_raw_mode(0o4755))?))),
        ("change an owner", Box::new(|| std::os::unix::fs::chown(at("image"), Some(0), Some(0)))),
        ("write the kernel's settings", Box::new(|| write("/proc/sys/kernel/core_pattern".into()))),
        ("connect", Box::new(|| TcpStream::connect("127.0.0.1:1").map(drop))),
        ("open a socket", Box::new(|| socket(AddressFamily::INET, SocketType::DGRAM))),
        ("open a local socket", Box::new(|| socket(AddressFamily::UNIX, SocketType::STREAM))),
        ("open a device of the network", Box::new(|| socket(AddressFamily::NETLINK, SocketType::RAW))),
        ("trace", Box::new(trace_parent)),
        ("signal", Box::new(|| Ok(rustix::process::test_kill_process(parent())?))),
        (
            "have a process's descriptor",
            Box::new(|| Ok(rustix::process::pidfd_open(parent(), PidfdFlags::empty()).map(drop)?)),
        ),
        ("mount", Box::new(|| mount(dir))),
        ("unmount", Box::new(|| Ok(rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH)?))),
        ("run a program", Box::new(|| Command::new("/bin/true").status().map(drop))),
        ("change the root", Box::new(|| Ok(rustix::process::chroot(dir)?))),
        ("have another name space", Box::new(unshare)),
        ("raise a limit", Box::new(raise_limit)),
        (
            "map what can be run",
            Box::new(|| match install::maps_executable() {
                true => Ok(()),
                false => Err(Errno::PERM.into()),
            }),
        ),
    ];
    let outcomes = refused.iter().map(|(what, attempt)| (*what, attempt()));
    let done: Vec<_> = outcomes.filter(|(_, outcome)| !outcome.as_ref().is_err_and(is_refusal)).collect();
    assert!(done.is_empty(), "not refused: {done:?}");

    let needed: Vec<Try<'_>> = vec![
        ("read and write the image", Box::new(|| open(at("image")).and_then(|()| write(at("image"))))),
        (
            "write the journal, and remove it",
            Box::new(|| {
                write(at("shared/journal")).and_then(|()| std::fs::remove_file(at("shared/journal")))
            }),
        ),
        ("see who asks", Box::new(|| std::fs::read_to_string("/proc/1/status").map(drop))),
        ("see the cores", Box::new(|| open("/sys/devices/system/cpu/possible".into()))),
        ("write to nowhere", Box::new(|| write("/dev/null".into()))),
        (
            "start a thread",
            Box::new(|| {
                let threads = std::thread::Builder::new().spawn(|| File::open("/etc/passwd").is_err());
                assert!(threads?.join().expect("a thread"), "threads are held to the same");
                Ok(())
            }),
        ),
        ("speak to another part", Box::new(|| std::os::unix::net::UnixStream::pair().map(drop))),
        (
            "have memory",
            Box::new(|| Ok(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).map(drop)?)),
        ),
        (
            "look for a time",
            Box::new(|| {
                std::thread::sleep(std::time::Duration::ZERO);
                Ok(())
            }),
        ),
    ];
    let outcomes = needed.iter().map(|(what, attempt)| (*what, attempt()));
    let failed: Vec<_> = outcomes.filter(|(_, outcome)| outcome.is_err()).collect();
    assert!(failed.is_empty(), "refused: {failed:?}");
    rings_end_with_the_beginning(dir, &given_up);
}

fn rings_end_with_the_beginning(dir: &Path, given_up: &super::Hardening) {
    use narufs_engine::device::{ImageFile, UringDevice};
    let image = dir.join("image");
    std::fs::write(&image, [0; 4096]).expect("it is the image");
    let device = || {
        let image = ImageFile::open(&image).expect("it is the image");
        UringDevice::new(image).map(drop).map_err(|(_, e)| e)
    };
    device().expect("rings are made in the beginning");
    close(given_up);
    assert!(device().as_ref().is_err_and(is_refusal), "no rings are made later");
}

#[test]
fn a_process_of_many_threads_is_told_from_one_of_one() {
    // The harness has one, and this test another, unless it runs all tests in one.
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || told.recv());
    assert!(!is_alone());
    drop(tell);
    assert!(other.join().expect("a thread").is_err());
}

fn is_refusal(e: &io::Error) -> bool {
    e.kind() == ErrorKind::PermissionDenied
}

fn parent() -> Pid {
    rustix::process::getppid().expect("the test that has started this")
}

fn socket(family: AddressFamily, kind: SocketType) -> io::Result<()> {
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).map(drop)?)
}

/// By what debuggers write to.
fn trace_parent() -> io::Result<()> {
    let memory = format!("/proc/{}/mem", parent().as_raw_nonzero());
    Ok(rustix::fs::open(memory, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(drop)?)
}

fn mount(at: &Path) -> io::Result<()> {
    let flags = rustix::mount::MountFlags::empty();
    Ok(rustix::mount::mount("none", at, "tmpfs", flags, c"")?)
}

#[allow(deprecated, reason = "what it warns of is not met: it is refused")]
fn unshare() -> io::Result<()> {
    Ok(rustix::thread::unshare(rustix::thread::UnshareFlags::NEWUSER)?)
}

fn raise_limit() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    Ok(setrlimit(Resource::Nofile, getrlimit(Resource::Nofile))?)
}
