//! Where bytes go that are appended, or are not though the file was opened for that.

use crate::support::{Aligned, BLOCK, pattern, served_with};
use narufs_fuse::Caching;
use narufs_fuse::mount::{Io, Permissions};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::fs::{self, File};
use std::io::{IoSlice, Write};

/// RWF_NOAPPEND: a write to a file opened for appending goes where it says (Linux 6.9).
const NO_APPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);

/// Every way in which a write goes past the kernel's cache, and one that does not.
const WAYS: [(Io, Permissions, OFlags); 5] = [
    (Io::Auto, Permissions::Kernel, OFlags::WRONLY),
    (Io::Auto, Permissions::Kernel, OFlags::RDWR),
    (Io::Auto, Permissions::Server, OFlags::RDWR.union(OFlags::DIRECT)),
    (Io::Cached, Permissions::Kernel, OFlags::RDWR.union(OFlags::DIRECT)),
    (Io::Direct, Permissions::Kernel, OFlags::RDWR),
];

fn with_each_way(test: impl Fn(&mut File, &std::path::Path)) {
    for (io, permissions, way) in WAYS {
        let m = served_with(Caching::Exclusive, |options| {
            options.io = io;
            options.permissions = Some(permissions);
        });
        let path = m.at("log");
        let flags = OFlags::CREATE | OFlags::APPEND | way;
        test(&mut File::from(open(&path, flags, Mode::from(0o600)).unwrap()), &path);
    }
}

fn an_append_that_is_not_to_be_one_goes_where_it_says() {
    with_each_way(|log, path| {
        let blocks = [1, 2, 3].map(|byte| Aligned::of(&[byte; BLOCK as usize]));
        log.write_all(blocks[0].bytes()).unwrap();
        match pwritev2(&*log, &[IoSlice::new(blocks[1].bytes())], 0, NO_APPEND) {
            Err(Errno::OPNOTSUPP) => return,
            written => assert_eq!(written, Ok(BLOCK as usize)),
        }
        log.write_all(blocks[2].bytes()).unwrap();
        assert!(fs::read(path).unwrap() == [blocks[1].bytes(), blocks[2].bytes()].concat());
    });
}

/// The kernel sends one append as several requests, which may be served in any order.
fn a_long_append_stays_in_one_piece() {
    with_each_way(|log, path| {
        let data = pattern(7 << 20, 5);
        let data = Aligned::of(&data);
        for _ in 0..4 {
            log.write_all(data.bytes()).unwrap();
        }
        assert!(fs::read(path).unwrap() == data.bytes().repeat(4));
    });
}

on_each_transport!(an_append_that_is_not_to_be_one_goes_where_it_says, a_long_append_stays_in_one_piece,);
