//! Paths: symlinks, loops, trailing slashes.

use super::*;
use crate::device::MemoryDevice;
use crate::mkfs::FormatOptions;
use crate::store::{Log, Store, StoreOptions};
use crate::vfs::{AssembleOptions, Running};

pub(super) fn files() -> Files {
    let device = Arc::new(MemoryDevice::new(4096));
    let options = FormatOptions { sparse: true, ..FormatOptions::default() };
    let superblock = crate::mkfs::format(&*device, &options).expect("large enough");
    let store = Arc::new(Store::new(device, superblock, Log::default(), &StoreOptions::default()));
    let options = AssembleOptions { background: false, inodes: 100, ..AssembleOptions::default() };
    Files::new(Arc::clone(Running::start(&store, &options).expect("a good image").fs()))
}

fn errno<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.expect_err("it must fail").errno()
}

#[test]
fn symlinks_are_followed_and_loops_end() {
    let files = files();
    files.create_dir_all("/a/b").expect("made");
    files.create_dir_all("/a/b").expect("there");
    files
        .open("/a/b/f", OpenOptions { append: true, create: true, ..OpenOptions::default() })
        .expect("made")
        .append(b"x")
        .expect("room");
    files.symlink("b/f", "/a/short").expect("made");
    files.symlink("/a/b", "/dir").expect("made");
    files.symlink("loop", "/loop").expect("made");
    assert_eq!(files.read("/a/short").expect("followed"), b"x");
    assert_eq!(files.read("dir/../b/./f").expect("followed"), b"x");
    assert_eq!(files.read_link("/dir").expect("a link"), b"/a/b");
    assert_eq!(files.symlink_metadata("/dir").expect("there").file_type, FileType::Symlink);
    assert_eq!(files.symlink_metadata("/dir/").expect("there").file_type, FileType::Directory);
    assert_eq!(errno(files.metadata("/loop")), libc::ELOOP);
    assert_eq!(errno(files.metadata("/a/b/f/")), libc::ENOTDIR);
    assert_eq!(errno(files.metadata("")), libc::ENOENT);
    assert_eq!(errno(files.metadata([b'x'; 4096])), libc::ENAMETOOLONG);
    assert_eq!(errno(files.create_dir_all("/a/b/f/g")), libc::EEXIST);
}

#[test]
fn names_come_and_go() {
    let files = files();
    let new = OpenOptions { read: true, write: true, create_new: true, ..OpenOptions::default() };
    let file = files.open("/f", new).expect("made");
    assert_eq!(errno(files.open("/f", new)), libc::EEXIST);
    file.write_at(b"ab", 2).expect("room");
    file.set_len(3).expect("cut");
    file.sync_data().expect("memory");
    assert_eq!(file.metadata().expect("open").size, 3);
    files.hard_link("/f", "/g").expect("linked");
    files.remove_file("/f").expect("there");
    files.create_dir("/d/").expect("made");
    files.rename("/g", "/d/h").expect("moved");
    assert_eq!(files.read("/d/h").expect("there"), b"\0\0a");
    assert_eq!(files.read_dir("/d").expect("there").len(), 1);
    assert_eq!(errno(files.remove_dir("/d")), libc::ENOTEMPTY);
    files.remove_file("/d/h").expect("there");
    files.remove_dir("/d").expect("empty");
    assert!(files.read_dir("/").expect("there").iter().all(|e| e.name == b"lost+found"));
}

#[test]
fn an_image_that_is_still_used_is_not_called_clean() {
    let dir = tempfile::tempdir().expect("a place");
    let image = dir.path().join("image");
    let options = FormatOptions { blocks: Some(4096), ..FormatOptions::default() };
    format(&image, &options).expect("room");
    assert!(matches!(format(&image, &options), Err(Error::Refused(_))));
    let fs = Fs::mount(&image, &MountOptions::default()).expect("clean");
    assert!(matches!(Fs::mount(&image, &MountOptions::default()), Err(Error::InUse(_))));
    let file = fs.create("/f").expect("made");
    file.write_at(b"kept", 0).expect("room");
    assert_eq!(errno(fs.unmount()), libc::EBUSY);
    drop(file);
    let fs = Fs::mount(&image, &MountOptions::default()).expect("recovered");
    assert_eq!(fs.damage(), None);
    assert_eq!(fs.read("/f").expect("written by the unmount"), b"kept");
    fs.unmount().expect("nothing is open");
}

/// Two names that always lead somewhere, but to something else from moment to moment.
#[test]
fn a_name_that_is_replaced_again_and_again_is_always_found() {
    let files = files();
    files.create("f").expect("new");
    files.create_dir("d").expect("new");
    let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    let may = |result: Result<()>, what: &[i32]| {
        let errno = result.map_or_else(|e| e.errno(), |()| 0);
        assert!(errno == 0 || what.contains(&errno), "{errno}");
    };
    std::thread::scope(|scope| {
        let fs = &files.fs;
        scope.spawn(|| {
            let files = Files::new(Arc::clone(fs));
            for _ in 0..1000 {
                files.create("new").expect("room").write_at(b"content", 0).expect("room");
                files.rename("new", "f").expect("replaces");
                files.create_dir("new-d").expect("room");
                may(files.rename("new-d/", "d/"), &[libc::ENOTEMPTY]);
                may(files.remove_dir("new-d"), &[libc::ENOENT]);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let files = Files::new(Arc::clone(fs));
                for _ in 0..1000 {
                    files.set_attributes("f", &mode).expect("a file");
                    files.set_attributes("d/", &mode).expect("a directory");
                    files.read_dir("d").expect("a directory");
                    files.metadata("d/").expect("a directory");
                    files.open("f", OpenOptions { read: true, ..OpenOptions::default() }).expect("a file");
                    files
                        .open("f", OpenOptions { write: true, create: true, ..OpenOptions::default() })
                        .expect("a file");
                    may(files.create_dir("d/x"), &[libc::ENOENT, libc::EEXIST]);
                    may(files.remove_dir("d/x/"), &[libc::ENOENT]);
                    may(files.hard_link("f", "g"), &[libc::ENOENT, libc::EEXIST]);
                    may(files.rename("g", "h"), &[libc::ENOENT]);
                    may(files.remove_file("h"), &[libc::ENOENT]);
                }
            });
        }
    });
}
