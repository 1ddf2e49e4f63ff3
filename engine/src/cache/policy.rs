//! What eviction is worth: hits of the pool, of least-recently-used and of the plain clock, under the same accesses.
//! `NARUFS_SHOW=1` prints the table of [`super::evict`].

use super::{FramePool, FrameState, PageIndex, Use};
use crate::cache::PageId;
use std::collections::{BTreeMap, HashMap};

/// A page of no file in particular.
const PAGE: PageId = PageId { nid: 1, generation: 1, page: 0 };

const FRAMES: usize = 1024;

struct Here {
    pool: FramePool,
    index: PageIndex,
}

impl Here {
    fn new() -> Here {
        Here { pool: FramePool::new(FRAMES).expect("small"), index: PageIndex::default() }
    }

    fn access_by(&self, page: u64, by: Use) -> bool {
        let slot = self.index.slot(page, &self.pool);
        if let Some(found) = self.pool.find(slot, by) {
            if by == Use::ByKernel {
                found.lend();
            }
            return true;
        }
        let fresh = self.pool.take().expect("all are clean");
        let found = fresh.publish(slot, PAGE, FrameState::MAPPED, 0..0).expect("one thread");
        if by == Use::ByKernel {
            found.lend();
        }
        false
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.index.each(0..u64::MAX, &mut |_, slot| {
            self.pool.remove(slot);
        });
    }
}

/// The plain clock: a bit for each frame, set when a page comes in and with each use.
#[derive(Default)]
struct Clock {
    pages: Vec<(u64, bool)>,
    at: HashMap<u64, usize>,
    hand: usize,
}

impl Clock {
    fn access(&mut self, page: u64) -> bool {
        if let Some(at) = self.at.get(&page) {
            self.pages[*at].1 = true;
            return true;
        }
        if self.pages.len() < FRAMES {
            self.at.insert(page, self.pages.len());
            self.pages.push((page, true));
            return false;
        }
        while std::mem::take(&mut self.pages[self.hand].1) {
            self.hand = (self.hand + 1) % FRAMES;
        }
        self.at.remove(&self.pages[self.hand].0);
        self.pages[self.hand] = (page, true);
        self.at.insert(page, self.hand);
        self.hand = (self.hand + 1) % FRAMES;
        false
    }
}

#[derive(Default)]
struct Lru {
    last: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    now: u64,
}

impl Lru {
    fn access(&mut self, page: u64) -> bool {
        self.now += 1;
        let before = self.last.insert(page, self.now);
        self.order.insert(self.now, page);
        if let Some(before) = before {
            self.order.remove(&before);
        } else if self.last.len() > FRAMES {
            let (_, oldest) = self.order.pop_first().expect("as many as pages");
            self.last.remove(&oldest);
        }
        before.is_some()
    }
}

/// Numbers that look like chance, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Of `end` numbers, the lower ones more often: the first quarter gets three quarters, again and again.
    fn skewed(&mut self, end: u64) -> u64 {
        let mut end = end;
        while end > 4 && self.below(4) > 0 {
            end /= 4;
        }
        self.below(end)
    }
}

/// Accesses, and which of them count.
type Trace = Vec<(u64, bool)>;

fn hot_set_beside_a_scan() -> Trace {
    let mut numbers = Numbers(1);
    let mut trace: Trace = (0..4096).map(|_| (numbers.below(512), false)).collect();
    // Each page of the hot set about once for 1,500 pages of the scan.
    let beside = (0..40_000).flat_map(|scanned| [(1 << 20 | scanned, false), (u64::MAX, true)]);
    trace.extend(beside.filter_map(|(page, counts)| match page {
        u64::MAX => (numbers.below(3) == 0).then(|| (numbers.below(512), counts)),
        _ => Some((page, counts)),
    }));
    trace
}

fn hot_set_after_a_scan() -> Trace {
    let mut numbers = Numbers(2);
    let mut trace: Trace = (0..8192).map(|_| (numbers.below(800), false)).collect();
    trace.extend((0..10 * FRAMES as u64).map(|page| (1 << 20 | page, false)));
    trace.extend((0..800).map(|page| (page, true)));
    trace
}

fn in_a_loop(pages: u64) -> Trace {
    (0..20 * pages).map(|at| (at % pages, at > 4 * pages)).collect()
}

fn skewed() -> Trace {
    let mut numbers = Numbers(3);
    (0..200_000).map(|at| (numbers.skewed(16 * FRAMES as u64), at > 20_000)).collect()
}

fn uniform() -> Trace {
    let mut numbers = Numbers(4);
    (0..100_000).map(|at| (numbers.below(FRAMES as u64 * 5 / 4), at > 10_000)).collect()
}

fn another_hot_set() -> Trace {
    let mut numbers = Numbers(5);
    let first: Vec<_> = (0..50_000).map(|_| (numbers.below(900), false)).collect();
    let second = (0..50_000).map(|_| (1 << 20 | numbers.below(900), true));
    first.into_iter().chain(second).collect()
}

fn hits(trace: &Trace, mut access: impl FnMut(u64) -> bool) -> u64 {
    let (mut hits, mut of) = (0, 0);
    for &(page, counts) in trace {
        let hit = access(page);
        hits += u64::from(hit && counts);
        of += u64::from(counts);
    }
    (hits * 1000 / of + 5) / 10
}

