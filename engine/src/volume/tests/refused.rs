//! Journals that are not the image's: each is told apart, refused where it is needed, and made anew where not.

use super::*;
use crate::format::{RING_HEADER_SPACE, RING_MAGIC, RingHeader, Superblock};
use crate::journal::{init_mapped, read_mapped_header};
use crate::pmem::{HeapMemory, PersistentMemory};

#[test]
fn an_unclean_image_without_its_journal_is_refused_until_it_is_given_up() {
    let sim = Kind::Mapped.make();
    let mounted = mount(Kind::Mapped.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 0, 7).expect("writable");
    drop(mounted);
    let number = sim.add_pmem(Kind::Mapped.spec());
    let other = || {
        let ring = RingMedia::Mapped(sim.pmem(number).expect("just added"));
        Media { device: sim.device(), ring, staging_file: None, owner: None }
    };
    let Err(Error::Refused(why)) = mount(other(), &options()).map(drop) else { panic!("not refused") };
    assert!(why.contains("--discard-journal"), "{why}");
    let given_up = ImageOptions { discard_journal: true, ..options() };
    let mounted = mount(other(), &given_up).expect("what is lost is given up");
    assert_eq!(read(mounted.store()).expect("whole"), oracle(6)[6], "the images of the last round");
    assert!(mounted.store().failed().is_some(), "nothing is written before a check");
    mounted.unmount().expect("works");
    let mut sb = superblock::read(sim.device().as_ref()).expect("valid");
    assert_eq!(sb.state.get(), STATE_DAMAGED);
    assert!(sb.next_position.get() >= 1 << 42, "what the lost ring's records have written home is older");
    // As a check that finds nothing leaves it.
    sb.state.set(STATE_CLEAN);
    superblock::write(sim.device().as_ref(), &mut sb).expect("works");
    mount(other(), &options()).expect("clean, and its own ring").unmount().expect("works");
    // The old ring is foreign now; the image is clean, so that is no loss.
    let ring = RingMedia::Mapped(sim.pmem(0).expect("there from the start"));
    let media = Media { device: sim.device(), ring, staging_file: None, owner: None };
    mount(media, &options()).expect("made anew");
}

#[test]
fn an_older_journal_is_refused() {
    let sim = Kind::Mapped.make();
    let mounted = mount(Kind::Mapped.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 0, 2).expect("writable");
    let old = sim.pmem(0).expect("there");
    let mut bytes = vec![0; Kind::Mapped.spec().len];
    crate::pmem::PersistentMemory::read(old.as_ref(), 0, &mut bytes);
    work(&sim, &mounted, 2, 12).expect("writable");
    drop(mounted);
    crate::pmem::PersistentMemory::write(old.as_ref(), 0, &bytes);
    let Err(Error::Refused(why)) = mount(Kind::Mapped.media(&sim), &options()).map(drop) else {
        panic!("not refused")
    };
    assert!(why.contains("older than the image"), "{why}");
}

/// An image that was mounted `mounts` times, cleanly unmounted but for the last if `unclean`.
fn image(mounts: u64, unclean: bool) -> (SimMedia, Superblock) {
    let sim = Kind::Mapped.make();
    for mount_number in 1..=mounts {
        let mounted = mount(Kind::Mapped.media(&sim), &options()).expect("clean");
        if mount_number < mounts || !unclean {
            mounted.unmount().expect("works");
        }
    }
    let sb = superblock::read(sim.device().as_ref()).expect("valid");
    (sim, sb)
}

fn ring(image_uuid: &[u8; 16], ring_uuid: &[u8; 16], slots: u64) -> Arc<HeapMemory> {
    let memory = Arc::new(HeapMemory::new(ring_bytes(slots.max(64)).expect("small")));
    init_mapped(memory.as_ref(), image_uuid, ring_uuid, slots).expect("large enough");
    memory
}

