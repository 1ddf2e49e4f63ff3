//! What lies in the double-write area once a repair is through.

use super::*;
use crate::device::BLOCK_SIZE;
use crate::format::{DoubleWriteHeader, JournalKind, Nid, checksum_seed};
use crate::mkfs::format;
use crate::vfs::{Context, FileHandle, OpenFlags, Vfs, WriteFlags};

const SLOTS: u64 = 1 << 14;
/// Files without content: so many that their inodes take more than one segment.
const FILES: u64 = 2200;
/// Long enough that an fsync writes it in place.
const LONG: usize = 32 * BLOCK_SIZE;

fn write(fs: &Vfs, file: &FileHandle, byte: u8) {
    fs.write(&Context::root(), file, 0, &vec![byte; LONG], WriteFlags::empty()).expect("room");
    fs.fsync(file, false).expect("memory");
}

/// An image with two files in its root, the inodes of which are made last, and their numbers.
fn unmounted() -> (Made, [Nid; 2]) {
    let device = Arc::new(MemoryDevice::new(6000));
    let options = FormatOptions {
        journal: JournalKind::Emulated,
        journal_slots: Some(SLOTS),
        double_write_blocks: Some(400),
        ..FormatOptions::default()
    };
    format(&*device, &options).expect("large enough");
    let ring = Arc::new(HeapMemory::new(ring_bytes(SLOTS).expect("small")));
    let made = Made { device, ring, ..made() };
    let nids = on_mount(made.media(), true, |fs| {
        let ctx = Context::root();
        let dir = fs.mkdir(&ctx, ROOT_NID, b"dir", 0o755).expect("room").nid;
        for n in 0..FILES {
            fs.mknod(&ctx, dir, n.to_string().as_bytes(), libc::S_IFREG | 0o600, 0).expect("room");
        }
        [b"one", b"two"].map(|name| {
            let (entry, file, _) =
                fs.create(&ctx, ROOT_NID, name, 0o644, OpenFlags::READ_WRITE).expect("room");
            write(fs, &file, name[0]);
            fs.release(file, None);
            entry.nid
        })
    });
    (made, nids)
}

/// The homes of the images of each segment of the area.
fn segments(made: &Made) -> Vec<Vec<u64>> {
    let sb = superblock::read(&*made.device).expect("an image");
    let area = sb.dw_start.get()..sb.dw_start.get() + sb.dw_blocks.get();
    let read = |at: u64| Request::read(at, IoBuf::zeroed(BLOCK_SIZE), Cause::Fsck);
    let blocks = made.device.run(area.clone().map(read).collect()).expect("memory");
    let seed = checksum_seed(&sb.uuid);
    let found = area.zip(&blocks).filter_map(|(at, bytes)| {
        let (_, entries) = DoubleWriteHeader::find(seed, at, bytes)?;
        Some(entries.map(|entry| entry.block.get()).collect())
    });
    found.collect()
}

#[test]
fn what_a_repair_has_mended_stays_so_where_the_journal_is_given_up_later() {
    let (made, [one, two]) = unmounted();
    let mut inodes = Vec::new();
    made.damage(|tool| inodes.extend([one, two].map(|nid| tool.place(nid).0)));
    let segments_before = segments(&made);
    assert!(segments_before.len() > 1);
    assert!(inodes.iter().all(|block| segments_before[1..].iter().flatten().any(|home| home == block)));
    made.damage(|tool| {
        let block = tool.root(one)[0].block;
        tool.edit_run(two, |run| run.block = block);
    });
    let report = made.repair();
    assert_eq!((report.status(), report.of(IssueKind::BlockTwoOwners).count()), (1, 1), "{report:#?}");
    assert_eq!(segments(&made), Vec::<Vec<u64>>::new());
    let (old, new) = (b'o', [b'O', b'T']);
    on_mount(made.media(), false, |fs| {
        for (nid, byte) in [one, two].into_iter().zip(new) {
            let file = fs.open(&Context::root(), nid, OpenFlags::READ_WRITE).expect("it is there");
            let mut first = [0];
            assert_eq!((fs.read(&file, 0, &mut first), first), (Ok(1), [old]));
            write(fs, &file, byte);
            fs.release(file, None);
        }
    });
    let made = Made { ring: Arc::new(HeapMemory::new(made.ring.len())), ..made };
    let giving_up = Options { discard_journal: true, ..repairing() };
    let report = check(&made.media(), &giving_up).expect("an image");
    assert_eq!((report.status(), report.issues.len()), (1, 1), "{:#?}", report.issues);
    on_mount(made.media(), true, |fs| {
        for (nid, byte) in [one, two].into_iter().zip(new) {
            let file = fs.open(&Context::root(), nid, OpenFlags::empty()).expect("it is there");
            let mut bytes = vec![0; LONG];
            assert_eq!(fs.read(&file, 0, &mut bytes), Ok(LONG));
            assert!(bytes.iter().all(|found| *found == byte), "{}", bytes[0]);
            fs.release(file, None);
        }
    });
}
