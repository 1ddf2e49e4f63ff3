//! The library as it is installed, and programs that are compiled beside it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Where it was laid.
pub struct Laid {
    /// Of libnarufs.so and libnarufs.a.
    pub lib: PathBuf,
    // Removed at the end of the process, by whoever looks at statics: see `laid`.
    root: PathBuf,
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a command says; fails if that fails.
pub fn output(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let failed = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {}\n{said}\n{failed}", out.status);
    said
}

/// The archive that cargo has built with this test: the newest beside it.
fn archive() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let beside = test.parent().expect("a directory").read_dir().expect("it can be read");
    let archives = beside.map(|entry| entry.expect("an entry")).filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("libnarufs_c") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|entry| entry.metadata().and_then(|m| m.modified()).expect("a time"));
    newest.expect("cargo builds an archive of it").path()
}

/// Laid once; below the directory of the build, where it is written over the next time.
pub fn laid() -> &'static Laid {
    static LAID: LazyLock<Laid> = LazyLock::new(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("laid");
        if root.exists() {
            std::fs::remove_dir_all(&root).expect("what was laid before can be removed");
        }
        let prefix = root.join("usr");
        let mut lay = Command::new(here().join("lay.sh"));
        // The paths that pkg-config gives are those where it lies.
        output(lay.arg(archive()).arg("").arg(&prefix));
        Laid { lib: prefix.join("lib"), root: prefix }
    });
    &LAID
}

fn pkg_config(words: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", laid().lib.join("pkgconfig"));
    let said = output(command.args(words).arg("narufs"));
    said.split_whitespace().map(str::to_owned).collect()
}

/// A program in C or C++.
pub struct Program {
    source: PathBuf,
    flags: Vec<String>,
    library: Vec<String>,
}

impl Program {
    pub fn new(source: &str) -> Program {
        let library = pkg_config(&["--cflags", "--libs"]);
        Program { source: here().join(source), flags: Vec::new(), library }
    }

    pub fn with(mut self, flags: &[&str]) -> Program {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    /// Of libnarufs.a, and of no libnarufs.so.
    pub fn of_the_archive(mut self) -> Program {
        let all = pkg_config(&["--static", "--cflags", "--libs"]);
        let name = |word: String| if word == "-lnarufs" { "-l:libnarufs.a".to_owned() } else { word };
        self.library = all.into_iter().map(name).collect();
        self
    }

    /// Compiles it and runs it; gives what it has said.
    pub fn run(&self, words: &[&dyn AsRef<OsStr>]) -> String {
        let place = tempfile::tempdir().expect("room");
        let program = place.path().join("program");
        let is_c = self.source.extension().is_some_and(|e| e == "c");
        let mut compiler = Command::new(if is_c { "cc" } else { "c++" });
        compiler.args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-g",
            if is_c { "-std=c11" } else { "-std=c++11" },
        ]);
        compiler.args(&self.flags).arg(&self.source).arg("-o").arg(&program);
        output(compiler.args(&self.library).arg("-pthread"));
        let mut run = Command::new(&program);
        run.env("LD_LIBRARY_PATH", &laid().lib);
        // The library has its own ways to order memory, which a program's sanitiser does not see.
        run.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1:halt_on_error=1");
        run.env("ASAN_OPTIONS", "allocator_may_return_null=1");
        output(run.args(words.iter().map(|word| word.as_ref())))
    }

    /// With the path of an image.
    pub fn run_on_an_image(&self) {
        let place = tempfile::tempdir().expect("room");
        self.run(&[&place.path().join("image")]);
    }
}

impl Laid {
    /// What is installed below the prefix.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }
}
