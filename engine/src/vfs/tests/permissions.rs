//! Permissions, what they are inherited from, and the attributes that hold them.

use super::*;

#[test]
fn permissions_are_checked_on_every_way() {
    let fs = fs();
    let (one, two) = (user(1), user(2));
    let d = fs.mkdir(&one, ROOT_NID, b"d", 0o700).expect("all may");
    let f = file(&fs, &one, d.nid, "f");
    assert_eq!(errno(fs.lookup(&two, d.nid, b"f")), libc::EACCES);
    assert_eq!(errno(fs.mknod(&two, d.nid, b"g", libc::S_IFREG, 0)), libc::EACCES);
    assert_eq!(errno(fs.opendir(&two, d.nid)), libc::EACCES);
    assert_eq!(errno(fs.open(&two, f.nid, OpenFlags::WRITE_ONLY)), libc::EACCES);
    assert_eq!(errno(fs.mknod(&one, d.nid, b"dev", libc::S_IFBLK | 0o600, 1)), libc::EPERM);
    let set = |ctx: &Context, set| fs.setattr(ctx, f.nid, None, &set);
    assert_eq!(errno(set(&two, SetAttr { mode: Some(0o777), ..SetAttr::default() })), libc::EPERM);
    assert_eq!(errno(set(&one, SetAttr { uid: Some(2), ..SetAttr::default() })), libc::EPERM);
    assert_eq!(errno(set(&two, SetAttr { mtime: SetTime::At(5), ..SetAttr::default() })), libc::EPERM);
    // One of both is for the owner; both at once, as touch(1) does it, for who may write.
    assert_eq!(errno(set(&two, SetAttr { mtime: SetTime::Now, ..SetAttr::default() })), libc::EPERM);
    let both = SetAttr { atime: SetTime::Now, mtime: SetTime::Now, ..SetAttr::default() };
    assert_eq!(errno(set(&two, both)), libc::EACCES);
    assert_eq!(set(&one, SetAttr { mtime: SetTime::At(5), ..SetAttr::default() }).expect("owner").mtime, 5);
    set(&one, SetAttr { mode: Some(0o6755), ..SetAttr::default() }).expect("owner");
    assert_eq!(set(&one, SetAttr { gid: Some(1), ..SetAttr::default() }).expect("own group").perm, 0o755);
    fs.setattr(&root(), ROOT_NID, None, &SetAttr { mode: Some(0o1777), ..SetAttr::default() }).expect("root");
    let other = fs.mkdir(&one, ROOT_NID, b"other", 0o700).expect("all may").nid;
    fs.setattr(&root(), other, None, &SetAttr { gid: Some(77), ..SetAttr::default() }).expect("root");
    let given = fs.setattr(&one, other, None, &SetAttr { mode: Some(0o2700), ..SetAttr::default() });
    assert_eq!(given.expect("owner").perm, 0o700, "files of a group that is not his");
    file(&fs, &one, ROOT_NID, "s");
    assert_eq!(errno(fs.unlink(&two, ROOT_NID, b"s")), libc::EPERM);
    assert_eq!(errno(fs.rename(&two, ROOT_NID, b"s", ROOT_NID, b"t", RenameFlags::empty())), libc::EPERM);
    fs.unlink(&one, ROOT_NID, b"s").expect("its owner may");
    fs.access(&one, f.nid, 4).expect("may read");
    assert_eq!(errno(fs.access(&two, f.nid, 2)), libc::EACCES);
}

#[test]
fn setgid_directories_hand_their_group_down() {
    let fs = fs();
    let d = dir(&fs, &root(), ROOT_NID, "d");
    let set = SetAttr { mode: Some(0o2777), gid: Some(77), ..SetAttr::default() };
    assert_eq!(fs.setattr(&root(), d.nid, None, &set).expect("root").perm, 0o2777);
    let sub = dir(&fs, &user(5), d.nid, "sub");
    assert_eq!((sub.attr.gid, sub.attr.perm & 0o2000), (77, 0o2000));
    assert_eq!(file(&fs, &user(5), d.nid, "f").attr.gid, 77);
}

