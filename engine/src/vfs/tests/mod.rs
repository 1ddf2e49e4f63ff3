//! Each operation and its errnos over an image in memory.

#[cfg(feature = "baselines")]
mod baselines;
mod accepted;
mod batch;
mod crash;
mod elsewhere;
mod freed;
mod full;
mod gone;
mod grow;
mod indexes;
mod large_batch;
mod least_ring;
mod lost_area;
mod permissions;
mod room;
mod shrink;
mod space;
mod synchronous;
mod taken_over;
mod together;
mod tried_again;
mod walk;

use super::*;
use crate::checkpoint::Checkpointer;
use crate::device::MemoryDevice;
use crate::format::ROOT_NID;
use crate::journal::Durability;
use crate::mkfs::{FormatOptions, format};
use crate::store::{Log, Store, StoreOptions};
use crate::volume::{AssembleOptions, Running};
use std::collections::BTreeMap;

fn store() -> Arc<Store> {
    let device = Arc::new(MemoryDevice::new(8192));
    let options = FormatOptions { sparse: true, ..FormatOptions::default() };
    let superblock = format(&*device, &options).expect("large enough");
    Arc::new(Store::new(device, superblock, Log::default(), &StoreOptions::default()))
}

fn start(store: &Arc<Store>) -> Arc<Vfs> {
    let options = AssembleOptions {
        data: DataOptions::with_memory(4 << 20),
        inodes: 256,
        background: false,
        ..AssembleOptions::default()
    };
    let checkpointer = Arc::new(Checkpointer::new(Arc::clone(store)));
    Arc::clone(Running::start(&checkpointer, &options).expect("a good image").fs())
}

fn fs() -> Arc<Vfs> {
    let fs = start(&store());
    fs.setattr(&root(), ROOT_NID, None, &SetAttr { mode: Some(0o777), ..SetAttr::default() })
        .expect("root may");
    fs
}

#[test]
fn orphans_of_an_earlier_mount_are_freed_and_the_rest_is_there() {
    let store = store();
    let first = start(&store);
    let free = first.statfs().expect("counted").blocks_free;
    let kept = first.create(&root(), ROOT_NID, b"kept", 0o640, OpenFlags::READ_WRITE).expect("made");
    first.write(&root(), &kept.1, 0, &[5; 10_000], WriteFlags::empty()).expect("room");
    first.fsync(&kept.1, false).expect("memory");
    let (gone, handle) = first.tmpfile(&root(), ROOT_NID, 0o600, OpenFlags::READ_WRITE).expect("made");
    first.write(&root(), &handle, 0, &[6; 10_000], WriteFlags::empty()).expect("room");
    first.fsync(&handle, false).expect("memory");
    let second = start(&store);
    assert_eq!(errno(second.getattr(gone.nid)), libc::ESTALE);
    assert!(second.meta().space.entries().is_empty());
    let entry = second.lookup(&root(), ROOT_NID, b"kept").expect("there");
    assert_eq!((entry.nid, entry.attr.size, entry.attr.perm), (kept.0.nid, 10_000, 0o640));
    let handle = second.open(&root(), entry.nid, OpenFlags::empty()).expect("there");
    let mut bytes = [0; 10_001];
    assert_eq!(second.read(&handle, 0, &mut bytes).expect("there"), 10_000);
    assert!(bytes[..10_000].iter().all(|b| *b == 5));
    assert!(free - second.statfs().expect("counted").blocks_free < 12);
}

