//! Random calls, made here and of `std::fs` in a directory: they give the same, and fail with the same.

use narufs::{Fs, OpenOptions, ScratchOptions};
use proptest::prelude::*;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How a file is opened: read, write, append, truncate, create, create_new.
type Ways = [bool; 6];

#[derive(Debug, Clone)]
enum Call {
    Write(usize, Vec<u8>),
    Read(usize),
    ReadToString(usize),
    Open(usize, Ways, Vec<Step>),
    CreateDir(usize),
    CreateDirAll(usize),
    RemoveFile(usize),
    RemoveDir(usize),
    RemoveDirAll(usize),
    Rename(usize, usize),
    HardLink(usize, usize),
    Symlink(usize, usize),
    ReadLink(usize),
    Copy(usize, usize),
    Metadata(usize, bool),
    ReadDir(usize),
    Exists(usize),
}

/// What is done with an open file.
#[derive(Debug, Clone)]
enum Step {
    Read(usize),
    ReadExactAt(usize, u64),
    Write(Vec<u8>),
    WriteAt(Vec<u8>, u64),
    Seek(i64, u8),
    SetLen(u64),
}

const PATHS: [&str; 12] =
    ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "link", "link/a", "d/", "a/", "d/../a"];

/// What a call gives: its outcome, or the number of its error, and its kind.
type Outcome = Result<String, (Option<i32>, std::io::ErrorKind)>;

fn of_std<T: std::fmt::Debug>(result: std::io::Result<T>) -> Outcome {
    result.map(|value| format!("{value:?}")).map_err(|e| (e.raw_os_error(), e.kind()))
}

/// Whether both lead to the same regular file.
fn is_one_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file =
        |path| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|m| (m.dev(), m.ino()));
    file(one).is_some_and(|one| file(other) == Some(one))
}

fn of_narufs<T: std::fmt::Debug>(result: narufs::Result<T>) -> Outcome {
    of_io(result.map_err(Into::into))
}

fn of_io<T: std::fmt::Debug>(result: std::io::Result<T>) -> Outcome {
    result.map(|value| format!("{value:?}")).map_err(|e| {
        let inside = e.get_ref().and_then(|e| e.downcast_ref::<narufs::Error>());
        let errno = inside.filter(|e| matches!(e.cause(), narufs::Cause::Errno(_))).map(narufs::Error::errno);
        (errno, e.kind())
    })
}

/// The same, as far as the standard library tells: where it has asked no system call it has no number.
fn comparable(ours: Vec<Outcome>, theirs: &[Outcome]) -> Vec<Outcome> {
    let silent = |n: usize| matches!(theirs.get(n), Some(Err((None, _))));
    let numberless = |(n, outcome): (usize, Outcome)| {
        outcome.map_err(|(errno, kind)| (errno.filter(|_| !silent(n)), kind))
    };
    ours.into_iter().enumerate().map(numberless).collect()
}

fn path() -> impl Strategy<Value = usize> {
    0..PATHS.len()
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(b'a'..b'f', 0..40)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..20usize).prop_map(Step::Read),
        (0..20usize, 0..60u64).prop_map(|(len, at)| Step::ReadExactAt(len, at)),
        content().prop_map(Step::Write),
        (content(), 0..60u64).prop_map(|(bytes, at)| Step::WriteAt(bytes, at)),
        (-20..60i64, 0..3u8).prop_map(|(by, from)| Step::Seek(by, from)),
        (0..60u64).prop_map(Step::SetLen),
    ];
    prop::collection::vec(step, 0..6)
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => (path(), content()).prop_map(|(p, c)| Call::Write(p, c)),
        1 => path().prop_map(Call::Read),
        1 => path().prop_map(Call::ReadToString),
        6 => (path(), any::<Ways>(), steps()).prop_map(|(p, w, s)| Call::Open(p, w, s)),
        3 => path().prop_map(Call::CreateDir),
        1 => path().prop_map(Call::CreateDirAll),
        1 => path().prop_map(Call::RemoveFile),
        1 => path().prop_map(Call::RemoveDir),
        1 => path().prop_map(Call::RemoveDirAll),
        2 => (path(), path()).prop_map(|(p, q)| Call::Rename(p, q)),
        1 => (path(), path()).prop_map(|(p, q)| Call::HardLink(p, q)),
        1 => (path(), path()).prop_map(|(p, q)| Call::Symlink(p, q)),
        1 => path().prop_map(Call::ReadLink),
        1 => (path(), path()).prop_map(|(p, q)| Call::Copy(p, q)),
        1 => (path(), any::<bool>()).prop_map(|(p, f)| Call::Metadata(p, f)),
        1 => path().prop_map(Call::ReadDir),
        1 => path().prop_map(Call::Exists),
    ]
}