/// A thread that makes a file asks what the directory hands down, and locks it after that.
#[test]
fn lists_come_and_go_while_files_are_made() {
    let fs = fs();
    let d = dir(&fs, &root(), ROOT_NID, "d").nid;
    let list = least_ring::long_list(4000);
    std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..200 {
                fs.setxattr(&root(), d, b"system.posix_acl_default", &list, XattrMode::Any).expect("root");
                fs.removexattr(&root(), d, b"system.posix_acl_default").expect("just set");
            }
        });
        for n in 0..400 {
            let made = file(&fs, &root(), d, &n.to_string()).nid;
            match fs.getxattr(&root(), made, b"system.posix_acl_access") {
                Ok(own) => assert_eq!(own.len(), list.len()),
                Err(e) => assert!(matches!(e, Error::Errno(libc::ENODATA)), "{e}"),
            }
            dir(&fs, &root(), d, &format!("d{n}"));
            let (_, nameless) = fs.tmpfile(&root(), d, 0o600, OpenFlags::READ_WRITE).expect("made");
            fs.release(nameless, None);
        }
    });
}

/// How long the attributes are is known once the inode is locked.
#[test]
fn attributes_that_others_make_longer_refuse_nothing() {
    let fs = fs();
    let f = file(&fs, &root(), ROOT_NID, "f").nid;
    let set = |name: &[u8], value: &[u8]| fs.setxattr(&root(), f, name, value, XattrMode::Any);
    let long: Vec<u8> = (0..60_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..300 {
                set(b"user.b", &long).expect("room");
                fs.removexattr(&root(), f, b"user.b").expect("just set");
            }
        });
        for n in 0..1000 {
            set(b"user.a", &vec![n as u8; 1 + n % 30]).expect("room");
        }
    });
}

#[test]
fn writing_takes_setuid_away() {
    let fs = fs();
    let one = user(1);
    let (entry, handle, _) = fs.create(&one, ROOT_NID, b"f", 0o6755, OpenFlags::READ_WRITE).expect("made");
    fs.write(&one, &handle, 0, b"x", WriteFlags::empty()).expect("room");
    assert_eq!(fs.getattr(entry.nid).expect("there").perm, 0o755);
    fs.release(handle, None);
}

/// What unprivileged callers do to a file that is open for writing takes setuid away, and setgid where the group may
/// execute or is not theirs; root keeps both.
#[test]
fn whatever_changes_content_takes_setuid_away() {
    let fs = fs();
    let (entry, handle, _) = fs.create(&root(), ROOT_NID, b"f", 0o755, OpenFlags::READ_WRITE).expect("made");
    fs.write(&root(), &handle, 0, &[1; 9000], WriteFlags::empty()).expect("room");
    let other = file(&fs, &root(), ROOT_NID, "other");
    let from = fs.open(&root(), other.nid, OpenFlags::READ_WRITE).expect("there");
    fs.write(&root(), &from, 0, b"text", WriteFlags::empty()).expect("room");
    let set = |ctx: &Context, set| fs.setattr(ctx, entry.nid, Some(&handle), &set).map(drop);
    let allocate = |ctx: &Context, mode| fs.fallocate(ctx, &handle, mode, 0, 4096);
    let changes: [(&str, &dyn Fn(&Context) -> Result<()>); 7] = [
        ("write", &|c| fs.write(c, &handle, 0, b"x", WriteFlags::empty()).map(drop)),
        ("direct write", &|c| fs.write(c, &handle, 0, b"x", WriteFlags::DIRECT).map(drop)),
        ("truncate", &|c| {
            let size = fs.getattr(entry.nid)?.size - 1;
            set(c, SetAttr { size: Some(size), ..SetAttr::default() })
        }),
        ("allocate", &|c| allocate(c, FallocateMode::Allocate { keep_size: false })),
        ("punch", &|c| allocate(c, FallocateMode::PunchHole)),
        ("zero", &|c| allocate(c, FallocateMode::ZeroRange { keep_size: false })),
        ("copy_file_range", &|c| fs.copy_file_range(c, &from, 0, &handle, 0, 4).map(drop)),
    ];
    for (what, change) in changes {
        for (before, after, member) in [(0o6755, 0o755, 0o755), (0o6745, 0o745, 0o2745)] {
            let of_group = Context::with_groups(2, 2, vec![0]);
            for (caller, after) in [(root(), before), (user(1), after), (of_group, member)] {
                set(&root(), SetAttr { mode: Some(before), ..SetAttr::default() }).expect("root");
                change(&caller).expect(what);
                assert_eq!(fs.getattr(entry.nid).expect("there").perm, after, "{what}, uid {}", caller.uid);
            }
        }
    }
    fs.release(from, None);
    fs.release(handle, None);
}

