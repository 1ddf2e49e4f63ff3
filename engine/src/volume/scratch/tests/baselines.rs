//! The needless requests of tmpfs with swap, one kind at a time: each is there when it was asked for, and what is read
//! is what was written.

use super::*;

fn scratch(baselines: &str, spill: u64) -> Scratch {
    let device = Arc::new(MemoryDevice::new(spill / PAGE)) as Arc<dyn BlockDevice>;
    Scratch::with(MEMORY, Some(device), |options| options.baselines = baselines.parse().expect("known"))
}

/// Reads of data so far: requests, and bytes.
fn reads(scratch: &Scratch) -> (u64, u64) {
    let counts = scratch.device.as_ref().expect("there is spill space").counters();
    let counts = counts.iter().filter(|count| matches!(count.cause, Cause::ReadMiss | Cause::ReadAhead));
    counts.fold((0, 0), |(requests, bytes), count| (requests + count.reads, bytes + count.read_bytes))
}

const PAGES: u64 = MEMORY / PAGE * 5 / 2;

#[test]
fn what_is_read_is_written_again_where_copies_are_lost() {
    let scratch = scratch("spill-clean-lost", 16 << 20);
    let file = scratch.files.create("/a").expect("made");
    write_all(&file, PAGES, 1);
    for _ in 0..3 {
        let (_, before) = scratch.moved();
        (0..PAGES).for_each(|page| check_page(&file, page, 1));
        let written = scratch.moved().1 - before;
        assert!(written >= PAGES * PAGE - MEMORY, "{written} bytes were written for a read of all");
    }
    let read = scratch.moved().0;
    write_all(&file, PAGES, 2);
    assert_eq!(scratch.moved().0, read, "overwriting has read");
    (0..PAGES).for_each(|page| check_page(&file, page, 2));
}

#[test]
fn what_is_overwritten_is_read_where_that_was_chosen() {
    for (baselines, together) in
        [("spill-read-before-overwrite", 1), ("spill-read-before-overwrite+spill-blind-readahead", 8)]
    {
        let scratch = scratch(baselines, 16 << 20);
        let file = scratch.files.create("/a").expect("made");
        write_all(&file, PAGES, 1);
        assert_eq!(reads(&scratch), (0, 0), "there was nothing");
        write_all(&file, PAGES, 2);
        let (requests, bytes) = reads(&scratch);
        // Of a cluster that was read for one page another may have gone again.
        let most = PAGES * PAGE * 11 / 10;
        assert!(bytes >= PAGES * PAGE - MEMORY && bytes <= most, "{bytes} bytes were read");
        assert!(requests <= (bytes / PAGE).div_ceil(together) + PAGES / 16, "{requests} for {bytes} bytes");
        (0..PAGES).for_each(|page| check_page(&file, page, 2));
        let written = scratch.moved().1;
        (0..PAGES).for_each(|page| check_page(&file, page, 2));
        assert_eq!(scratch.moved().1, written, "reading has written");
    }
}

#[test]
fn each_miss_reads_a_cluster_where_that_was_chosen() {
    let scratch = scratch("spill-blind-readahead", 16 << 20);
    let file = scratch.files.create("/a").expect("made");
    write_all(&file, PAGES, 1);
    // In order it costs little.
    (0..PAGES).for_each(|page| check_page(&file, page, 1));
    let (requests, bytes) = reads(&scratch);
    assert!(bytes <= PAGES * PAGE && requests <= PAGES / 6, "{requests} requests, {bytes} bytes");
    let mut at = 7;
    let wanted = 4 * PAGES;
    for _ in 0..wanted {
        at = (at * 5 + 3271) % PAGES;
        check_page(&file, at, 1);
    }
    let fetched = reads(&scratch).1 - bytes;
    assert!(fetched >= wanted * PAGE * 2, "{fetched} bytes were read for {}", wanted * PAGE);
    // Whole writes read nothing still.
    let before = reads(&scratch);
    write_all(&file, PAGES, 2);
    assert_eq!(reads(&scratch), before);
}

#[test]
fn with_all_of_them_full_spill_space_loses_nothing() {
    let all = "spill-clean-lost+spill-read-before-overwrite+spill-blind-readahead";
    for pages_of_file in [7, 5000] {
        let scratch = scratch(all, 4 << 20);
        full_and_again(&scratch, pages_of_file, ((4 << 20) + MEMORY / 2) / PAGE * 7 / 10);
    }
}
