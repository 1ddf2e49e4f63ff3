//! Kills under load: `narufs-outlive kills NARUFS [NAME=VALUE...]`.
//!
//! | name | what | usual |
//! | --- | --- | --- |
//! | `kills` | servers that are killed, in all | 200 |
//! | `seed` | when they are killed, and what loads write | 1 |
//! | `least`, `most` | milliseconds between most kills | 100, 600 |
//! | `soon` | one of so many comes within 150 ms | 4 |
//! | `options` | of the mounts, one after the other, with `/` between them | `noatime,memory=64M` |
//! | `loads` | names, with `,` between them | all |
//! | `phases` | 1: servers must have ended in every phase | 0 |

use super::mounted::{Mounted, Pace};
use super::settings::Settings;
use super::{Kills, Outcome, Work, held, loads, programs};
use crate::demand;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The names of what can be asked for.
pub const KNOWN: [&str; 8] = ["kills", "seed", "least", "most", "soon", "options", "loads", "phases"];

const IMAGE_BYTES: u64 = 4 << 30;
const SLOTS: u64 = 1 << 17;
/// Lines about how far it is.
const LINES: u64 = 40;

/// What servers were doing when they were killed, and what they left: sums over all mounts.
#[derive(Debug, Default)]
struct Hits {
    kills: u64,
    /// By phase, and by what was known of requests.
    counts: BTreeMap<String, u64>,
    longest_ms: u64,
    loads: BTreeMap<String, u64>,
}

/// Runs all of it.
///
/// # Errors
/// The first thing that was not as it must be.
pub fn run(settings: &Settings) -> Outcome {
    let kills = settings.number("kills", 200)?;
    let all: Vec<&str> = settings.text("options", "noatime,memory=64M").split('/').collect();
    let mut hits = Hits::default();
    for (number, options) in all.iter().enumerate() {
        let part = kills * (number as u64 + 1) / all.len() as u64 - kills * number as u64 / all.len() as u64;
        println!("{part} kills of servers of a mount with {options}");
        mount(settings, options, number as u64, part, &mut hits)?;
    }
    println!("{hits}");
    demand!(hits.kills >= kills, "{} servers were killed", hits.kills);
    let must: &[&str] = match settings.number("phases", 0)? {
        0 => &["serving"],
        _ => &["starting", "recovering", "adopting", "draining", "serving", "taken", "decided", "done"],
    };
    let missed: Vec<_> = must.iter().filter(|name| hits.counts.get(**name).is_none_or(|n| *n == 0)).collect();
    demand!(missed.is_empty(), "no server was killed so: {missed:?}");
    Ok(())
}

impl std::fmt::Display for Hits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |name: &str| self.counts.get(name).copied().unwrap_or(0);
        let list = |names: &[&str]| {
            names.iter().map(|name| format!("{name} {}", count(name))).collect::<Vec<_>>().join(", ")
        };
        let phases = list(&["before it began", "starting", "recovering", "adopting", "draining", "serving"]);
        let loads: Vec<_> = self.loads.iter().map(|(name, rounds)| format!("{name} {rounds}")).collect();
        writeln!(f, "rounds: {}", loads.join(", "))?;
        writeln!(f, "killed while: {phases}")?;
        writeln!(f, "requests left: {}", list(&["taken", "decided", "done"]))?;
        write!(f, "RESULT {} kills, the longest pause {} ms", self.kills, self.longest_ms)
    }
}

impl Hits {
    /// Adds what the servers of one mount have noted.
    fn add(&mut self, stats: &Value, kills: u64) -> Outcome {
        let mut seen = 0;
        for phase in stats["servers"]["phases"].as_array().ok_or("stats without phases")? {
            let (name, ends) = (phase["phase"].as_str().unwrap_or("?"), phase["ends"].as_u64().unwrap_or(0));
            *self.counts.entry(name.to_owned()).or_default() += ends;
            seen += ends;
        }
        for kind in ["taken", "decided", "done"] {
            let left = stats["servers"]["left"][kind].as_u64().unwrap_or(0);
            *self.counts.entry(kind.to_owned()).or_default() += left;
        }
        demand!(seen <= kills, "{seen} servers have ended, {kills} were killed");
        demand!(stats["incarnation"] == seen, "servers have ended in no phase: {stats}");
        *self.counts.entry("before it began".to_owned()).or_default() += kills - seen;
        self.longest_ms = self.longest_ms.max(stats["longest_pause_ns"].as_u64().unwrap_or(0) / 1_000_000);
        self.kills += kills;
        Ok(())
    }
}

/// After so many kills a server is let serve, however slow the machine is: fewer than make a supervisor give up.
const AT_ONCE: u64 = 6;

/// A load, and what it does again and again.
type Round<'r> = Box<dyn FnMut(&mut Work<'_>) -> Outcome + Send + 'r>;