/// Seeks from the start, from where it is, or from the end.
fn seek(by: i64, from: u8) -> SeekFrom {
    match from {
        0 => SeekFrom::Start(by.unsigned_abs()),
        1 => SeekFrom::Current(by),
        _ => SeekFrom::End(by),
    }
}

/// The calls that both kinds of file answer in the same words.
macro_rules! step {
    ($file:expr, $step:expr, $inherent:ident, $of:ident) => {
        match $step {
            Step::Read(len) => {
                let mut into = vec![0; *len];
                $of($file.read(&mut into).map(|read| (read, into)))
            }
            Step::ReadExactAt(len, at) => {
                let mut into = vec![0; *len];
                // What a read that failed has left in the buffer is its own.
                $inherent($file.read_exact_at(&mut into, *at).map(|()| into))
            }
            Step::Write(bytes) => $of($file.write(bytes)),
            Step::WriteAt(bytes, at) => $inherent($file.write_at(bytes, *at)),
            Step::Seek(by, from) => $of($file.seek(seek(*by, *from))),
            Step::SetLen(len) => $inherent($file.set_len(*len)),
        }
    };
}

fn here(fs: &Fs, call: &Call) -> Vec<Outcome> {
    let at = |n: &usize| PATHS[*n];
    vec![match call {
        Call::Write(p, content) => of_narufs(fs.write(at(p), content)),
        Call::Read(p) => of_narufs(fs.read(at(p))),
        Call::ReadToString(p) => of_narufs(fs.read_to_string(at(p))),
        Call::Open(p, [read, write, append, truncate, create, create_new], steps) => {
            let mut options = OpenOptions::new();
            options.read(*read).write(*write).append(*append);
            options.truncate(*truncate).create(*create).create_new(*create_new);
            match fs.open_with(at(p), &options) {
                Err(e) => of_narufs::<()>(Err(e)),
                // What opening a directory shows is shown by others.
                Ok(file) if file.metadata().expect("open").is_dir() => Ok("a directory".into()),
                Ok(mut file) => return steps.iter().map(|s| step!(file, s, of_narufs, of_io)).collect(),
            }
        }
        Call::CreateDir(p) => of_narufs(fs.create_dir(at(p))),
        Call::CreateDirAll(p) => of_narufs(fs.create_dir_all(at(p))),
        Call::RemoveFile(p) => of_narufs(fs.remove_file(at(p))),
        Call::RemoveDir(p) => of_narufs(fs.remove_dir(at(p))),
        Call::RemoveDirAll(p) => of_narufs(fs.remove_dir_all(at(p))),
        Call::Rename(p, q) => of_narufs(fs.rename(at(p), at(q))),
        Call::HardLink(p, q) => of_narufs(fs.hard_link(at(p), at(q))),
        Call::Symlink(p, q) => of_narufs(fs.symlink(at(p), at(q))),
        Call::ReadLink(p) => of_narufs(fs.read_link(at(p))),
        Call::Copy(p, q) => of_narufs(fs.copy(at(p), at(q))),
        Call::Metadata(p, follow) => {
            let found = if *follow { fs.metadata(at(p)) } else { fs.symlink_metadata(at(p)) };
            of_narufs(found.map(|m| (m.is_dir(), m.is_file(), !m.is_dir() && m.len() > 0, m.nlink() > 1)))
        }
        Call::ReadDir(p) => of_narufs(fs.read_dir(at(p)).map(|entries| {
            let mut names: Vec<_> = entries.map(|e| e.expect("read").file_name().to_owned()).collect();
            names.sort();
            names
        })),
        Call::Exists(p) => of_narufs(fs.try_exists(at(p))),
    }]
}

