//! Programs that measure. What they draw and count with is no part of what mounts, so each is one of its own, and becomes
//! this process where it is wanted: signals, standard input and exit status are its own.

use crate::failure::{Failure, Status};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that measures.
pub struct Beside {
    name: &'static str,
    /// Where it is built, from the directory of this program, if that is elsewhere.
    built: Option<&'static str>,
    /// How one comes by it.
    how: &'static str,
}

/// What `narufs bench` and `narufs compare` are.
pub const BENCH: Beside = Beside { name: "narufs-bench", built: None, how: "make install puts it there" };

/// What `narufs reproduce` is: built with the papers' baselines, which no other program has in it.
pub const REPRODUCE: Beside = Beside {
    name: "narufs-reproduce",
    built: Some("../reproduce/release"),
    how: "`make reproduce` in the source tree builds it, with the papers' baselines",
};

impl Beside {
    /// Goes on as that program, with the same command line. Comes back only if it is not there.
    pub fn run(&self) -> Result<(), Failure> {
        let own = std::env::current_exe().unwrap_or_default();
        let places = std::env::var_os("PATH").unwrap_or_default();
        let Some(program) = self.find(&own, &places) else {
            let why = format!("{} is neither beside this program nor in PATH ({})", self.name, self.how);
            return Err(Failure::new(Status::NoProgram, why));
        };
        let e = Command::new(&program).arg0("narufs").args(std::env::args_os().skip(1)).exec();
        Err(Failure::about(Status::NoProgram, &program, e))
    }

    /// The file of that program: beside this one first, for they belong together.
    fn find(&self, own: &Path, places: &OsStr) -> Option<PathBuf> {
        let beside = own.parent().map(Path::to_owned);
        let built = beside.iter().flat_map(|dir| self.built.map(|built| dir.join(built))).collect::<Vec<_>>();
        let places = beside.into_iter().chain(built).chain(std::env::split_paths(places));
        places.map(|dir| dir.join(self.name)).find(|file| file.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_beside_comes_before_those_in_the_path() {
        let at = tempfile::tempdir().expect("room");
        let [near, far] = ["near", "far"].map(|name| at.path().join(name));
        for dir in [&near, &far] {
            std::fs::create_dir(dir).expect("room");
        }
        let found = || BENCH.find(&near.join("narufs"), far.as_os_str());
        assert_eq!(found(), None);
        std::fs::write(far.join(BENCH.name), "").expect("room");
        assert_eq!(found(), Some(far.join(BENCH.name)));
        std::fs::write(near.join(BENCH.name), "").expect("room");
        assert_eq!(found(), Some(near.join(BENCH.name)));
    }

    #[test]
    fn what_is_built_elsewhere_is_found_there() {
        let at = tempfile::tempdir().expect("room");
        let [own, built] = ["release", "reproduce/release"].map(|name| at.path().join(name));
        for dir in [&own, &built] {
            std::fs::create_dir_all(dir).expect("room");
        }
        let found = || REPRODUCE.find(&own.join("narufs"), OsStr::new(""));
        assert_eq!(found(), None);
        std::fs::write(built.join(REPRODUCE.name), "").expect("room");
        assert_eq!(
            found().and_then(|file| file.canonicalize().ok()),
            built.join(REPRODUCE.name).canonicalize().ok()
        );
        assert_eq!(BENCH.find(&own.join("narufs"), OsStr::new("")), None);
    }
}
