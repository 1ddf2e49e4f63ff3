//! Files, directories and errors, as a program meets them.

use narufs::*;
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

fn scratch() -> Fs {
    Fs::scratch(&ScratchOptions::new(64 << 20)).expect("memory")
}

fn errno<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.expect_err("it must fail").errno()
}

fn image() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().expect("a place");
    let image = place.path().join("image");
    Fs::format(&image, &FormatOptions::new().size(16 << 20)).expect("room");
    (place, image)
}

fn open(image: &PathBuf) -> Fs {
    Fs::open(image, &MountOptions::new()).expect("a good image")
}

#[test]
fn a_dropped_file_system_is_closed_and_clean() {
    let (_place, image) = image();
    assert!(matches!(
        Fs::format(&image, &FormatOptions::new().size(16 << 20)).expect_err("there is one").cause(),
        Cause::Refused(_)
    ));
    let fs = open(&image);
    assert!(matches!(Fs::open(&image, &MountOptions::new()).expect_err("in use").cause(), Cause::InUse(_)));
    let file = fs.create("/f").expect("room");
    drop(fs);
    // The file keeps it open.
    file.write_all_at(b"never synced", 0).expect("room");
    drop(file);
    let fs = open(&image);
    assert_eq!(fs.recovery().records, 0, "it was closed");
    assert_eq!(fs.read("/f").expect("there"), b"never synced");
    fs.close().expect("nothing is open");
}

#[test]
fn what_is_in_use_is_closed_by_the_last() {
    let (_place, image) = image();
    let fs = open(&image);
    let file = fs.create("/f").expect("room");
    file.write_all_at(b"kept", 0).expect("room");
    assert_eq!(errno(fs.close()), libc::EBUSY);
    let other = file.metadata().expect("still open").len();
    assert_eq!(other, 4);
    drop(file);
    let fs = open(&image);
    assert_eq!(fs.recovery().records, 0, "the file closed it");
    let user = fs.as_user(1, 1, &[]);
    assert_eq!(errno(fs.close()), libc::EBUSY);
    user.close().expect("the last");
    assert_eq!(open(&image).read("/f").expect("there"), b"kept");
}

#[test]
fn the_cursor_moves_as_in_the_standard_library() {
    let fs = scratch();
    let mut options = OpenOptions::new();
    let mut file = fs.open_with("f", options.read(true).write(true).create(true)).expect("made");
    assert_eq!(file.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cde")]).expect("room"), 5);
    assert_eq!(file.stream_position().expect("a cursor"), 5);
    assert_eq!(file.seek(SeekFrom::End(-3)).expect("within"), 2);
    let mut three = [0; 3];
    file.read_exact(&mut three).expect("there");
    assert_eq!(&three, b"cde");
    assert!(file.seek(SeekFrom::Current(-6)).is_err());
    assert_eq!(file.seek(SeekFrom::Start(100)).expect("beyond"), 100);
    assert_eq!(file.read(&mut three).expect("the end"), 0);
    (&file).write_all(b"x").expect("a hole before");
    assert_eq!(file.metadata().expect("open").len(), 101);
    let (mut one, mut two) = ([0; 2], [0; 9]);
    let read = file.read_vectored_at(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)], 1);
    assert_eq!(read.expect("there"), 11);
    assert_eq!((&one, &two[..3]), (b"bc", &b"de\0"[..]));
    let (mut one, mut two_mib) = ([0; 2], vec![7; 2 << 20]);
    let read = file.read_vectored_at(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two_mib)], 1);
    assert_eq!(read.expect("there"), 100);
    assert_eq!((&one, two_mib[97], two_mib[98]), (b"bc", b'x', 7));
    let short = file.read_exact_at(&mut two, 100).expect_err("it ends before");
    assert_eq!(short.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(file.write_vectored_at(&[], 0).expect("nothing"), 0);
}

#[test]
fn appends_tell_where_they_went() {
    let fs = scratch();
    let file = fs.open_with("f", OpenOptions::new().read(true).append(true).create(true)).expect("made");
    assert_eq!(file.append_all(b"abc").expect("room"), 0);
    let Appended { offset, len, .. } = file.append(b"defg").expect("room");
    assert_eq!((offset, len), (3, 4));
    let parts = [IoSlice::new(b"h"), IoSlice::new(b"ij")];
    assert_eq!(file.append_vectored(&parts).expect("room").offset, 7);
    file.write_all_at(b"k", 0).expect("at the end");
    assert_eq!(fs.read("f").expect("there"), b"abcdefghijk");
    (&file).write_all(b"l").expect("room");
    assert_eq!((&file).stream_position().expect("behind it"), 12);
    for opened in [&file, &fs.open_with("f", OpenOptions::new().write(true)).expect("there")] {
        assert_eq!(opened.append(b"").map(|a| (a.offset, a.len)).expect("nothing"), (12, 0), "at the end");
        assert_eq!(opened.append_all(b"").expect("nothing"), 12);
        assert_eq!(opened.append_vectored(&[]).expect("nothing").offset, 12);
    }
}

