//! Serves a lone client from beside it: from another core than its own.
//!
//! Served on its own core (*at home*), a client costs two switches of threads for each request, and the kernel, which
//! finds the core taken when it wakes the client, may move it to an idle one. Served *beside*, the client finds its
//! core as it left it, while the server's thread *watches* for the next request on the other core: it looks for one,
//! again and again, for `PATIENCE` before it sleeps. But each wakes the other across cores then, which is cheap only
//! where the other's core does not halt (see [`super::awake`]) and runs nobody else. Which of the two is faster depends
//! on the machine, on what else runs, and on how long requests and the time between them take. So it is measured:
//! [`Chooser`].
//!
//! # Protocol
//! 1. A client's requests come in *windows* of `WINDOW`. A window's cost is the time between one request and the
//!    next, summed up; none counts for more than `MOST`: what took longer was no matter of waking anyone.
//! 2. After the first window at home, and then every `period` requests, one window is served at the other place: a
//!    *trial*. The first `WARM_UP` requests at a new place do not count. The trial is lost as soon as its sum is
//!    larger than the other place's whole window, and won if it is less by an `EDGE`th; what is equal stays where it
//!    is. A trial that is lost doubles `period`, one that is won makes it the shortest again.
//! 3. A window that costs more than twice what one cost when places were compared brings the next trial on at once:
//!    something has changed.
//! 4. A thread that watches and is *set aside* `MOST_ASIDE` times within a window (more than `ASIDE` pass between
//!    two looks) takes a core from somebody that needs it. The client goes home for `hold` requests, twice as many each
//!    time; half as many again when it has stayed beside until a trial of home was lost.
//!
//! What it leaves to others: which client is a lone one, and on which core ([`super::focus`]).
//!
//! Invariants: a lost trial costs about as much again as a window at the better place, so that trials take a share
//! that falls to a thousandth; nobody watches for longer than `PATIENCE` without a request, so that an idle mount
//! uses no CPU.

use super::Port;
use std::io;
use std::time::{Duration, Instant};

/// Time for which a thread looks for the next request.
const PATIENCE: Duration = Duration::from_micros(20);
/// Time between two looks that shows that another ran on the core.
const ASIDE: Duration = Duration::from_micros(100);
/// Times set aside within a window after which the client is served at home.
const MOST_ASIDE: u32 = 3;
/// Requests whose time is summed up.
const WINDOW: u32 = 64;
/// Requests at a new place before the first that counts.
const WARM_UP: u32 = 8;
/// The most that one request counts for.
const MOST: Duration = Duration::from_micros(400);
/// A trial is won by this part of a window's time.
const EDGE: u32 = 8;
/// Requests between trials.
const LEAST_PERIOD: u32 = 16 * WINDOW;
const MOST_PERIOD: u32 = 1024 * WINDOW;

/// Where a lone client is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// On its own core.
    Home,
    /// On another one.
    Beside,
}

impl Placement {
    fn other(self) -> Placement {
        match self {
            Placement::Home => Placement::Beside,
            Placement::Beside => Placement::Home,
        }
    }
}

/// Finds out where a client is served faster.
#[derive(Debug)]
pub struct Chooser {
    place: Placement,
    /// The place that won last; `place` differs during a trial.
    better: Placement,
    /// The last window at `better`; nothing before the first.
    cost: Option<Duration>,
    /// `cost` when places were compared last.
    compared: Duration,
    /// When the last request came.
    last: Option<Duration>,
    warm_up: u32,
    counted: u32,
    sum: Duration,
    aside: u32,
    /// Requests until the next trial, and between this one and the one after it.
    left: u32,
    period: u32,
    /// Requests from the next time that another needs the core to the trial after it.
    hold: u32,
}

impl Default for Chooser {
    /// At home.
    fn default() -> Chooser {
        Chooser {
            place: Placement::Home,
            better: Placement::Home,
            cost: None,
            compared: Duration::ZERO,
            last: None,
            warm_up: WARM_UP,
            counted: 0,
            sum: Duration::ZERO,
            aside: 0,
            left: WINDOW,
            period: LEAST_PERIOD,
            hold: LEAST_PERIOD,
        }
    }
}

