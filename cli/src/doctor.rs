//! `narufs doctor`: what a machine, a place, an image or a mount has of what narufs can use, and what would make it better.
//!
//! Each finding is one line with a verdict, and with the option or command that changes it if it is not good. Nothing is
//! changed by looking. What files of the kernel say is read, never believed to be well-formed: what is not understood is
//! not told of.
//!
//! What this leaves to others: [`machine`] looks at the machine, [`place`] at what lies below an image, [`latency`] takes
//! times, [`mounted`] asks a live mount, [`staging`] looks for what killed servers have left. Whether an image is whole is for `narufs fsck` to say.

mod latency;
mod machine;
mod mounted;
mod place;
mod staging;

use crate::args::Doctor;
use crate::failure::{Failure, Status};
use crate::output::say;
use std::path::{Path, PathBuf};

/// What a finding means for narufs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    /// It works, and would work better otherwise.
    Better,
    /// narufs does not work so.
    Stops,
}

/// One thing that was looked at.
#[derive(Debug, serde::Serialize)]
struct Finding {
    /// What was looked at: the same word in all versions.
    about: &'static str,
    verdict: Verdict,
    /// How it is.
    found: String,
    /// The option or command that makes it better.
    remedy: Option<String>,
}

impl Finding {
    fn good(about: &'static str, found: impl Into<String>) -> Finding {
        Finding { about, verdict: Verdict::Good, found: found.into(), remedy: None }
    }

    fn better(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { about, verdict: Verdict::Better, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn stops(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { about, verdict: Verdict::Stops, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// What is printed as JSON.
#[derive(serde::Serialize)]
struct Report {
    /// The worst of the findings.
    verdict: Verdict,
    findings: Vec<Finding>,
}

/// Where the kernel shows what it knows: `/`, or what a test has made.
struct System {
    root: PathBuf,
}

impl System {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file, if it can be read.
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.at(path)).ok().map(|text| text.trim().to_owned())
    }

    /// A number that is all of a file.
    fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }
}

/// Looks, and prints what was found.
pub fn run(args: &Doctor) -> Result<(), Failure> {
    let system = System { root: "/".into() };
    let mut findings = machine::findings(&system, &machine::Seen::of_this_machine());
    findings.extend(staging::left(&system.at("/dev/shm")));
    if let Some(place) = &args.place {
        findings.extend(about_place(&system, place, args.write)?);
    }
    let verdict = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Good);
    let report = Report { verdict, findings };
    if args.json {
        let json = serde_json::to_string_pretty(&report);
        say!("{}", json.map_err(|e| Failure::new(Status::Failed, e.to_string()))?);
    } else {
        print(&report);
    }
    match verdict {
        // Everything was said.
        Verdict::Stops => Err(Failure::new(Status::Failed, "")),
        _ => Ok(()),
    }
}

fn about_place(system: &System, place: &Path, writes: bool) -> Result<Vec<Finding>, Failure> {
    let failed = |e| Failure::about(Status::Failed, place, e);
    if let Some((mut findings, image)) = mounted::findings(system, place).map_err(failed)? {
        // It is in use, so that a device's writes are not timed.
        findings.extend(
            image
                .map(|image| place::findings(system, &image, false))
                .transpose()
                .map_err(failed)?
                .into_iter()
                .flatten(),
        );
        return Ok(findings);
    }
    place::findings(system, place, writes).map_err(failed)
}

fn print(report: &Report) {
    for Finding { about, verdict, found, remedy } in &report.findings {
        let word = match verdict {
            Verdict::Good => "good",
            Verdict::Better => "could be better",
            Verdict::Stops => "STOPS NARUFS",
        };
        let remedy = remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        say!("{word:<16} {about:<14} {found}{remedy}");
    }
    let count = |wanted| report.findings.iter().filter(|finding| finding.verdict == wanted).count();
    say!(
        "{} good, {} could be better, {} {} narufs",
        count(Verdict::Good),
        count(Verdict::Better),
        count(Verdict::Stops),
        if count(Verdict::Stops) == 1 { "stops" } else { "stop" }
    );
}

/// What tests of the parts share.
#[cfg(test)]
mod fake {
    use super::{Finding, System, Verdict};

    /// A system that has these files, and the directory that goes with it.
    pub fn system(files: &[(&str, &str)]) -> (System, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it lies in one")).expect("room");
            std::fs::write(path, text).expect("room");
        }
        (System { root: dir.path().into() }, dir)
    }

    /// The one finding about this, its verdict, and all that it says.
    pub fn about(findings: &[Finding], about: &str) -> (Verdict, String) {
        let found: Vec<_> = findings.iter().filter(|finding| finding.about == about).collect();
        assert_eq!(found.len(), 1, "{about}: {findings:?}");
        (found[0].verdict, format!("{} {}", found[0].found, found[0].remedy.as_deref().unwrap_or("")))
    }
}
