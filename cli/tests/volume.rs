//! `narufs resize` and `narufs trim`, on a mount that is in use and on an image that is not mounted.

use narufs_fuse::control;
use narufs_testing::lab::Ring;
use narufs_testing::place::{Place, require_mounts};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

fn narufs(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_narufs")).args(words).output().expect("it starts")
}

fn done(words: &[&str]) -> String {
    let out = narufs(words);
    assert!(out.status.success() && out.stderr.is_empty(), "{words:?}: {out:?}");
    String::from_utf8(out.stdout).expect("text")
}

fn refused(words: &[&str], status: i32, why: &str) {
    let out = narufs(words);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(status), "{words:?}: {said}");
    assert!(said.contains(why) && said.lines().count() == 1, "{words:?}: {said}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain letters")
}

fn place(ring: Ring) -> Place {
    Place::make(Path::new(env!("CARGO_TARGET_TMPDIR")), ring, 64 << 20, 4096).expect("room")
}

fn held(image: &Path) -> u64 {
    fs::metadata(image).expect("it is there").blocks() * 512
}

#[test]
fn an_image_that_is_not_mounted_grows() {
    let place = place(Ring::Ssd);
    let (image, point) = (place.image(), place.point());
    let image = text(&image);
    assert_eq!(done(&["resize", image, "+32M", "--sparse"]), format!("{image}: 96.0 MiB\n"));
    assert_eq!(done(&["resize", image, "96M"]), format!("{image}: 96.0 MiB\n"));
    fs::OpenOptions::new().write(true).open(image).and_then(|f| f.set_len(300 << 20)).expect("room");
    assert_eq!(done(&["resize", image]), format!("{image}: 300.0 MiB\n"));
    assert!(held(Path::new(image)) >= 300 << 20, "its space is reserved, though the file was long enough");
    assert!(done(&["fsck", image]).contains("clean"));
    refused(&["resize", image, "64M"], 1, "it can grow, not shrink");
    let wrong = narufs(&["resize", image, "much"]);
    assert!(wrong.status.code() == Some(2) && String::from_utf8_lossy(&wrong.stderr).contains("not a size"));
    refused(&["resize", text(&place.point().join("missing"))], 1, "No such file");
    refused(&["resize", text(&point), "1G"], 1, "no narufs is mounted here");
    refused(&["trim", text(&point)], 1, "no narufs is mounted here");
}

#[test]
#[ignore = "needs root, /dev/fuse and fstrim"]
fn a_mount_grows_and_is_trimmed_while_it_is_used() {
    require_mounts();
    for ring in [Ring::Ssd, Ring::Nvm] {
        let place = place(ring);
        let (image, point) = (place.image(), place.point());
        let (image, dir) = (text(&image), text(&point));
        done(&["mount", image, dir]);
        let in_use = fs::File::create(point.join("open")).expect("room");
        let room = |point: &Path| rustix::fs::statvfs(point).expect("mounted").f_blocks * 4096;
        let before = room(&point);
        assert_eq!(done(&["resize", dir, "+136M"]), format!("{dir}: 200.0 MiB\n"));
        // All but the bitmap of a second group.
        assert_eq!(room(&point) - before, (136 << 20) - 4096);
        assert!(held(Path::new(image)) >= 136 << 20, "its space is reserved");
        refused(&["resize", dir, "100M"], 1, "it can grow, not shrink");
        let bytes = vec![7; 150 << 20];
        fs::write(point.join("large"), &bytes).expect("room by now");
        drop(in_use);
        done(&["sync", dir]);
        fs::remove_file(point.join("large")).expect("there");
        let said = done(&["trim", dir]);
        assert!(said.ends_with("are free and discarded\n") && said.contains("MiB"), "{said}");
        assert!(held(Path::new(image)) < 60 << 20, "{} bytes are held", held(Path::new(image)));
        fs::write(point.join("again"), &bytes).expect("room");
        let fstrim = Command::new("fstrim").arg(dir).output().expect("missing: fstrim");
        assert!(fstrim.status.success(), "{fstrim:?}");
        done(&["umount", dir]);
        assert!(done(&["fsck", image]).contains("clean"));
        done(&["mount", image, dir, "-o", "ro"]);
        assert!(fs::read(point.join("again")).expect("there") == bytes);
        refused(&["resize", dir, "+1G"], 1, "Read-only");
        refused(&["trim", dir], 1, "Read-only");
        done(&["umount", dir]);
    }
}