impl Chooser {
    /// Where the next request is to be served.
    pub fn place(&self) -> Placement {
        self.place
    }

    /// Another client has taken the former one's place: what is known of places holds, what requests cost does not.
    pub fn begin(&mut self) {
        (self.place, self.cost, self.compared, self.last) = (self.better, None, Duration::ZERO, None);
        self.warm_up = WARM_UP;
        self.begin_window();
    }

    /// Takes note of a request that has come at this time; before, its reader was set aside so many times.
    pub fn note(&mut self, now: Duration, aside: u32) {
        let took = self.last.replace(now).map(|last| now.saturating_sub(last).min(MOST));
        self.aside += aside;
        if self.place == Placement::Beside && self.aside >= MOST_ASIDE {
            self.flee();
            return;
        }
        let Some(took) = took else { return };
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return;
        }
        self.counted += 1;
        self.sum += took;
        match self.cost {
            Some(cost) if self.place != self.better => {
                let is_won = self.counted == WINDOW && self.sum < cost - cost / EDGE;
                if is_won {
                    self.win();
                } else if self.counted == WINDOW || self.sum > cost {
                    self.lose();
                }
            }
            _ if self.counted == WINDOW => self.end_window(),
            _ => {}
        }
    }

    /// A window at the better place is over.
    fn end_window(&mut self) {
        let cost = self.sum;
        self.cost = Some(cost);
        self.left = self.left.saturating_sub(WINDOW);
        let is_changed = self.compared > Duration::ZERO && cost > 2 * self.compared;
        if self.left == 0 || is_changed {
            self.go(self.better.other());
        } else {
            self.begin_window();
        }
    }

    /// The trial has shown a better place.
    fn win(&mut self) {
        self.better = self.place;
        self.cost = Some(self.sum);
        self.compared = self.sum;
        self.period = LEAST_PERIOD;
        self.left = self.period;
        self.begin_window();
    }

    /// The trial has shown no better place.
    fn lose(&mut self) {
        if self.better == Placement::Beside {
            // It has lasted.
            self.hold = (self.hold / 2).max(LEAST_PERIOD);
        }
        self.compared = self.cost.unwrap_or_default();
        self.period = (self.period * 2).min(MOST_PERIOD);
        self.left = self.period;
        self.go(self.better);
    }

    /// Another needs the core.
    fn flee(&mut self) {
        if self.better == Placement::Beside {
            // What it costs at home now is not known yet.
            (self.cost, self.compared) = (None, Duration::ZERO);
        }
        self.better = Placement::Home;
        self.left = self.hold;
        self.hold = (self.hold * 2).min(MOST_PERIOD);
        self.go(Placement::Home);
    }

    fn go(&mut self, place: Placement) {
        (self.place, self.warm_up) = (place, WARM_UP);
        self.begin_window();
    }

    fn begin_window(&mut self) {
        (self.counted, self.sum, self.aside) = (0, Duration::ZERO, 0);
    }
}

/// How a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// Whether there is a request; if not, the mount is gone. `None`: nothing came.
    pub received: Option<bool>,
    /// How often the thread was set aside.
    pub aside: u32,
}

/// Looks for a request until there is one, or patience ends.
pub fn watch<P: Port>(port: &P, slot: &mut P::Slot) -> io::Result<Watched> {
    let began = Instant::now();
    let mut watch = Watch::default();
    loop {
        let received = port.look(slot)?;
        let goes_on = watch.looked(began.elapsed());
        if received.is_some() || !goes_on {
            return Ok(Watched { received, aside: watch.aside });
        }
        std::hint::spin_loop();
    }
}

/// Times since the watch began.
#[derive(Debug, Default)]
struct Watch {
    last: Duration,
    aside: u32,
}

