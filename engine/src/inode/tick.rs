//! Time as it is kept.

/// A time in nanoseconds since 1970; negative before.
pub type Time = i64;

/// The present.
pub fn now() -> Time {
    #[cfg(any(test, feature = "sim"))]
    if let Some(held) = held() {
        return held;
    }
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
    }
}

/// A step of the clock that is cheap to read, at most: a tick of a kernel with HZ=100.
const TICK: Time = 10_000_000;

/// The beginning of the present tick: a little less than [`now`], for next to nothing.
pub fn tick() -> Time {
    #[cfg(any(test, feature = "sim"))]
    if let Some(held) = held() {
        return held;
    }
    let at = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    at.tv_sec.saturating_mul(1_000_000_000).saturating_add(at.tv_nsec)
}

/// Whether a time was set in this tick, so that another change need not set it again unless somebody has looked.
pub(super) fn is_of_this_tick(time: Time) -> bool {
    if cfg!(loom) {
        // A model goes the same way each time.
        return time != 0;
    }
    let since = time.saturating_sub(tick());
    (0..=TICK).contains(&since)
}

#[cfg(any(test, feature = "sim"))]
std::thread_local! {
    static HELD: std::cell::Cell<Option<Time>> = const { std::cell::Cell::new(None) };
}

#[cfg(any(test, feature = "sim"))]
fn held() -> Option<Time> {
    HELD.get()
}

/// Lets this thread's present be this one from now on; none is the system's. For tests whose media are to hold the same
/// each time.
#[cfg(any(test, feature = "sim"))]
pub fn hold(present: Option<Time>) {
    HELD.set(present);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_is_of_this_tick_and_other_times_are_not() {
        // The tick may end between the two looks, not again and again.
        assert!((0..100).any(|_| is_of_this_tick(now())));
        let at = now();
        for other in [i64::MIN, 0, at - 3_600_000_000_000, at + 3_600_000_000_000, i64::MAX] {
            assert!(!is_of_this_tick(other), "{other}");
        }
    }
}