fn chosen<'r>(settings: &Settings, spanned: &'r Mutex<u64>) -> Outcome<Vec<(String, Round<'r>)>> {
    let mut all: Vec<(String, Round<'r>)> = Vec::new();
    all.push((
        "held".into(),
        Box::new(|work| {
            let kills = held::hold(work)?;
            *spanned.lock().map_err(|_| "a panic")? = kills;
            Ok(())
        }),
    ));
    for (name, load) in loads::ALL {
        all.push((name.into(), Box::new(load)));
    }
    for name in programs::ALL {
        let script = programs::script(name);
        all.push((name.into(), Box::new(move |work| programs::run(&script, work))));
    }
    let wanted = settings.text("loads", "");
    if !wanted.is_empty() {
        let wanted: Vec<&str> = wanted.split(',').collect();
        all.retain(|(name, _)| wanted.contains(&name.as_str()));
        demand!(all.len() == wanted.len(), "there is no such load among {wanted:?}");
    }
    Ok(all)
}

fn mount(settings: &Settings, options: &str, number: u64, wanted: u64, hits: &mut Hits) -> Outcome {
    let seed = settings.number("seed", 1)? * 1000 + number;
    // Told to end, it takes away what it has made.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let mounted = Mounted::new(&settings.narufs, Path::new("/var/tmp"), IMAGE_BYTES, SLOTS, options)?;
    let (kills, rounds, spanned) = (Kills::default(), Mutex::new(BTreeMap::new()), Mutex::new(0));
    let all = chosen(settings, &spanned)?;
    let holds = all.iter().any(|(name, _)| name == "held");
    let outcome = std::thread::scope(|scope| -> Outcome {
        let running: Vec<_> = all
            .into_iter()
            .enumerate()
            .map(|(at, (name, round))| {
                let (kills, mounted, rounds) = (&kills, &mounted, &rounds);
                scope.spawn(move || -> Outcome {
                    let random = StdRng::seed_from_u64(seed * 100 + at as u64);
                    let outcome = load(&name, round, mounted, random, kills);
                    if outcome.is_err() {
                        // The others are not to go on for hours.
                        kills.end();
                    }
                    let done = outcome.map_err(|e| format!("{name} (seed {seed}): {e}"))?;
                    rounds.lock().map_err(|_| "a panic")?.insert(name, done);
                    Ok(())
                })
            })
            .collect();
        let killed = kill(settings, &mounted, &kills, wanted, seed, &interrupted);
        kills.end();
        let outcomes: Vec<Outcome> =
            running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a panic".into()))).collect();
        let failed: Vec<String> =
            outcomes.into_iter().filter_map(|one| Some(one.err()?.to_string())).collect();
        demand!(failed.is_empty(), "{}\nits servers said:\n{}", failed.join("\n"), mounted.said());
        killed
    });
    outcome?;
    if holds && wanted >= held::WANTED {
        let over = spanned.into_inner().map_err(|_| "a panic")?;
        demand!(over >= held::WANTED, "what is held was held over {over} kills only");
        println!("what is held was held over {over} kills");
    }
    hits.add(&mounted.stats()?, kills.count())?;
    for (name, done) in rounds.into_inner().map_err(|_| "a panic")? {
        *hits.loads.entry(name).or_default() += done;
    }
    mounted.end()
}

/// One load, round after round until there are no more kills. How many there were.
fn load(name: &str, mut round: Round<'_>, mounted: &Mounted, random: StdRng, kills: &Kills) -> Outcome<u64> {
    let (dir, aside) = (mounted.point().join(name), mounted.aside().join(name));
    for dir in [&dir, &aside] {
        fs::create_dir(dir)?;
        fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    }
    let mut work = Work { dir, aside, random, rounds: 0, kills };
    while work.rounds == 0 || !kills.is_over() {
        round(&mut work)?;
        work.rounds += 1;
        kills.rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(work.rounds)
}

fn kill(
    settings: &Settings,
    mounted: &Mounted,
    kills: &Kills,
    wanted: u64,
    seed: u64,
    interrupted: &AtomicBool,
) -> Outcome {
    let between = (settings.number("least", 100)? as f64, settings.number("most", 600)? as f64);
    let pace = Pace { between, soon: settings.number("soon", 4)?.clamp(1, 1000) as u32 };
    let (mut random, mut in_a_row, begin) = (StdRng::seed_from_u64(seed), 0, Instant::now());
    while kills.count() < wanted && !kills.is_over() {
        demand!(!interrupted.load(Ordering::Relaxed), "it was told to end");
        std::thread::sleep(pace.next(&mut random, &mut in_a_row));
        // Between two servers there is none.
        while !mounted.kill() {
            demand!(!kills.is_over(), "nobody starts servers any more");
            std::thread::yield_now();
        }
        kills.add();
        let count = kills.count();
        if count.is_multiple_of(AT_ONCE) {
            mounted.stats()?;
        }
        if count.is_multiple_of((wanted / LINES).max(1)) {
            let (rounds, seconds) = (kills.rounds.load(Ordering::Relaxed), begin.elapsed().as_secs());
            println!("{count:>6} of {wanted} kills, {seconds} s, {rounds} rounds");
        }
    }
    Ok(())
}