fn there(top: &Path, call: &Call) -> Vec<Outcome> {
    use std::fs;
    let at = |n: &usize| PathBuf::from(format!("{}/{}", top.display(), PATHS[*n]));
    vec![match call {
        Call::Write(p, content) => of_std(fs::write(at(p), content)),
        Call::Read(p) => of_std(fs::read(at(p))),
        Call::ReadToString(p) => of_std(fs::read_to_string(at(p))),
        Call::Open(p, [read, write, append, truncate, create, create_new], steps) => {
            let mut options = fs::OpenOptions::new();
            options.read(*read).write(*write).append(*append);
            options.truncate(*truncate).create(*create).create_new(*create_new);
            match options.open(at(p)) {
                Err(e) => of_std::<()>(Err(e)),
                Ok(file) if file.metadata().expect("open").is_dir() => Ok("a directory".into()),
                Ok(mut file) => return steps.iter().map(|s| step!(file, s, of_std, of_std)).collect(),
            }
        }
        Call::CreateDir(p) => of_std(fs::create_dir(at(p))),
        Call::CreateDirAll(p) => of_std(fs::create_dir_all(at(p))),
        Call::RemoveFile(p) => of_std(fs::remove_file(at(p))),
        Call::RemoveDir(p) => of_std(fs::remove_dir(at(p))),
        Call::RemoveDirAll(p) => of_std(fs::remove_dir_all(at(p))),
        Call::Rename(p, q) => of_std(fs::rename(at(p), at(q))),
        Call::HardLink(p, q) => of_std(fs::hard_link(at(p), at(q))),
        Call::Symlink(p, q) => of_std(std::os::unix::fs::symlink(PATHS[*p], at(q))),
        Call::ReadLink(p) => of_std(fs::read_link(at(p))),
        // The one call where less is given: the standard library empties a file that is copied onto itself.
        Call::Copy(p, q) if is_one_file(&at(p), &at(q)) => {
            of_std(Err::<u64, _>(std::io::Error::from_raw_os_error(libc::EINVAL)))
        }
        Call::Copy(p, q) => of_std(fs::copy(at(p), at(q))),
        Call::Metadata(p, follow) => {
            use std::os::unix::fs::MetadataExt;
            let found = if *follow { fs::metadata(at(p)) } else { fs::symlink_metadata(at(p)) };
            of_std(found.map(|m| (m.is_dir(), m.is_file(), !m.is_dir() && m.len() > 0, m.nlink() > 1)))
        }
        Call::ReadDir(p) => of_std(fs::read_dir(at(p)).map(|entries| {
            let mut names: Vec<_> = entries.map(|e| e.expect("read").file_name()).collect();
            names.sort();
            names
        })),
        Call::Exists(p) => of_std(fs::exists(at(p))),
    }]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn calls_give_what_the_standard_library_gives(calls in prop::collection::vec(call(), 1..40)) {
        let top = tempfile::tempdir().expect("a place");
        let fs = Fs::scratch(&ScratchOptions::new(64 << 20)).expect("memory");
        // So that counts of links of directories are the same on any file system below.
        for call in calls.iter().filter(|call| !matches!(call, Call::Metadata(..))) {
            let theirs = there(top.path(), call);
            prop_assert_eq!(comparable(here(&fs, call), &theirs), theirs, "{:?}", call);
        }
        for (n, path) in PATHS.iter().enumerate() {
            for call in [Call::Read(n), Call::ReadDir(n), Call::ReadLink(n), Call::Metadata(n, false)] {
                let theirs = there(top.path(), &call);
                prop_assert_eq!(comparable(here(&fs, &call), &theirs), theirs, "{} {:?}", path, call);
            }
        }
    }
}
