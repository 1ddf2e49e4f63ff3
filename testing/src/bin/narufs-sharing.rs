//! Runs the catalogue of operations under a tracer, and reports which cache lines pairs of them share:
//! `narufs-sharing` prints the report, `narufs-sharing DIR FREE` writes it as [`PAGE`] and [`PICTURE`] into a
//! directory, and the pairs that share nothing into a file.

use std::process::ExitCode;

/// The report among the experiments, and its picture, to which it links.
#[cfg(target_arch = "x86_64")]
const PAGE: &str = "0002-shared-cache-lines.md";
#[cfg(target_arch = "x86_64")]
const PICTURE: &str = "0002-shared-cache-lines.svg";

/// Runs that must agree that a pair shares nothing.
#[cfg(target_arch = "x86_64")]
const RUNS: usize = 5;

#[cfg(target_arch = "x86_64")]
fn main() -> ExitCode {
    use narufs_testing::sharing::trace::{TRACED, be_traced};
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some(TRACED) {
        be_traced();
        return ExitCode::SUCCESS;
    }
    match report(argument.as_deref(), std::env::args().nth(2).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("narufs-sharing: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn report(dir: Option<&str>, free: Option<&str>) -> std::io::Result<()> {
    use narufs_testing::sharing::{report, trace};
    let traced = trace::run(&std::env::current_exe()?)?;
    let Some(dir) = dir else {
        print!("{}", report::text(&traced));
        return Ok(());
    };
    if let Some(free) = free {
        // What lies beside what in memory changes from run to run: a pair is free if it always is.
        let mut always = report::free_pairs(&traced);
        for _ in 1..RUNS {
            let again = report::free_pairs(&trace::run(&std::env::current_exe()?)?);
            always.retain(|pair| again.contains(pair));
        }
        std::fs::write(free, always.into_iter().map(|pair| pair + "\n").collect::<String>())?;
    }
    let dir = std::path::Path::new(dir);
    std::fs::write(dir.join(PAGE), report::text(&traced))?;
    std::fs::write(dir.join(PICTURE), report::svg(&traced))
}

#[cfg(not(target_arch = "x86_64"))]
fn main() -> ExitCode {
    eprintln!("narufs-sharing: it decodes the instructions of x86-64 alone");
    ExitCode::FAILURE
}
