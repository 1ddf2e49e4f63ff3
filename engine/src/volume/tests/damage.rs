//! Pages that are damaged in place while the journal holds what is to be done to them.

use super::*;

const KINDS: [Kind; 2] = [Kind::Mapped, Kind::Ssd];

/// Puts this in place of a block; what it was.
fn replace(sim: &SimMedia, block: u64, bytes: &[u8]) -> Vec<u8> {
    let device = sim.device();
    let read = vec![Request::read(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata)];
    let old = device.run(read).expect("memory").swap_remove(0).to_vec();
    let mut buf = IoBuf::zeroed(BLOCK_SIZE);
    buf.copy_from_slice(bytes);
    device.run(vec![Request::write(block, buf, Cause::Checkpoint)]).expect("memory");
    device.flush().expect("memory");
    old
}

fn pages(sim: &SimMedia) -> Vec<Vec<u8>> {
    let read = |n| Request::read(FIRST + n, IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata);
    let read = sim.device().run((0..PAGES).map(read).collect()).expect("memory");
    read.iter().map(|buf| buf.to_vec()).collect()
}

/// Servers come and go: each shows what is on all other pages, and leaves image and journal so that nothing is lost once
/// the page can be read.
#[test]
fn damage_in_front_of_what_is_to_be_redone_hides_that_page_alone() {
    for kind in KINDS {
        let sim = kind.make();
        let mounted = mount(kind.media(&sim), &options()).expect("clean");
        work(&sim, &mounted, 0, 8).expect("writable");
        mounted.unmount().expect("works");
        let mounted = mount(kind.media(&sim), &options()).expect("clean");
        for n in 8..13 {
            operate(mounted.store(), n).expect("writable");
        }
        mounted.store().commit_upto(mounted.store().tail(), Durability::Power).expect("memory");
        drop(mounted);
        // The first record begins with it.
        let hidden = writes(8)[0].0;
        let old = replace(&sim, FIRST + hidden, &[0x5a; BLOCK_SIZE]);
        let spoiled = pages(&sim);
        let states = oracle(13);
        let expected = states[13].as_ref().expect("there are pages");
        for server in 0..3 {
            let mounted = mount(kind.media(&sim), &options()).expect("readable");
            let why = mounted.store().failed().expect("it is read-only");
            assert!(why.contains("cannot be redone") && why.contains("run fsck"), "{kind:?}: {why}");
            for n in 0..PAGES {
                let page = bucket(mounted.store(), n);
                if n == hidden {
                    assert!(matches!(page, Err(Error::Corrupt { .. })), "{kind:?}, server {server}");
                    continue;
                }
                let page = page.unwrap_or_else(|e| panic!("{kind:?}, server {server}, page {n}: {e}"));
                for (place, counter) in expected[n as usize].iter().enumerate() {
                    let found: crate::format::U64 = page.read_as(BLOCK_HEADER_SIZE + place * 1000);
                    assert_eq!(found.get(), *counter, "{kind:?}, server {server}, page {n}");
                }
            }
            assert!(operate(mounted.store(), 13).is_err(), "{kind:?}");
            drop(mounted);
            assert!(pages(&sim) == spoiled, "{kind:?}: something was written home");
        }
        replace(&sim, FIRST + hidden, &old);
        recovered(kind, &sim, (13, 13)).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    }
}

#[test]
fn a_damaged_page_that_the_journal_has_whole_is_made_anew() {
    for kind in KINDS {
        let sim = kind.make();
        let mounted = mount(kind.media(&sim), &options()).expect("clean");
        for n in 0..5 {
            operate(mounted.store(), n).expect("writable");
        }
        mounted.store().commit_upto(mounted.store().tail(), Durability::Power).expect("memory");
        drop(mounted);
        for page in 0..PAGES {
            replace(&sim, FIRST + page, &[0x5a; BLOCK_SIZE]);
        }
        let mounted = mount(kind.media(&sim), &options()).expect("readable");
        assert_eq!(mounted.store().failed(), None, "{kind:?}");
        drop(mounted);
        recovered(kind, &sim, (5, 5)).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    }
}
