//! Slashes at the end of paths, and dots: the library answers as the kernel does.

use super::tests::files;
use super::*;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

type Outcome = std::result::Result<(), i32>;

/// One call, for both.
struct Call {
    name: &'static str,
    kernel: fn(&Path, &Path) -> std::io::Result<()>,
    library: fn(&Files, &[u8], &[u8]) -> Result<()>,
}

macro_rules! call {
    ($name:literal, $kernel:expr, $library:expr) => {
        Call { name: $name, kernel: $kernel, library: $library }
    };
}

fn exchange_by_kernel(p: &Path, q: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags};
    Ok(rustix::fs::renameat_with(CWD, p, CWD, q, RenameFlags::EXCHANGE)?)
}

fn to_read() -> OpenOptions {
    OpenOptions { read: true, ..OpenOptions::default() }
}

/// Calls with one path. The other is a name that is free.
const ALONE: &[Call] = &[
    call!("open to read", |p, _| fs::File::open(p).map(drop), |f, p, _| f.open(p, to_read()).map(drop)),
    call!("open to write", |p, _| fs::File::options().write(true).open(p).map(drop), |f, p, _| f
        .open(p, OpenOptions { write: true, ..OpenOptions::default() })
        .map(drop)),
    call!("create", |p, _| fs::File::create(p).map(drop), |f, p, _| f.create(p).map(drop)),
    call!("create new", |p, _| fs::File::create_new(p).map(drop), |f, p, _| f
        .open(p, OpenOptions { write: true, create_new: true, ..OpenOptions::default() })
        .map(drop)),
    call!("unlink", |p, _| fs::remove_file(p), |f, p, _| f.remove_file(p)),
    call!("rmdir", |p, _| fs::remove_dir(p), |f, p, _| f.remove_dir(p)),
    call!("mkdir", |p, _| fs::create_dir(p), |f, p, _| f.create_dir(p)),
    call!("stat", |p, _| fs::metadata(p).map(drop), |f, p, _| f.metadata(p).map(drop)),
    call!("lstat", |p, _| fs::symlink_metadata(p).map(drop), |f, p, _| f.symlink_metadata(p).map(drop)),
    call!("readlink", |p, _| fs::read_link(p).map(drop), |f, p, _| f.read_link(p).map(drop)),
    call!("readdir", |p, _| fs::read_dir(p).map(drop), |f, p, _| f.read_dir(p).map(drop)),
    call!("symlink", |p, _| std::os::unix::fs::symlink("t", p), |f, p, _| f.symlink("t", p)),
    call!("symlink to nothing", |p, _| std::os::unix::fs::symlink("", p), |f, p, _| f.symlink("", p)),
    call!(
        "chmod",
        |p, _| fs::set_permissions(p, std::os::unix::fs::PermissionsExt::from_mode(0o755)),
        |f, p, _| f.set_attributes(p, &SetAttr { mode: Some(0o755), ..SetAttr::default() }).map(drop)
    ),
];

/// Calls with two paths.
const PAIRS: &[Call] = &[
    call!("rename", |p, q| fs::rename(p, q), |f, p, q| f.rename(p, q)),
    call!("exchange", |p, q| exchange_by_kernel(p, q), |f, p, q| f.rename_into(
        p,
        f,
        q,
        RenameFlags::EXCHANGE
    )),
    call!("link", |p, q| fs::hard_link(p, q), |f, p, q| f.hard_link(p, q)),
];

const PATHS: &[&str] = &[
    "f",
    "f/",
    "f//",
    "f/.",
    "f/new",
    "f/new/",
    "d",
    "d/",
    "d//",
    "d/.",
    "d/./",
    "d/..",
    "d/../",
    "empty",
    "empty/",
    "full/",
    "new",
    "new/",
    "new//",
    "new/.",
    "none/new",
    "none/new/",
    ".",
    "./",
    "to-d",
    "to-d/",
    "to-d/.",
    "to-empty/",
    "to-f",
    "to-f/",
    "to-f/.",
    "dangling",
    "dangling/",
    "loop",
    "loop/",
    "to-d-slash",
    "to-f-slash",
    "to-f-slash/",
    "to-new-slash",
    "",
];

const LINKS: &[(&str, &str)] = &[
    ("to-d", "d"),
    ("to-empty", "empty"),
    ("to-f", "f"),
    ("dangling", "nowhere"),
    ("loop", "loop"),
    ("to-d-slash", "d/"),
    ("to-f-slash", "f/"),
    ("to-new-slash", "nowhere/"),
];