/// By its owner to another group, and by whoever may: setgid stays for members of the group that it had, where that may not
/// execute.
#[test]
fn another_group_takes_setgid_away() {
    let fs = fs();
    let f = file(&fs, &user(1), ROOT_NID, "f").nid;
    let set = |ctx: &Context, set| fs.setattr(ctx, f, None, &set).map(|attr| attr.perm);
    let owner = |groups: &[u32]| Context::with_groups(1, 1, groups.to_vec());
    for (caller, before, after) in [
        (owner(&[8]), 0o6766, 0o766),
        (owner(&[7, 8]), 0o6766, 0o2766),
        (owner(&[7, 8]), 0o6776, 0o776),
        (root(), 0o6766, 0o2766),
        (root(), 0o6776, 0o776),
    ] {
        set(&root(), SetAttr { gid: Some(7), ..SetAttr::default() }).expect("root");
        set(&root(), SetAttr { mode: Some(before), ..SetAttr::default() }).expect("root");
        // A kernel says with each change of owners that the bits go.
        for kill_suidgid in [false, true] {
            let changed = set(&caller, SetAttr { gid: Some(8), kill_suidgid, ..SetAttr::default() });
            assert_eq!(changed.expect("one of his groups"), after, "{before:o} by {caller:?}");
            set(&root(), SetAttr { gid: Some(7), ..SetAttr::default() }).expect("root");
            set(&root(), SetAttr { mode: Some(before), ..SetAttr::default() }).expect("root");
        }
    }
}

#[test]
fn whatever_changes_a_program_takes_its_capability_away() {
    let fs = fs();
    let name = crate::xattr::CAPABILITY;
    let (entry, handle, _) = fs.create(&root(), ROOT_NID, b"f", 0o755, OpenFlags::READ_WRITE).expect("made");
    let nid = entry.nid;
    fs.setxattr(&root(), nid, b"user.other", b"stays", XattrMode::Any).expect("root");
    let has = || match fs.getxattr(&root(), nid, name) {
        Ok(value) => value == b"cap",
        Err(e) => e.errno() != libc::ENODATA,
    };
    let set = |set| fs.setattr(&root(), nid, None, &set).map(drop);
    let write = |flags| fs.write(&root(), &handle, 0, b"text", flags).map(drop);
    let other = file(&fs, &root(), ROOT_NID, "other");
    let from = fs.open(&root(), other.nid, OpenFlags::READ_WRITE).expect("there");
    fs.write(&root(), &from, 0, b"text", WriteFlags::empty()).expect("room");
    let allocate = FallocateMode::Allocate { keep_size: false };
    let changes: [(&str, bool, &dyn Fn() -> Result<()>); 9] = [
        ("write", true, &|| write(WriteFlags::empty())),
        ("direct write", true, &|| write(WriteFlags::DIRECT)),
        ("the kernel's cache", false, &|| write(WriteFlags::FROM_CACHE)),
        ("truncate", true, &|| set(SetAttr { size: Some(2), ..SetAttr::default() })),
        ("chown", true, &|| set(SetAttr { uid: Some(7), ..SetAttr::default() })),
        ("chmod", false, &|| set(SetAttr { mode: Some(0o750), ..SetAttr::default() })),
        ("fallocate", true, &|| fs.fallocate(&root(), &handle, allocate, 0, 8192)),
        ("copy_file_range", true, &|| fs.copy_file_range(&root(), &from, 0, &handle, 0, 4).map(drop)),
        ("O_TRUNC", true, &|| {
            let flags = OpenFlags::WRITE_ONLY | OpenFlags::TRUNCATE;
            fs.open(&root(), nid, flags).map(|handle| fs.release(handle, None))
        }),
    ];
    for (what, takes, change) in changes {
        fs.setxattr(&root(), nid, name, b"cap", XattrMode::Any).expect("root");
        change().expect(what);
        assert_eq!(has(), !takes, "{what}");
        change().expect(what);
        assert_eq!(fs.getxattr(&root(), nid, b"user.other").expect("it stays"), b"stays");
    }
    fs.release(from, None);
    fs.release(handle, None);
}