#[test]
fn ranges_are_cleared_moved_and_copied() {
    let (_place, image) = image();
    let fs = open(&image);
    let file = fs.create_new("f").expect("made");
    file.write_all_at(&[7; 12 << 10], 0).expect("room");
    file.punch_hole(0, 4096).expect("a block");
    assert_eq!(file.seek_data(0).expect("asked"), Some(4096));
    file.collapse_range(0, 4096).expect("a block");
    assert_eq!(file.metadata().expect("open").len(), 8 << 10);
    file.insert_range(4096, 4096).expect("a block");
    assert_eq!(file.seek_hole(0).expect("asked"), Some(4096));
    file.zero_range(0, 16 << 10).expect("room");
    file.allocate(0, 20 << 10).expect("room");
    file.reserve(0, 1 << 20).expect("room");
    assert_eq!(file.metadata().expect("open").len(), 20 << 10);
    file.write_all_at(b"tail", 20 << 10).expect("room");
    assert_eq!(fs.copy("f", "g").expect("room"), (20 << 10) + 4);
    assert_eq!(fs.read("g").expect("there"), fs.read("f").expect("there"));
    let other = scratch().create("h").expect("made");
    assert_eq!(errno(file.copy_range(0, &other, 0, 1)), libc::EXDEV);
    fs.create_dir("d").expect("room");
    fs.create("d/e").expect("room");
    let dir = fs.open("d").expect("a directory can be opened to be read");
    for (from, to) in [(&dir, &file), (&file, &dir), (&dir, &dir)] {
        assert_eq!(errno(from.copy_range(0, to, 0, 1)), libc::EISDIR);
    }
    // As the kernel answers for a directory of a mount.
    let size = dir.metadata().expect("open").len();
    assert!(size > 0);
    for (at, data, hole) in
        [(0, Some(0), Some(size)), (size - 1, Some(size - 1), Some(size)), (size, None, None)]
    {
        assert_eq!((dir.seek_data(at).expect("asked"), dir.seek_hole(at).expect("asked")), (data, hole));
    }
    file.set_len(1).expect("open for writing");
    assert_eq!(errno(fs.open("f").expect("there").set_len(0)), libc::EINVAL);
}

#[test]
fn directories_stay_what_was_opened() {
    let fs = scratch();
    fs.create_dir_all("a/b").expect("made");
    let (a, b) = (fs.open_dir("a").expect("there"), fs.open_dir("a/b").expect("there"));
    fs.rename("a", "z").expect("moved");
    b.write("f", "1").expect("room");
    assert_eq!(fs.read("z/b/f").expect("there"), b"1");
    assert_eq!(b.read("../b/f").expect("there"), b"1");
    assert_eq!(b.read("/z/b/f").expect("from the root"), b"1");
    b.rename_to("f", &a, "g", RenameMode::NoReplace).expect("free");
    b.symlink("../g", "link").expect("free");
    assert_eq!(b.read_link("link").expect("a link"), PathBuf::from("../g"));
    assert_eq!(b.read("link").expect("followed"), b"1");
    assert_eq!(errno(b.open_with("link", OpenOptions::new().read(true).no_follow(true))), libc::ELOOP);
    a.hard_link_to("g", &b, "h").expect("free");
    assert_eq!(a.metadata("g").expect("there").nlink(), 2);
    let temporary = b.open_temporary(".", OpenOptions::new().write(true)).expect("room");
    assert_eq!(temporary.metadata().expect("open").nlink(), 0);
    a.link_file(&temporary, "named").expect("its first name");
    assert_eq!(errno(a.link_file(&scratch().create("x").expect("made"), "x")), libc::EXDEV);
    b.sync_all().expect("memory");
    fs.sync_all().expect("memory");
    fs.remove_dir_all("z").expect("all of it");
    assert_eq!(errno(b.create("f")), libc::ENOENT);
    assert!(!fs.try_exists("z").expect("asked"));
}