/// The same tree in both, made anew after each call that may have changed it; what there is in it afterwards must be
/// the same.
struct Trees {
    files: Files,
    kernel: PathBuf,
    made: u32,
}

impl Trees {
    fn make(&mut self) {
        self.made += 1;
        let (top, name, files) = (self.top(), self.made, &self.files);
        fs::create_dir(&top).expect("new");
        files.create_dir(name.to_string()).expect("new");
        for dir in ["d", "empty", "full"] {
            fs::create_dir(top.join(dir)).expect("new");
            files.create_dir(format!("{name}/{dir}")).expect("new");
        }
        for file in ["f", "full/f"] {
            fs::write(top.join(file), "").expect("new");
            files.create(format!("{name}/{file}")).expect("new");
        }
        for (link, target) in LINKS {
            std::os::unix::fs::symlink(target, top.join(link)).expect("new");
            files.symlink(target, format!("{name}/{link}")).expect("new");
        }
    }

    fn top(&self) -> PathBuf {
        self.kernel.join(self.made.to_string())
    }

    fn outcomes(&mut self, call: &Call, path: &str, other: &str) -> (Outcome, Outcome) {
        let (top, name, files) = (self.top(), self.made.to_string(), &self.files);
        let below = |top: &Path, path: &str| match path {
            "" => PathBuf::new(),
            path => PathBuf::from(format!("{}/{path}", top.display())),
        };
        let kernel = (call.kernel)(&below(&top, path), &below(&top, other));
        let at = Path::new(&name);
        let [first, second] = [below(at, path), below(at, other)];
        let library = (call.library)(files, first.as_os_str().as_bytes(), second.as_os_str().as_bytes());
        let mut there: Vec<_> = fs::read_dir(&top)
            .expect("there")
            .map(|entry| entry.expect("read").file_name().as_bytes().to_vec())
            .collect();
        let mut here: Vec<_> =
            files.read_dir(&name).expect("there").into_iter().map(|listed| listed.name).collect();
        there.sort();
        here.sort();
        assert_eq!(here, there, "{} {path} {other}", call.name);
        if kernel.is_ok() || library.is_ok() {
            self.make();
        }
        (kernel.map_err(|e| e.raw_os_error().expect("of the kernel")), library.map_err(|e| e.errno()))
    }
}

#[test]
fn a_slash_at_the_end_asks_for_a_directory() {
    let kernel = tempfile::tempdir().expect("a place");
    let mut wrong = Vec::new();
    for (n, path) in PATHS.iter().enumerate() {
        let top = kernel.path().join(n.to_string());
        fs::create_dir(&top).expect("new");
        let mut trees = Trees { files: files(), kernel: top, made: 0 };
        trees.make();
        let mut compare = |call: &Call, path: &str, other: &str| {
            let (kernel, library) = trees.outcomes(call, path, other);
            if kernel != library {
                wrong.push(format!("{} {path} {other}: {library:?}, the kernel {kernel:?}", call.name));
            }
        };
        ALONE.iter().for_each(|call| compare(call, path, "free"));
        for other in ["f/", "d", "d/", "empty/", "new/", "to-d/", "none/new/"] {
            for call in PAIRS {
                compare(call, path, other);
                compare(call, other, path);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A test of the kernel's own root would be one of its mount.
#[test]
fn the_root_can_be_opened_and_neither_made_nor_moved() {
    let files = files();
    for root in ["/", "//"] {
        let errno = |result: Result<()>| result.expect_err("it must fail").errno();
        files.open(root, to_read()).expect("a directory");
        assert_eq!(errno(files.create(root).map(drop)), libc::EISDIR);
        assert_eq!(
            errno(files.open(root, OpenOptions { create_new: true, ..to_read() }).map(drop)),
            libc::EEXIST
        );
        assert_eq!(errno(files.create_dir(root)), libc::EEXIST);
        assert_eq!(errno(files.symlink("t", root)), libc::EEXIST);
        assert_eq!(errno(files.remove_file(root)), libc::EISDIR);
        assert_eq!(errno(files.remove_dir(root)), libc::EBUSY);
        assert_eq!(errno(files.rename(root, "x")), libc::EBUSY);
        files.create("/f").expect("made or there");
        assert_eq!(errno(files.rename("/f", root)), libc::EBUSY);
        assert_eq!(errno(files.hard_link("/f", root)), libc::EEXIST);
    }
}