/// As the kernel asks for it when it keeps the times itself: one request for both.
#[test]
fn a_size_and_a_time_that_are_set_at_once_are_both_kept() {
    let store = store();
    let first = start(&store);
    let (made, handle, _) =
        first.create(&root(), ROOT_NID, b"a", 0o640, OpenFlags::READ_WRITE).expect("made");
    first.write(&root(), &handle, 0, &[5; 10_000], WriteFlags::empty()).expect("room");
    for (size, mtime) in [(20_000, 1), (9_000, 2), (9_000, 3), (0, 4), (5, 5)] {
        let set = SetAttr { size: Some(size), mtime: SetTime::At(mtime), ..SetAttr::default() };
        let attr = first.setattr(&root(), made.nid, Some(&handle), &set).expect("open for writing");
        assert_eq!((attr.size, attr.mtime), (size, mtime));
        assert!(attr.ctime > 5, "it has changed now");
    }
    first.fsync(&handle, false).expect("memory");
    let attr = start(&store).lookup(&root(), ROOT_NID, b"a").expect("there").attr;
    assert_eq!((attr.size, attr.mtime), (5, 5));
    let only_size = SetAttr { size: Some(6), ..SetAttr::default() };
    let attr = first.setattr(&root(), made.nid, Some(&handle), &only_size).expect("open for writing");
    assert!(attr.size == 6 && attr.mtime > 5);
}

fn root() -> Context {
    Context::root()
}
fn user(uid: u32) -> Context {
    Context::with_groups(uid, uid, vec![])
}
fn errno<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.expect_err("it must fail").errno()
}
fn file(fs: &Vfs, ctx: &Context, parent: Nid, name: &str) -> Entry {
    fs.mknod(ctx, parent, name.as_bytes(), libc::S_IFREG | 0o644, 0).expect("it is made")
}
fn dir(fs: &Vfs, ctx: &Context, parent: Nid, name: &str) -> Entry {
    fs.mkdir(ctx, parent, name.as_bytes(), 0o755).expect("it is made")
}
fn names(fs: &Vfs, nid: Nid) -> BTreeMap<Vec<u8>, Nid> {
    let handle = fs.opendir(&root(), nid).expect("a directory");
    let mut found = BTreeMap::new();
    fs.readdir(&handle, 2, &mut |e| found.insert(e.name.to_vec(), e.nid).is_none()).expect("it is read");
    fs.releasedir(handle);
    found
}
fn nlink(fs: &Vfs, nid: Nid) -> u32 {
    fs.getattr(nid).expect("it is there").nlink
}

#[test]
fn names_are_made_found_and_taken_away() {
    let fs = fs();
    let made = file(&fs, &root(), ROOT_NID, "a");
    assert_eq!(fs.lookup(&root(), ROOT_NID, b"a").expect("there").nid, made.nid);
    assert_eq!(errno(fs.mknod(&root(), ROOT_NID, b"a", libc::S_IFREG, 0)), libc::EEXIST);
    assert_eq!(errno(fs.mkdir(&root(), ROOT_NID, b"a", 0o755)), libc::EEXIST);
    assert_eq!(errno(fs.lookup(&root(), ROOT_NID, b"b")), libc::ENOENT);
    assert_eq!(errno(fs.lookup(&root(), made.nid, b"b")), libc::ENOTDIR);
    assert_eq!(errno(fs.lookup(&root(), ROOT_NID, &[b'x'; 256])), libc::ENAMETOOLONG);
    assert_eq!(errno(fs.rmdir(&root(), ROOT_NID, b"a")), libc::ENOTDIR);
    fs.unlink(&root(), ROOT_NID, b"a").expect("there");
    assert_eq!(errno(fs.unlink(&root(), ROOT_NID, b"a")), libc::ENOENT);
    assert_eq!(nlink(&fs, made.nid), 0, "the kernel still knows it");
    fs.forget(made.nid, 2);
    assert_eq!(errno(fs.getattr(made.nid)), libc::ESTALE);
}

