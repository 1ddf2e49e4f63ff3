//! The allocator over an image in memory: exact counts, one owner a block, and nothing reused early.

use super::testing::{BEFORE_GROUPS, bits_set, end_quarantine, image};
use super::*;
use crate::lane;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Relaxed;

fn take(store: &Store, alloc: &Alloc, want: u32) -> Result<Extent> {
    let mut h = store.begin(10)?;
    let extent = alloc.allocate(&mut h, want, None, Class::Data, None)?;
    h.commit()?;
    Ok(extent)
}

fn free(store: &Store, alloc: &Alloc, extent: Extent, was_metadata: bool) -> Result<Position> {
    let mut h = store.begin(10)?;
    alloc.free(&mut h, extent, was_metadata)?;
    h.commit()
}

#[test]
fn an_aborted_operation_leaves_no_trace() {
    let store = image(100);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let mut h = store.begin(10).expect("writable");
    alloc.allocate(&mut h, 50, None, Class::Data, None).expect("room");
    assert_eq!(alloc.unused(), 49);
    drop(h);
    assert_eq!((alloc.unused(), alloc.statfs_free(), bits_set(&store)), (99, 99, 0));
}

#[test]
fn freed_blocks_wait_until_nothing_can_touch_them() {
    let store = image(100);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let (data, metadata) = (take(&store, &alloc, 5).expect("room"), take(&store, &alloc, 7).expect("room"));
    let first = free(&store, &alloc, data, false).expect("in use");
    let second = free(&store, &alloc, metadata, true).expect("in use");
    assert_eq!((alloc.unused(), alloc.statfs_free()), (87, 99));
    alloc.durable(first - 1);
    assert_eq!(alloc.unused(), 87);
    alloc.durable(second);
    assert_eq!(alloc.unused(), 92);
    alloc.head_passed(second - 1);
    assert_eq!(alloc.unused(), 92);
    alloc.head_passed(second);
    assert_eq!((alloc.unused(), alloc.statfs_free()), (99, 99));
}

#[test]
fn what_is_free_or_outside_cannot_be_freed() {
    let store = image(BLOCKS_PER_GROUP + 100);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let extent = take(&store, &alloc, 5).expect("room");
    let second_group = BEFORE_GROUPS + BLOCKS_PER_GROUP;
    let wrong = [
        (0, 1),
        (BEFORE_GROUPS, 1),
        (extent.start, 6),
        (second_group - 1, 2),
        (second_group, 1),
        (second_group + 99, 2),
        (u64::MAX, 1),
        (extent.start, 0),
        (extent.start, u32::MAX),
    ];
    for (start, len) in wrong {
        for was_metadata in [false, true] {
            let result = free(&store, &alloc, Extent { start, len }, was_metadata);
            assert!(matches!(result, Err(Error::Corrupt { .. })), "{start}+{len}: {result:?}");
        }
    }
    free(&store, &alloc, extent, false).expect("in use");
    assert!(free(&store, &alloc, extent, false).is_err(), "freed twice");
    assert!(free(&store, &alloc, extent, true).is_err(), "freed twice");
}

#[test]
fn an_operation_frees_what_it_has_allocated_and_nothing_twice() {
    let store = image(100);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let before = take(&store, &alloc, 5).expect("room");
    for was_metadata in [false, true] {
        let mut h = store.begin(10).expect("no journal");
        let part = Extent { start: before.start + 1, len: 2 };
        alloc.free(&mut h, part, was_metadata).expect("in use");
        let wrong = alloc.free(&mut h, before, was_metadata);
        assert!(matches!(wrong, Err(Error::Corrupt { .. })), "{wrong:?}");
    }
    let mut h = store.begin(10).expect("no journal");
    let made = alloc.allocate(&mut h, 3, None, Class::Metadata, None).expect("room");
    alloc.free(&mut h, made, true).expect("its own");
    assert!(alloc.free(&mut h, made, true).is_err(), "freed twice");
    alloc.free(&mut h, before, true).expect("in use");
    h.commit().expect("no journal");
    assert_eq!(bits_set(&store), 0);
    end_quarantine(&alloc);
    assert_eq!((alloc.unused(), alloc.statfs_free()), (99, 99));
}

