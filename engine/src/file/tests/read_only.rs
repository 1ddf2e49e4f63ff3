//! A read-only mount of an image that was not unmounted shows what only the journal holds.

use super::mounted::Image;
use crate::device::{BlockDevice, Cause, IoBuf, Request};
use crate::format::ROOT_NID;
use crate::pmem::PersistentMemory;
use crate::vfs::{Context, OpenFlags, WriteFlags};
use crate::volume::ImageOptions;

const BLOCKS: u64 = 1024;

/// Everything on the media.
fn media_bytes(image: &Image) -> (Vec<u8>, Vec<u8>) {
    let read = Request::read(0, IoBuf::zeroed(BLOCKS as usize * 4096), Cause::Fsck);
    let device = image.device.run(vec![read]).expect("memory").iter().flat_map(|buf| buf.to_vec()).collect();
    let mut ring = vec![0; image.memory.len()];
    image.memory.read(0, &mut ring);
    (device, ring)
}

#[test]
fn a_reader_sees_absorbed_data_and_changes_nothing() {
    let image = Image::new(BLOCKS, 4096);
    let ctx = Context::root();
    let live = image.mount();
    let (entry, file, _) =
        live.fs().create(&ctx, ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("made");
    live.fs().write(&ctx, &file, 0, &[1; 20_000], WriteFlags::empty()).expect("room");
    live.fs().syncfs().expect("memory");
    live.fs().write(&ctx, &file, 5000, &[2; 600], WriteFlags::empty()).expect("room");
    live.fs().fsync(&file, false).expect("memory");
    assert!(crate::stats::Stats::of(live.fs()).expect("counted").data.syncs_absorbed > 0);
    drop(file);
    drop(live);
    let before = media_bytes(&image);
    let expected = [&[1; 5000][..], &[2; 600], &[1; 14_400]].concat();
    for read_only in [true, true, false] {
        let live = image.mount_with(&ImageOptions { read_only, ..ImageOptions::default() });
        assert_eq!(live.fs().lookup(&ctx, ROOT_NID, b"f").expect("there").nid, entry.nid);
        let file = live.fs().open(&ctx, entry.nid, OpenFlags::empty()).expect("there");
        let mut bytes = vec![0; 20_001];
        assert_eq!(live.fs().read(&file, 0, &mut bytes).expect("whole"), 20_000);
        assert!(bytes[..20_000] == expected, "read only: {read_only}");
        live.fs().release(file, None);
        drop(live);
        if read_only {
            assert!(media_bytes(&image) == before, "nothing was written");
        }
    }
}

#[test]
fn what_is_whole_is_shown_where_the_journal_is_damaged() {
    let image = Image::new(BLOCKS, 4096);
    let ctx = Context::root();
    let live = image.mount();
    for n in 0..20u8 {
        let name = format!("f{n}");
        let made = live.fs().create(&ctx, ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE);
        let (_, file, _) = made.expect("made");
        live.fs().write(&ctx, &file, 0, &[n + 1; 3000], WriteFlags::empty()).expect("room");
        live.fs().fsync(&file, false).expect("memory");
        live.fs().release(file, None);
    }
    drop(live);
    // A slot in the midst of what was committed.
    image.memory.write(4096 + 40 * 256 + 100, &[0xee; 50]);
    let before = media_bytes(&image);
    let live = image.mount();
    assert!(live.damage().is_some());
    let entry = live.fs().lookup(&ctx, ROOT_NID, b"f0").expect("before the damage");
    let file = live.fs().open(&ctx, entry.nid, OpenFlags::empty()).expect("there");
    let mut bytes = vec![0; 3000];
    assert_eq!(live.fs().read(&file, 0, &mut bytes).expect("whole"), 3000);
    assert_eq!(bytes, [1; 3000]);
    live.fs().release(file, None);
    drop(live);
    assert!(media_bytes(&image) == before, "nothing was written");
}
