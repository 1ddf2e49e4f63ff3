//! Loss of power, and kills, at any moment of a sequence of changes, on media that lose what was not flushed in any way that
//! they may: what was acknowledged is there, whole, or gone, and the one that was not is done or not begun.
//!
//! NARUFS_OBJECT_STATES says how many states are looked at for each kind of end; 150 by default.

mod media;
mod place;

use futures_util::TryStreamExt;
use media::{made, store};
use narufs_engine::journal::Durability;
use narufs_engine::sim::Crash;
use narufs_object_store::NarufsStore;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use place::{Objects, content, found};
use std::collections::BTreeMap;

/// A change, as it is asked for.
enum Ask {
    Put(&'static str, u64),
    Upload(&'static str, u64),
    Delete(&'static str),
    Rename(&'static str, &'static str),
    Copy(&'static str, &'static str),
}

use Ask::{Copy, Delete, Put, Rename, Upload};

/// New keys, small and large; what replaces them, larger and smaller; directories that come and go.
const ASKED: [Ask; 24] = [
    Put("a/b/small", 3),
    Put("a/b/large", 9),
    Put("a", 17),
    Put("a/b/small", 2),
    Copy("a/b/large", "c/copy"),
    Put("a/b/large", 11),
    Delete("a/b/small"),
    Rename("c/copy", "a/b/small"),
    Upload("c/upload", 25),
    Delete("a/b/large"),
    Delete("a/b/small"),
    Put("a/b/small", 8),
    Put("a/b/small", 33),
    Copy("a/b/small", "a/b/other"),
    Copy("a", "a/b/other"),
    Rename("a/b/other", "a"),
    Upload("a", 13),
    Delete("c/upload"),
    Put("c/upload", 41),
    Put("c/upload", 49),
    Rename("c/upload", "a/b/small"),
    Delete("a"),
    Put("a", 50),
    Delete("a/b/small"),
];

fn key(words: &str) -> Path {
    Path::parse(words).expect("a key")
}

impl Ask {
    async fn of(&self, store: &NarufsStore) {
        match *self {
            Put(at, version) => drop(store.put(&key(at), content(version).into()).await.expect("room")),
            Upload(at, version) => {
                let mut upload = store.put_multipart(&key(at)).await.expect("room");
                for part in content(version).chunks(40_000) {
                    upload.put_part(part.to_vec().into()).await.expect("room");
                }
                upload.complete().await.expect("room");
            }
            Delete(at) => store.delete(&key(at)).await.expect("there"),
            Rename(from, to) => store.rename(&key(from), &key(to)).await.expect("there"),
            Copy(from, to) => store.copy(&key(from), &key(to)).await.expect("there"),
        }
    }

    fn apply(&self, objects: &mut Objects) {
        match *self {
            Put(at, version) | Upload(at, version) => drop(objects.insert(at.to_owned(), version)),
            Delete(at) => drop(objects.remove(at)),
            Copy(from, to) => drop(objects.insert(to.to_owned(), objects[from])),
            Rename(from, to) => {
                let version = objects.remove(from).expect("there");
                objects.insert(to.to_owned(), version);
            }
        }
    }
}

/// What clients know the versions of objects by.
async fn tags(store: &NarufsStore) -> BTreeMap<String, Option<String>> {
    let all = store.list(None).map_ok(|object| (object.location.to_string(), object.e_tag));
    all.try_collect().await.expect("a list")
}

async fn every_end(durability: Durability, ends: &[Crash]) {
    let states: usize = std::env::var("NARUFS_OBJECT_STATES").map_or(150, |n| n.parse().expect("a number"));
    let media = made();
    let live = store(&media, durability);
    // The objects after each change, and the events up to which it was not acknowledged; their tags.
    let mut known = vec![(Objects::new(), media.events())];
    let mut tagged = vec![tags(&live).await];
    let first = media.events();
    for ask in &ASKED {
        ask.of(&live).await;
        let mut objects = known.last().expect("the first").0.clone();
        ask.apply(&mut objects);
        known.push((objects, media.events()));
        tagged.push(tags(&live).await);
    }
    let last = media.events();
    let mut early = 0;
    for &end in ends {
        let mut points = media.crash_points();
        let (mut looked_at, mut unanswered) = (0, 0);
        let each = (last - first).div_ceil(states).max(1);
        for at in (first..last).step_by(each) {
            points.skip_to(at);
            let point = points.next().expect("the log has so many events");
            let done =
                known.iter().rposition(|(_, acknowledged)| *acknowledged <= at).expect("the first is before");
            let meant = &known[done..(done + 2).min(known.len())];
            for state in point.sample(end, at as u64, 2) {
                let media = state.restart();
                let store = store(&media, durability);
                let there = found(&store).await;
                let met = meant.iter().position(|(objects, _)| *objects == there);
                let met = met.unwrap_or_else(|| {
                    panic!("{end:?} after {at} of {last} events, {done} changes acknowledged: {there:?}, not {:?}", meant[0])
                });
                assert_eq!(tags(&store).await, tagged[done + met], "{end:?} after {at}");
                looked_at += 1;
                unanswered += met;
                // It goes on from there.
                store.put(&key("a/b/small"), content(57).into()).await.expect("room");
                store.close().expect("nothing else has it");
            }
        }
        println!(
            "{durability:?}, {end:?}: {looked_at} states, {unanswered} of them with what was not acknowledged"
        );
        early += unanswered;
    }
    // Of those that lose power hardly any: most changes are one write that is durable when it returns.
    assert!(early > 0, "some change is there before it is acknowledged");
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_loss_of_power_and_a_kill() {
    every_end(Durability::Power, &[Crash::PowerLoss, Crash::ProcessKill]).await;
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_kill_where_no_more_is_asked_for() {
    every_end(Durability::Process, &[Crash::ProcessKill]).await;
}