#[test]
fn attributes_of_every_name_space() {
    let fs = fs();
    let f = file(&fs, &user(1), ROOT_NID, "f");
    let set = |ctx: &Context, name: &[u8], value: &[u8], mode| fs.setxattr(ctx, f.nid, name, value, mode);
    let get = |ctx: &Context, name: &[u8]| fs.getxattr(ctx, f.nid, name);
    set(&user(1), b"user.a", b"1", XattrMode::Create).expect("owner");
    assert_eq!(errno(set(&user(1), b"user.a", b"2", XattrMode::Create)), libc::EEXIST);
    assert_eq!(errno(set(&user(1), b"user.b", b"2", XattrMode::Replace)), libc::ENODATA);
    assert_eq!(errno(set(&user(2), b"user.a", b"2", XattrMode::Any)), libc::EACCES);
    assert_eq!(errno(set(&user(1), b"trusted.a", b"2", XattrMode::Any)), libc::EPERM);
    assert_eq!(errno(set(&user(1), b"other.a", b"2", XattrMode::Any)), libc::EOPNOTSUPP);
    set(&root(), b"trusted.a", &[7; 20_000], XattrMode::Any).expect("root");
    assert_eq!(get(&root(), b"trusted.a").expect("set"), [7; 20_000]);
    assert_eq!(errno(get(&user(1), b"trusted.a")), libc::ENODATA);
    // Whom the kernel has let through has a capability for it.
    assert_eq!(get(&user(1).checked(), b"trusted.a").expect("set"), [7; 20_000]);
    set(&user(1).checked(), b"security.capability", b"c", XattrMode::Any).expect("checked");
    fs.removexattr(&user(1).checked(), f.nid, b"security.capability").expect("checked");
    let device = |ctx: &Context, name: &[u8]| fs.mknod(ctx, ROOT_NID, name, libc::S_IFCHR | 0o600, 7);
    assert_eq!(errno(device(&user(1), b"device")), libc::EPERM);
    device(&user(1).checked(), b"device").expect("checked");
    assert_eq!(fs.listxattr(&user(1), f.nid).expect("listed"), b"user.a\0");
    set(&root(), b"trusted.a", b"", XattrMode::Replace).expect("root");
    assert_eq!(get(&root(), b"trusted.a").expect("set"), b"");
    fs.removexattr(&root(), f.nid, b"trusted.a").expect("set");
    fs.removexattr(&user(1), f.nid, b"user.a").expect("set");
    assert_eq!(errno(fs.removexattr(&user(1), f.nid, b"user.a")), libc::ENODATA);
    assert_eq!(fs.getattr(f.nid).expect("there").blocks, 0);
    assert_eq!(errno(set(&root(), b"user.big", &[0; 65_537], XattrMode::Any)), libc::E2BIG);
}

#[test]
fn default_lists_are_inherited_and_chmod_moves_the_mask() {
    let list = |user: u16, named: u16, group: u16, mask: u16, other: u16| {
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in
            [(1u16, user, !0), (2, named, 9), (4, group, !0), (16, mask, !0), (32, other, !0u32)]
        {
            value.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
            value.extend(id.to_le_bytes());
        }
        value
    };
    let fs = fs();
    let d = dir(&fs, &user(1), ROOT_NID, "d");
    fs.setxattr(&user(1), d.nid, crate::acl::DEFAULT, &list(7, 6, 5, 7, 0), XattrMode::Any).expect("owner");
    let f = fs.mknod(&user(1), d.nid, b"f", libc::S_IFREG | 0o666, 0).expect("made");
    assert_eq!(f.attr.perm, 0o660);
    assert_eq!(fs.getxattr(&root(), f.nid, crate::acl::ACCESS).expect("inherited"), list(6, 6, 5, 6, 0));
    fs.access(&user(9), f.nid, 6).expect("named");
    assert_eq!(errno(fs.access(&user(8), f.nid, 4)), libc::EACCES);
    let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    fs.setattr(&user(1), f.nid, None, &set).expect("owner");
    assert_eq!(fs.getxattr(&root(), f.nid, crate::acl::ACCESS).expect("there"), list(6, 6, 5, 4, 0));
    assert_eq!(errno(fs.access(&user(9), f.nid, 2)), libc::EACCES);
    let sub = dir(&fs, &user(1), d.nid, "sub");
    fs.getxattr(&root(), sub.nid, crate::acl::DEFAULT).expect("handed on");
    assert_eq!(
        errno(fs.setxattr(&user(1), f.nid, crate::acl::ACCESS, b"nonsense", XattrMode::Any)),
        libc::EOPNOTSUPP
    );
}

