//! Calls that nobody waits for any more, and images that are not what they were.

use futures_util::FutureExt;
use narufs_object_store::NarufsStore;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions};
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::Builder;

const SIZE: u64 = 32 << 20;

fn image(dir: &tempfile::TempDir) -> std::path::PathBuf {
    dir.path().join("image")
}

/// Has all that the runtime's one thread for it could do wait until it is told.
fn held_up(runtime: &tokio::runtime::Runtime) -> mpsc::Sender<()> {
    let (go, wait) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    runtime.spawn_blocking(move || {
        begun.send(()).expect("somebody waits");
        // Dropped, it goes on as well.
        let _ = wait.recv();
    });
    begins.recv().expect("it has begun");
    go
}

#[test]
fn what_is_given_up_does_not_overtake_what_comes_after_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime =
        Builder::new_current_thread().enable_all().max_blocking_threads(1).build().expect("a runtime");
    let store = NarufsStore::builder(image(&dir)).size(SIZE).build().expect("room");
    let key = Path::from("k");
    let large: Vec<u8> = vec![7; 200_000];
    runtime.block_on(store.put(&key, "v1".into())).expect("room");
    let go = held_up(&runtime);
    runtime.block_on(async {
        assert!(store.delete(&key).now_or_never().is_none(), "it waits for the thread");
        assert!(store.put(&key, large.into()).now_or_never().is_none(), "it waits for the thread");
        assert!(store.rename(&key, &Path::from("moved")).now_or_never().is_none(), "it waits for the thread");
        store.put(&key, "v2".into()).await.expect("it is put here");
        go.send(()).expect("it waits");
        // Behind all that waited for the thread.
        let found = store.get(&key).await.expect("it was acknowledged").bytes().await.expect("read");
        assert_eq!(found, "v2");
        tokio::task::spawn_blocking(|| ()).await.expect("it runs");
        let found = store.get(&key).await.expect("it was acknowledged").bytes().await.expect("read");
        assert_eq!(found, "v2");
    });
    runtime.shutdown_timeout(Duration::from_secs(60));
}

#[tokio::test]
async fn an_attribute_that_could_not_be_read_again_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = NarufsStore::builder(image(&dir)).size(SIZE).build().expect("room");
    let attributes = Attributes::from_iter([(Attribute::Metadata("a\0b".into()), "1")]);
    let options = PutOptions { attributes, ..PutOptions::default() };
    assert!(store.put_opts(&Path::from("k"), "v".into(), options).await.is_err());
    assert!(store.head(&Path::from("k")).await.is_err());
}

#[tokio::test]
async fn a_new_image_at_the_path_of_one_that_is_open_is_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, key) = (image(&dir), Path::from("k"));
    let old = NarufsStore::builder(&image).size(SIZE).build().expect("room");
    std::fs::remove_file(&image).expect("there");
    let new = NarufsStore::builder(&image).size(SIZE).build().expect("room");
    new.put(&key, "new".into()).await.expect("room");
    assert!(old.head(&key).await.is_err());
    drop((old, new));
    let again = NarufsStore::open(&image).expect("there");
    assert_eq!(again.get(&key).await.expect("acknowledged").bytes().await.expect("read"), "new");
}

#[tokio::test]
async fn an_image_that_could_not_be_made_is_made_once_it_can_be() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = image(&dir);
    assert!(NarufsStore::builder(&image).size(u64::MAX / 2).build().is_err());
    NarufsStore::builder(&image).size(SIZE).build().expect("nothing is in the way");
}