/// Of a file in many pieces one record frees all: what it has freed is looked up, not looked through.
#[test]
fn of_many_frees_of_one_operation_none_is_done_twice() {
    let store = image(400);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let taken = take(&store, &alloc, 120).expect("room");
    let piece = |n: u64| Extent { start: taken.start + 3 * n, len: 2 };
    let mut h = store.begin(200).expect("no journal");
    for n in 0..40 {
        alloc.free(&mut h, piece(n), n % 2 == 0).expect("in use");
        for before in [n, n / 2, 0] {
            let again = alloc.free(&mut h, piece(before), true);
            assert!(matches!(again, Err(Error::Corrupt { .. })), "{again:?}");
        }
    }
    h.commit().expect("no journal");
    assert_eq!(bits_set(&store), 40);
}

#[test]
fn a_goal_is_kept_and_long_runs_are_found() {
    let store = image(2 * BLOCKS_PER_GROUP);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let first = take(&store, &alloc, 100).expect("room");
    let mut h = store.begin(10).expect("writable");
    let next = alloc.allocate(&mut h, 100, Some(first.end()), Class::Data, None).expect("room");
    assert_eq!(next, Extent { start: first.end(), len: 100 });
    h.commit().expect("no journal to fail");
    let long = take(&store, &alloc, 20_000).expect("room");
    assert_eq!(long.len, 20_000);
}

#[test]
fn a_full_image_makes_room_before_it_refuses_and_can_still_delete() {
    let store = Arc::new(image(400));
    let alloc = Alloc::load(&store).expect("a fresh image");
    let calls = Arc::new(AtomicU64::new(0));
    let (counted, emptied) = (Arc::clone(&calls), alloc.clone());
    alloc.set_make_room(Box::new(move || {
        counted.fetch_add(1, Relaxed);
        end_quarantine(&emptied);
        Ok(())
    }));
    let mut extents = Vec::new();
    while let Ok(extent) = take(&store, &alloc, 17) {
        extents.push(extent);
    }
    assert_eq!(alloc.statfs_available(), 0);
    assert_eq!(alloc.statfs_free(), alloc.unused());
    assert!(alloc.statfs_free() >= 4, "something is kept back");
    assert!(matches!(alloc.reserve_delayed(1, 0), Err(Error::Errno(libc::ENOSPC))));
    assert_eq!(calls.load(Relaxed), 0, "with nothing in quarantine there is no room to be made");
    let mut h = store.begin(10).expect("writable");
    alloc.allocate(&mut h, 1, None, Class::MakingRoom, None).expect("the reserve is for this");
    alloc.free(&mut h, extents[0], false).expect("in use");
    h.commit().expect("no journal to fail");
    assert_eq!(alloc.with_room(|| take(&store, &alloc, 1)).expect("room was made").len, 1);
    assert_eq!(calls.load(Relaxed), 1);
    for extent in &extents[1..] {
        free(&store, &alloc, *extent, false).expect("in use");
    }
    drop(alloc.reserve_delayed(300, 0).expect("room was made"));
    assert_eq!(calls.load(Relaxed), 2);
    end_quarantine(&alloc);
    assert_eq!(alloc.unused(), 397);
    assert_eq!(bits_set(&store), 2);
    assert_eq!(Alloc::load(&store).expect("the same image").unused(), 397);
}

#[test]
fn a_promise_is_kept_whatever_others_take() {
    let store = image(1000);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let mut promise = alloc.reserve_delayed(300, 0).expect("room");
    while take(&store, &alloc, 100).is_ok() {}
    let mut held = Vec::new();
    while promise.blocks() > 0 {
        held.push(alloc.allocate_volatile(64, 0, None, &mut promise).expect("promised"));
    }
    assert_eq!(held.iter().map(|volatile| volatile.extent().len).sum::<u32>(), 300);
    let before = alloc.unused();
    let mut first = held.remove(0);
    let rest = first.split_off(1).expect("more than one");
    let returned = rest.extent().len;
    rest.into_reservation(&mut promise);
    assert_eq!(promise.blocks(), u64::from(returned));
    let mut h = store.begin(10).expect("writable");
    alloc.log_allocation(&mut h, &first).expect("a good bitmap");
    h.commit().expect("no journal to fail");
    first.into_extent();
    drop(held);
    drop(promise);
    assert_eq!(alloc.unused(), before + 299);
    assert_eq!(alloc.unused(), alloc.statfs_free());
    assert_eq!(alloc.unused() + bits_set(&store), 999);
}