#[test]
fn entries_are_read_from_any_position_on() {
    let fs = scratch();
    fs.create_dir("d").expect("made");
    let mut names: Vec<String> = (0..1000).map(|n| format!("{n:04}")).collect();
    names.iter().for_each(|name| drop(fs.create(format!("d/{name}")).expect("room")));
    let mut read: Vec<_> = fs.read_dir("d").expect("there").map(|e| e.expect("read")).collect();
    let third = read[2].position();
    let mut again = fs.read_dir("d").expect("there");
    again.seek(DirPosition::from_u64(third.to_u64()));
    assert_eq!(again.next().expect("more").expect("read").path(), read[3].path());
    assert_eq!(again.by_ref().count(), 996);
    assert!(again.next().is_none());
    again.seek(DirPosition::START);
    assert_eq!(again.count(), 1000);
    assert!(read[0].metadata().expect("there").is_file() && read[0].file_type().is_file());
    read.sort_by_key(|e| e.file_name().to_owned());
    names.sort();
    assert!(read.iter().map(|e| e.file_name()).eq(names.iter().map(|n| n.as_str())));
    assert_eq!(read[0].path(), PathBuf::from("d/0000"));
}

#[test]
fn callers_are_checked_and_own_what_they_make() {
    let fs = scratch();
    fs.create_dir_with_mode("shared", 0o777).expect("made");
    fs.write("secret", "").expect("made");
    fs.set_permissions("secret", std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("root");
    fs.set_owner("secret", None, Some(7)).expect("root");
    let (stranger, member) = (fs.as_user(1, 1, &[]), fs.as_user(2, 2, &[5, 7]));
    assert_eq!(errno(stranger.open("secret")), libc::EACCES);
    member.open("secret").expect("the group may");
    assert_eq!(errno(member.access("secret", 2)), libc::EACCES);
    assert_eq!(errno(stranger.create("mine")), libc::EACCES);
    let mine = stranger.create("shared/mine").expect("anybody may");
    assert_eq!(mine.metadata().expect("open").uid(), 1);
    assert_eq!(
        errno(member.set_times("shared/mine", FileTimes::new().set_modified(std::time::UNIX_EPOCH))),
        libc::EPERM
    );
    let now = || FileTimes::new().set_accessed_now().set_modified_now();
    assert_eq!(errno(member.set_times("shared/mine", now())), libc::EACCES);
    mine.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("the owner");
    member.set_times("shared/mine", now()).expect("who may write may say that it is now");
    assert_eq!(errno(member.set_times("shared/mine", FileTimes::new().set_modified_now())), libc::EPERM);
    mine.set_times(FileTimes::new().set_modified(std::time::UNIX_EPOCH)).expect("the owner");
    assert_eq!(fs.metadata("shared/mine").expect("there").modified(), std::time::UNIX_EPOCH);
}

#[test]
fn who_is_not_root_changes_nothing_of_the_whole() {
    let (_place, image) = image();
    let fs = open(&image);
    let total = fs.space().expect("counted").total;
    let user = fs.as_user(1000, 1000, &[]);
    assert_eq!(errno(user.resize(Some(64 << 20))), libc::EPERM);
    assert_eq!(errno(user.trim(0)), libc::EPERM);
    assert_eq!(fs.space().expect("counted").total, total);
    fs.resize(Some(64 << 20)).expect("root");
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let fs = scratch();
    fs.write("f", "content").expect("made");
    fs.write("longer", "what was there before").expect("made");
    fs.hard_link("f", "same").expect("linked");
    fs.symlink("f", "link").expect("made");
    for to in ["f", "same", "link"] {
        assert_eq!(errno(fs.copy("f", to)), libc::EINVAL);
    }
    assert_eq!(fs.read("f").expect("there"), b"content");
    assert_eq!(fs.copy("f", "longer").expect("another"), 7);
    assert_eq!(fs.read("longer").expect("there"), b"content");
}

#[test]
fn errors_tell_what_was_asked() {
    let fs = scratch();
    let error = fs.rename("none", "other").expect_err("there is none");
    assert_eq!(error.to_string(), "rename none: No such file or directory (os error 2)");
    assert_eq!((error.operation(), error.errno()), ("rename", libc::ENOENT));
    fs.write("f", [0xff]).expect("room");
    assert_eq!(fs.read_to_string("f").expect_err("not UTF-8").kind(), std::io::ErrorKind::InvalidData);
    assert_eq!(errno(fs.open_with("f", &OpenOptions::new())), libc::EINVAL);
    assert_eq!(errno(fs.open("f").expect("there").append(b"x")), libc::EBADF);
    assert_eq!(errno(fs.hard_link_to("f", &scratch(), "g")), libc::EXDEV);
    assert_eq!(errno(Fs::open("/nowhere/at all", &MountOptions::new())), libc::ENOENT);
}

#[test]
fn attributes_are_set_listed_and_taken_away() {
    let fs = scratch();
    let file = fs.create("f").expect("made");
    file.set_xattr("user.a", b"1", XattrMode::Create).expect("new");
    assert_eq!(errno(fs.set_xattr("f", "user.a", b"2", XattrMode::Create)), libc::EEXIST);
    assert_eq!(errno(fs.set_xattr("f", "user.b", b"2", XattrMode::Replace)), libc::ENODATA);
    fs.set_xattr("f", "user.a", b"2", XattrMode::Any).expect("there");
    assert_eq!(file.xattr("user.a").expect("there"), b"2");
    assert_eq!(file.xattrs().expect("read"), ["user.a"]);
    file.remove_xattr("user.a").expect("there");
    assert_eq!(errno(fs.remove_xattr("f", "user.a")), libc::ENODATA);
    assert!(fs.xattrs("f").expect("read").is_empty());
    // A list would tell of two.
    assert_eq!(errno(fs.set_xattr("f", "user.a\0user.b", b"1", XattrMode::Any)), libc::EINVAL);
    assert_eq!(errno(fs.symlink("a\0b", "l")), libc::EINVAL);
}

#[test]
fn a_file_that_holds_data_is_left_as_it_is_unless_formatting_is_forced() {
    let dir = tempfile::tempdir().expect("a disk");
    let at = dir.path().join("thesis");
    let content = vec![b'x'; 40 << 20];
    std::fs::write(&at, &content).expect("room");
    let refused = Fs::format(&at, &FormatOptions::new().size(16 << 20)).expect_err("it holds data");
    assert!(refused.to_string().contains("holds data"), "{refused}");
    assert!(std::fs::read(&at).expect("there") == content, "it was changed");
    Fs::format(&at, &FormatOptions::new().size(16 << 20).force(true)).expect("asked for");
    let again = Fs::format(&at, &FormatOptions::new().size(32 << 20)).expect_err("there is one");
    assert!(again.to_string().contains("already"), "{again}");
    assert_eq!(std::fs::metadata(&at).expect("there").len(), 16 << 20);
    Fs::open(&at, &MountOptions::new()).expect("whole").close().expect("alone");
}

#[test]
fn a_symlink_in_the_place_of_a_directory_is_removed_and_what_it_leads_to_stays() {
    let dir = tempfile::tempdir().expect("a disk");
    let at = dir.path().join("image");
    Fs::format(&at, &FormatOptions::new().size(16 << 20)).expect("room");
    let fs = Fs::open(&at, &MountOptions::new()).expect("new");
    fs.create_dir_all("/precious/inner").expect("room");
    fs.write("/precious/kept", b"1").expect("room");
    fs.create_dir("/tree").expect("room");
    fs.symlink("/precious", "/tree/link").expect("room");
    fs.symlink("/precious", "/direct").expect("room");
    fs.remove_dir_all("/tree").expect("ours");
    fs.remove_dir_all("/direct").expect("ours");
    assert_eq!(fs.read("/precious/kept").expect("kept"), b"1");
    fs.close().expect("alone");
}

#[test]
fn a_sparse_image_takes_what_is_written() {
    let (_place, full) = image();
    let image = full.with_file_name("sparse");
    Fs::format(&image, &FormatOptions::new().size(16 << 30).sparse(true)).expect("room for what is written");
    let taken =
        |image| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(image).expect("there")) * 512;
    assert!(taken(&image) < 256 << 20 && taken(&full) >= 16 << 20);
    let fs = open(&image);
    fs.write("/f", vec![7; 8 << 20]).expect("room");
    fs.close().expect("nothing is open");
    assert_eq!(open(&image).read("/f").expect("there"), vec![7; 8 << 20]);
}

/// What a program does while a panic of its own unwinds it.
struct InItsDestructor<'a>(&'a Fs);

impl Drop for InItsDestructor<'_> {
    fn drop(&mut self) {
        let file = self.0.create("/log").expect("room");
        for page in 0..64 {
            file.write_all_at(&[7; 4096], page * 4096).expect("room");
        }
        file.sync_all().expect("a good device");
        file.set_len(64 * 4096 - 1).expect("room");
        self.0.rename("/log", "/ended").expect("there");
        self.0.sync().expect("a good device");
    }
}

#[test]
fn a_program_that_panics_goes_on_here_as_ever() {
    let (_place, image) = image();
    let fs = open(&image);
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _end = InItsDestructor(&fs);
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(ended.is_err());
    assert_eq!(fs.read("/ended").expect("there"), [7; 64 * 4096 - 1]);
    fs.write("/more", b"it goes on").expect("nothing broke off");
    fs.close().expect("nothing is open");
    assert_eq!(open(&image).read("/more").expect("there"), b"it goes on");
}