#[test]
fn directories_count_their_links_and_must_be_empty_to_go() {
    let fs = fs();
    let before = nlink(&fs, ROOT_NID);
    let d = dir(&fs, &root(), ROOT_NID, "d");
    assert_eq!((nlink(&fs, ROOT_NID), nlink(&fs, d.nid)), (before + 1, 2));
    let inner = file(&fs, &root(), d.nid, "f");
    assert_eq!(errno(fs.rmdir(&root(), ROOT_NID, b"d")), libc::ENOTEMPTY);
    assert_eq!(errno(fs.unlink(&root(), ROOT_NID, b"d")), libc::EISDIR);
    assert_eq!(errno(fs.rmdir(&root(), d.nid, b".")), libc::EINVAL);
    assert_eq!(errno(fs.rmdir(&root(), d.nid, b"..")), libc::ENOTEMPTY);
    assert_eq!(fs.parent(d.nid).expect("a directory").nid, ROOT_NID);
    fs.unlink(&root(), d.nid, b"f").expect("there");
    fs.forget(inner.nid, 1);
    fs.rmdir(&root(), ROOT_NID, b"d").expect("empty");
    assert_eq!((nlink(&fs, ROOT_NID), nlink(&fs, d.nid)), (before, 0));
    assert_eq!(errno(fs.mknod(&root(), d.nid, b"late", libc::S_IFREG, 0)), libc::ENOENT);
    fs.forget(d.nid, 9);
    assert_eq!(errno(fs.getattr(d.nid)), libc::ESTALE);
}

#[test]
fn nothing_is_moved_into_a_removed_directory_even_if_what_it_lay_in_is_gone() {
    let fs = fs();
    let (outer, moved) = (dir(&fs, &root(), ROOT_NID, "outer"), dir(&fs, &root(), ROOT_NID, "moved"));
    let inner = dir(&fs, &root(), outer.nid, "inner");
    fs.rmdir(&root(), outer.nid, b"inner").expect("empty");
    let flags = RenameFlags::empty();
    let into = |name: &[u8]| fs.rename(&root(), ROOT_NID, name, inner.nid, b"in", flags);
    assert_eq!([b"moved", b"outer"].map(|name| errno(into(name))), [libc::ENOENT; 2]);
    fs.rmdir(&root(), ROOT_NID, b"outer").expect("empty");
    fs.forget(outer.nid, 1);
    assert_eq!(errno(fs.getattr(outer.nid)), libc::ESTALE);
    assert_eq!(errno(into(b"moved")), libc::ENOENT);
    assert_eq!(fs.lookup(&root(), ROOT_NID, b"moved").expect("it stays").nid, moved.nid);
}

#[test]
fn times_that_wait_do_not_keep_inodes_in_memory() {
    let fs = fs();
    let mut atimes = Vec::new();
    for i in 0..3000 {
        let made = file(&fs, &root(), ROOT_NID, &format!("{i}"));
        let handle = fs.open(&root(), made.nid, OpenFlags::empty()).expect("there");
        fs.read(&handle, 0, &mut [0; 8]).expect("empty");
        atimes.push((made.nid, fs.getattr(made.nid).expect("there").atime));
        assert!(atimes[i].1 > made.attr.atime);
        fs.release(handle, None);
        fs.forget(made.nid, 1);
    }
    assert!(fs.meta().table.len() < 1500, "{} inodes stay in memory", fs.meta().table.len());
    for (nid, atime) in atimes {
        assert_eq!(fs.getattr(nid).expect("there").atime, atime);
    }
}

#[test]
fn symlinks_short_and_long_keep_their_targets() {
    let fs = fs();
    for len in [1, 128, 129, 4000, 4095] {
        let target = vec![b't'; len];
        let link = fs.symlink(&root(), ROOT_NID, format!("l{len}").as_bytes(), &target).expect("made");
        assert_eq!(fs.readlink(link.nid).expect("a link"), target);
        assert_eq!((link.attr.size, link.attr.perm), (len as u64, 0o777));
        assert_eq!(fs.listxattr(&root(), link.nid).expect("listed"), b"");
    }
    assert_eq!(errno(fs.symlink(&root(), ROOT_NID, b"x", &[b't'; 4096])), libc::ENAMETOOLONG);
    assert_eq!(errno(fs.symlink(&root(), ROOT_NID, b"x", b"")), libc::ENOENT);
    assert_eq!(errno(fs.readlink(ROOT_NID)), libc::EINVAL);
}

