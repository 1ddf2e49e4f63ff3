//! Walks along paths: each is made twice, for the second finds the names known.

use super::*;

fn walk(fs: &Vfs, ctx: &Context, path: &str) -> Result<InodeRef> {
    let from = fs.root()?;
    let twice = [(); 2].map(|()| match fs.walk(ctx, from, path.as_bytes(), false, Arrive::Looking)? {
        Walked::There(at) => Ok(at),
        Walked::Link { .. } => Err(Error::Errno(libc::ELOOP)),
    });
    let [first, second] = twice;
    match (&first, &second) {
        (Ok(first), Ok(second)) => {
            assert_eq!((first.nid(), first.generation()), (second.nid(), second.generation()))
        }
        (first, second) => {
            assert_eq!(
                first.as_ref().err().map(Error::errno),
                second.as_ref().err().map(Error::errno),
                "{path}"
            );
        }
    }
    second
}

fn chmod(fs: &Vfs, nid: Nid, mode: u32) {
    fs.setattr(&root(), nid, None, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("root may");
}

#[test]
fn walks_go_where_lookups_go() {
    let fs = fs();
    let a = dir(&fs, &root(), ROOT_NID, "a");
    let b = dir(&fs, &root(), a.nid, "a name that is longer than a line has room for");
    let f = file(&fs, &root(), b.nid, "f");
    fs.symlink(&root(), a.nid, b"link", b"elsewhere").expect("new");
    let below = "a/a name that is longer than a line has room for";
    for (path, nid) in [
        ("", ROOT_NID),
        ("a", a.nid),
        ("/a//", a.nid),
        (below, b.nid),
        ("a/../a/./link/..", 0),
        (&format!("{below}/f"), f.nid),
        (&format!("{below}/../../a"), a.nid),
    ] {
        match walk(&fs, &root(), path) {
            Ok(at) => assert_eq!(at.nid(), nid, "{path}"),
            Err(e) => assert_eq!((e.errno(), nid), (libc::ELOOP, 0), "{path}"),
        }
    }
    let link = walk(&fs, &root(), "a/link").expect("not followed");
    assert_eq!(fs.readlink_at(&link).expect("a link"), b"elsewhere");
    let from = fs.root().expect("there");
    match fs.walk(&root(), from, b"/a/link//x/y", false, Arrive::Opening).expect("there") {
        Walked::Link { dir, link, rest } => {
            assert_eq!((dir.nid(), link.file_type(), rest), (a.nid, FileType::Symlink, &b"x/y"[..]));
        }
        Walked::There(at) => panic!("{at:?}"),
    }
    let long = "x".repeat(256);
    for (path, expected) in [
        ("b", libc::ENOENT),
        ("a/b/c", libc::ENOENT),
        (&format!("{below}/f/x"), libc::ENOTDIR),
        ("a/nul\0", libc::EINVAL),
        (&long, libc::ENAMETOOLONG),
    ] {
        assert_eq!(errno(walk(&fs, &root(), path)), expected, "{path}");
    }
}

#[test]
fn names_that_change_are_not_found_where_they_were() {
    let fs = fs();
    let a = dir(&fs, &root(), ROOT_NID, "a");
    let f = file(&fs, &root(), a.nid, "f");
    let g = file(&fs, &root(), a.nid, "g");
    let at = |path: &str| walk(&fs, &root(), path).map(|at| at.nid()).map_err(|e| e.errno());
    let rename =
        |from: &[u8], to: &[u8], flags| fs.rename(&root(), a.nid, from, a.nid, to, flags).expect("there");
    assert_eq!((at("a/f"), at("a/g")), (Ok(f.nid), Ok(g.nid)));
    rename(b"f", b"g", RenameFlags::EXCHANGE);
    assert_eq!((at("a/f"), at("a/g")), (Ok(g.nid), Ok(f.nid)));
    rename(b"f", b"g", RenameFlags::empty());
    assert_eq!((at("a/f"), at("a/g")), (Err(libc::ENOENT), Ok(g.nid)));
    rename(b"g", b"h", RenameFlags::empty());
    assert_eq!((at("a/h"), at("a/g")), (Ok(g.nid), Err(libc::ENOENT)));
    fs.link(&root(), g.nid, ROOT_NID, b"other").expect("new");
    fs.unlink(&root(), a.nid, b"h").expect("there");
    assert_eq!((at("a/h"), at("other")), (Err(libc::ENOENT), Ok(g.nid)));
    fs.rename(&root(), ROOT_NID, b"a", ROOT_NID, b"b", RenameFlags::empty()).expect("there");
    assert_eq!((at("a"), at("b")), (Err(libc::ENOENT), Ok(a.nid)));
    let removed = walk(&fs, &root(), "b").expect("there");
    fs.rmdir(&root(), ROOT_NID, b"b").expect("empty");
    assert_eq!(at("b"), Err(libc::ENOENT));
    assert_eq!(errno(fs.mkdir_at(&root(), &removed, b"x", 0o755)), libc::ENOENT);
    assert_eq!(errno(fs.walk(&root(), &removed, b"x", false, Arrive::Looking)), libc::ENOENT);
}

#[test]
fn a_directory_that_is_closed_is_not_walked_through() {
    let fs = fs();
    let a = dir(&fs, &root(), ROOT_NID, "a");
    let b = dir(&fs, &root(), a.nid, "b");
    let f = file(&fs, &root(), b.nid, "f");
    let two = user(2);
    let set = |name: &[u8], value: &[u8]| {
        fs.setxattr(&root(), a.nid, name, value, XattrMode::Any).expect("root may")
    };
    for path in ["a/b/f", "a/./b/../b/f"] {
        assert_eq!(walk(&fs, &two, path).expect("open").nid(), f.nid);
        for nid in [a.nid, b.nid] {
            chmod(&fs, nid, 0o700);
            assert_eq!(errno(walk(&fs, &two, path)), libc::EACCES);
            assert_eq!(walk(&fs, &root(), path).expect("root").nid(), f.nid);
            chmod(&fs, nid, 0o755);
            assert_eq!(walk(&fs, &two, path).expect("open again").nid(), f.nid);
        }
    }
    // Owner all, user 2 nothing, group and others read and search.
    let entry = |tag: u8, perm: u8, id: u32| [&[tag, 0, perm, 0][..], &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let list = [(1, 7, none), (2, 0, 2), (4, 5, none), (16, 5, none), (32, 5, none)];
    let list = [vec![2, 0, 0, 0], list.map(|(tag, perm, id)| entry(tag, perm, id)).concat()].concat();
    set(b"system.posix_acl_access", &list);
    assert_eq!(errno(walk(&fs, &two, "a/b/f")), libc::EACCES);
    assert_eq!(walk(&fs, &user(3), "a/b/f").expect("others may").nid(), f.nid);
    chmod(&fs, f.nid, 0o600);
    let opened = |ctx: &Context| {
        let from = fs.root()?;
        match fs.walk(ctx, from, b"a/b/f", true, Arrive::Opening)? {
            Walked::There(at) => fs.open_at(ctx, at, OpenFlags::empty()),
            Walked::Link { .. } => Err(Error::Errno(libc::ELOOP)),
        }
    };
    assert_eq!(errno(opened(&user(3)).map(|_| ())), libc::EACCES);
    fs.release(opened(&root()).expect("root"), None);
    assert!(!fs.has_open_files());
}

/// Threads open, make, link and remove a few files by path: what is found is a file that can be opened.
#[test]
fn what_is_removed_beside_a_walk_is_found_or_not_found() {
    let fs = fs();
    let a = dir(&fs, &root(), ROOT_NID, "a");
    let at = walk(&fs, &root(), "a").expect("there");
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (fs, at) = (&fs, &at);
            scope.spawn(move || {
                for n in 0..2000 {
                    let (name, other) = ([b'f', b'0' + (n % 3) as u8], [b'f', b'0' + (n / 3 % 3) as u8]);
                    let done = match (n + thread) % 4 {
                        0 => fs.unlink_at(&root(), at, &name),
                        1 => fs.rename_at(&root(), (at, &name), (at, &other), RenameFlags::empty()),
                        2 => fs
                            .create_at(&root(), at, &name, 0o644, OpenFlags::READ_WRITE)
                            .map(|handle| fs.release(handle, None)),
                        _ => fs
                            .walk(&root(), at, &name, true, Arrive::Opening)
                            .and_then(|walked| match walked {
                                Walked::There(found) => fs.open_at(&root(), found, OpenFlags::empty()),
                                Walked::Link { .. } => Err(Error::Errno(libc::ELOOP)),
                            })
                            .map(|handle| fs.release(handle, None)),
                    };
                    if let Err(e) = done {
                        assert_eq!(e.errno(), libc::ENOENT, "thread {thread}, {n}");
                    }
                }
            });
        }
    });
    for name in [b"f0", b"f1", b"f2"] {
        // They may be gone already.
        let _ = fs.unlink(&root(), a.nid, name);
    }
    drop(at);
    assert!(!fs.has_open_files());
    fs.rmdir(&root(), ROOT_NID, b"a").expect("empty");
    fs.forget(a.nid, 1);
    assert!(fs.meta().space.entries().is_empty());
}

