//! Rings in the image that a newer build has written, and counters that cannot be counted on from: refused in words,
//! and left as they are.

use super::*;
use crate::format::{MAX_COUNT, RING_HEADER_COPY, RingHeader};
use crate::fsck;
use crate::fsck::Outcome as Mending;
use crate::journal::read_mapped_header;
use crate::pmem::PersistentMemory;
use zerocopy::IntoBytes;

/// An image of five operations with a ring of its own, killed or unmounted.
fn image(unclean: bool) -> SimMedia {
    let sim = Kind::Ssd.make();
    let mounted = mount(Kind::Ssd.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 0, 4).expect("writable");
    if unclean {
        drop(mounted)
    } else {
        mounted.unmount().expect("works")
    }
    sim
}

const VERSION: usize = std::mem::offset_of!(RingHeader, version);

/// Makes the headers of the ring in the image those of version 2.
fn renew_ring(sim: &SimMedia) {
    let device = sim.device();
    let start = superblock::read(device.as_ref()).expect("valid").ring_start.get();
    for block in [start, start + 1] {
        let read = vec![Request::read(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Journal)];
        let mut buf = device.run(read).expect("memory").swap_remove(0);
        buf[VERSION..VERSION + 4].copy_from_slice(&2u32.to_le_bytes());
        device.run(vec![Request::write(block, buf, Cause::Journal)]).expect("memory");
    }
    device.flush().expect("memory");
}

/// Makes the headers of the staging those of version 2.
fn renew_staging(sim: &SimMedia) {
    let staging = sim.pmem(0).expect("there from the start");
    for copy in [0, RING_HEADER_COPY] {
        staging.write(copy + VERSION, &2u32.to_le_bytes());
    }
}

fn refused_in_words(result: Result<()>, words: &str) {
    let Err(Error::Refused(why)) = result else { panic!("not refused: {words}") };
    assert!(why.contains(words) && !why.contains('\n'), "{why}");
}

#[test]
fn a_ring_in_the_image_of_a_newer_build_is_left_alone() {
    for (renew, words) in [
        (renew_ring as fn(&SimMedia), "the journal in the image has format version 2"),
        (renew_staging, "the journal's staging /dev/shm/narufs-07070707-"),
    ] {
        for unclean in [true, false] {
            let sim = image(unclean);
            renew(&sim);
            let before = sim.events();
            for discard_journal in [false, true] {
                let writer = ImageOptions { discard_journal, ..options() };
                let mounted = mount(Kind::Ssd.media(&sim), &writer).map(drop);
                refused_in_words(mounted, words);
            }
            let reader = ImageOptions { read_only: true, ..options() };
            match mount(Kind::Ssd.media(&sim), &reader) {
                Ok(_) if !unclean => {}
                read => refused_in_words(read.map(drop), "that of a newer narufs; use a newer narufs"),
            }
            for (repair, discard_journal) in [(false, false), (true, false), (true, true)] {
                let checks = fsck::Options { repair, discard_journal, ..fsck::Options::default() };
                match fsck::check(&Kind::Ssd.media(&sim), &checks) {
                    Ok(report) if unclean => {
                        let [issue] = &report.issues[..] else { panic!("{:?}", report.issues) };
                        assert!(matches!(issue.outcome, Mending::Left(_)), "{issue:?}");
                        assert!(issue.detail.contains(words), "{issue:?}");
                    }
                    // A check of a clean image has no use for staging.
                    Ok(report) if words.contains("staging") => assert!(report.issues.is_empty()),
                    checked => refused_in_words(checked.map(drop), words),
                }
            }
            assert_eq!(sim.events(), before, "{words}, unclean: {unclean}: nothing is written");
        }
    }
}

#[test]
fn a_superblock_whose_writes_cannot_be_counted_on_is_refused() {
    for (sequence, epoch, words) in
        [(u64::MAX - 1, 1, "the number of its writes"), (100, u64::MAX, "the number of mounts")]
    {
        for unclean in [true, false] {
            let sim = image(unclean);
            let mut sb = superblock::read(sim.device().as_ref()).expect("valid");
            (sb.sequence, sb.epoch) = (sequence.into(), epoch.into());
            superblock::write(sim.device().as_ref(), &mut sb).expect("memory");
            let before = sim.events();
            for read_only in [false, true] {
                let mounted = mount(Kind::Ssd.media(&sim), &ImageOptions { read_only, ..options() });
                refused_in_words(mounted.map(drop), words);
            }
            assert_eq!(sim.events(), before, "nothing is written");
            sb.sequence.set(u64::MAX);
            refused_in_words(
                superblock::write(sim.device().as_ref(), &mut sb),
                "the count of its writes is full",
            );
            assert_eq!(sim.events(), before, "nothing is written");
        }
    }
}

#[test]
fn a_ring_header_whose_counters_cannot_be_counted_on_is_none() {
    let sim = Kind::Mapped.make();
    mount(Kind::Mapped.media(&sim), &options()).map(drop).expect("made by mkfs");
    let memory = sim.pmem(0).expect("there from the start");
    let whole = read_mapped_header(memory.as_ref()).expect("just written");
    let changes: [fn(&mut RingHeader, u64); 3] =
        [|h, to| h.sequence = to.into(), |h, to| h.epoch = to.into(), |h, to| h.round = to.into()];
    for change in changes {
        // Odd, as the second copy's is.
        for (to, counts) in [(MAX_COUNT, true), (MAX_COUNT + 2, false), (u64::MAX, false)] {
            let mut header = whole;
            header.sequence = 1.into();
            change(&mut header, to);
            header.crc = crc32c::crc32c(&header.as_bytes()[4..]).into();
            memory.write(0, &[0; RING_HEADER_COPY]);
            memory.write(RING_HEADER_COPY, header.as_bytes());
            assert_eq!(read_mapped_header(memory.as_ref()).is_some(), counts, "{to}");
            let mounted = mount(Kind::Mapped.media(&sim), &options()).map(drop);
            if !counts {
                refused_in_words(mounted, "no valid ring header");
            }
        }
    }
}
