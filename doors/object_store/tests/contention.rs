//! Many tasks at the same keys: of those who may not all win one does, and nobody sees anything but whole objects.

mod place;

use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use narufs_object_store::NarufsStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use place::{Place, content, files, keys};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs many at once, each as a task of its own.
async fn all<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    count: u64,
    task: impl Fn(u64) -> F,
) -> Vec<T> {
    let tasks = (0..count).map(|n| tokio::spawn(task(n)));
    join_all(tasks).await.into_iter().map(|done| done.expect("no task panics")).collect()
}

async fn e_tag(store: &NarufsStore, key: &Path) -> Option<String> {
    store.head(key).await.expect("there").e_tag
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_who_make_an_object_one_has_made_it() {
    let place = Place::new();
    let store = place.store();
    for round in 0..20 {
        let key = Path::from(format!("rounds/{round}/lock"));
        let made = all(32, |n| {
            let (store, key) = (store.clone(), key.clone());
            async move { store.put_opts(&key, content(n).into(), PutMode::Create.into()).await }
        });
        let made = made.await;
        let winners: Vec<_> = (0..).zip(&made).filter(|(_, made)| made.is_ok()).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        let others = made.iter().filter_map(|made| made.as_ref().err());
        assert!(others.into_iter().all(|e| matches!(e, Error::AlreadyExists { .. })));
        let (winner, result) = winners[0];
        let there = store.get(&key).await.expect("there");
        assert_eq!(there.meta.e_tag, result.as_ref().expect("it is one that won").e_tag);
        assert!(there.bytes().await.expect("read") == content(winner));
    }
}

/// Adds one to a counter so many times, each time to the version that it has read; how often that was another's by then.
async fn counts(store: &NarufsStore, key: &Path, each: u64) -> u64 {
    let (mut done, mut lost) = (0, 0);
    while done < each {
        let there = store.get(key).await.expect("always there");
        let version = UpdateVersion { e_tag: there.meta.e_tag.clone(), version: None };
        let bytes = there.bytes().await.expect("read");
        let next = u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")) + 1;
        let next = next.to_le_bytes().to_vec().into();
        match store.put_opts(key, next, PutMode::Update(version).into()).await {
            Ok(_) => done += 1,
            Err(Error::Precondition { .. }) => lost += 1,
            Err(e) => panic!("{e}"),
        }
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_those_who_replace_a_version_one_has_replaced_it() {
    const TASKS: u64 = 16;
    const EACH: u64 = 25;
    let place = Place::new();
    let store = place.store();
    let key = Path::from("counter");
    store.put(&key, 0_u64.to_le_bytes().to_vec().into()).await.expect("room");
    let lost = all(TASKS, |_| {
        let (store, key) = (store.clone(), key.clone());
        async move { counts(&store, &key, EACH).await }
    });
    println!("{} puts were too late", lost.await.into_iter().sum::<u64>());
    let bytes = store.get(&key).await.expect("there").bytes().await.expect("read");
    assert_eq!(bytes[..], (TASKS * EACH).to_le_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stores_of_one_directory_know_of_each_other_however_it_is_written() {
    const TASKS: u64 = 8;
    const EACH: u64 = 50;
    let place = Place::new();
    let root = place.store();
    let stores = ["x", "./x", "/x/.", "x//"].map(|directory| root.beside(directory).expect("room"));
    let key = Path::from("counter");
    stores[0].put(&key, 0_u64.to_le_bytes().to_vec().into()).await.expect("room");
    all(TASKS, |task| {
        let (store, key) = (stores[task as usize % stores.len()].clone(), key.clone());
        async move { counts(&store, &key, EACH).await }
    })
    .await;
    let bytes = stores[1].get(&key).await.expect("there").bytes().await.expect("read");
    assert_eq!(bytes[..], (TASKS * EACH).to_le_bytes());
    let refused = root.beside("x/../y").expect_err("it may lead through a link");
    assert!(refused.to_string().contains("name the directory that it leads to, without `..`"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_to_be_new_replaces_nothing_that_comes_by_another_name_of_its_directory() {
    let place = Place::new();
    let root = place.store();
    let one = root.beside("x").expect("room");
    root.fs().symlink("x", "/link").expect("room");
    // It has locks of its own.
    let other = root.beside("link").expect("it leads to a directory");
    for round in 0..20 {
        let key = Path::from(format!("{round}"));
        let made = all(16, |n| {
            let (store, key) = (if n % 2 == 0 { one.clone() } else { other.clone() }, key.clone());
            async move {
                if n < 8 {
                    return store
                        .put_opts(&key, vec![1; 100_000].into(), PutMode::Create.into())
                        .await
                        .map(drop);
                }
                let mine = Path::from(format!("{key}-{n}"));
                store.put(&mine, vec![2; 10].into()).await.expect("room");
                store.rename_if_not_exists(&mine, &key).await
            }
        });
        let made = made.await;
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "round {round}");
        let mut others = made.iter().filter_map(|made| made.as_ref().err());
        assert!(others.all(|e| matches!(e, Error::AlreadyExists { .. })), "{made:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn puts_and_deletes_in_directories_that_come_and_go() {
    let place = Place::new();
    let store = place.store();
    let outcomes = all(16, |task| {
        let store = store.clone();
        async move {
            for n in 0..60 {
                // All are in one directory that is empty every now and then.
                let key = Path::from(format!("a/b/c/{task}"));
                let version = task * 1000 + n;
                store
                    .put(&key, content(version).into())
                    .await
                    .expect("its directories are made as often as it takes");
                assert!(
                    store.get(&key).await.expect("there").bytes().await.expect("read") == content(version)
                );
                store.delete(&key).await.expect("there");
                let gone = store.head(&key).await.expect_err("it is gone");
                assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
            }
        }
    });
    outcomes.await;
    assert_eq!(files(&store, "/"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_whole_objects_while_they_are_replaced() {
    let place = Place::new();
    let store = place.store();
    let key = Path::from("object");
    store.put(&key, content(1).into()).await.expect("room");
    let ended = Arc::new(AtomicBool::new(false));
    let readers = {
        let (store, key, ended) = (store.clone(), key.clone(), Arc::clone(&ended));
        tokio::spawn(all(3, move |_| {
            let (store, key, ended) = (store.clone(), key.clone(), Arc::clone(&ended));
            async move {
                let mut reads = 0;
                // Relaxed: that it ends is all that is asked.
                while !ended.load(Ordering::Relaxed) || reads == 0 {
                    let bytes = store.get(&key).await.expect("always there").bytes().await.expect("read");
                    let version = u64::from_le_bytes(*bytes.first_chunk().expect("its version"));
                    assert!(bytes == content(version), "version {version} is torn");
                    assert_eq!(keys(&store, "").await, ["object"]);
                    reads += 1;
                }
                reads
            }
        }))
    };
    all(4, |task| {
        let (store, key) = (store.clone(), key.clone());
        async move {
            for n in 0..40 {
                store.put(&key, content(task * 1000 + n).into()).await.expect("room");
            }
        }
    })
    .await;
    ended.store(true, Ordering::Relaxed);
    assert!(readers.await.expect("no reader panics").into_iter().all(|reads| reads > 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_renamed_object_is_in_one_place() {
    let place = Place::new();
    let store = place.store();
    let names: Vec<Path> = (0..4).map(|n| Path::from(format!("{n}/name"))).collect();
    store.put(&names[0], content(7).into()).await.expect("room");
    all(8, |task| {
        let (store, names) = (store.clone(), names.clone());
        async move {
            for n in 0..50 {
                let (from, to) = (&names[(task + n) as usize % 4], &names[(task * n + 1) as usize % 4]);
                match store.rename_if_not_exists(from, to).await {
                    Ok(()) | Err(Error::NotFound { .. } | Error::AlreadyExists { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        }
    })
    .await;
    let left = keys(&store, "").await;
    assert_eq!(left.len(), 1, "{left:?}");
    let (there, copy) = (Path::from(left[0].as_str()), Path::from("copy"));
    store.copy(&there, &copy).await.expect("there");
    assert_eq!(e_tag(&store, &there).await, e_tag(&store, &copy).await);
    store.rename(&there, &copy).await.expect("one of its names goes");
    assert_eq!(keys(&store, "").await, ["copy"]);
    assert_eq!(files(&store, "/"), ["copy"]);
    assert!(store.rename_if_not_exists(&copy, &copy).await.is_err());
    store.rename(&copy, &copy).await.expect("nothing to do");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_list_has_once_what_is_there_all_the_time() {
    let place = Place::new();
    let store = place.store();
    let stays: Vec<String> = (0..300).map(|n| format!("d{}/stays-{n}", n % 3)).collect();
    let put = |key: String, version: u64| {
        let store = store.clone();
        async move { store.put(&Path::from(key), content(version).into()).await.expect("room") }
    };
    join_all((3..).zip(&stays).map(|(n, key)| put(key.clone(), n))).await;
    let ended = Arc::new(AtomicBool::new(false));
    let others = {
        let (store, ended) = (store.clone(), Arc::clone(&ended));
        tokio::spawn(async move {
            let mut version = 1000;
            while !ended.load(Ordering::Relaxed) {
                for n in 0..20 {
                    version += 1;
                    store.put(&Path::from(format!("d1/{n}")), content(version).into()).await.expect("room");
                    store
                        .put(&Path::from(format!("d1/stays-{}", 3 * n + 1)), content(version).into())
                        .await
                        .expect("room");
                }
                let those = store.list(Some(&Path::from("d1"))).map_ok(|object| object.location);
                let those =
                    those.try_filter(|key| std::future::ready(!key.as_ref().contains("stays"))).boxed();
                store.delete_stream(those).try_collect::<Vec<_>>().await.expect("all are there");
            }
        })
    };
    for _ in 0..30 {
        let mut found = keys(&store, "").await;
        found.retain(|key| key.contains("stays"));
        let mut wanted = stays.clone();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    }
    ended.store(true, Ordering::Relaxed);
    others.await.expect("it does not panic");
}

#[tokio::test]
async fn uploads_that_are_not_complete_are_nothing() {
    let place = Place::new();
    let store = place.store();
    let key = Path::from("upload");
    let mut upload = store.put_multipart(&key).await.expect("room");
    let (first, second) = (upload.put_part(vec![1; 10_000].into()), upload.put_part(vec![2; 10_000].into()));
    second.await.expect("room");
    let early = upload.complete().await.expect_err("the first part is not there");
    assert!(early.to_string().contains("1 parts"), "{early}");
    first.await.expect("room");
    upload.complete().await.expect("all is there");
    assert!(upload.complete().await.is_err() && upload.abort().await.is_err());
    assert!(upload.put_part("late".into()).await.is_err());
    assert_eq!(store.head(&key).await.expect("there").size, 20_000);
    let space = |store: &NarufsStore| store.fs().space().expect("it is known").files_free;
    // What a core sets aside for itself is not free for others: a block of some 32 files.
    let rounds = 64 * std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let before = space(&store);
    for round in 0..2 * rounds {
        let mut upload = store.put_multipart(&Path::from("other")).await.expect("room");
        upload.put_part(vec![3; 100_000].into()).await.expect("room");
        if round % 2 == 0 {
            upload.abort().await.expect("nothing prevents it");
        }
    }
    let kept = before.saturating_sub(space(&store));
    assert!(kept < rounds, "of {} files {kept} are kept", 2 * rounds);
    assert_eq!(keys(&store, "").await, ["upload"]);
    assert_eq!(files(&store, "/staging+~"), Vec::<String>::new());
}
