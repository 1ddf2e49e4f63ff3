//! Makes golden images: `narufs-golden NARUFS DIRECTORY [SET...]` by the given command, in a directory that is not there
//! yet; all sets without names.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [narufs, into, wanted @ ..] = &words[..] else {
        eprintln!("usage: narufs-golden NARUFS DIRECTORY [SET...]");
        return ExitCode::from(2);
    };
    let wanted: Vec<String> = wanted.iter().map(|set| set.to_string_lossy().into_owned()).collect();
    match narufs_testing::golden::make::make(Path::new(narufs), Path::new(into), &wanted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("narufs-golden: {e}");
            ExitCode::FAILURE
        }
    }
}
