//! Each operation happens once, however often the server is killed meanwhile: every call returns without an error, and
//! what is there is what was asked for.

use crate::support::Mounted;
use narufs_testing::settings;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CLIENTS: u64 = 3;
const KILLS: u64 = 25;

/// What a name is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(Vec<u8>),
    Directory,
    Link(PathBuf),
}

/// One who works in a directory of his own, and knows what must be there.
struct Client {
    home: PathBuf,
    model: BTreeMap<String, Node>,
    log: File,
    logged: u64,
    made: u64,
    random: StdRng,
}

impl Client {
    fn new(mounted: &Mounted, number: u64, seed: u64) -> Client {
        let home = mounted.at(&format!("client-{number}"));
        fs::create_dir(&home).expect("made");
        let log = File::options().create(true).append(true).open(home.join("log")).expect("made");
        let random = StdRng::seed_from_u64(seed * 1000 + number);
        Client { home, model: BTreeMap::new(), log, logged: 0, made: 0, random }
    }

    fn any(&mut self, of: impl Fn(&Node) -> bool) -> Option<String> {
        let names: Vec<&String> =
            self.model.iter().filter(|(_, node)| of(node)).map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| names[self.random.random_range(0..names.len())].clone())
    }

    fn fresh(&mut self) -> (String, PathBuf) {
        self.made += 1;
        let name = format!("{:04}", self.made);
        let path = self.home.join(&name);
        (name, path)
    }

    /// One operation, which must succeed.
    fn step(&mut self) -> std::io::Result<()> {
        let is_file = |node: &Node| matches!(node, Node::File(_));
        let is_directory = |node: &Node| *node == Node::Directory;
        match self.random.random_range(0..10) {
            0 => {
                let (name, path) = self.fresh();
                fs::create_dir(path)?;
                self.model.insert(name, Node::Directory);
            }
            1 | 2 => {
                let (name, path) = self.fresh();
                let content = format!("content of {name}").into_bytes();
                let mut file = File::options().write(true).create_new(true).open(path)?;
                file.write_all(&content)?;
                file.sync_data()?;
                self.model.insert(name, Node::File(content));
            }
            3 => {
                let (name, path) = self.fresh();
                symlink("somewhere", path)?;
                self.model.insert(name, Node::Link("somewhere".into()));
            }
            4 => {
                let Some(name) = self.any(|node| !is_directory(node)) else { return Ok(()) };
                fs::remove_file(self.home.join(&name))?;
                self.model.remove(&name);
            }
            5 => {
                let Some(name) = self.any(is_directory) else { return Ok(()) };
                fs::remove_dir(self.home.join(&name))?;
                self.model.remove(&name);
            }
            6 => {
                let Some(from) = self.any(|_| true) else { return Ok(()) };
                let (to, path) = self.fresh();
                fs::rename(self.home.join(&from), path)?;
                let node = self.model.remove(&from).expect("it was chosen");
                self.model.insert(to, node);
            }
            7 => {
                let (Some(one), Some(other)) = (self.any(|_| true), self.any(|_| true)) else {
                    return Ok(());
                };
                if one == other {
                    return Ok(());
                }
                let (from, to) = (self.home.join(&one), self.home.join(&other));
                renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)?;
                let node = |name: &String| self.model[name].clone();
                let (first, second) = (node(&one), node(&other));
                self.model.extend([(one, second), (other, first)]);
            }
            8 => {
                let Some(name) = self.any(is_file) else { return Ok(()) };
                let (link, path) = self.fresh();
                fs::hard_link(self.home.join(&name), path)?;
                let node = self.model[&name].clone();
                self.model.insert(link, node);
            }
            _ => {
                self.log.write_all(format!("{:08}\n", self.logged).as_bytes())?;
                self.log.sync_data()?;
                self.logged += 1;
            }
        }
        Ok(())
    }

    fn check(&self) {
        let log = fs::read_to_string(self.home.join("log")).expect("readable");
        let expected: String = (0..self.logged).map(|line| format!("{line:08}\n")).collect();
        assert!(log == expected, "{} lines were appended: {log}", self.logged);
        assert_eq!(found(&self.home), self.model, "{}", self.home.display());
    }
}

fn found(home: &Path) -> BTreeMap<String, Node> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(home).expect("a directory") {
        let entry = entry.expect("a name");
        let kind = entry.file_type().expect("a type");
        let node = match () {
            () if kind.is_dir() => Node::Directory,
            () if kind.is_symlink() => Node::Link(fs::read_link(entry.path()).expect("a link")),
            () => Node::File(fs::read(entry.path()).expect("readable")),
        };
        found.insert(entry.file_name().into_string().expect("plain letters"), node);
    }
    found.remove("log");
    found
}

/// Kills servers between random numbers of operations, now and then the next one at once.
fn kill_between(mounted: &Mounted, returned: &AtomicU64, kills: u64, random: &mut StdRng) -> u64 {
    let mut killed = 0;
    while killed < kills {
        let wanted = returned.load(Ordering::Relaxed) + random.random_range(1..60);
        while returned.load(Ordering::Relaxed) < wanted {
            std::thread::yield_now();
        }
        let in_a_row = if random.random_ratio(1, 4) { random.random_range(2..5) } else { 1 };
        for _ in 0..in_a_row {
            killed += u64::from(mounted.kill(Signal::KILL));
        }
    }
    killed
}

fn round(options: &str, seed: u64) {
    let mounted = Mounted::new(options);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|number| Client::new(&mounted, number, seed)).collect();
    let (returned, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let killed = std::thread::scope(|scope| {
        for client in &mut clients {
            let (returned, over) = (&returned, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let outcome = client.step();
                    // The others are not waited for.
                    over.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    returned.fetch_add(if outcome.is_err() { u64::MAX / 4 } else { 1 }, Ordering::Relaxed);
                    outcome.unwrap_or_else(|e| panic!("NARUFS_SEED={seed}: {}: {e}", client.home.display()));
                }
            });
        }
        let killed = kill_between(&mounted, &returned, KILLS, &mut StdRng::seed_from_u64(seed));
        over.store(true, Ordering::Relaxed);
        killed
    });
    println!(
        "{} operations over {killed} kills; {}",
        returned.into_inner(),
        mounted.stats()["longest_pause_ns"]
    );
    clients.iter().for_each(Client::check);
    mounted.restart();
    clients.iter().for_each(Client::check);
    let homes: Vec<Client> = clients;
    drop(homes);
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn each_operation_happens_once() {
    for seed in settings::seeds(2) {
        round("noatime", seed);
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn each_operation_happens_once_past_the_kernel_s_cache() {
    for seed in settings::seeds(1) {
        round("noatime,io=direct", seed);
    }
}
