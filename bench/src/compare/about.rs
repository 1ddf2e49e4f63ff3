//! What a reader must know to run a comparison again: the sizes of each workload, and who made the file systems.

use super::{Load, Options};
use std::process::{Command, Stdio};

/// Rows for the table of the machine.
pub(super) fn rows(options: &Options) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if !options.loads.is_empty() {
        rows.push(("workloads".to_owned(), workloads(&options.loads)));
    }
    if options.loads.iter().any(|load| load.workload == crate::daily::NAME) {
        let told =
            crate::daily::programs().into_iter().map(|(program, version)| format!("{program}: {version}"));
        rows.push(("programs of daily".to_owned(), told.collect::<Vec<_>>().join("; ")));
    }
    for program in ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkfs.f2fs", "fuse2fs", "ntfs-3g"] {
        rows.extend(version(program).map(|version| (program.to_owned(), version)));
    }
    rows
}

/// Workloads with their sizes; those that have the same are told together.
fn workloads(loads: &[Load]) -> String {
    let mut told: Vec<(Vec<&str>, String)> = Vec::new();
    for load in loads {
        let sizes = sizes(load);
        match told.last_mut().filter(|(_, before)| *before == sizes) {
            Some((names, _)) => names.push(load.workload),
            None => told.push((vec![load.workload], sizes)),
        }
    }
    let each = told.iter().map(|(names, sizes)| format!("{}: {sizes}", names.join(", ")));
    each.collect::<Vec<_>>().join("; ")
}

fn sizes(load: &Load) -> String {
    if load.workload == crate::daily::NAME {
        return format!("scale {}", load.params.scale);
    }
    let counts: Vec<String> = load.threads.iter().map(ToString::to_string).collect();
    let plural = if counts.len() == 1 && counts[0] == "1" { "" } else { "s" };
    let mut said = format!("{} thread{plural}, {} s", counts.join(", "), load.time.as_secs_f64());
    if let Some(files) = load.params.files {
        said += &format!(", {files} files");
    }
    said
}

/// What a program says of its version; nothing of one that is not there.
fn version(program: &str) -> Option<String> {
    let out = Command::new(program).arg("-V").stdin(Stdio::null()).output().ok()?;
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    said.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Params;
    use std::time::Duration;

    #[test]
    fn the_same_sizes_are_told_once() {
        let load = |workload, threads: &[usize], files| Load {
            workload,
            threads: threads.into(),
            time: Duration::from_millis(1500),
            params: Params { files, ..Params::default() },
            ring: Some(64 << 20),
        };
        let loads =
            [load("DWOL", &[1, 2], None), load("DWSL", &[1, 2], None), load("iozone", &[1], Some(20_000))];
        assert_eq!(
            workloads(&loads),
            "DWOL, DWSL: 1, 2 threads, 1.5 s; iozone: 1 thread, 1.5 s, 20000 files"
        );
        assert_eq!(version("no-such-program"), None);
    }
}
