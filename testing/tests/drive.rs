//! The program narufs-drive: what it is told by its standard input befalls the requests to DIR/disk. Needs root and
//! /dev/fuse.

use narufs_testing::place::require_mounts;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// The program, and what it says.
struct Drive {
    child: Child,
    tell: ChildStdin,
    said: BufReader<ChildStdout>,
    dir: TempDir,
}

impl Drive {
    fn new(flushed: &std::path::Path) -> Drive {
        let dir = tempfile::tempdir().expect("room");
        let mut command = Command::new(env!("CARGO_BIN_EXE_narufs-drive"));
        command.arg("--told").arg(flushed).arg(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (tell, said) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut drive = Drive { child, tell, said: BufReader::new(said), dir };
        // It listens when it is mounted.
        assert_eq!(drive.tell("count"), "read 0 write 0 flush 0 failed 0 short 0 held 0");
        drive
    }

    fn tell(&mut self, line: &str) -> String {
        let mut answer = String::new();
        writeln!(self.tell, "{line}").expect("it listens");
        self.said.read_line(&mut answer).expect("it answers");
        answer.trim_end().to_owned()
    }

    fn told(&mut self, line: &str) {
        assert_eq!(self.tell(line), "ok", "{line}");
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_drive_does_to_its_requests_as_it_is_told() {
    require_mounts();
    let place = tempfile::tempdir().expect("room");
    let flushed = place.path().join("flushed");
    File::create(&flushed).and_then(|file| file.set_len(64 << 10)).expect("room");
    let mut drive = Drive::new(&flushed);
    let disk =
        File::options().read(true).write(true).open(drive.dir.path().join("disk")).expect("it is shown");
    let errno = |e: std::io::Error| e.raw_os_error();

    drive.told("fail write 2 once 28");
    assert_eq!(disk.write_at(&[1; 4096], 0).expect("the first"), 4096);
    assert_eq!(disk.write_at(&[2; 4096], 0).map_err(errno), Err(Some(libc::ENOSPC)));
    drive.told("short any 1 on 1000");
    assert_eq!(disk.write_at(&[3; 4096], 0).expect("a part of it"), 1000);
    let mut seen = [9; 4096];
    assert_eq!(disk.read_at(&mut seen, 500).expect("a part of it"), 1000);
    assert!(seen[..500] == [3; 500] && seen[500..1000] == [1; 500] && seen[1000..] == [9; 3096]);
    drive.told("fail flush 1 on");
    drive.told("mend");
    disk.sync_all().expect("it is mended");
    drive.told("fail flush 1 on");
    assert_eq!(disk.sync_all().map_err(errno), Err(Some(libc::EIO)));
    drive.told("mend");

    drive.told("hold read 1 on");
    // If something is wrong here it goes on when the drive ends.
    let read = std::thread::spawn(move || disk.read_at(&mut [0; 512], 0));
    drive.told("held 1");
    assert_eq!(drive.tell("count"), "read 2 write 3 flush 2 failed 2 short 2 held 1");
    drive.told("release");
    assert_eq!(read.join().expect("no panic").expect("it is released"), 512);
    assert!(drive.tell("hold everything").starts_with("error: "));
}
