//! The suite by which the crate `object_store` judges stores, on an image and in memory, with a runtime and without.

mod place;

use narufs::{Fs, ScratchOptions};
use narufs_object_store::NarufsStore;
use object_store::integration::*;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};
use place::Place;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

/// Everything of the suite that is not of stores behind HTTP.
async fn suite(store: &NarufsStore) {
    put_get_delete_list(store).await;
    put_get_attributes(store).await;
    get_opts(store).await;
    put_opts(store, true).await;
    list_uses_directories_correctly(store).await;
    list_with_delimiter(store).await;
    rename_and_copy(store).await;
    copy_if_not_exists(store).await;
    copy_rename_nonexistent_object(store).await;
    multipart(store, store).await;
    multipart_with_opts(store, store).await;
    multipart_put_part_out_of_order(store, store).await;
    multipart_race_condition(store, true).await;
    multipart_out_of_order(store).await;
    list_paginated(store, store).await;
    list_with_offset_exclusivity(store).await;
    let missing = get_nonexistent_object(store, None).await.expect_err("it is not there");
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    for key in ["left/over", "left"] {
        store.put(&Path::from(key), "".into()).await.expect("room");
        store.delete(&Path::from(key)).await.expect("there");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_passes() {
    let place = Place::new();
    let store = place.store();
    suite(&store).await;
    store.close().expect("nothing else has it");
}

#[tokio::test]
async fn a_directory_of_an_image_passes_and_keeps_to_itself() {
    let place = Place::new();
    let other = place.store();
    other.put(&Path::from("a/b"), "other".into()).await.expect("room");
    let store = other.beside("/stores/one").expect("a directory");
    suite(&store).await;
    stream_get(&store.beside("/stores/two").expect("a directory")).await;
    assert_eq!(place::keys(&other, "").await, ["a/b"]);
}

#[tokio::test]
async fn memory_passes() {
    let fs = Fs::scratch(&ScratchOptions::new(256 << 20)).expect("memory");
    suite(&NarufsStore::new(fs, "/").expect("memory")).await;
}

/// Who may make nothing in the root has a store in a directory of their own.
#[tokio::test]
async fn a_user_s_directory_passes() {
    let fs = Fs::scratch(&ScratchOptions::new(256 << 20)).expect("memory");
    fs.create_dir_all("/home/u").expect("memory");
    fs.set_owner("/home/u", Some(1000), Some(1000)).expect("root");
    suite(&NarufsStore::new(fs.as_user(1000, 1000, &[]), "/home/u").expect("it is theirs")).await;
}

#[tokio::test]
async fn streams_pass() {
    stream_get(&Place::new().store()).await;
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, with no runtime at all.
fn run<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn it_passes_without_a_runtime() {
    let place = Place::new();
    let store = place.store();
    run(suite(&store));
    store.close().expect("nothing else has it");
}
