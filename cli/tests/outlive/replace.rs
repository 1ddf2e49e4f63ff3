//! Another version of the program takes over while programs use the mount.

use crate::support::{Mounted, children_of, narufs, said, stop};
use narufs_testing::lab::Ring;
use narufs_testing::place::{Place, require_loop_devices};
use rustix::fs::OFlags;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use scopeguard::ScopeGuard;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const BINARY: &str = env!("CARGO_BIN_EXE_narufs");

#[test]
#[ignore = "needs root and /dev/fuse"]
fn upgrades_and_downgrades_under_load_are_pauses() {
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let versions = ["older", "newer"].map(|name| at.path().join(name));
    for version in &versions {
        copy(Path::new(BINARY), version);
    }
    let mounted = Mounted::of(&versions[0], "noatime");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (home, over) = (mounted.at(&format!("home-{number}")), &over);
            scope.spawn(move || {
                fs::create_dir(&home).expect("made");
                let mut log = File::options().create(true).append(true).open(home.join("log")).expect("made");
                for count in 0.. {
                    let dir = home.join(count.to_string());
                    fs::create_dir(&dir).expect("made");
                    writeln!(log, "{count}").expect("room");
                    fs::remove_dir(&dir).expect("it is empty");
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        // Also where something of what follows fails.
        let _end = scopeguard::guard((), |()| over.store(true, Ordering::Relaxed));
        for number in 1..=4 {
            let before = mounted.incarnation();
            let version = &versions[number % 2];
            mounted.upgrade_to(version);
            assert_eq!(program_of(mounted.server()), *version);
            assert_eq!(mounted.incarnation(), before + 1);
            // The same process, of which the new program is.
            assert_eq!(mounted.stats()["supervisor_pid"], mounted.supervisor.as_raw_nonzero().get());
        }
    });
    mounted.restart();
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_program_that_cannot_go_on_is_refused_and_the_next_is_taken() {
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let program = at.path().join("narufs");
    let replace = |from: &Path| {
        let new = at.path().join("new");
        fs::copy(from, &new).and_then(|_| fs::rename(&new, &program)).expect("room");
    };
    replace(Path::new(BINARY));
    let mounted = Mounted::of(&program, "noatime");
    fs::create_dir(mounted.at("dir")).expect("made");
    replace(Path::new("/bin/false"));
    kill_process(mounted.supervisor, Signal::HUP).expect("it lives");
    // A killed server is followed by one of the program that serves, whatever has its name.
    mounted.restart();
    let before = mounted.incarnation();
    replace(Path::new(BINARY));
    kill_process(mounted.supervisor, Signal::HUP).expect("it lives");
    while mounted.incarnation() == before {
        std::thread::yield_now();
    }
    assert!(mounted.at("dir").is_dir());
    mounted.upgrade();
    mounted.restart();
    mounted.end();
}

/// The program with these letters for those, wherever it has them: it understands another word.
fn altered(from: &[u8], to: &[u8], at: &Path) {
    assert_eq!(from.len(), to.len());
    let mut program = fs::read(BINARY).expect("readable");
    let places: Vec<usize> =
        program.windows(from.len()).enumerate().filter(|(_, word)| *word == from).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    for place in places {
        program[place..place + to.len()].copy_from_slice(to);
    }
    let beside = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    fs::write(beside.path(), program).expect("room");
    fs::set_permissions(beside.path(), fs::metadata(BINARY).expect("there").permissions()).expect("ours");
    copy(beside.path(), at);
}

/// Copies a program that is to be run. By another process: what this one has open to be written, the children of other tests
/// have too until they are programs, and that would keep it from being run.
fn copy(program: &Path, to: &Path) {
    let status = Command::new("cp").args([program, to]).status().expect("it starts");
    assert!(status.success());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_program_that_ends_before_it_serves_is_followed_by_the_old_one() {
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let program = at.path().join("narufs");
    let mounted = Mounted::new("noatime");
    let file = File::create(mounted.at("file")).expect("made");
    // It says that it could take over, and does not know how it is told to.
    altered(b"supervised", b"supervisex", &program);
    let before = mounted.incarnation();
    let out = Command::new(&program).arg("upgrade").arg(mounted.place.point()).output().expect("it starts");
    assert!(!out.status.success());
    assert!(
        said(&out).contains("ended before it served") && said(&out).contains("goes on"),
        "{}",
        said(&out)
    );
    assert!(mounted.incarnation() > before);
    assert_eq!(program_of(mounted.server()), Path::new(BINARY));
    assert_eq!(program_of(mounted.supervisor), Path::new(BINARY));
    writeln!(&file, "after").expect("it is served");
    drop(file);
    mounted.restart();
    mounted.end();
}

/// Pages that the children of a process have had, of those that it has waited for.
fn faults_of_children(process: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).expect("it lives");
    let (_, after_name) = stat.rsplit_once(')').expect("it has a name");
    after_name.split_whitespace().nth(8).expect("so many words").parse().expect("a number")
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_program_that_cannot_be_started_is_followed_by_the_old_one() {
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let [program, new] = ["narufs", "new"].map(|name| at.path().join(name));
    copy(Path::new(BINARY), &program);
    let mounted = Mounted::of(&program, "noatime");
    fs::create_dir(mounted.at("dir")).expect("made");
    copy(Path::new(BINARY), &new);
    fs::rename(&new, &program).expect("ours");
    let (before, server, supervisor) = (mounted.incarnation(), mounted.server(), mounted.supervisor);
    // It makes room once the new program has said that it can take over, and not before that has lost the right to be run.
    kill_process(server, Signal::STOP).expect("it lives");
    let waited_for = faults_of_children(supervisor);
    kill_process(supervisor, Signal::HUP).expect("it lives");
    while faults_of_children(supervisor) == waited_for {
        std::thread::yield_now();
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o0)).expect("ours");
    kill_process(server, Signal::CONT).expect("it lives");
    while mounted.incarnation() == before {
        std::thread::yield_now();
    }
    assert!(program_of(mounted.server()).to_string_lossy().ends_with(" (deleted)"));
    assert!(mounted.at("dir").is_dir());
    mounted.restart();
    mounted.end();
}

fn program_of(process: Pid) -> PathBuf {
    fs::read_link(format!("/proc/{}/exe", process.as_raw_nonzero())).expect("it lives")
}

/// The memory that servers share, as its supervisor keeps it.
fn shared_memory(mounted: &Mounted) -> File {
    let all = fs::read_dir(format!("/proc/{}/fd", mounted.supervisor.as_raw_nonzero())).expect("it lives");
    let mut all = all.map(|entry| entry.expect("a descriptor").path());
    // A memfd, or a file without a name at the root of a tmpfs that is nowhere.
    let memory = all.find(|fd| {
        fs::read_link(fd).is_ok_and(|file| {
            let file = file.to_string_lossy();
            file.contains("memfd:narufs-takeover") || file.starts_with("/#")
        })
    });
    File::options().read(true).write(true).open(memory.expect("it keeps it")).expect("root may")
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_program_that_lies_in_the_mount_itself_is_refused() {
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, Ring::Ssd, 256 << 20, 8192).expect("room");
    // Below the mount there is the one that serves it, whose name leads into it from then on.
    let program = place.point().join("narufs");
    copy(Path::new(BINARY), &program);
    let mounted = Mounted::of_place_by(&program, place, "noatime,permissions=server");
    copy(Path::new(BINARY), &program);
    let (before, server) = (mounted.incarnation(), mounted.server());
    let out = Command::new(&program).arg("upgrade").arg(mounted.place.point()).output().expect("it starts");
    assert!(!out.status.success() && said(&out).contains("copy it elsewhere"), "{}", said(&out));
    assert_eq!((mounted.incarnation(), mounted.server()), (before, server));
    kill_process(mounted.supervisor, Signal::HUP).expect("it lives");
    // Heard after that, and by a supervisor that waits for nothing in its mount.
    mounted.upgrade();
    assert_eq!(mounted.incarnation(), before + 1);
    assert_eq!(program_of(mounted.server()), Path::new(BINARY));
    assert!(fs::read(&program).expect("readable") == fs::read(BINARY).expect("readable"));
    mounted.end();
}

#[test]
#[ignore = "needs root, /dev/fuse, overlays, loop devices and ext4"]
fn a_program_that_is_stored_in_the_mount_by_a_detour_is_refused() {
    require_loop_devices();
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, Ring::Ssd, 512 << 20, 8192).expect("room");
    let mounted = Mounted::of_place(place, "noatime");
    let (before, server) = (mounted.incarnation(), mounted.server());
    let at = tempfile::tempdir_in(under).expect("room");
    let [overlay, ext4, empty] = ["overlay", "ext4", "empty"].map(|name| at.path().join(name));
    for dir in [&overlay, &ext4, &empty, &mounted.at("layer")] {
        fs::create_dir(dir).expect("room");
    }
    copy(Path::new(BINARY), &mounted.at("layer/narufs"));
    let layers = format!("lowerdir={}:{}", mounted.at("layer").display(), empty.display());
    run(Command::new("mount").args(["-t", "overlay", "-o", &layers, "none"]).arg(&overlay));
    let overlaid = scopeguard::guard(&overlay, |dir| take_away(dir));
    File::create(mounted.at("disk")).and_then(|disk| disk.set_len(192 << 20)).expect("room");
    run(Command::new("mkfs.ext4").arg("-q").arg(mounted.at("disk")));
    run(Command::new("mount").args(["-o", "loop"]).args([&mounted.at("disk"), &ext4]));
    let looped = scopeguard::guard(&ext4, |dir| take_away(dir));
    copy(Path::new(BINARY), &ext4.join("narufs"));
    for dir in [&overlay, &ext4] {
        let mut program = Command::new(dir.join("narufs"));
        let out = program.arg("upgrade").arg(mounted.place.point()).output().expect("it starts");
        assert!(!out.status.success() && said(&out).contains("copy it elsewhere"), "{}", said(&out));
    }
    assert_eq!((mounted.incarnation(), mounted.server()), (before, server));
    // Who has looked is gone.
    while children_of(mounted.supervisor) != [server] {
        std::thread::yield_now();
    }
    for dir in [ScopeGuard::into_inner(overlaid), ScopeGuard::into_inner(looped)] {
        run(Command::new("umount").arg(dir));
    }
    mounted.upgrade();
    mounted.end();
}

/// Takes away what is mounted there, as soon as nobody uses it.
fn take_away(dir: &Path) {
    let _ = rustix::mount::unmount(dir, UnmountFlags::DETACH);
}

fn run(command: &mut Command) {
    let status = command.status().expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_that_dies_while_a_name_that_leads_through_its_mount_is_looked_up_is_followed() {
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, Ring::Ssd, 256 << 20, 8192).expect("room");
    // Below the mount, in which the name is looked up for the first time when the supervisor is asked for what has it.
    let program = place.point().join("narufs");
    copy(Path::new(BINARY), &program);
    let mounted = Mounted::of_place_by(&program, place, "noatime");
    let (before, server) = (mounted.incarnation(), mounted.server());
    stop(server);
    kill_process(mounted.supervisor, Signal::HUP).expect("it lives");
    while children_of(mounted.supervisor) == [server] {
        assert!(!opens_a_place(mounted.supervisor), "it waits for the mount");
        std::thread::yield_now();
    }
    kill_process(server, Signal::KILL).expect("it lives");
    assert!(mounted.incarnation() > before);
    mounted.upgrade();
    mounted.end();
}

/// Whether a process is in a call that opens something with `O_PATH`: open(2) or openat(2), as the C library has it.
fn opens_a_place(process: Pid) -> bool {
    let call = fs::read_to_string(format!("/proc/{}/syscall", process.as_raw_nonzero())).expect("it lives");
    let is_place = |word: &str| {
        let number = word.strip_prefix("0x").and_then(|word| u64::from_str_radix(word, 16).ok());
        // No address is as small.
        let flags = number.and_then(|number| u32::try_from(number).ok()).map(OFlags::from_bits_retain);
        flags.is_some_and(|flags| flags.contains(OFlags::PATH | OFlags::CLOEXEC))
    };
    call.split_whitespace().skip(1).take(3).any(is_place)
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_program_that_knows_another_layout_is_refused_before_anything_is_given_up() {
    /// Where the memory says what its layout is.
    const LAYOUT: u64 = 8;
    let mounted = Mounted::new("noatime");
    let (before, server) = (mounted.incarnation(), mounted.server());
    let memory = shared_memory(&mounted);
    let mut layout = [0; 4];
    memory.read_exact_at(&mut layout, LAYOUT).expect("readable");
    for other in [u32::from_le_bytes(layout) + 1, 0] {
        memory.write_all_at(&other.to_le_bytes(), LAYOUT).expect("it is not sealed against that");
        let out = narufs().arg("upgrade").arg(mounted.place.point()).output().expect("it starts");
        assert!(!out.status.success() && said(&out).contains("layout"), "{}", said(&out));
        assert_eq!((mounted.incarnation(), mounted.server()), (before, server));
    }
    memory.write_all_at(&layout, LAYOUT).expect("as it was");
    drop(memory);
    let out = narufs().arg("upgrade").arg(mounted.place.point()).output().expect("it starts");
    assert!(out.status.success(), "{}", said(&out));
    mounted.end();
}