/// What is found in the place of the image's ring, in what words, and whether a clean image goes on with a new
/// one.
fn absences(sb: &Superblock) -> Vec<(Arc<HeapMemory>, &'static str, bool)> {
    let slots = sb.ring_slots.get();
    let blank = || Arc::new(HeapMemory::new(ring_bytes(slots).expect("small")));
    let damaged = blank();
    damaged.write(100, b"something");
    let newer = blank();
    newer.write(std::mem::offset_of!(RingHeader, version), &2u32.to_le_bytes());
    newer.write(std::mem::offset_of!(RingHeader, magic), &RING_MAGIC.to_le_bytes());
    vec![
        (blank(), "is blank", true),
        (damaged, "no valid ring header", true),
        (ring(&[9; 16], &sb.ring_uuid, slots), "belongs to another image (09090909-", false),
        (ring(&sb.uuid, &[9; 16], slots), "another has replaced it", true),
        (ring(&sb.uuid, &sb.ring_uuid, slots - 16), "another size: 48 slots, the image's 64", true),
        (
            ring(&sb.uuid, &sb.ring_uuid, slots),
            "older than the image: of mount 0, the image of mount 3",
            true,
        ),
        (newer, "format version 2, that of a newer narufs", false),
    ]
}

#[test]
fn each_wrong_journal_is_told_apart() {
    for unclean in [true, false] {
        for which in 0..7 {
            let (sim, sb) = image(3, unclean);
            let (memory, words, goes_on) = absences(&sb).swap_remove(which);
            let before = sim.events();
            let media = || Media {
                device: sim.device(),
                ring: RingMedia::Mapped(Arc::clone(&memory) as _),
                staging_file: None,
                owner: None,
            };
            let mut header = [0; RING_HEADER_SPACE];
            memory.read(0, &mut header);
            let outcome = mount(media(), &options());
            if unclean || !goes_on {
                let Err(Error::Refused(why)) = outcome.map(drop) else { panic!("not refused: {words}") };
                assert!(why.contains(words) && !why.contains('\n'), "{why}");
                let mut after = [0; RING_HEADER_SPACE];
                memory.read(0, &mut after);
                assert!(sim.events() == before && after == header, "{words}: nothing is written");
            } else {
                outcome.unwrap_or_else(|e| panic!("{words}: {e}")).unmount().expect("works");
            }
            if unclean && goes_on {
                let given_up = ImageOptions { discard_journal: true, ..options() };
                mount(media(), &given_up).expect("given up").unmount().expect("works");
            }
            if !unclean {
                let reader = ImageOptions { read_only: true, ..options() };
                mount(media(), &reader).expect("a clean image needs no journal to be read");
            }
        }
    }
}

#[test]
fn an_older_image_is_told_from_an_older_journal() {
    let (sim, mut sb) = image(3, true);
    sb.epoch.set(1);
    superblock::write(sim.device().as_ref(), &mut sb).expect("memory");
    let Err(Error::Refused(why)) = mount(Kind::Mapped.media(&sim), &options()).map(drop) else {
        panic!("not refused")
    };
    assert!(why.contains("newer than the image: of mount 3, the image of mount 1"), "{why}");
}

/// Either copy of the superblock may be lost at any time: the other knows of the mount.
#[test]
fn a_lost_copy_of_the_superblock_takes_nothing_with_it() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        for copy in crate::format::SUPERBLOCK_BLOCKS {
            for fails in [false, true] {
                let sim = kind.make();
                mount(kind.media(&sim), &options()).expect("clean").unmount().expect("works");
                let mounted = mount(kind.media(&sim), &options()).expect("clean");
                work(&sim, &mounted, 0, 7).expect("writable");
                drop(mounted);
                let junk = crate::device::IoBuf::from_slice(&[7; 4096]);
                let request = crate::device::Request::write(copy, junk, crate::device::Cause::Superblock);
                if fails {
                    sim.lose(&[copy], false);
                } else {
                    sim.device().run(vec![request]).expect("memory");
                }
                let mounted = mount(kind.media(&sim), &options()).expect("it recovers");
                assert_eq!(read(mounted.store()).expect("whole"), oracle(7)[7], "copy {copy}, {fails}");
                mounted.unmount().expect("works");
            }
        }
    }
}