/// Room is made where there is none: what no room would help is refused before.
#[test]
fn a_list_of_names_stays_one_that_can_be_read() {
    let fs = fs();
    let alloc = &fs.meta().alloc;
    let f = file(&fs, &root(), ROOT_NID, "f").nid;
    let name = |n: usize| format!("user.{n:0>245}").into_bytes();
    let set = |n, value: &[u8]| fs.setxattr(&root(), f, &name(n), value, XattrMode::Any);
    let most = 65_536 / 251;
    for n in 0..most {
        set(n, b"").expect("room");
    }
    let (entry, handle, _) = fs.create(&root(), ROOT_NID, b"g", 0o644, OpenFlags::READ_WRITE).expect("made");
    fs.write(&root(), &handle, 0, &[1; 1 << 20], WriteFlags::empty()).expect("room");
    fs.fsync(&handle, false).expect("memory");
    fs.release(handle, None);
    fs.unlink(&root(), ROOT_NID, b"g").expect("there");
    fs.forget(entry.nid, 1);
    let available = alloc.available();
    assert_eq!(errno(set(most, b"")), libc::ENOSPC, "a name too many");
    assert_eq!(errno(set(0, &[1; 10_000])), libc::ENOSPC, "more than its blocks hold");
    assert_eq!(alloc.available(), available, "room was made for nothing");
    alloc.make_room().expect("memory");
    assert!(alloc.available() > available, "there was some to be made");
    assert_eq!(fs.listxattr(&root(), f).expect("read").len(), most * 251);
    set(0, b"another").expect("no name more");
    fs.removexattr(&root(), f, &name(0)).expect("there");
    set(most, b"").expect("one in its place");
    assert_eq!(errno(set(0, b"")), libc::ENOSPC);
}

/// A list tells names apart by zeros, and no system call can ask for such a name. One that an image has all the same can be
/// read and removed.
#[test]
fn names_and_targets_have_no_zero_byte() {
    let fs = fs();
    let f = file(&fs, &root(), ROOT_NID, "f").nid;
    let name = b"user.a\0trusted.b";
    assert_eq!(errno(fs.setxattr(&root(), f, name, b"v", XattrMode::Any)), libc::EINVAL);
    assert!(fs.listxattr(&root(), f).expect("read").is_empty());
    assert_eq!(errno(fs.symlink(&root(), ROOT_NID, b"l", b"a\0b")), libc::EINVAL);
    assert_eq!(errno(fs.lookup(&root(), ROOT_NID, b"l")), libc::ENOENT);
    let inode = fs.meta().inode(f).expect("there");
    fs.change(&inode, 100, |h, _, draft| {
        let found = [(name.to_vec(), b"old".to_vec())];
        crate::xattr::stage(&fs.meta().alloc, h, &mut draft.image, &found).map(|()| true)
    })
    .expect("room");
    assert_eq!(fs.getxattr(&root(), f, name).expect("there"), b"old");
    fs.removexattr(&root(), f, name).expect("there");
    assert_eq!(errno(fs.getxattr(&root(), f, name)), libc::ENODATA);
}

/// As `fs.protected_hardlinks` has it, for callers that come by way of system calls.
#[test]
fn a_link_to_what_is_another_s_is_refused_where_links_are_protected() {
    let fs = fs();
    let made = |mode| {
        let name = format!("{mode:o}");
        let nid = fs.mknod(&user(1), ROOT_NID, name.as_bytes(), mode, 0).expect("made").nid;
        let set = SetAttr { mode: Some(mode & 0o7777), gid: Some(7), ..SetAttr::default() };
        fs.setattr(&root(), nid, None, &set).expect("root");
        nid
    };
    let link = |ctx: &Context, nid| fs.link(ctx, nid, ROOT_NID, b"new").map(drop);
    for (mode, may) in [
        (libc::S_IFREG | 0o666, true),
        (libc::S_IFREG | 0o2666, true),
        (libc::S_IFREG | 0o664, false),
        (libc::S_IFREG | 0o662, false),
        (libc::S_IFREG | 0o4666, false),
        (libc::S_IFREG | 0o2676, false),
        (libc::S_IFIFO | 0o666, false),
    ] {
        let nid = made(mode);
        let stranger = || user(2).protecting_links();
        if may {
            link(&stranger(), nid).expect("his to read and write");
            assert_eq!(errno(link(&stranger(), nid)), libc::EEXIST);
            fs.unlink(&root(), ROOT_NID, b"new").expect("linked");
        } else {
            assert_eq!(errno(link(&stranger(), nid)), libc::EPERM, "{mode:o}");
        }
        for ctx in [user(1).protecting_links(), root().protecting_links(), stranger().checked(), user(2)] {
            link(&ctx, nid).expect("owner, root, of whom the kernel has asked that, or nothing asks it");
            fs.unlink(&root(), ROOT_NID, b"new").expect("linked");
        }
    }
    let target = fs.symlink(&user(1), ROOT_NID, b"symlink", b"f").expect("made").nid;
    assert_eq!(errno(link(&user(2).protecting_links(), target)), libc::EPERM);
}
