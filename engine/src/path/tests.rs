//! Paths: symlinks, loops, trailing slashes.

use super::*;
use crate::checkpoint::Checkpointer;
use crate::device::MemoryDevice;
use crate::format::JournalKind;
use crate::mkfs::FormatOptions;
use crate::store::{Log, Store, StoreOptions};
use crate::vfs::FallocateMode;
use crate::volume::{AssembleOptions, Running, VolumeOptions};

pub(super) fn files() -> Files {
    let device = Arc::new(MemoryDevice::new(4096));
    let options = FormatOptions { sparse: true, ..FormatOptions::default() };
    let superblock = crate::mkfs::format(&*device, &options).expect("large enough");
    let store = Arc::new(Store::new(device, superblock, Log::default(), &StoreOptions::default()));
    let checkpointer = Arc::new(Checkpointer::new(store));
    let options = AssembleOptions { background: false, inodes: 100, ..AssembleOptions::default() };
    Files::new(Arc::clone(Running::start(&checkpointer, &options).expect("a good image").fs()))
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
    let fs = Fs::mount(&image, &VolumeOptions::default()).expect("clean");
    assert!(matches!(Fs::mount(&image, &VolumeOptions::default()), Err(Error::InUse(_))));
    let file = fs.create("/f").expect("made");
    file.write_at(b"kept", 0).expect("room");
    assert_eq!(errno(fs.unmount()), libc::EBUSY);
    drop(file);
    let fs = Fs::mount(&image, &VolumeOptions::default()).expect("recovered");
    assert_eq!(fs.damage(), None);
    assert_eq!(fs.read("/f").expect("written by the unmount"), b"kept");
    fs.unmount().expect("nothing is open");
}

#[test]
fn a_format_that_is_refused_leaves_the_image_as_it_was() {
    let dir = tempfile::tempdir().expect("a place");
    let image = dir.path().join("image");
    let options = FormatOptions { blocks: Some(4096), sparse: true, ..FormatOptions::default() };
    format(&image, &options).expect("room");
    let nowhere = dir.path().join("none/ring").into_os_string().into_string().expect("plain");
    let asked = FormatOptions { blocks: Some(3000), force: true, ..options };
    let refused = [
        FormatOptions { blocks: Some(16), ..asked.clone() },
        FormatOptions { label: "a".repeat(33), ..asked.clone() },
        FormatOptions { journal_slots: Some(16), ..asked.clone() },
        FormatOptions { journal: JournalKind::Emulated, journal_path: Some(nowhere), ..asked.clone() },
    ];
    let before = std::fs::read(&image).expect("there");
    for options in refused {
        assert!(matches!(format(&image, &options), Err(Error::Refused(_))), "{options:?}");
        assert!(std::fs::read(&image).expect("there") == before, "{options:?}");
    }
    format(&image, &asked).expect("room");
    assert_eq!(std::fs::metadata(&image).expect("there").len(), 3000 * 4096);
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

fn user(uid: u32, groups: &[u32]) -> vfs::Context {
    vfs::Context::with_groups(uid, uid, groups.to_vec())
}

/// Writes, cuts and allocations are those of the caller that opened the file.
#[test]
fn a_file_is_used_by_the_caller_who_opened_it() {
    let all = files();
    let as_user = |uid| Files::acting_as(Arc::clone(&all.fs), user(uid, &[]));
    let set = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let mode = || all.metadata("/f").expect("there").perm;
    all.create("/f").expect("made").write_at(&[1; 9000], 0).expect("room");
    let flags = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let allocate = |mode| move |file: &File| file.allocate(mode, 0, 4096);
    let changes: [(&str, &dyn Fn(&File) -> Result<()>); 7] = [
        ("write", &|file| file.write_at(b"x", 0).map(drop)),
        ("append", &|file| file.append(b"x").map(drop)),
        ("shorter", &|file| file.set_len(8000)),
        ("longer", &|file| file.set_len(10_000)),
        ("allocate", &allocate(FallocateMode::Allocate { keep_size: false })),
        ("punch", &allocate(FallocateMode::PunchHole)),
        ("zero", &allocate(FallocateMode::ZeroRange { keep_size: true })),
    ];
    for (what, change) in changes {
        for (before, after) in [(0o6777, 0o777), (0o6767, 0o767)] {
            all.set_attributes("/f", &set(before)).expect("root");
            change(&all.open("/f", flags).expect("root")).expect(what);
            assert_eq!(mode(), before, "root keeps them: {what}");
            change(&as_user(7).open("/f", flags).expect("anybody")).expect(what);
            assert_eq!(mode(), after, "{what}");
            all.set_attributes("/f", &set(before)).expect("root");
        }
    }
    // A file that was opened stays its caller's, and open, whatever becomes of its mode.
    let theirs = as_user(7).open("/f", flags).expect("anybody");
    all.set_attributes("/f", &set(0o4700)).expect("root");
    theirs.set_len(5).expect("open for writing");
    assert_eq!(mode(), 0o700);
    let read_only = OpenOptions { read: true, ..OpenOptions::default() };
    assert_eq!(errno(as_user(7).open("/f", read_only)), libc::EACCES);
    for files in [&all, &Files::acting_as(Arc::clone(&all.fs), user(0, &[]))] {
        let file = files.open("/f", read_only).expect("root");
        assert_eq!(errno(file.set_len(0)), libc::EINVAL, "as ftruncate(2)");
        assert_eq!(errno(file.write_at(b"x", 0)), libc::EBADF);
    }
    let made = as_user(7).create("/theirs");
    assert_eq!(errno(made), libc::EACCES, "the root directory is root's");
}

#[test]
fn the_whole_is_for_root_to_change() {
    let all = files();
    let theirs = Files::acting_as(Arc::clone(&all.fs), user(7, &[]));
    let size = all.fs.size();
    assert_eq!(errno(theirs.resize(Some(2 * size), true)), libc::EPERM);
    assert_eq!(errno(theirs.trim(0)), libc::EPERM);
    assert_eq!(all.resize(Some(size), true).expect("root"), size);
}

#[test]
fn files_and_their_callers_can_be_shared_by_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let files = files();
    shared(&files);
    shared(&files.create("/f").expect("made"));
}