#[test]
fn trim_discards_what_is_free_and_leaves_it_free() {
    let store = image(2 * BLOCKS_PER_GROUP);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let extent = take(&store, &alloc, 100).expect("room");
    free(&store, &alloc, extent, false).expect("in use");
    let unused = alloc.unused();
    assert_eq!(alloc.trim(&**store.device(), 0..u64::MAX, 1).expect("memory does not fail"), unused);
    assert_eq!(alloc.unused(), unused);
}

#[test]
fn lanes_side_by_side_never_share_a_block() {
    let store = image(3 * BLOCKS_PER_GROUP);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let unused = alloc.unused();
    for _ in 0..3 {
        let mut owned: Vec<Extent> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|lane| {
                    let (store, alloc) = (&store, &alloc);
                    scope.spawn(move || {
                        lane::pin(Some(lane));
                        let mut owned = Vec::new();
                        for n in 0..2000u32 {
                            if n % 3 == 2 {
                                let extent = owned.swap_remove(n as usize * 7 % owned.len());
                                let end = free(store, alloc, extent, n % 2 == 0).expect("in use");
                                alloc.durable(end);
                                alloc.head_passed(end);
                            } else if let Ok(extent) = take(store, alloc, n % 31 + 1) {
                                owned.push(extent);
                            }
                        }
                        owned
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
        });
        owned.sort_by_key(|extent| extent.start);
        assert!(owned.windows(2).all(|pair| pair[0].end() <= pair[1].start), "a block has two owners");
        end_quarantine(&alloc);
        let used: u64 = owned.iter().map(|extent| u64::from(extent.len)).sum();
        assert_eq!((alloc.unused() + used, bits_set(&store)), (unused, used));
        assert_eq!(alloc.statfs_free(), alloc.unused());
        for extent in owned {
            free(&store, &alloc, extent, false).expect("in use");
        }
        end_quarantine(&alloc);
        assert_eq!((alloc.unused(), alloc.statfs_free(), bits_set(&store)), (unused, unused, 0));
    }
}

/// Files that grow by turns, a few blocks at a time: how many runs each has in the end.
fn runs_of_files_that_grow(
    alloc: &Alloc,
    files: usize,
    blocks: u32,
    ahead: impl Fn(u64) -> u32,
) -> Vec<usize> {
    const STEP: u32 = 16;
    let mut promise = alloc.reserve_delayed(files as u64 * u64::from(blocks), 0).expect("room");
    let mut held = Vec::new();
    let mut ends: Vec<Option<u64>> = vec![None; files];
    let mut runs = vec![0; files];
    for round in 0..blocks / STEP {
        for (end, runs) in ends.iter_mut().zip(&mut runs) {
            let mut left = STEP;
            while left > 0 {
                let room = ahead(u64::from(round * STEP));
                let volatile = alloc.allocate_volatile(left, room, *end, &mut promise).expect("promised");
                let extent = volatile.extent();
                *runs += usize::from(*end != Some(extent.start));
                *end = Some(extent.end());
                left -= extent.len;
                held.push(volatile);
            }
        }
    }
    runs
}

#[test]
fn files_that_grow_by_turns_get_few_runs_if_room_is_kept_ahead() {
    let store = image(2 * BLOCKS_PER_GROUP);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let torn = runs_of_files_that_grow(&alloc, 8, 2048, |_| 0);
    assert!(torn.iter().all(|runs| *runs == 128), "each by turns: {torn:?}");
    let whole =
        runs_of_files_that_grow(&alloc, 8, 2048, |blocks| if blocks < 16 { 0 } else { blocks as u32 });
    assert!(whole.iter().all(|runs| *runs <= 10), "twice as long each time: {whole:?}");
}

#[test]
fn room_kept_ahead_is_given_out_when_nothing_else_is_left() {
    let store = image(4000);
    let alloc = Alloc::load(&store).expect("a fresh image");
    let unused = alloc.unused();
    let mut promise = alloc.reserve_delayed(100, 0).expect("room");
    let kept: Vec<_> =
        (0..4).map(|_| alloc.allocate_volatile(10, 2048, None, &mut promise).expect("promised")).collect();
    let mut taken = 0;
    while let Ok(extent) = take(&store, &alloc, 100) {
        taken += u64::from(extent.len);
    }
    drop((kept, promise));
    assert_eq!(alloc.unused(), unused - taken);
    assert!(alloc.unused() < 200, "what was promised, held or kept back");
}