#[test]
fn hits_are_those_of_the_table() {
    let table = [
        ("a hot half of the frames beside a pass over 40 times as many", hot_set_beside_a_scan(), 98),
        ("four fifths of the frames, after a pass over 10 times as many", hot_set_after_a_scan(), 98),
        ("in a loop over 5/4 of the frames", in_a_loop(FRAMES as u64 * 5 / 4), 60),
        ("in a loop over 5/2", in_a_loop(FRAMES as u64 * 5 / 2), 0),
        ("at random, skewed, over 16 times as many", skewed(), 55),
        ("at random over 5/4", uniform(), 79),
        ("nine tenths, then another nine tenths", another_hot_set(), 94),
    ];
    for (name, trace, least) in table {
        let (mut lru, mut clock, here) = (Lru::default(), Clock::default(), Here::new());
        let row = [
            hits(&trace, |page| lru.access(page)),
            hits(&trace, |page| clock.access(page)),
            hits(&trace, |page| here.access_by(page, Use::Yes)),
        ];
        if std::env::var_os("NARUFS_SHOW").is_some() {
            println!("//! | {name} | {} | {} | {} |", row[0], row[1], row[2]);
        }
        assert!(row[2] >= least, "{name}: {row:?}, {least} expected");
    }
}

#[test]
fn what_the_kernel_has_goes_first_unless_it_asks_again() {
    let here = Here::new();
    for used_before in [false, true] {
        (0..FRAMES as u64 / 2).for_each(|page| assert_eq!(here.access_by(page, Use::Yes), used_before));
    }
    for page in 10_000..10_000 + 4 * FRAMES as u64 {
        here.access_by(page, Use::ByKernel);
    }
    let stayed = (0..FRAMES as u64 / 2).filter(|page| here.access_by(*page, Use::Yes)).count();
    assert_eq!(stayed, FRAMES / 2, "what the kernel has was kept instead");
    // The kernel asks again for what it was given not long ago: it has not kept it.
    let here = Here::new();
    for page in (0..20 * FRAMES as u64).map(|at| at % 900) {
        here.access_by(page, Use::ByKernel);
    }
    assert!((0..900).all(|page| here.access_by(page, Use::ByKernel)), "less than there are frames");
    let mut again = 0;
    for page in (0..20 * 800).map(|at| at % 800) {
        again += u64::from(here.access_by(10_000 + page, Use::ByKernel));
    }
    assert!(again > 10 * 800, "{again} hits");
}

#[test]
fn read_ahead_and_parts_of_a_page_are_no_use() {
    let here = Here::new();
    for page in 0..8 * FRAMES as u64 {
        let slot = here.index.slot(page, &here.pool);
        let flags = FrameState::MAPPED | FrameState::AHEAD;
        drop(here.pool.take().expect("clean").publish(slot, PAGE, flags, 0..0));
        drop(here.pool.find(slot, Use::Yes));
        drop(here.pool.find(slot, Use::No));
        assert!(here.pool.glance(slot, Use::No).is_some());
    }
    assert_eq!(here.pool.stats().hot, 0);
}

#[test]
fn indexes_are_paid_for_with_frames() {
    let here = Here::new();
    let frames = here.pool.len();
    // A page of each leaf.
    for leaf in 0..2000 {
        here.access_by(leaf * 64, Use::Yes);
    }
    let bytes = here.index.bytes();
    assert!(bytes >= 2000 * 256 && here.pool.index_bytes() == bytes);
    let (gone, want) = (frames - here.pool.len(), (bytes / 4096).min(FRAMES / 8));
    assert!((want..=FRAMES / 8).contains(&gone) && gone <= want + FRAMES / 4096, "{gone} for {want}");
    here.pool.discharge(bytes);
    assert_eq!(here.pool.len(), frames);
    here.pool.charge(bytes);
}

#[test]
fn a_core_takes_what_came_back_to_another() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None).expect("the kernel tells");
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let &[one, other, ..] = &cores[..] else { return };
    let pool = FramePool::sharing(1024, 512).expect("small");
    let taken = || (0..100).map(|_| pool.take().expect("free")).collect::<Vec<_>>();
    let on = |core| {
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).expect("one's own");
    };
    std::thread::scope(|scope| {
        let filled = scope.spawn(|| {
            on(one);
            let mut frames = taken();
            frames.iter_mut().for_each(|frame| frame.bytes().fill(7));
            frames
        });
        let frames = filled.join().expect("no panic");
        scope.spawn(|| {
            on(other);
            drop(frames);
        });
    });
    assert_eq!(pool.resident(), 100);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            on(one);
            let mut frames = taken();
            frames.iter_mut().for_each(|frame| frame.bytes().fill(7));
        });
    });
    assert_eq!(pool.resident(), 100, "none that had no memory was taken");
}

#[test]
fn frames_that_are_not_kept_go_back_to_the_system() {
    // So few frames have one list.
    let pool = FramePool::sharing(200, 32).expect("small");
    let index = PageIndex::default();
    for page in 0..200 {
        let mut fresh = pool.take().expect("free");
        fresh.bytes().fill(7);
        drop(fresh.publish(index.slot(page, &pool), PAGE, FrameState::MAPPED, 0..0));
    }
    assert_eq!(pool.resident(), 200);
    (0..200).for_each(|page| {
        pool.remove(index.slot(page, &pool));
    });
    let kept = pool.resident();
    assert!((32..32 + 64).contains(&kept), "{kept} frames keep their memory");
    for page in 0..200 {
        let mut fresh = pool.take().expect("free again");
        fresh.bytes()[0] = 1;
        drop(fresh.publish(index.slot(page, &pool), PAGE, FrameState::MAPPED, 0..0));
    }
    (0..200).for_each(|page| {
        pool.remove(index.slot(page, &pool));
    });
}
