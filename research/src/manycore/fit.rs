//! What one and two threads of this machine tell of a technique: how much of an operation threads do one after the other,
//! and what it costs to hand that on. Nothing else goes into the model.
//!
//! Of the rates of one and of two threads follows one figure beyond the time of an operation. Where two threads do more
//! than one, that is the part that goes one after the other, its handover a transfer of a line. Where they do no more,
//! all of it does, and what it takes longer is the handover.

use super::events::{Place, Scene, Step, rate};
use super::machine::{Costs, Machine};

/// A technique, as far as two threads tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitted {
    /// Nanoseconds of an operation that threads do side by side.
    pub apart: f64,
    /// Those that they do one after the other.
    pub together: f64,
    /// What it takes more to hand that on to one that waits.
    pub handover: f64,
}

/// Operations that are simulated.
const ROUNDS: u64 = 20_000;
/// Steps towards the part that goes one after the other: one of a million is told from none.
const HALVINGS: u32 = 20;

impl Fitted {
    /// By operations a second of one thread and of two; nothing where there is no such rate.
    pub fn new(one: f64, two: f64, costs: Costs) -> Option<Fitted> {
        if !(one > 0.0 && two > 0.0 && one.is_finite() && two.is_finite()) {
            return None;
        }
        let whole = 1e9 / one;
        let pair = Machine { cores: 2, sockets: 1 };
        let part = |together: f64| Fitted { apart: whole - together, together, handover: 0.0 };
        if part(whole).rate(pair, costs, 2) > two {
            // Even with all of it in a section two threads would do more.
            let handover = (1e9 / two - whole - costs.within).max(0.0);
            return Some(Fitted { handover, ..part(whole) });
        }
        let (mut low, mut high) = (0.0, whole);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if part(middle).rate(pair, costs, 2) > two { low = middle } else { high = middle }
        }
        Some(part(low))
    }

    /// The same technique, if threads did so many nanoseconds of each operation one after the other. What that is more than
    /// an operation takes alone is handing on.
    pub fn in_turn(self, ns: f64) -> Fitted {
        let whole = self.apart + self.together;
        let together = ns.min(whole);
        Fitted { apart: whole - together, together, handover: ns - together }
    }

    /// Nanoseconds of each operation that threads do one after the other while some wait.
    pub fn turn(self) -> f64 {
        self.together + self.handover
    }

    /// Operations a second of so many threads on a machine, a core each.
    pub fn rate(self, machine: Machine, costs: Costs, threads: usize) -> f64 {
        let section = Place::Shared(0);
        let scene = Scene { machine, costs, handover: self.handover, channels: 1 };
        // A part that is there is as long with nobody else as it was measured: its line is the core's own.
        let program = if self.together > 0.0 {
            let inside = (self.together - costs.own).max(0.0);
            vec![Step::Work(self.apart), Step::Acquire(section), Step::Work(inside), Step::Release(section)]
        } else {
            vec![Step::Work(self.apart)]
        };
        rate(&scene, &program, threads, ROUNDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { own: 5.0, within: 40.0, across: 100.0 };

    #[test]
    fn what_is_simulated_is_found_again() {
        let pair = Machine { cores: 2, sockets: 1 };
        for truth in [
            Fitted { apart: 1000.0, together: 0.0, handover: 0.0 },
            Fitted { apart: 200.0, together: 800.0, handover: 0.0 },
            Fitted { apart: 0.0, together: 500.0, handover: 3000.0 },
        ] {
            let of = |threads| truth.rate(pair, COSTS, threads);
            let found = Fitted::new(of(1), of(2), COSTS).expect("there are rates");
            let machine = Machine { cores: 64, sockets: 2 };
            for threads in [1, 2, 16, 64] {
                let (wanted, got) =
                    (truth.rate(machine, COSTS, threads), found.rate(machine, COSTS, threads));
                // A short part is not told from two threads that never met; their limits are then far apart.
                assert!(
                    (got / wanted - 1.0).abs() < 0.1,
                    "{truth:?}, {threads}: {got}, not {wanted}; {found:?}"
                );
            }
        }
        assert_eq!(Fitted::new(0.0, 1.0, COSTS), None);
        assert_eq!(Fitted::new(1.0, f64::NAN, COSTS), None);
    }

    #[test]
    fn what_goes_in_turn_is_what_is_asked_for() {
        let one = Fitted { apart: 900.0, together: 100.0, handover: 0.0 };
        assert_eq!(one.in_turn(100.0), one);
        let machine = Machine { cores: 16, sockets: 1 };
        for ns in [500.0, 4000.0] {
            let other = one.in_turn(ns);
            assert_eq!((other.apart + other.together, other.turn()), (1000.0, ns));
            let wanted = 1e9 / (ns + COSTS.within);
            assert!((other.rate(machine, COSTS, 16) / wanted - 1.0).abs() < 0.1);
        }
    }

    #[test]
    fn who_does_not_scale_on_two_does_not_on_many() {
        let machine = Machine { cores: 120, sockets: 8 };
        let slower = Fitted::new(1e6, 0.5e6, COSTS).expect("there are rates");
        assert!(slower.together >= 999.0 && slower.handover > 900.0);
        assert!(slower.rate(machine, COSTS, 120) < 0.6e6);
        let scales = Fitted::new(1e6, 2e6, COSTS).expect("there are rates");
        assert!(scales.rate(machine, COSTS, 120) > 60e6);
    }
}
