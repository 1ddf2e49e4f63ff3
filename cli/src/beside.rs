//! The program that measures. What it draws and counts with is no part of what mounts, so it is one of its own, and
//! becomes this process where it is wanted: signals, standard input and exit status are its own.

use crate::failure::{Failure, Status};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its name.
const PROGRAM: &str = "narufs-bench";

/// Goes on as that program, with the same command line. Comes back only if it is not there.
pub fn run() -> Result<(), Failure> {
    let own = std::env::current_exe().unwrap_or_default();
    let places = std::env::var_os("PATH").unwrap_or_default();
    let Some(program) = find(&own, &places) else {
        let why =
            format!("{PROGRAM} is neither beside this program nor in PATH (make install puts it there)");
        return Err(Failure::new(Status::NoProgram, why));
    };
    let e = Command::new(&program).arg0("narufs").args(std::env::args_os().skip(1)).exec();
    Err(Failure::about(Status::NoProgram, &program, e))
}

/// The file of that program: beside this one first, for they belong together.
fn find(own: &Path, places: &OsStr) -> Option<PathBuf> {
    let beside = own.parent().map(Path::to_owned);
    let places = beside.into_iter().chain(std::env::split_paths(places));
    places.map(|dir| dir.join(PROGRAM)).find(|file| file.is_file())
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
        let found = || find(&near.join("narufs"), far.as_os_str());
        assert_eq!(found(), None);
        std::fs::write(far.join(PROGRAM), "").expect("room");
        assert_eq!(found(), Some(far.join(PROGRAM)));
        std::fs::write(near.join(PROGRAM), "").expect("room");
        assert_eq!(found(), Some(near.join(PROGRAM)));
    }
}
