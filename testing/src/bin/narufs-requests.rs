//! Counts the requests of common operations: `narufs-requests` prints docs/REQUESTS.md, `narufs-requests
//! DOCS` writes it into a directory. It mounts, which takes root.

use narufs_testing::place::cannot_mount;
use narufs_testing::requests::{measure_each_way, report};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(std::env::args_os().nth(1).as_deref().map(Path::new)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("narufs-requests: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(docs: Option<&Path>) -> Result<(), String> {
    if let Some(why) = cannot_mount() {
        return Err(why.to_owned());
    }
    let table = measure_each_way(&std::env::temp_dir())?;
    let kernel = report::kernel().map_err(|e| format!("the kernel's version: {e}"))?;
    let text = report::text(&table, &kernel)?;
    match docs {
        None => print!("{text}"),
        Some(docs) => {
            let path = docs.join("REQUESTS.md");
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}