impl Watch {
    /// Whether to look again, having looked at this time.
    fn looked(&mut self, now: Duration) -> bool {
        self.aside += u32::from(now.saturating_sub(self.last) > ASIDE);
        self.last = now;
        now < PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    struct Client {
        chooser: Chooser,
        now: Duration,
        home: Duration,
        beside: Duration,
        /// Requests served beside.
        away: u32,
    }

    impl Client {
        fn new(home: Duration, beside: Duration) -> Client {
            Client { chooser: Chooser::default(), now: Duration::ZERO, home, beside, away: 0 }
        }

        fn ask(&mut self, times: u32) -> Placement {
            for _ in 0..times {
                let is_away = self.chooser.place() == Placement::Beside;
                self.now += if is_away { self.beside } else { self.home };
                self.away += u32::from(is_away);
                self.chooser.note(self.now, 0);
            }
            self.chooser.place()
        }
    }

    #[test]
    fn what_is_faster_is_found_by_one_trial_and_kept() {
        let mut client = Client::new(20 * US, 10 * US);
        client.ask(4 * WINDOW);
        assert_eq!((client.chooser.place(), client.chooser.better), (Placement::Beside, Placement::Beside));
        let asked = 100_000;
        client.ask(asked);
        assert_eq!(client.chooser.better, Placement::Beside);
        assert!(client.away > asked * 9 / 10, "{}", client.away);
    }

    #[test]
    fn what_is_slower_is_tried_ever_more_seldom() {
        let mut client = Client::new(10 * US, 100 * US);
        client.ask(4 * WINDOW);
        assert_eq!(client.chooser.better, Placement::Home);
        let (before, asked) = (client.away, 1_000_000);
        client.ask(asked);
        // A trial is over when it has cost as much as a window at home; `period` doubles six times.
        assert!(client.away - before < 30 * (WARM_UP + WINDOW / 10 + 2), "{}", client.away);
    }

    #[test]
    fn what_is_equal_stays_at_home() {
        let mut client = Client::new(10 * US, 10 * US);
        for _ in 0..100 {
            client.ask(WINDOW);
            assert_eq!(client.chooser.better, Placement::Home);
        }
    }

    #[test]
    fn a_change_is_noticed_within_some_windows() {
        let mut client = Client::new(20 * US, 10 * US);
        client.ask(100 * WINDOW);
        client.beside = 80 * US;
        client.ask(3 * WINDOW);
        assert_eq!((client.chooser.place(), client.chooser.better), (Placement::Home, Placement::Home));
        client.beside = 5 * US;
        client.ask(2 * MOST_PERIOD);
        assert_eq!(client.chooser.better, Placement::Beside);
    }

    #[test]
    fn long_pauses_of_the_client_decide_nothing_by_themselves() {
        let mut client = Client::new(20 * US, 10 * US);
        for _ in 0..200 {
            client.ask(50);
            client.now += Duration::from_secs(1);
        }
        assert_eq!(client.chooser.better, Placement::Beside);
    }

    #[test]
    fn who_is_set_aside_goes_home_and_waits_longer_before_it_tries_again() {
        let mut client = Client::new(20 * US, 10 * US);
        client.ask(4 * WINDOW);
        assert_eq!(client.ask(1), Placement::Beside);
        client.chooser.note(client.now, MOST_ASIDE - 1);
        assert_eq!(client.chooser.place(), Placement::Beside);
        client.chooser.note(client.now, 1);
        assert_eq!(client.chooser.place(), Placement::Home);
        for _ in 0..3 {
            let hold = client.chooser.left;
            assert_eq!(client.ask(hold), Placement::Home);
            assert_eq!(client.ask(2 * WINDOW), Placement::Beside, "a trial");
            client.chooser.note(client.now, MOST_ASIDE);
            assert_eq!((client.chooser.place(), client.chooser.left), (Placement::Home, 2 * hold));
        }
    }

    #[test]
    fn a_watch_ends_with_patience_and_counts_what_came_between() {
        let mut watch = Watch::default();
        assert!((1..20).all(|us| watch.looked(us * US)));
        assert!(!watch.looked(PATIENCE));
        assert_eq!(watch.aside, 0);
        let mut watch = Watch::default();
        assert!(watch.looked(US) && !watch.looked(US + 2 * ASIDE));
        assert_eq!(watch.aside, 1);
    }
}
