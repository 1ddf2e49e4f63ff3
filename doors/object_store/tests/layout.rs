//! Keys that directories could not have, and directories that keys do not need any more.

mod place;

use futures_util::{StreamExt, TryStreamExt};
use narufs_object_store::NarufsStore;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use place::{Place, files, keys};
use std::collections::BTreeSet;

fn key(words: &str) -> Path {
    Path::parse(words).expect("a key")
}

async fn put_all(store: &NarufsStore, words: &[&str]) {
    for words in words {
        store.put(&key(words), (*words).to_owned().into()).await.expect("room");
    }
}

#[tokio::test]
async fn a_key_may_be_the_beginning_of_others() {
    let place = Place::new();
    let store = place.store();
    let long = "ü".repeat(400);
    let words = ["a", "a/b", "a/b/c", "a+", "a+/b", "b/c+", "b/c", "+", "+/+=", "staging+~", "staging+~/x"];
    let longer = [long.clone(), format!("{long}/{long}"), format!("a/{long}")];
    let mut all: Vec<&str> = words.into_iter().chain(longer.iter().map(String::as_str)).collect();
    put_all(&store, &all).await;
    all.sort_unstable();
    assert_eq!(keys(&store, "").await, all);
    for words in &all {
        assert_eq!(store.get(&key(words)).await.expect("there").bytes().await.expect("read"), words);
    }
    assert_eq!(keys(&store, "a").await, ["a/b", "a/b/c", &longer[2]]);
    assert_eq!(keys(&store, &long).await, [longer[1].as_str()]);
    let level = store.list_with_delimiter(None).await.expect("a list");
    let objects: Vec<&str> = level.objects.iter().map(|object| object.location.as_ref()).collect();
    assert_eq!(objects, ["+", "a", "a+", "staging+~", &long]);
    let prefixes: Vec<&str> = level.common_prefixes.iter().map(Path::as_ref).collect();
    assert_eq!(prefixes, ["+", "a", "a+", "b", "staging+~", &long]);
    for words in all {
        store.rename(&key(words), &key(&format!("moved/{words}"))).await.expect("there");
    }
    assert_eq!(files(&store, "/"), ["moved+"]);
    let moved = store.list(Some(&key("moved"))).map_ok(|object| object.location).boxed();
    let gone: Vec<Path> = store.delete_stream(moved).try_collect().await.expect("all are there");
    assert_eq!(gone.len(), 14);
    assert_eq!(files(&store, "/"), Vec::<String>::new());
}

#[tokio::test]
async fn empty_directories_are_none() {
    let place = Place::new();
    let store = place.store();
    // As a process leaves them that is killed between the making of directories and the naming of the object.
    store.fs().create_dir_all("/a+/b+/c+").expect("room");
    store.fs().create_dir_all("/x+").expect("room");
    assert_eq!(keys(&store, "").await, Vec::<String>::new());
    let level = store.list_with_delimiter(None).await.expect("a list");
    assert!(level.common_prefixes.is_empty() && level.objects.is_empty());
    put_all(&store, &["x/1"]).await;
    let level = store.list_with_delimiter(None).await.expect("a list");
    assert_eq!(level.common_prefixes, [key("x")]);
    store.delete(&key("x/1")).await.expect("there");
    assert_eq!(files(&store, "/"), ["a+"]);
    let gone = store.delete(&key("x/1")).await.expect_err("it is gone");
    assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
    for call in [store.put(&Path::ROOT, "x".into()).await.err(), store.get(&Path::ROOT).await.err()] {
        assert!(matches!(call, Some(Error::InvalidPath { .. })), "{call:?}");
    }
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let place = Place::new();
    let store = place.store();
    store.fs().create_dir_all("/lost+found").expect("room");
    store.fs().write("/lost+found/x", "x").expect("room");
    store.fs().symlink("/x", "/link").expect("room");
    put_all(&store, &["x"]).await;
    assert_eq!(keys(&store, "").await, ["x"]);
    // Another store's directory is no object, and a link leads to none.
    let other = store.beside("other").expect("room");
    put_all(&other, &["k"]).await;
    for name in ["other", "link"] {
        let name = Path::from(name);
        let not_found = |e: object_store::Error| matches!(e, object_store::Error::NotFound { .. });
        assert!(store.head(&name).await.is_err_and(not_found), "{name}");
        assert!(store.get(&name).await.is_err_and(not_found), "{name}");
        assert!(store.rename(&name, &Path::from("moved")).await.is_err_and(not_found), "{name}");
        assert!(store.copy(&name, &Path::from("copied")).await.is_err_and(not_found), "{name}");
    }
    assert_eq!(keys(&other, "").await, ["k"]);
}

/// All pages of a list.
async fn paged(store: &NarufsStore, prefix: &str, mut options: PaginatedListOptions) -> (Vec<String>, usize) {
    let (mut all, mut pages) = (Vec::new(), 0);
    loop {
        let page = store.list_paginated(Some(prefix), options.clone()).await.expect("a page");
        pages += 1;
        assert!(
            page.result.objects.len() + page.result.common_prefixes.len() <= options.max_keys.unwrap_or(1000)
        );
        all.extend(page.result.objects.iter().map(|object| object.location.to_string()));
        all.extend(page.result.common_prefixes.iter().map(|prefix| format!("{prefix}/")));
        options.page_token = page.page_token;
        if options.page_token.is_none() {
            all.sort_unstable();
            return (all, pages);
        }
    }
}

