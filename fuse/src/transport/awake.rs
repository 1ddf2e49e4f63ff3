//! Keeps idle cores from halting while requests come.
//!
//! A client sleeps until its request is answered, and so does a thread that answers until the next one. Between the two
//! the core goes idle and halts, and a core of a virtual machine that has halted takes tens of microseconds to be
//! woken: the hypervisor must schedule it again. The kernel's device `/dev/cpu_dma_latency` takes the longest time, in
//! microseconds, that an idle core may need to wake: at 0 it looks for work in place of halting, and is woken by a
//! write to memory. The kernel forgets a wish when its descriptor is closed, so that no end of the server, not even a
//! kill, leaves cores awake.
//!
//! # Protocol
//! 1. A thread that serves counts its requests by itself. Every `BATCH` of them it adds one to `batches`; if the
//!    wish is off, and this batch took no longer than `QUICK`, it *asks*: it sets `asked` under the mutex and wakes
//!    the keeper.
//! 2. The keeper, a thread of its own, alone writes to the device. It sleeps without a time-out until it is asked;
//!    then it states the wish, and every `LOOK` looks whether `batches` has grown. If it has not for `CALM` looks
//!    in a row, it takes the wish back and `asked` with it.
//! 3. `on` is what threads that serve look at in passing; the keeper alone changes it, under the mutex. A thread that
//!    sees an old value asks in vain, or one batch later.
//! 4. [`Awake::end`] sets `over` under the mutex; the keeper takes the wish back and ends.
//!
//! What it leaves to others: where requests are served ([`super::focus`]).
//!
//! Invariants: a mount that nobody uses wishes nothing, and its keeper sleeps; the wish outlasts the last batch of
//! requests by `CALM` + 1 looks at most. It is a matter of speed only.

use super::uring::count_of;
use crate::mount::Idle;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests of one thread that count as one.
const BATCH: u32 = 16;
/// Time that a batch takes at most if waiting for a core is what it mostly does.
const QUICK: Duration = Duration::from_millis(5);
/// Period of the keeper's looks.
const LOOK: Duration = Duration::from_millis(10);
/// Looks without a batch after which the wish is taken back.
const CALM: u32 = 2;
/// Cores that are kept awake at most unless that is asked for: the wish is for all of the machine.
const MOST_CORES: u16 = 8;

const DEVICE: &str = "/dev/cpu_dma_latency";
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// What halts idle cores.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The driver of virtual machines whose hypervisor is told of each halt.
const GUEST: &str = "haltpoll";
/// No core halts, in microseconds.
const NO_HALT: i32 = 0;
/// Cores of a machine of its own halt, but sleep no deeper.
const LIGHT_SLEEP: i32 = 2;
/// What the device says where nothing is wished.
const NO_WISH: i32 = 2_000_000_000;

/// Keeps cores awake while they are needed.
#[derive(Debug)]
pub struct Awake {
    device: File,
    /// The time that an idle core may take to wake, in microseconds.
    wish: i32,
    on: AtomicBool,
    /// Relaxed, as `on`: a number that grows, and nothing hangs on when that is seen.
    batches: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: bool,
    over: bool,
}

/// What a thread that serves has counted.
#[derive(Debug, Default)]
pub struct Pace {
    requests: u32,
    /// When the batch began, if that was looked at.
    since: Option<Instant>,
}

