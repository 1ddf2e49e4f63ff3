//! The least ring that mkfs allows takes every operation, also where it is full.

use super::*;
use crate::format::JournalKind;
use crate::fsck;
use crate::journal::{Durability, ring_bytes};
use crate::mkfs::least_journal_slots;
use crate::pmem::HeapMemory;
use crate::volume::{AssembleOptions, ImageOptions, Media, RingMedia, Running, mount};

/// A default access list of so many users.
pub(super) fn long_list(users: u32) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, id: u32| {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&7u16.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    };
    entry(1, u32::MAX);
    (0..users).for_each(|user| entry(2, 1000 + user));
    entry(4, u32::MAX);
    entry(0x10, u32::MAX);
    entry(0x20, u32::MAX);
    list
}

/// What is large, on files of one name each.
fn operate(fs: &Vfs, round: u64) -> Result<()> {
    let (ctx, page) = (root(), crate::device::BLOCK_SIZE as u64);
    let name = |what: &str| format!("{what} {round}").into_bytes();
    let dir = fs.mkdir(&ctx, ROOT_NID, &name("dir"), 0o755)?.nid;
    fs.setxattr(&ctx, dir, b"system.posix_acl_default", &long_list(4000), XattrMode::Any)?;
    fs.mkdir(&ctx, dir, &[b'd'; 255], 0o755)?;
    fs.symlink(&ctx, dir, &[b'l'; 255], &[b't'; 4000])?;
    let (file, handle, _) = fs.create(&ctx, dir, &[b'f'; 255], 0o644, OpenFlags::READ_WRITE)?;
    fs.setxattr(&ctx, ROOT_NID, b"user.large", &vec![round as u8; 65_536], XattrMode::Any)?;
    for at in 0..700 {
        fs.write(&ctx, &handle, at * 2 * page, &[round as u8 + 1; 5000], WriteFlags::empty())?;
        if at % 50 == 0 {
            fs.fsync(&handle, false)?;
        }
    }
    fs.fsync(&handle, false)?;
    fs.fallocate(&ctx, &handle, FallocateMode::Collapse, 10 * page, 100 * page)?;
    fs.fallocate(&ctx, &handle, FallocateMode::Insert, 20 * page, 50 * page)?;
    fs.fallocate(&ctx, &handle, FallocateMode::PunchHole, 0, 500 * page)?;
    let (_, nameless) = fs.tmpfile(&ctx, dir, 0o600, OpenFlags::READ_WRITE)?;
    fs.release(nameless, None);
    for n in 0..400 {
        let long = format!("{n:0>200}").into_bytes();
        let (_, handle, _) = fs.create(&ctx, dir, &long, 0o644, OpenFlags::READ_WRITE)?;
        fs.release(handle, None);
        if n % 3 == 0 {
            fs.rename(&ctx, dir, &long, dir, &[b'f'; 255], RenameFlags::empty())?;
        }
    }
    fs.setattr(&ctx, file.nid, Some(&handle), &SetAttr { size: Some(100), ..SetAttr::default() })?;
    fs.fsync(&handle, false)?;
    fs.release(handle, None);
    fs.removexattr(&ctx, ROOT_NID, b"user.large")
}

/// A new image with the least ring of a kind.
fn least_media(kind: JournalKind) -> Media {
    let slots = least_journal_slots(kind);
    let device = Arc::new(MemoryDevice::new(32_768));
    let options = FormatOptions { journal: kind, journal_slots: Some(slots), ..FormatOptions::default() };
    format(&*device, &FormatOptions { sparse: true, ..options }).expect("allowed");
    let memory = Arc::new(HeapMemory::new(ring_bytes(slots).expect("small")));
    let ring = if kind == JournalKind::Ssd { RingMedia::Ssd(memory) } else { RingMedia::Mapped(memory) };
    Media { device, ring, staging_file: None, owner: None }
}

#[test]
fn the_least_ring_takes_every_operation() {
    for kind in [JournalKind::Ssd, JournalKind::Emulated] {
        let media = least_media(kind);
        for background in [false, true] {
            let options = ImageOptions { background, lanes: 2, ..ImageOptions::default() };
            let mounted = mount(media.clone(), &options).expect("clean");
            let journal = mounted.store().journal().expect("writable");
            assert!(journal.max_record_slots() >= LARGEST_RECORD);
            let options = AssembleOptions {
                data: DataOptions::with_memory(4 << 20),
                inodes: 256,
                background,
                ..AssembleOptions::default()
            };
            let running = Running::start(mounted.checkpointer(), &options).expect("whole");
            for round in 0..2 {
                operate(running.fs(), round + 2 * u64::from(background)).expect("everything fits");
            }
            running.stop().expect("everything fits");
            mounted.unmount().expect("everything fits");
        }
        let report = fsck::check(&media, &fsck::Options::default()).expect("an image");
        assert_eq!(report.issues, []);
    }
}

#[test]
fn a_window_is_refused_where_it_means_nothing() {
    let start = |kind, ms| {
        let mounted = mount(least_media(kind), &ImageOptions::default()).expect("clean");
        let durability = Durability::Window(std::time::Duration::from_millis(ms));
        Running::start(mounted.checkpointer(), &AssembleOptions { durability, ..AssembleOptions::default() })
            .map(drop)
            .map_err(|e| e.to_string())
    };
    for ms in [1, 100, 60_000] {
        assert_eq!(start(JournalKind::Ssd, ms), Ok(()));
    }
    for ms in [0, 60_001] {
        assert!(start(JournalKind::Ssd, ms).unwrap_err().contains("say 1ms to 60s"));
    }
    assert!(start(JournalKind::Emulated, 100).unwrap_err().contains("say durability=power"));
}