#[tokio::test]
async fn pages_and_offsets_leave_nothing_out() {
    let place = Place::new();
    let store = place.store();
    let long = "l".repeat(600);
    let mut all: Vec<String> = (0..60).map(|n| format!("d{}/e{}/{n}", n % 4, n % 3)).collect();
    all.extend((0..20).map(|n| format!("d1/{n}")));
    all.extend([format!("d1/{long}/1"), format!("d1/{long}")]);
    put_all(&store, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    all.sort_unstable();
    let below =
        |prefix: &str| -> Vec<String> { all.iter().filter(|key| key.starts_with(prefix)).cloned().collect() };
    for most in [1, 7, 1000] {
        let options = PaginatedListOptions { max_keys: Some(most), ..Default::default() };
        for prefix in ["", "d", "d1/", "d1/e", "d1/l", "none"] {
            let (found, pages) = paged(&store, prefix, options.clone()).await;
            assert_eq!(found, below(prefix), "{prefix}, {most} at a time");
            assert_eq!(pages, below(prefix).len().div_ceil(most).max(1), "{prefix}, {most} at a time");
        }
        let options = PaginatedListOptions { delimiter: Some("/".into()), ..options };
        let level = |prefix: &str| -> BTreeSet<String> {
            let rest = |key: String| match key[prefix.len()..].split_once('/') {
                Some((dir, _)) => format!("{prefix}{dir}/"),
                None => key,
            };
            below(prefix).into_iter().map(rest).collect()
        };
        for prefix in ["", "d1/", "d1/l", "d1/e"] {
            let (found, _) = paged(&store, prefix, options.clone()).await;
            assert_eq!(found, level(prefix).into_iter().collect::<Vec<_>>(), "{prefix}, {most} at a time");
        }
    }
    for offset in ["", "d1", "d1/e0/0", "d1/e2/5", "d1/l", &format!("d1/{long}"), "d3/e2/59", "e"] {
        let behind: Vec<String> = all.iter().filter(|key| key.as_str() > offset).cloned().collect();
        let list = store.list_with_offset(None, &key(offset)).map_ok(|object| object.location.to_string());
        let mut found: Vec<String> = list.try_collect().await.expect("a list");
        found.sort_unstable();
        assert_eq!(found, behind, "behind {offset}");
        let options =
            PaginatedListOptions { offset: Some(offset.into()), max_keys: Some(9), ..Default::default() };
        assert_eq!(paged(&store, "", options).await.0, behind, "behind {offset}");
    }
    for token in ["", "x", "1/../2", "zz/"] {
        let options = PaginatedListOptions { page_token: Some(token.into()), ..Default::default() };
        assert!(store.list_paginated(None, options).await.is_err(), "{token}");
    }
}

#[tokio::test]
async fn a_page_goes_on_where_directories_are_gone() {
    let place = Place::new();
    let store = place.store();
    let all: Vec<String> = (0..40).map(|n| format!("d{}/{n:02}", n / 10)).collect();
    put_all(&store, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut options = PaginatedListOptions { max_keys: Some(5), ..Default::default() };
    let page = store.list_paginated(None, options.clone()).await.expect("a page");
    let first = page.result.objects[0].location.parent().expect("a directory");
    for key in keys(&store, first.as_ref()).await {
        store.delete(&Path::from(key)).await.expect("there");
    }
    options.page_token = page.page_token;
    assert_eq!(paged(&store, "", options).await.0.len(), 30);
}

/// As many as a directory has in earnest: NARUFS_OBJECTS says how many, 20,000 by default.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_very_many_is_a_stream() {
    let many = std::env::var("NARUFS_OBJECTS").map_or(20_000, |n| n.parse().expect("a number"));
    let place = Place::new();
    let store = place.store();
    // Files as puts make them, with one sync for all.
    for dir in 0..10 {
        store.fs().create_dir(format!("/{dir}+")).expect("room");
    }
    for n in 0..many {
        store.fs().create_new(format!("/{}+/{n}", n % 10)).expect("room");
    }
    let mut list = store.list(None);
    let mut seen = vec![false; many];
    while let Some(object) = list.next().await {
        let n: usize =
            object.expect("a list").location.filename().expect("a name").parse().expect("a number");
        assert!(!std::mem::replace(&mut seen[n], true), "{n} is listed twice");
    }
    assert!(seen.iter().all(|seen| *seen));
    let gone = store.delete_stream(store.list(None).map_ok(|object| object.location).boxed());
    assert_eq!(gone.try_fold(0, |count, _| async move { Ok(count + 1) }).await.expect("all are there"), many);
    assert_eq!(files(&store, "/"), Vec::<String>::new());
}

#[tokio::test]
async fn an_upload_of_before_is_none_of_now() {
    let place = Place::new();
    let at = key("a");
    let before = place.store().create_multipart(&at).await.expect("an id");
    let store = place.store();
    let now = store.create_multipart(&at).await.expect("an id");
    assert!(matches!(store.put_part(&at, &before, 0, "old".into()).await, Err(Error::NotFound { .. })));
    let part = store.put_part(&at, &now, 0, "new".into()).await.expect("room");
    assert!(matches!(
        store.complete_multipart(&at, &before, vec![part.clone()]).await,
        Err(Error::NotFound { .. })
    ));
    store.complete_multipart(&at, &now, vec![part]).await.expect("all are there");
    assert_eq!(store.get(&at).await.expect("there").bytes().await.expect("read"), "new");
}
