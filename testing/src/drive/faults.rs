//! What goes wrong with a drive's requests: they fail, are done in part, or are held.

use parking_lot::{Condvar, Mutex};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    Read,
    /// That bytes be taken.
    Write,
    /// That what was taken be durable.
    Flush,
}

impl Kind {
    /// Each.
    pub const ALL: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Flush];
}

/// What befalls a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It is not done, and answered with this errno.
    Fails(i32),
    /// So many of its bytes are done at the most, and it is answered so; a flush has none, and is done.
    Short(usize),
    /// It is done, and answered, when it is released.
    Held,
}

/// How long something goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasts {
    /// For one request.
    Once,
    /// From there on.
    On,
}

/// Requests that something befalls.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Of this kind; `None`: of any.
    pub kind: Option<Kind>,
    /// So many of them go well before.
    pub spared: u64,
    /// How long it goes on.
    pub lasts: Lasts,
    /// What it is.
    pub wrong: Wrong,
}

/// How a request is to be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Whole,
    /// So many bytes of it.
    Short(usize),
    /// Not at all, for this errno.
    Failed(i32),
}

/// Requests so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads, held ones too, as everywhere below.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Of all these, those that failed.
    pub failed: u64,
    /// Those of which a part was to be done.
    pub short: u64,
    /// Those that are held now.
    pub held: u64,
}

impl Counts {
    /// Those of a kind, or of any.
    #[must_use]
    pub fn of(&self, kind: Option<Kind>) -> u64 {
        match kind {
            Some(Kind::Read) => self.reads,
            Some(Kind::Write) => self.writes,
            Some(Kind::Flush) => self.flushes,
            None => self.reads + self.writes + self.flushes,
        }
    }
}

type Act = Box<dyn FnOnce(Outcome) + Send>;

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// But those that are held.
    counts: Counts,
    held: Vec<Act>,
}

/// The rules, and what they have done.
#[derive(Default)]
pub struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

impl Faults {
    /// Counts a request, and carries it out as the rules say: now, or when it is released. The first rule that it
    /// falls under counts; each sees it pass.
    pub fn meet(&self, kind: Kind, act: impl FnOnce(Outcome) + Send + 'static) {
        let mut state = self.state.lock();
        match kind {
            Kind::Read => state.counts.reads += 1,
            Kind::Write => state.counts.writes += 1,
            Kind::Flush => state.counts.flushes += 1,
        }
        let mut wrong = None;
        state.rules.retain_mut(|rule| {
            if rule.kind.is_some_and(|only| only != kind) {
                return true;
            }
            if rule.spared > 0 {
                rule.spared -= 1;
                return true;
            }
            wrong = wrong.or(Some(rule.wrong));
            rule.lasts == Lasts::On
        });
        let outcome = match wrong {
            None => Outcome::Whole,
            Some(Wrong::Fails(errno)) => {
                state.counts.failed += 1;
                Outcome::Failed(errno)
            }
            Some(Wrong::Short(bytes)) => {
                state.counts.short += 1;
                Outcome::Short(bytes)
            }
            Some(Wrong::Held) => {
                state.held.push(Box::new(act));
                self.changed.notify_all();
                return;
            }
        };
        drop(state);
        act(outcome);
    }

    /// Another rule.
    pub fn add(&self, rule: Rule) {
        self.state.lock().rules.push(rule);
    }

    /// No request is held any more: what is, is done.
    pub fn release(&self) {
        let mut state = self.state.lock();
        state.rules.retain(|rule| rule.wrong != Wrong::Held);
        let held = std::mem::take(&mut state.held);
        drop(state);
        held.into_iter().for_each(|act| act(Outcome::Whole));
    }

    /// Everything goes well from now on, and what is held is done.
    pub fn mend(&self) {
        self.state.lock().rules.clear();
        self.release();
    }

    /// Requests so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.state.lock();
        Counts { held: state.held.len() as u64, ..state.counts }
    }

    /// Waits until so many requests are held at once.
    pub fn wait_for_held(&self, count: u64) {
        let mut state = self.state.lock();
        while (state.held.len() as u64) < count {
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn outcomes(faults: &Faults, kinds: &[Kind]) -> Vec<Outcome> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        for kind in kinds {
            let seen = Arc::clone(&seen);
            faults.meet(*kind, move |outcome| seen.lock().push(outcome));
        }
        let seen = seen.lock();
        seen.clone()
    }

    #[test]
    fn a_rule_is_for_requests_of_its_kind_from_its_first_on() {
        use Kind::{Flush, Read, Write};
        use Outcome::{Failed, Short, Whole};
        let faults = Faults::default();
        let (kind, lasts) = (Some(Write), Lasts::Once);
        faults.add(Rule { kind, spared: 1, lasts, wrong: Wrong::Fails(libc::EIO) });
        faults.add(Rule { kind: None, spared: 4, lasts: Lasts::On, wrong: Wrong::Short(7) });
        let kinds = [Write, Read, Write, Write, Flush, Write];
        assert_eq!(outcomes(&faults, &kinds), [Whole, Whole, Failed(libc::EIO), Whole, Short(7), Short(7)]);
        let counts = faults.counts();
        assert_eq!(counts, Counts { reads: 1, writes: 4, flushes: 1, failed: 1, short: 2, held: 0 });
        assert_eq!((counts.of(None), counts.of(Some(Write))), (6, 4));
        faults.mend();
        assert_eq!(outcomes(&faults, &[Write]), [Whole]);
    }

    #[test]
    fn what_is_held_is_done_in_order_when_it_is_released_and_others_before() {
        let faults = Arc::new(Faults::default());
        faults.add(Rule { kind: Some(Kind::Read), spared: 0, lasts: Lasts::On, wrong: Wrong::Held });
        let done = Arc::new(Mutex::new(Vec::new()));
        let other = std::thread::spawn({
            let (faults, done) = (Arc::clone(&faults), Arc::clone(&done));
            move || {
                for (number, kind) in [Kind::Read, Kind::Write, Kind::Read].into_iter().enumerate() {
                    let done = Arc::clone(&done);
                    faults.meet(kind, move |outcome| done.lock().push((number, outcome)));
                }
            }
        });
        faults.wait_for_held(2);
        other.join().expect("no panic");
        assert_eq!(*done.lock(), [(1, Outcome::Whole)]);
        assert_eq!(faults.counts().held, 2);
        faults.release();
        assert_eq!(*done.lock(), [1, 0, 2].map(|number| (number, Outcome::Whole)));
        assert_eq!(outcomes(&faults, &[Kind::Read]), [Outcome::Whole]);
    }
}
