//! What the log says of a device that fails.

use super::*;
use crate::sim::Fault;
use crate::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the errors that are logged.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

impl Subscriber for Errors {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        *of.level() == Level::ERROR
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&self.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message<'e>(&'e Mutex<Vec<String>>);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().push(format!("{value:?}"));
        }
    }
}

/// The errors that a round logs, and the work after it, on a device that fails so.
fn told(kind: Kind, fails: fn(Fault) -> bool) -> Vec<String> {
    let sim = kind.make();
    let mounted = mount(kind.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 0, 4).expect("writable");
    // Not committed yet: on an SSD ring the round begins with that.
    operate(mounted.store(), 4).expect("writable");
    sim.set_fault(Some(Box::new(move |fault| fails(fault).then_some(libc::EIO))));
    let errors = Errors::default();
    tracing::subscriber::with_default(errors.clone(), || {
        assert!(mounted.checkpointer().checkpoint().is_err());
        let store = mounted.store();
        assert!(matches!(operate(store, 5), Err(Error::ReadOnly(_))));
        // As a thread in the background, to which it happens next.
        store.fail("background work failed");
    });
    std::mem::take(&mut *errors.0.lock())
}

#[test]
fn one_failure_of_the_device_is_told_of_once() {
    let flushes = |fault| matches!(fault, Fault::Flush { .. });
    let commits = |fault| matches!(fault, Fault::Write { cause: Cause::Journal, .. });
    let homes = |fault| matches!(fault, Fault::Write { block, .. } if block >= FIRST);
    let (journal, store) =
        ("the journal failed: look for errors of its device", "it goes read-only: save what");
    for (kind, fails, words) in [
        (Kind::Ssd, commits as fn(Fault) -> bool, journal),
        (Kind::Ssd, flushes, store),
        (Kind::Mapped, flushes, store),
        (Kind::Ssd, homes, store),
        (Kind::Mapped, homes, store),
    ] {
        let told = told(kind, fails);
        assert!(told.len() == 1 && told[0].starts_with(words), "{kind:?}: {told:?}");
    }
}