#[test]
fn links_count_and_orphans_come_back() {
    let fs = fs();
    let made = file(&fs, &root(), ROOT_NID, "a");
    assert_eq!(fs.link(&root(), made.nid, ROOT_NID, b"b").expect("linked").attr.nlink, 2);
    assert_eq!(errno(fs.link(&root(), made.nid, ROOT_NID, b"b")), libc::EEXIST);
    assert_eq!(errno(fs.link(&root(), ROOT_NID, ROOT_NID, b"c")), libc::EPERM);
    let (entry, handle) = fs.tmpfile(&root(), ROOT_NID, 0o600, OpenFlags::READ_WRITE).expect("made");
    assert_eq!(entry.attr.nlink, 0);
    assert_eq!(fs.write(&root(), &handle, 0, b"content", WriteFlags::empty()).expect("room"), 7);
    assert_eq!(fs.link(&root(), entry.nid, ROOT_NID, b"t").expect("linked").attr.nlink, 1);
    fs.release(handle, None);
    assert_eq!(fs.lookup(&root(), ROOT_NID, b"t").expect("there").attr.size, 7);
    assert!(fs.meta().space.entries().is_empty());
    let flags = OpenFlags::READ_WRITE | OpenFlags::EXCLUSIVE;
    let (entry, handle) = fs.tmpfile(&root(), ROOT_NID, 0o600, flags).expect("made");
    assert_eq!(errno(fs.link(&root(), entry.nid, ROOT_NID, b"u")), libc::ENOENT);
    fs.forget(entry.nid, 1);
    fs.release(handle, None);
    assert_eq!(errno(fs.getattr(entry.nid)), libc::ESTALE);
    assert_eq!(errno(fs.by_handle(entry.nid, None)), libc::ESTALE);
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed() {
    let fs = fs();
    let flags = OpenFlags::READ_WRITE;
    let (entry, handle, made) = fs.create(&root(), ROOT_NID, b"f", 0o644, flags).expect("made");
    assert!(made);
    assert_eq!(errno(fs.create(&root(), ROOT_NID, b"f", 0o644, flags | OpenFlags::EXCLUSIVE)), libc::EEXIST);
    fs.write(&root(), &handle, 3, b"abc", WriteFlags::empty()).expect("room");
    fs.write(&root(), &handle, 0, b"end", WriteFlags::APPEND).expect("room");
    fs.unlink(&root(), ROOT_NID, b"f").expect("there");
    fs.forget(entry.nid, 1);
    let mut bytes = [9; 16];
    assert_eq!(fs.read(&handle, 0, &mut bytes).expect("open"), 9);
    assert_eq!(&bytes[..9], b"\0\0\0abcend");
    fs.fsync(&handle, false).expect("memory");
    fs.release(handle, None);
    assert_eq!(errno(fs.getattr(entry.nid)), libc::ESTALE);
}

#[test]
fn rename_replaces_refuses_and_exchanges() {
    let fs = fs();
    let none = RenameFlags::empty();
    let (a, b) = (dir(&fs, &root(), ROOT_NID, "a"), dir(&fs, &root(), ROOT_NID, "b"));
    let f = file(&fs, &root(), a.nid, "f");
    let g = file(&fs, &root(), b.nid, "g");
    let sub = dir(&fs, &root(), a.nid, "sub");
    let rename =
        |from: Nid, name: &[u8], to: Nid, new: &[u8], flags| fs.rename(&root(), from, name, to, new, flags);
    assert_eq!(errno(rename(a.nid, b"f", b.nid, b"g", RenameFlags::NO_REPLACE)), libc::EEXIST);
    assert_eq!(errno(rename(a.nid, b"f", b.nid, b"h", RenameFlags::EXCHANGE)), libc::ENOENT);
    assert_eq!(errno(rename(a.nid, b"f", ROOT_NID, b"b", none)), libc::EISDIR);
    assert_eq!(errno(rename(a.nid, b"sub", b.nid, b"g", none)), libc::ENOTDIR);
    assert_eq!(errno(rename(ROOT_NID, b"a", sub.nid, b"x", none)), libc::EINVAL);
    assert_eq!(errno(rename(a.nid, b"sub", ROOT_NID, b"a", none)), libc::ENOTEMPTY);
    assert_eq!(errno(rename(ROOT_NID, b"a", ROOT_NID, b"b", none)), libc::ENOTEMPTY);
    assert_eq!(errno(rename(ROOT_NID, b".", ROOT_NID, b"c", none)), libc::EBUSY);
    rename(a.nid, b"f", b.nid, b"g", none).expect("replaces");
    assert_eq!(names(&fs, b.nid), BTreeMap::from([(b"g".to_vec(), f.nid)]));
    assert_eq!(nlink(&fs, g.nid), 0);
    rename(a.nid, b"sub", b.nid, b"g", RenameFlags::EXCHANGE).expect("exchanges");
    assert_eq!((nlink(&fs, a.nid), nlink(&fs, b.nid)), (2, 3));
    assert_eq!(fs.parent(sub.nid).expect("a directory").nid, b.nid);
    rename(b.nid, b"g", b.nid, b"moved", none).expect("renames");
    rename(b.nid, b"moved", a.nid, b"back", none).expect("moves");
    assert_eq!((nlink(&fs, a.nid), nlink(&fs, b.nid)), (3, 2));
    rename(ROOT_NID, b"b", a.nid, b"back", none).expect("replaces an empty directory");
    assert_eq!(nlink(&fs, sub.nid), 0);
    assert_eq!(names(&fs, a.nid).len(), 2);
    rename(a.nid, b"sub", a.nid, b"sub", none).expect("changes nothing");
    assert_eq!(errno(rename(a.nid, b"gone", a.nid, b"x", none)), libc::ENOENT);
}

#[test]
fn readdir_goes_on_where_it_stopped() {
    let fs = fs();
    for i in 0..500 {
        file(&fs, &root(), ROOT_NID, &format!("file {i}"));
    }
    let handle = fs.opendir(&root(), ROOT_NID).expect("a directory");
    let (mut seen, mut cookie) = (BTreeMap::new(), 0);
    loop {
        let mut room = 7;
        let before = seen.len();
        fs.readdirplus(&root(), &handle, cookie, &mut |e, entry| {
            if room == 0 {
                return false;
            }
            room -= 1;
            cookie = e.cookie;
            assert_eq!(entry.is_none(), matches!(e.name, b"." | b".."));
            assert!(seen.insert(e.name.to_vec(), e.nid).is_none());
            true
        })
        .expect("it is read");
        if seen.len() == before {
            break;
        }
    }
    assert_eq!(seen.len(), 502);
    fs.releasedir(handle);
}

#[test]
fn many_threads_share_one_directory() {
    let fs = fs();
    let d = dir(&fs, &root(), ROOT_NID, "d");
    std::thread::scope(|s| {
        for t in 0..6u32 {
            let fs = &fs;
            s.spawn(move || {
                let ctx = root();
                for i in 0..300u32 {
                    let name = format!("{t}-{i}");
                    let (entry, handle, _) =
                        fs.create(&ctx, d.nid, name.as_bytes(), 0o644, OpenFlags::READ_WRITE).expect("made");
                    fs.release(handle, None);
                    fs.forget(entry.nid, 1);
                    match i % 4 {
                        0 => fs.unlink(&ctx, d.nid, name.as_bytes()).expect("there"),
                        1 => {
                            let new = format!("{t}-renamed-{i}");
                            fs.rename(
                                &ctx,
                                d.nid,
                                name.as_bytes(),
                                d.nid,
                                new.as_bytes(),
                                RenameFlags::empty(),
                            )
                            .expect("there");
                        }
                        2 => {
                            // All meet here.
                            let shared = format!("shared-{}", i % 16);
                            fs.rename(
                                &ctx,
                                d.nid,
                                name.as_bytes(),
                                d.nid,
                                shared.as_bytes(),
                                RenameFlags::empty(),
                            )
                            .expect("there");
                        }
                        _ => {}
                    }
                }
            });
        }
    });
    let all = names(&fs, d.nid);
    assert_eq!(all.keys().filter(|name| !name.starts_with(b"shared")).count(), 6 * 150);
    for (name, nid) in &all {
        let entry = fs.lookup(&root(), d.nid, name).expect("listed");
        assert_eq!((entry.nid, entry.attr.nlink), (*nid, 1));
    }
    assert!(fs.meta().space.entries().is_empty());
}
