//! An image that goes with a test, and what is known of the objects in it.

#![allow(dead_code, reason = "no test uses all of it")]

use futures_util::{StreamExt, TryStreamExt};
use narufs::MountOptions;
use narufs_object_store::NarufsStore;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A directory with an image.
pub struct Place {
    _dir: tempfile::TempDir,
    pub image: PathBuf,
}

/// Whether an object of a version is there, by key.
pub type Objects = BTreeMap<String, u64>;

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
        Place { image: dir.path().join("image"), _dir: dir }
    }

    /// The store at the root of the image.
    pub fn store(&self) -> NarufsStore {
        store(&self.image)
    }
}

/// The store at the root of an image, which is made if it is not there.
pub fn store(image: &std::path::Path) -> NarufsStore {
    let options = MountOptions::new().memory(64 << 20).access_times(narufs::AccessTimes::Never);
    NarufsStore::builder(image).size(512 << 20).mount_options(options).build().expect("it opens")
}

/// All keys.
pub async fn keys(store: &NarufsStore, prefix: &str) -> Vec<String> {
    let prefix = Path::parse(prefix).expect("a prefix");
    let all = store.list(Some(&prefix)).map_ok(|object| object.location.to_string());
    let mut all: Vec<String> = all.try_collect().await.expect("a list");
    all.sort_unstable();
    all
}

/// What is in a directory of the image beside the store's own.
pub fn files(store: &NarufsStore, dir: &str) -> Vec<String> {
    let names = store
        .fs()
        .read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_str().expect("text").to_owned());
    names.filter(|name| name != "staging+~").collect()
}

/// The content of a version of an object: its length and its bytes follow from the number.
pub fn content(version: u64) -> Vec<u8> {
    let seed = version.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = match version % 8 {
        0 => 0,
        1 => 100_000 + seed % 200_000,
        2 => 60_000 + seed % 10_000,
        _ => 1 + seed % 6000,
    };
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|n| (n ^ seed >> (n % 40)) as u8));
    bytes
}

/// What is there.
///
/// # Panics
/// Where an object is not whole, or a list has one twice.
pub async fn found(store: &NarufsStore) -> Objects {
    let mut found = Objects::new();
    let mut list = store.list(None);
    while let Some(object) = list.next().await {
        let object = object.expect("a list");
        let bytes = store.get(&object.location).await.expect("listed").bytes().await.expect("read");
        let version = bytes.first_chunk().map(|version| u64::from_le_bytes(*version));
        let version = version.unwrap_or_else(|| panic!("{} has {} bytes", object.location, bytes.len()));
        assert!(
            bytes == content(version),
            "{} is torn: {} bytes of version {version}",
            object.location,
            bytes.len()
        );
        assert!(
            found.insert(object.location.to_string(), version).is_none(),
            "{} is listed twice",
            object.location
        );
    }
    found
}