/// What an older build has left says of its mount in one copy alone.
#[test]
fn a_clean_image_whose_own_ring_was_mounted_since_is_refused_until_that_is_given_up() {
    let sim = Kind::Ssd.make();
    let media = || Kind::Ssd.media(&sim);
    mount(media(), &options()).expect("clean").unmount().expect("works");
    let clean = superblock::read(sim.device().as_ref()).expect("valid");
    let mounted = mount(media(), &options()).expect("clean");
    work(&sim, &mounted, 0, 7).expect("writable");
    drop(mounted);
    superblock::write_both(sim.device().as_ref(), &mut clean.clone()).expect("memory");
    for read_only in [false, true] {
        let how = ImageOptions { read_only, ..options() };
        let Err(Error::Refused(why)) = mount(media(), &how).map(drop) else { panic!("not refused") };
        assert!(why.contains("newer than the image") && why.contains("--discard-journal"), "{why}");
    }
    for repair in [false, true] {
        let how = crate::fsck::Options { repair, ..crate::fsck::Options::default() };
        let report = crate::fsck::check(&media(), &how).expect("no faults");
        assert_eq!(report.of(crate::fsck::IssueKind::RingMissing).count(), 1, "{:?}", report.issues);
    }
    let given_up = ImageOptions { discard_journal: true, ..options() };
    let mounted = mount(media(), &given_up).expect("given up");
    let epoch = mounted.store().superblock_on_media().epoch.get();
    assert!(epoch > clean.epoch.get() + 1, "slots of the lost mount may verify");
    mounted.unmount().expect("works");
    mount(media(), &options()).expect("clean").unmount().expect("works");
}

/// A backup that is put back twice below one ring: what each of the two has in it is no part of the other.
#[test]
fn a_ring_that_was_replaced_is_gone_on_with_in_a_mount_that_it_knows_nothing_of() {
    let kind = Kind::Mapped;
    let sim = kind.make();
    let mounted = || mount(kind.media(&sim), &options()).expect("clean");
    mounted().unmount().expect("works");
    let (device, len) = (sim.device(), BLOCKS as usize * BLOCK_SIZE);
    let whole = Request::read(0, IoBuf::zeroed(len), Cause::Metadata);
    let backup = device.run(vec![whole]).expect("memory").swap_remove(0);
    let sb = superblock::read(device.as_ref()).expect("valid");
    let ring = sim.pmem(0).expect("there from the start");
    init_mapped(ring.as_ref(), &sb.uuid, &[9; 16], sb.ring_slots.get()).expect("large enough");
    let first = mounted();
    work(&sim, &first, 0, 12).expect("writable");
    first.unmount().expect("works");
    device.run(vec![Request::write(0, backup, Cause::Metadata)]).expect("memory");
    device.flush().expect("memory");
    let second = mounted();
    work(&sim, &second, 0, 4).expect("writable");
    drop(second);
    recovered(kind, &sim, (4, 4)).expect("nothing of the first");
}

#[test]
fn a_first_header_is_that_of_a_ring_never_mounted() {
    let memory = ring(&[1; 16], &[2; 16], 64);
    let RingHeader { image_uuid, ring_uuid, epoch, head, slots, .. } =
        read_mapped_header(memory.as_ref()).expect("just made");
    assert_eq!((image_uuid, ring_uuid), ([1; 16], [2; 16]));
    assert_eq!((epoch.get(), head.get(), slots.get()), (0, 0, 64));
    assert!(init_mapped(&HeapMemory::new(4096), &[1; 16], &[2; 16], 64).is_err());
}
