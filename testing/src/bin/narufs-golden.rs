//! Makes golden images: `narufs-golden NARUFS DIRECTORY` by the given command, in a directory that is not there yet.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [narufs, into] = &words[..] else {
        eprintln!("usage: narufs-golden NARUFS DIRECTORY");
        return ExitCode::from(2);
    };
    match narufs_testing::golden::make::make(Path::new(narufs), Path::new(into)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("narufs-golden: {e}");
            ExitCode::FAILURE
        }
    }
}