/// The signal that comes with a write beyond such a limit would end the server, and each that follows it.
#[test]
#[ignore = "needs root, /dev/fuse and prlimit"]
fn a_limit_of_the_length_of_files_refuses_a_growth_and_ends_no_server() {
    require_mounts();
    let place = place(Ring::Ssd);
    let (image, point) = (place.image(), place.point());
    let (image, dir) = (text(&image), text(&point));
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--fsize={}", 200 << 20)).arg(env!("CARGO_BIN_EXE_narufs"));
    let out = limited.args(["mount", image, dir, "-o", "memory=16M"]).output().expect("missing: prlimit");
    assert!(out.status.success(), "{out:?}");
    let server = || control::server_pid(&point).expect("it answers");
    let before = server();
    fs::write(point.join("file"), "written").expect("room");
    refused(&["resize", dir, "+200M", "--sparse"], 1, "File too large");
    refused(&["resize", dir, "+200M"], 1, "File too large");
    assert_eq!((server(), fs::read(point.join("file")).expect("it is there")), (before, b"written".to_vec()));
    assert_eq!(done(&["resize", dir, "+64M", "--sparse"]), format!("{dir}: 128.0 MiB\n"));
    done(&["umount", dir]);
    assert!(done(&["fsck", image]).contains("clean"));
}

/// A file system in memory, which goes with this.
struct SmallHost(tempfile::TempDir);

impl SmallHost {
    fn new() -> SmallHost {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
        rustix::mount::mount("none", dir.path(), "tmpfs", MountFlags::empty(), c"size=200M")
            .expect("root may");
        SmallHost(dir)
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// The bitmaps of 100 TiB take more than there is, and would leave no room for what the mount writes.
#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_growth_that_its_host_has_no_room_for_leaves_it_what_it_has() {
    require_mounts();
    let host = SmallHost::new();
    let place = Place::make(host.0.path(), Ring::Ssd, 64 << 20, 4096).expect("room");
    let (image, point) = (place.image(), place.point());
    let (image, dir) = (text(&image), text(&point));
    done(&["mount", image, dir]);
    let synced = |name: &str| {
        let mut file = fs::File::create(point.join(name)).expect("room");
        file.write_all(&vec![7; 5 << 20]).and_then(|()| file.sync_all()).expect("room");
    };
    synced("before");
    let before = held(Path::new(image));
    refused(&["resize", dir, "+100T", "--sparse"], 1, "are free");
    assert_eq!(fs::metadata(image).expect("it is there").len(), 64 << 20);
    assert!(held(Path::new(image)) < before + (4 << 20), "{} of {before}", held(Path::new(image)));
    synced("after");
    assert_eq!(done(&["resize", dir, "+1T", "--sparse"]), format!("{dir}: 1.0 TiB\n"));
    synced("larger");
    done(&["umount", dir]);
    refused(&["resize", image, "+100T", "--sparse"], 1, "are free");
    done(&["mount", image, dir]);
    done(&["umount", dir]);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn scratch_space_cannot_be_resized_and_says_so() {
    require_mounts();
    let place = place(Ring::Ssd);
    let point = place.point();
    done(&["mount", "none", text(&point), "-o", "scratch,memory=64M"]);
    refused(&["resize", text(&point), "+1G"], 1, "scratch space");
    done(&["trim", text(&point)]);
    done(&["umount", text(&point)]);
}
