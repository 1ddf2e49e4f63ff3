//! Models of reading a frame without a pin, on the production state word; the bytes are two atomics.

use super::FrameState;
use super::frame::Frame;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, thread};

struct Page {
    frame: Frame,
    bytes: [AtomicU64; 2],
}

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn page() -> Arc<Page> {
    let page = Page { frame: Frame::new(), bytes: [AtomicU64::new(0), AtomicU64::new(0)] };
    page.frame.publish(FrameState::DIRTY);
    page.frame.unpin();
    Arc::new(page)
}

impl Page {
    /// As `Latched::write` and `Fresh::bytes` do: in no order.
    fn write(&self, value: u64) {
        self.bytes.iter().for_each(|half| half.store(value, Ordering::Relaxed));
    }

    fn glance(&self) {
        let Some(seen) = self.frame.see() else { return };
        let [one, two] = [&self.bytes[1], &self.bytes[0]].map(|half| half.load(Ordering::Relaxed));
        if self.frame.is_as_seen(seen) {
            assert_eq!(one, two, "half of what was written");
        }
    }
}

#[test]
fn bytes_seen_at_a_glance_are_of_one_version() {
    for pinned in [false, true] {
        bounded(move || {
            let page = page();
            let theirs = page.clone();
            let writer = thread::spawn(move || {
                for value in 1..3 {
                    let latched = if pinned {
                        assert!(theirs.frame.pin());
                        theirs.frame.try_latch()
                    } else {
                        theirs.frame.try_latch_unpinned()
                    };
                    // The reader's mark that the frame was used may be in the way.
                    if latched {
                        theirs.write(value);
                        theirs.frame.unlatch();
                    }
                    if pinned {
                        theirs.frame.unpin();
                    }
                }
            });
            page.glance();
            writer.join().expect("a model's threads do not panic");
        });
    }
}

#[test]
fn a_frame_that_left_is_not_taken_for_the_page() {
    bounded(|| {
        let page = page();
        let slot = Arc::new(AtomicU64::new(1));
        let (theirs, their_slot) = (page.clone(), slot.clone());
        let evictor = thread::spawn(move || {
            // As `FramePool::evict` and `Fresh::publish`, for another slot.
            if theirs.frame.claim(FrameState::empty()).is_some() {
                their_slot.store(0, Ordering::Release);
                theirs.write(7);
                theirs.frame.publish(FrameState::MAPPED);
                theirs.frame.unpin();
            }
        });
        // As `FramePool::glance`.
        if slot.load(Ordering::Acquire) == 1
            && let Some(seen) = page.frame.see()
            && slot.load(Ordering::Acquire) == 1
        {
            let read = page.bytes[0].load(Ordering::Relaxed);
            if page.frame.is_as_seen(seen) {
                assert_eq!(read, 0, "another page's bytes");
            }
        }
        evictor.join().expect("a model's threads do not panic");
    });
}