impl Awake {
    /// What `idle` asks for; `None` if nothing can or need be done. To be called while the device may still be opened.
    pub fn open(idle: Idle) -> Option<Arc<Awake>> {
        let cores = std::fs::read_to_string(ONLINE).ok().and_then(|list| count_of(&list));
        let driver = std::fs::read_to_string(DRIVER).unwrap_or_default();
        let wish = wish(idle, cores.unwrap_or(u16::MAX), driver.trim())?;
        let opened = rustix::fs::open(DEVICE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        match opened {
            Ok(device) => Some(Arc::new(Awake::new(device.into(), wish))),
            Err(e) => {
                let said = format!("idle cores halt while requests come: {DEVICE}: {e}");
                match idle {
                    Idle::Awake => tracing::warn!("{said}"),
                    _ => tracing::debug!("{said}"),
                }
                None
            }
        }
    }

    fn new(device: File, wish: i32) -> Awake {
        Awake {
            device,
            wish,
            on: AtomicBool::new(false),
            batches: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Takes note of a request that is about to be served.
    pub fn note(&self, pace: &mut Pace) {
        pace.requests += 1;
        if pace.requests == BATCH {
            pace.requests = 0;
            self.note_batch(pace);
        }
    }

    fn note_batch(&self, pace: &mut Pace) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        if self.on.load(Ordering::Relaxed) {
            pace.since = None;
            return;
        }
        let now = Instant::now();
        let began = pace.since.replace(now);
        if began.is_some_and(|began| now.duration_since(began) <= QUICK) {
            self.state.lock().asked = true;
            self.changed.notify_all();
        }
    }

    /// Keeps cores awake when that is asked for, until [`Awake::end`].
    pub fn keep(&self) {
        let mut state = self.state.lock();
        while !state.over {
            if !state.asked {
                self.changed.wait(&mut state);
                continue;
            }
            if let Err(e) = self.say(self.wish) {
                tracing::debug!("idle cores halt while requests come: {e}");
                return;
            }
            self.on.store(true, Ordering::Relaxed);
            let mut calm = Calm::new(self.batches.load(Ordering::Relaxed));
            while !state.over && !calm.look(self.batches.load(Ordering::Relaxed)) {
                self.changed.wait_for(&mut state, LOOK);
            }
            self.on.store(false, Ordering::Relaxed);
            state.asked = false;
            if let Err(e) = self.say(NO_WISH) {
                tracing::warn!("idle cores stay awake until the mount ends: {e}");
                return;
            }
        }
    }

    /// No request will come any more.
    pub fn end(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }

    fn say(&self, microseconds: i32) -> io::Result<()> {
        (&self.device).write_all(&microseconds.to_ne_bytes())
    }
}

/// The time that an idle core may take to wake, in microseconds; `None` for no wish.
fn wish(idle: Idle, cores: u16, driver: &str) -> Option<i32> {
    match idle {
        Idle::Halt => None,
        Idle::Auto if driver != GUEST || cores > MOST_CORES => None,
        Idle::Auto | Idle::Awake if driver == GUEST => Some(NO_HALT),
        Idle::Auto | Idle::Awake => Some(LIGHT_SLEEP),
    }
}

/// Tells when requests have ceased.
#[derive(Debug)]
struct Calm {
    seen: u64,
    looks: u32,
}

impl Calm {
    fn new(batches: u64) -> Calm {
        // The first look finds what was there.
        Calm { seen: batches.wrapping_sub(1), looks: 0 }
    }

    /// Whether they have.
    fn look(&mut self, batches: u64) -> bool {
        self.looks = if batches == self.seen { self.looks + 1 } else { 0 };
        self.seen = batches;
        self.looks >= CALM
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    fn rig() -> (File, Arc<Awake>) {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let device: OwnedFd = writer;
        (reader.into(), Arc::new(Awake::new(device.into(), NO_HALT)))
    }

    fn said(device: &mut File) -> i32 {
        let mut bytes = [0; 4];
        device.read_exact(&mut bytes).expect("it says something");
        i32::from_ne_bytes(bytes)
    }

    #[test]
    fn requests_in_quick_succession_keep_cores_awake_until_they_cease() {
        let (mut device, awake) = rig();
        std::thread::scope(|scope| {
            scope.spawn(|| awake.keep());
            let mut pace = Pace::default();
            for _ in 0..2 {
                // However slow this machine is now, some two batches are quick.
                while !awake.state.lock().asked {
                    awake.note(&mut pace);
                }
                assert_eq!(said(&mut device), NO_HALT);
                assert_eq!(said(&mut device), NO_WISH, "no request comes");
                // The keeper holds the mutex until it has taken everything back.
                drop(awake.state.lock());
                assert!(!awake.on.load(Ordering::Relaxed));
            }
            awake.end();
        });
    }

    #[test]
    fn the_end_takes_the_wish_back() {
        let (mut device, awake) = rig();
        awake.state.lock().asked = true;
        std::thread::scope(|scope| {
            let keeper = scope.spawn(|| awake.keep());
            assert_eq!(said(&mut device), NO_HALT);
            awake.end();
            keeper.join().expect("it ends");
        });
        assert_eq!(said(&mut device), NO_WISH);
    }

    #[test]
    fn a_device_that_takes_nothing_ends_it() {
        let device = File::open("/dev/null").expect("a file to read from");
        let awake = Awake::new(device, NO_HALT);
        awake.state.lock().asked = true;
        awake.keep();
        assert!(!awake.on.load(Ordering::Relaxed));
    }

    #[test]
    fn slow_requests_ask_for_nothing() {
        let (_device, awake) = rig();
        let mut pace = Pace::default();
        for _ in 0..10 {
            (0..BATCH - 1).for_each(|_| awake.note(&mut pace));
            pace.since = Instant::now().checked_sub(2 * QUICK);
            awake.note(&mut pace);
        }
        assert!(!awake.state.lock().asked);
        assert_eq!(awake.batches.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn requests_have_ceased_when_some_looks_in_a_row_see_none() {
        let mut calm = Calm::new(7);
        let seen = [7, 7, 8, 8, 9, 9, 9];
        assert_eq!(seen.map(|batches| calm.look(batches)), [false, false, false, false, false, false, true]);
        assert!(!Calm::new(0).look(0));
    }

    #[test]
    fn few_cores_of_a_virtual_machine_do_not_halt_and_others_only_if_asked() {
        let all = [Idle::Auto, Idle::Awake, Idle::Halt];
        assert_eq!(all.map(|idle| wish(idle, 2, GUEST)), [Some(NO_HALT), Some(NO_HALT), None]);
        assert_eq!(all.map(|idle| wish(idle, 64, GUEST)), [None, Some(NO_HALT), None]);
        assert_eq!(all.map(|idle| wish(idle, 2, "intel_idle")), [None, Some(LIGHT_SLEEP), None]);
        assert_eq!(all.map(|idle| wish(idle, 2, "none")), [None, Some(LIGHT_SLEEP), None]);
    }
}
