//! Servers of a mount die at every step of every kind of request, and at every step of taking over: each call returns what
//! it returns where nobody dies, and what is there afterwards is what is there then. Built with the feature `planted-bugs`
//! only. Needs root and /dev/fuse.

#![cfg(feature = "planted-bugs")]

mod again;
mod aio;
mod once;
mod recalls;
mod rows;
mod waits;

use narufs_engine::planted::kill::{Death, Step};
use narufs_testing::mortal::{Case, Mortal, Ran, Way, cases, look};
use std::path::Path;
use std::sync::OnceLock;

/// The command, with what is planted in it.
const PROGRAM: &str = env!("CARGO_BIN_EXE_narufs-mortal");

fn mortal(way: Way) -> Mortal {
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Mortal::new(Path::new(PROGRAM), under, way.options(), None).unwrap_or_else(|e| panic!("{way:?}: {e}"))
}

/// The cases of a way, each with what comes of it where nobody dies.
fn expected(way: Way) -> &'static [(Case, Ran)] {
    static KNOWN: [OnceLock<Vec<(Case, Ran)>>; 2] = [const { OnceLock::new() }; 2];
    KNOWN[way as usize].get_or_init(|| {
        let mut alive = mortal(way);
        let of_way = cases().into_iter().filter(|case| case.way == way);
        let ran = of_way.map(|case| {
            let ran = alive.run(&case, &[]).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert!(!ran.outcome.contains("Os {") || case.fails, "{}: {}", case.name, ran.outcome);
            (case, ran)
        });
        let all: Vec<_> = ran.collect();
        alive.end(Path::new(PROGRAM), |_| Ok(())).unwrap_or_else(|e| panic!("{way:?}: {e}"));
        all
    })
}

/// A mount whose servers die, and all that was found on it.
struct Trial {
    mortal: Mortal,
    /// What was done, whether room counts, and what was there.
    found: Vec<(String, bool, Vec<String>)>,
    complaints: Vec<String>,
    deaths: usize,
}

impl Trial {
    fn new(way: Way) -> Trial {
        Trial { mortal: mortal(way), found: Vec::new(), complaints: Vec::new(), deaths: 0 }
    }

    /// Makes a call while servers die so; complains if anything comes of it but what comes of it where nobody dies.
    fn run(&mut self, (case, expected): &(Case, Ran), deaths: &[Death]) -> Option<Ran> {
        let ran = self.run_to(case, deaths)?;
        let said = said(case, deaths);
        if ran.outcome != expected.outcome {
            self.complaints.push(format!("{said}: it returned {}, not {}", ran.outcome, expected.outcome));
        }
        if ran.tree != expected.tree {
            let (is, should) = (ran.tree.join("\n  "), expected.tree.join("\n  "));
            self.complaints.push(format!("{said}: there is\n  {is}\nnot\n  {should}"));
        }
        Some(ran)
    }

    /// The same, whatever comes of it.
    fn run_to(&mut self, case: &Case, deaths: &[Death]) -> Option<Ran> {
        self.deaths += deaths.len();
        match self.mortal.run(case, deaths) {
            Ok(ran) => {
                self.found.push((said(case, deaths), case.is_measured, ran.tree.clone()));
                Some(ran)
            }
            Err(e) => {
                self.complaints.push(format!("{}: {e}", said(case, deaths)));
                None
            }
        }
    }

    /// Unmounts, and finds by another mount, whose kernel and server know nothing, what was found before.
    fn end(mut self) -> usize {
        if self.complaints.is_empty() {
            let found = self.found;
            let again = |point: &Path| {
                for (number, (said, is_measured, tree)) in (1..).zip(&found) {
                    let room = point.join(format!("room-{number}"));
                    let there = look(&room, *is_measured).map_err(|e| format!("{said}: {e}"))?;
                    if there != *tree {
                        let (is, was) = (there.join("\n  "), tree.join("\n  "));
                        return Err(format!("{said}: another mount finds\n  {is}\nnot\n  {was}"));
                    }
                }
                Ok(())
            };
            self.complaints.extend(self.mortal.end(Path::new(PROGRAM), again).err());
        }
        assert!(self.complaints.is_empty(), "{}", self.complaints.join("\n"));
        self.deaths
    }
}

/// What is called, and how servers die meanwhile, in a line.
fn said(case: &Case, deaths: &[Death]) -> String {
    let one = |death: &Death| {
        let of =
            if death.opcode == 0 { "taking over".to_owned() } else { format!("opcode {}", death.opcode) };
        format!("{:?} {of} {:?} after {} passes", death.how, death.step, death.passes)
    };
    format!("{}, {}", case.name, deaths.iter().map(one).collect::<Vec<_>>().join(", then "))
}

/// Steps of a server that takes over which are of no request.
const TAKING_OVER: [Step; 8] = [
    Step::Adopted,
    Step::Judging,
    Step::Judged,
    Step::Inheriting,
    Step::InheritedFile,
    Step::Inherited,
    Step::Resending,
    Step::Drained,
];
