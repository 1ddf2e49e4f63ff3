//! Random schedules of more threads.

use super::*;

const RUNS: usize = 1000;

/// Four threads go round the ring many times, while a fifth makes room.
fn laps(media: impl Fn() -> (Media, Arc<TestMemory>)) {
    let (asked, options) = Asked::with(options(4 * SLOTS, 0));
    let (media, memory) = media();
    let journal = Arc::new(Journal::start(media, options).expect("starts"));
    let over = Arc::new(AtomicBool::new(false));
    let room = {
        let (journal, over) = (journal.clone(), over.clone());
        thread::spawn(move || asked.checkpoint(&journal, || over.load(Ordering::SeqCst)))
    };
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let journal = journal.clone();
            thread::spawn(move || {
                for n in 0..12 {
                    let end = log(&journal, &vec![t; n * 30]);
                    if n % 3 == usize::from(t) % 3 {
                        journal.commit_upto(end, Durability::Power).expect("committed");
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    over.store(true, Ordering::SeqCst);
    (journal.need_checkpoint)();
    room.join().expect("no panic");
    journal.commit_upto(journal.tail(), Durability::Power).expect("committed");
    verify(&memory, &journal, journal.committed(DurabilityLevel::Power));
}

#[test]
fn shuttle_laps() {
    let mapped = || {
        let memory = Arc::new(TestMemory::new(4 * SLOTS));
        (Media::Mapped(memory.clone()), memory)
    };
    shuttle::check_random(move || laps(mapped), RUNS);
    let ssd = || {
        let staging = Arc::new(TestMemory::new(4 * SLOTS));
        let device = Arc::new(ModelDevice::new(4 * SLOTS));
        (Media::Ssd { staging: staging.clone(), device, start: 0 }, staging)
    };
    shuttle::check_random(move || laps(ssd), RUNS);
}

#[test]
fn shuttle_commits() {
    shuttle::check_random(|| commits_cover_what_is_sealed(mapped_model()), RUNS);
    shuttle::check_random(|| commits_cover_what_is_sealed(ssd_model()), RUNS);
}

#[test]
fn shuttle_settled() {
    shuttle::check_random(|| what_is_settled_is_there(mapped_model(), Durability::Power), RUNS);
    shuttle::check_random(|| what_is_settled_is_there(ssd_model(), Durability::Process), RUNS);
}

#[test]
fn shuttle_calls() {
    shuttle::check_random(|| calls_are_made(ssd_model()), RUNS);
    shuttle::check_random(|| a_failure_is_told_to_all(ssd_model()), RUNS);
    let behind = || {
        let staging = Arc::new(TestMemory::new(8 * SLOTS));
        let device = Arc::new(ModelDevice::new(8 * SLOTS));
        let media = Media::Ssd { staging, device, start: 0 };
        nobody_is_left_behind(Arc::new(Journal::start(media, options(8 * SLOTS, 0)).expect("starts")));
    };
    shuttle::check_random(behind, RUNS);
}

#[test]
fn shuttle_reuse() {
    shuttle::check_random(|| slots_are_reused_in_order(mapped_model()), RUNS);
    shuttle::check_random(|| slots_are_reused_in_order(ssd_model()), RUNS);
}

#[test]
fn shuttle_credits() {
    shuttle::check_random(credits_come_back, RUNS);
    shuttle::check_random(a_starving_taker_gets_room_from_a_checkpoint, RUNS);
    shuttle::check_random(a_failure_ends_every_wait, RUNS);
}
