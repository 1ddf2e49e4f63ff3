//! How often the device is flushed: once for a put, twice at the most if it is a large one, and once for many that come at the same time.

mod media;
mod place;

use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use media::{flushes, made, store};
use narufs_engine::journal::Durability;
use narufs_engine::sim::Event;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::sync::{Arc, Condvar, Mutex};

#[tokio::test]
async fn each_change_takes_one_flush() {
    for (durability, wanted) in [(Durability::Power, 1), (Durability::Process, 0)] {
        let media = made();
        let store = store(&media, durability);
        let key = Path::from("a/b/object");
        for size in [0, 1, 128, 4096, 5000, 64 << 10, (64 << 10) + 1, 300_000, 1 << 20] {
            let bytes: Vec<u8> = (0..size).map(|n| n as u8).collect();
            // First anew, in directories that are not there, then in the place of another.
            for again in [false, true] {
                let attributes =
                    Attributes::from_iter([(Attribute::ContentType, "application/octet-stream")]);
                let mode = if again { PutMode::Overwrite } else { PutMode::Create };
                let options = PutOptions { attributes, mode, ..PutOptions::default() };
                let before = media.events();
                store.put_opts(&key, bytes.clone().into(), options).await.expect("room");
                let flushed = flushes(&media, before);
                // Of a large one the content, and then the name.
                let most = if size > 64 << 10 { 2 * wanted } else { wanted };
                assert!((wanted..=most).contains(&flushed), "{size} bytes, again: {again}: {flushed}");
            }
            assert!(store.get(&key).await.expect("there").bytes().await.expect("read") == bytes);
            let before = media.events();
            store.delete(&key).await.expect("there");
            assert_eq!(flushes(&media, before), wanted, "the delete");
        }
        let mut upload = store.put_multipart(&key).await.expect("room");
        for _ in 0..3 {
            upload.put_part(vec![7; 1_000_000].into()).await.expect("room");
        }
        let before = media.events();
        upload.complete().await.expect("room");
        assert!((wanted..=2 * wanted).contains(&flushes(&media, before)), "an upload");
        let (copy, moved) = (Path::from("c/copy"), Path::from("d/moved"));
        for _ in 0..2 {
            let before = media.events();
            store.copy(&key, &copy).await.expect("room");
            assert_eq!(flushes(&media, before), wanted, "a copy");
            store.put(&copy, "other".into()).await.expect("room");
        }
        let before = media.events();
        store.rename(&copy, &moved).await.expect("room");
        assert_eq!(flushes(&media, before), wanted, "a rename");
        let keys: Vec<Path> = (0..200).map(|n| Path::from(format!("many/{n}"))).collect();
        join_all(keys.iter().map(|key| store.put(key, "x".into()))).await;
        let before = media.events();
        let gone = store.delete_stream(stream::iter(keys).map(Ok).boxed()).try_collect::<Vec<_>>().await;
        assert_eq!(gone.expect("all are there").len(), 200);
        assert_eq!(flushes(&media, before), wanted, "200 deletes");
        let before = media.events();
        store.list(None).try_collect::<Vec<_>>().await.expect("a list");
        store.head(&key).await.expect("there");
        store.put_opts(&key, "x".into(), PutMode::Create.into()).await.expect_err("it is there");
        assert_eq!(flushes(&media, before), 0, "what changes nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_come_while_the_device_is_busy_share_the_next_flush() {
    const PUTS: usize = 16;
    let media = made();
    let store = store(&media, Durability::Power);
    store.put(&Path::from("all/first"), "there".into()).await.expect("room");
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let hook = Arc::clone(&gate);
    media.set_hook(Some(Arc::new(move |_, event| {
        if matches!(event, Event::FlushBegan | Event::WriteEnded { durable: true, .. }) {
            let (is_open, opened) = &*hook;
            let is_open = is_open.lock().expect("nobody panics with it");
            drop(opened.wait_while(is_open, |is_open| !*is_open).expect("nobody panics with it"));
        }
    })));
    let before = media.events();
    let puts = (0..PUTS).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.put(&Path::from(format!("all/{n}")), "content".into()).await })
    });
    let puts: Vec<_> = puts.collect();
    // All have their names, and none is acknowledged.
    while place::keys(&store, "all").await.len() <= PUTS {
        tokio::task::yield_now().await;
    }
    assert!(puts.iter().all(|put| !put.is_finished()));
    *gate.0.lock().expect("nobody panics with it") = true;
    gate.1.notify_all();
    for put in puts {
        put.await.expect("it does not panic").expect("room");
    }
    media.set_hook(None);
    assert!(flushes(&media, before) <= 3, "{} flushes for {PUTS} puts", flushes(&media, before));
}
