//! SIGKILL in the midst of everything: what was acknowledged is there, whole, or gone, and of the rest nothing is half done.
//!
//! NARUFS_OBJECT_KILLS says how often; 12 times by default.

mod place;

use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use place::{Objects, Place, content, files, found, store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const TASKS: u64 = 6;

/// What an operation changes, all or nothing: the version that a key has then, or none.
type Change = BTreeMap<String, Option<u64>>;

/// Keys of a task: some of them prefixes of others, some in a directory with those of the others.
fn keys_of(task: u64) -> Vec<String> {
    ["", "/x", "/x/y", "/x/z", "-all"]
        .map(|end| match end {
            "-all" => format!("all/{task}"),
            end => format!("tasks/{task}{end}"),
        })
        .to_vec()
}

fn say(task: u64, word: &str, change: &Change) {
    let words = change.iter().map(|(key, version)| format!(" {key}={}", version.map_or(-1, |v| v as i64)));
    let line = format!("{task} {word}{}\n", words.collect::<String>());
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("somebody reads it");
}

/// Runs operations one after the other, and says before each what it changes, and afterwards that it is acknowledged.
async fn work(store: &dyn ObjectStore, task: u64, mut now: Objects, round: u64) {
    let mut rng = StdRng::seed_from_u64(round * 100 + task);
    let keys = keys_of(task);
    for n in 0.. {
        let version = (round << 32) + (task << 24) + n;
        let (key, other) = (&keys[rng.random_range(0..keys.len())], &keys[rng.random_range(0..keys.len())]);
        let (at, to) = (Path::from(key.as_str()), Path::from(other.as_str()));
        let there = now.get(key).copied();
        let mut change = Change::new();
        let kind = rng.random_range(0..8);
        match (kind, there) {
            (0 | 1, Some(_)) => drop(change.insert(key.clone(), None)),
            (2, Some(there)) => {
                change.insert(key.clone(), None);
                change.insert(other.clone(), Some(there));
            }
            (3, Some(there)) => drop(change.insert(other.clone(), Some(there))),
            _ => drop(change.insert(key.clone(), Some(version))),
        }
        say(task, "begins", &change);
        match (kind, there) {
            (0, Some(_)) => store.delete(&at).await.expect("there"),
            (1, Some(_)) => {
                let gone = store.delete_stream(stream::iter([Ok(at)]).boxed());
                gone.try_collect::<Vec<_>>().await.map(drop).expect("there");
            }
            (2, Some(_)) => store.rename(&at, &to).await.expect("there"),
            (3, Some(_)) => store.copy(&at, &to).await.expect("there"),
            (4, _) => {
                let mut upload = store.put_multipart(&at).await.expect("room");
                let bytes = content(version);
                let (first, rest) = bytes.split_at(bytes.len() / 3);
                let parts = [first, rest].map(|part| upload.put_part(part.to_vec().into()));
                join_all(parts.into_iter().rev()).await.into_iter().for_each(|part| part.expect("room"));
                upload.complete().await.expect("room");
            }
            _ => drop(store.put(&at, content(version).into()).await.expect("room")),
        }
        say(task, "done", &Change::new());
        apply(&mut now, &change);
    }
}

fn apply(now: &mut Objects, change: &Change) {
    for (key, version) in change {
        match version {
            Some(version) => drop(now.insert(key.clone(), *version)),
            None => drop(now.remove(key)),
        }
    }
}

/// The process that is killed.
#[test]
fn objects_in_a_process_of_its_own() {
    let Ok(image) = std::env::var("NARUFS_OBJECT_IMAGE") else { return };
    let round = std::env::var("NARUFS_OBJECT_ROUND").map_or(0, |n| n.parse().expect("a number"));
    // Behind what the test's own program has begun to say.
    println!();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("threads");
    let store = store(image.as_ref());
    runtime.block_on(async {
        let there = found(&store).await;
        let tasks = (0..TASKS).map(|task| {
            let (store, keys) = (store.clone(), keys_of(task));
            let now: Objects = there.clone().into_iter().filter(|(key, _)| keys.contains(key)).collect();
            tokio::spawn(async move { work(&store, task, now, round).await })
        });
        join_all(tasks).await.into_iter().for_each(|task| task.expect("no task panics"));
    });
}

/// What is known of a task: what is acknowledged, and what has begun.
#[derive(Default)]
struct Known {
    now: Objects,
    begun: Option<Change>,
}

fn hear(known: &mut [Known], line: &str) -> bool {
    let mut words = line.split(' ');
    let task = words.next().and_then(|task| task.parse::<usize>().ok()).filter(|task| *task < known.len());
    let (Some(task), Some(word)) = (task, words.next()) else { return false };
    match word {
        "begins" => {
            let change = words.map(|word| {
                let (key, version) = word.split_once('=').expect("a key and a version");
                (key.to_owned(), version.parse().ok())
            });
            known[task].begun = Some(change.collect());
            false
        }
        "done" => {
            let change = known[task].begun.take().expect("it has begun");
            apply(&mut known[task].now, &change);
            true
        }
        _ => false,
    }
}

#[test]
fn what_was_acknowledged_outlives_kills() {
    let kills: u64 = std::env::var("NARUFS_OBJECT_KILLS").map_or(12, |n| n.parse().expect("a number"));
    let place = Place::new();
    let mut known: Vec<Known> = (0..TASKS).map(|_| Known::default()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a thread");
    let (mut all, mut unanswered) = (0, 0);
    for round in 1..=kills {
        let program = std::env::current_exe().expect("a test has a path");
        let mut child = Command::new(program)
            .args(["objects_in_a_process_of_its_own", "--exact", "--nocapture", "--test-threads=1"])
            .env("NARUFS_OBJECT_IMAGE", &place.image)
            .env("NARUFS_OBJECT_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (lives_for, mut done) = (1 + round * 37 % 150, 0);
        while done < lives_for {
            let line = lines.next().expect("it goes on").expect("text");
            done += u64::from(hear(&mut known, &line));
        }
        child.kill().expect("it is ours");
        for line in lines.map_while(Result::ok) {
            done += u64::from(hear(&mut known, &line));
        }
        child.wait().expect("it ends");
        all += done;
        let store = place.store();
        let mut there = runtime.block_on(found(&store));
        assert_eq!(files(&store, "/staging+~"), Vec::<String>::new(), "round {round}");
        for (task, known) in (0..).zip(&mut known) {
            let mine: Objects =
                keys_of(task).into_iter().filter_map(|key| there.remove_entry(&key)).collect();
            let mut other = known.now.clone();
            if let Some(change) = known.begun.take() {
                apply(&mut other, &change);
                unanswered += 1;
            }
            let is_meant = mine == known.now || mine == other;
            assert!(is_meant, "round {round}, task {task}: {mine:?} and not {:?} or {other:?}", known.now);
            known.now = mine;
        }
        assert_eq!(there, Objects::new(), "round {round}: nobody has put these");
        store.close().expect("nothing else has it");
    }
    println!("{kills} kills, {all} operations acknowledged, {unanswered} cut off");
}
