//! Fresh images, and what is refused, in tiny geometry.

use super::*;
use crate::device::MemoryDevice;
use crate::format::{BlockKind, FORMAT_VERSION, checksum_seed};
use crate::store::verify;
use rustix::fs::{CWD, FileType, Mode};
use std::io::{Read, Write};

fn tiny() -> FormatOptions {
    FormatOptions { journal_slots: Some(64), double_write_blocks: Some(3), ..FormatOptions::default() }
}

#[test]
fn a_fresh_image_is_read_back_and_verifies() {
    let device = MemoryDevice::new(64);
    let made = format_cramped(&device, &tiny()).expect("64 blocks are enough");
    let sb = superblock::read(&device).expect("just made");
    assert_eq!(sb, made);
    let blocks = [
        (sb.nat_index_start.get(), BlockKind::NatIndex),
        (sb.orphan_root.get(), BlockKind::OrphanRoot),
        (sb.groups_start.get(), BlockKind::Bitmap),
        (sb.groups_start.get() + 1, BlockKind::Node),
        (sb.groups_start.get() + 2, BlockKind::Nat),
    ];
    for (block, kind) in blocks {
        let read = Request::read(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Fsck);
        let bufs = device.run(vec![read]).expect("memory");
        verify(checksum_seed(&sb.uuid), block, kind, &bufs[0]).expect("it was just written");
        assert!(verify(checksum_seed(&sb.uuid), block + 1, kind, &bufs[0]).is_err());
    }
}

#[test]
fn what_cannot_be_made_is_refused_with_the_size_it_takes() {
    let device = MemoryDevice::new(16);
    let Err(Error::Refused(why)) = format_cramped(&device, &tiny()) else { panic!("too small") };
    assert!(why.contains("needs 21 (84 KiB)"), "{why}");
    let device = MemoryDevice::new(64);
    format_cramped(&device, &tiny()).expect("64 blocks are enough");
    assert!(matches!(format_cramped(&device, &tiny()), Err(Error::Refused(_))));
    format_cramped(&device, &FormatOptions { force: true, ..tiny() }).expect("forced");
}

#[test]
fn other_images_are_refused_each_in_its_own_words() {
    let refused = |device: &MemoryDevice| match superblock::read(device) {
        Err(Error::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    };
    let device = MemoryDevice::new(64);
    assert!(refused(&device).contains("not a narufs image"));
    let mut sb = format_cramped(&device, &tiny()).expect("64 blocks are enough");
    sb.incompat = (1 << 63).into();
    superblock::write(&device, &mut sb).expect("memory");
    assert!(refused(&device).contains("features"));
    let why = format_cramped(&device, &tiny()).expect_err("there is an image");
    assert!(why.to_string().contains("--force"), "{why}");
    (sb.incompat, sb.version) = (0.into(), 9.into());
    superblock::write(&device, &mut sb).expect("memory");
    assert!(refused(&device).contains("version 9"));
    let why = format_cramped(&device, &tiny()).expect_err("there is an image");
    assert!(why.to_string().contains("--force"), "{why}");
    sb.version.set(0);
    superblock::write(&device, &mut sb).expect("memory");
    assert!(refused(&device).contains("the format version"));
    (sb.version, sb.blocks) = (FORMAT_VERSION.into(), 65.into());
    superblock::write(&device, &mut sb).expect("memory");
    assert!(refused(&device).contains("truncated"));
}

#[test]
fn a_ring_on_which_something_would_not_fit_is_refused_with_the_least_size() {
    for kind in [JournalKind::Ssd, JournalKind::Pmem, JournalKind::Emulated] {
        let device = MemoryDevice::new(4096);
        let of =
            |slots| FormatOptions { journal: kind, journal_slots: Some(slots), ..FormatOptions::default() };
        let least = least_journal_slots(kind);
        format(&device, &of(least)).expect("just large enough");
        let device = MemoryDevice::new(4096);
        let Err(Error::Refused(why)) = format(&device, &of(least - 16)) else { panic!("too small") };
        assert!(why.contains(&format!("takes {} KiB", least / 4)) && !why.contains('\n'), "{why}");
    }
}

#[test]
fn what_a_file_holds_is_told_by_its_beginning() {
    let dir = tempfile::tempdir().expect("a place");
    let at = dir.path().join("image");
    let holds = |bytes: &[u8]| {
        std::fs::write(&at, bytes).expect("room");
        held(&at).expect("it can be read")
    };
    assert_eq!(held(&at).expect("it is looked for"), Held::Nothing);
    assert_eq!(
        (holds(&[]), holds(&[0; 5000]), holds(b"letters")),
        (Held::Nothing, Held::Nothing, Held::Other)
    );
    let device = MemoryDevice::new(64);
    format_cramped(&device, &tiny()).expect("64 blocks are enough");
    let blocks = device.run(vec![Request::read(0, IoBuf::zeroed(2 * BLOCK_SIZE), Cause::Superblock)]);
    let mut start = blocks.expect("memory")[0].to_vec();
    assert_eq!((holds(&start), holds(&start[..1000])), (Held::Image, Held::Image));
    // One copy is rubbish, and the other damaged.
    start[..BLOCK_SIZE].fill(7);
    start[BLOCK_SIZE + 100] ^= 1;
    assert_eq!((holds(&start), holds(&start[..BLOCK_SIZE])), (Held::Image, Held::Other));
    assert!(held(dir.path()).is_err(), "a directory cannot be read");
    let pipe = dir.path().join("pipe");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).expect("room");
    let mut ends = std::fs::File::options().read(true).write(true).open(&pipe).expect("it is ours");
    ends.write_all(b"to another").expect("room");
    for other in [pipe.as_path(), Path::new("/dev/null")] {
        let why = held(other).expect_err("it is not looked into").to_string();
        assert!(why.contains("neither a file nor a block device"), "{why}");
    }
    let mut bytes = [0; 10];
    ends.read_exact(&mut bytes).expect("nobody has taken them");
}