/// What a walk has reached and nothing holds: it may be removed, and its id given to another.
#[test]
fn what_has_lost_its_last_name_after_a_walk_gets_none_and_leads_nowhere() {
    let fs = fs();
    let (ctx, start) = (root(), fs.root().expect("there"));
    let reached = |path: &str| walk(&fs, &ctx, path).expect("there");

    let opened = fs.create(&ctx, ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("made").1;
    let f = reached("f");
    fs.unlink(&ctx, ROOT_NID, b"f").expect("there");
    assert_eq!(
        errno(fs.link_at(&ctx, &f, start, b"again")),
        libc::ENOENT,
        "it is open, and its end is under way"
    );
    fs.release(opened, None);
    fs.forget(f.nid(), 1);
    assert_eq!(errno(fs.link_at(&ctx, &f, start, b"again")), libc::ENOENT, "it is free");
    fs.syncfs().expect("nothing is left of it");

    let upper = dir(&fs, &ctx, ROOT_NID, "upper");
    dir(&fs, &ctx, upper.nid, "lower");
    let lower = reached("upper/lower");
    fs.rmdir(&ctx, upper.nid, b"lower").expect("empty");
    fs.rmdir(&ctx, ROOT_NID, b"upper").expect("empty");
    assert!(fs.walk(&ctx, &lower, b"..", false, Arrive::Looking).is_err(), "what was above it is gone");

    let target = [b'x'; 300];
    fs.symlink(&ctx, ROOT_NID, b"link", &target).expect("new");
    let link = reached("link");
    assert_eq!(fs.readlink_at(&link).expect("there"), target);
    fs.forget(link.nid(), 1);
    fs.unlink(&ctx, ROOT_NID, b"link").expect("there");
    assert_eq!(errno(fs.readlink_at(&link)), libc::ENOENT, "no damage is told");
}

/// As with a file of the kernel, which a path leads to for as long as a call has it.
#[test]
fn attributes_are_set_and_entries_read_of_what_has_gone_since_the_walk() {
    let fs = fs();
    let opening = |path: &str| match fs.walk(
        &root(),
        fs.root().expect("there"),
        path.as_bytes(),
        true,
        Arrive::Opening,
    ) {
        Ok(Walked::There(at)) => at,
        other => panic!("{path}: {other:?}"),
    };
    let set = SetAttr { mode: Some(0o600), size: Some(10), ..SetAttr::default() };
    let made = fs.mknod(&root(), ROOT_NID, b"f", 0o644, 0).expect("new");
    let f = opening("f");
    fs.forget(made.nid, 1);
    fs.unlink(&root(), ROOT_NID, b"f").expect("there");
    let attr = fs.setattr_at(&root(), f, &set).expect("held");
    assert_eq!((attr.nlink, attr.perm, attr.size), (0, 0o600, 10));

    let made = dir(&fs, &root(), ROOT_NID, "d");
    let d = opening("d");
    fs.forget(made.nid, 1);
    fs.rmdir(&root(), ROOT_NID, b"d").expect("empty");
    let handle = fs.open_at(&root(), d, OpenFlags::DIRECTORY).expect("held");
    fs.readdir(&handle, 2, &mut |entry| panic!("{entry:?}")).expect("nothing");
    fs.releasedir(handle);
    for nid in [attr.nid, made.nid] {
        assert_eq!(errno(fs.getattr(nid)), libc::ESTALE, "it is freed");
    }
}

/// Operations that let their locks go on the way find it so.
#[test]
fn what_goes_while_an_operation_holds_no_lock_is_neither_grown_nor_written_home() {
    let fs = fs();
    let made = dir(&fs, &root(), ROOT_NID, "d");
    let d = fs.meta.inode(made.nid).expect("there");
    fs.rmdir(&root(), ROOT_NID, b"d").expect("empty");
    for freed in [false, true] {
        fs.grow(&d, b"x").expect("who asks finds no directory any more");
        assert_eq!(d.holds.is_gone(), freed);
        fs.forget(made.nid, 1);
    }

    let (made, handle, _) = fs.create(&root(), ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("new");
    fs.write(&root(), &handle, 0, b"content", WriteFlags::empty()).expect("room");
    fs.release(handle, None);
    let f = fs.meta.inode(made.nid).expect("there");
    fs.unlink(&root(), ROOT_NID, b"f").expect("there");
    for there in [true, false] {
        assert_eq!(fs.log_content_held(&f), Ok(there));
        fs.forget(made.nid, 1);
    }
}
