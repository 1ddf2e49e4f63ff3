//! Models of known names. A table of one line, or of one for each of two names; a lock stands for that of a name's
//! bucket in its directory, and what it guards for the directory.
//!
//! Each rule was broken by hand in turn; what then failed:
//!
//! | broken | fails |
//! | --- | --- |
//! | `read`: no fence, no second look at the version, an odd one accepted, or the version read Relaxed | `what_is_read_is_of_one_name` |
//! | `write`: no fence, the end Relaxed, or the version as it was | `what_is_read_is_of_one_name` |
//! | `forget`: nothing is emptied; `put` without the lock | `a_removed_name_does_not_come_back` |
//! | `forget` behind the lock | `a_removal_that_was_heard_of_is_seen` |
//! | the generation of the directory is not compared | `a_number_used_again_is_another_directory` |
//! | `close` or `permission_generation` Relaxed, `close` does not count, `find` does not compare, or permission_generation read after the permission | `a_closed_directory_is_not_searched` |
//! | the name is not compared | `what_is_read_is_of_one_name` |
//!
//! loom remembers the last access of an atomic alone, and overlooks a read that its writer follows with a read of its
//! own: so readers are the threads that run later.

use super::dentry_cache::{Child, DentryCache, Identity, PermissionGeneration};
use crate::inode::FileType;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, RwLock, thread};

const DIR: Identity = Identity { nid: 7, generation: 1 };

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    bounded_by(3, model);
}

fn bounded_by(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// What is known of a child agrees in all its parts.
fn child(n: u64) -> Child {
    let identity = Identity { nid: n, generation: n as u32 };
    Child { identity, file_type: FileType::Directory, searchable: true }
}

struct Model {
    known: DentryCache,
    /// What the name leads to.
    name: RwLock<Option<u64>>,
    /// The permission to search what the name leads to.
    open: AtomicBool,
}

impl Model {
    fn new(leads_to: Option<u64>) -> Arc<Model> {
        Model::with_lines(1, leads_to)
    }

    fn with_lines(lines: usize, leads_to: Option<u64>) -> Arc<Model> {
        let model = Model {
            known: DentryCache::new(lines, &[0; 16]),
            name: RwLock::new(leads_to),
            open: AtomicBool::new(true),
        };
        Arc::new(model)
    }

    fn now(&self) -> PermissionGeneration {
        self.known.permission_generation()
    }

    /// As a walk looks a name up that it does not know.
    fn look_up(&self, name: &[u8]) -> Option<u64> {
        let there = self.name.read();
        if let Some(n) = *there {
            let permission_generation = self.now();
            // Relaxed: as the word of an inode is read.
            let searchable = self.open.load(Ordering::Relaxed);
            self.known.put(DIR, name, &Child { searchable, ..child(n) }, permission_generation);
        }
        *there
    }

    fn change(&self, name: &[u8], leads_to: Option<u64>) {
        let mut there = self.name.write();
        self.known.forget(DIR, name);
        *there = leads_to;
    }

    fn find(&self, name: &[u8]) -> Option<u64> {
        let found = self.known.find(DIR, name, self.now())?;
        assert_eq!(found, child(found.identity.nid), "two children in one");
        Some(found.identity.nid)
    }
}

fn spawn(model: &Arc<Model>, f: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let model = Arc::clone(model);
    thread::spawn(move || f(&model))
}

#[test]
fn loom_known_what_is_read_is_of_one_name() {
    bounded(|| {
        let model = Model::new(None);
        let now = model.now();
        model.known.put(DIR, b"a", &child(1), now);
        let reader = spawn(&model, |m| assert!(m.find(b"a").is_none_or(|n| n == 1)));
        model.known.put(DIR, b"b", &child(2), now);
        assert_eq!((model.find(b"a"), model.find(b"b")), (None, Some(2)));
        reader.join().expect("no panic");
    });
}

#[test]
fn loom_known_a_removed_name_does_not_come_back() {
    bounded(|| {
        let model = Model::new(Some(1));
        let walker = spawn(&model, |m| {
            m.look_up(b"a");
        });
        model.change(b"a", None);
        assert_eq!(model.find(b"a"), None);
        walker.join().expect("no panic");
        assert_eq!(model.find(b"a"), None);
    });
}

#[test]
fn loom_known_a_removal_that_was_heard_of_is_seen() {
    bounded(|| {
        let model = Model::new(Some(1));
        model.look_up(b"a");
        let reader = spawn(&model, |m| {
            assert!(m.find(b"a").is_none_or(|n| n == 1));
            if m.name.read().is_none() {
                assert_eq!(m.find(b"a"), None);
            }
        });
        model.change(b"a", None);
        reader.join().expect("no panic");
        assert_eq!(model.find(b"a"), None);
    });
}

#[test]
fn loom_known_a_name_is_removed_while_its_line_goes_to_another() {
    bounded(|| {
        let model = Model::new(Some(1));
        let now = model.now();
        model.look_up(b"a");
        let writer = spawn(&model, move |m| m.known.put(DIR, b"b", &child(2), now));
        model.change(b"a", None);
        assert_eq!(model.find(b"a"), None);
        writer.join().expect("no panic");
        assert_eq!(model.find(b"a"), None);
    });
}

#[test]
fn loom_known_a_renamed_name_is_seen_where_it_is() {
    bounded(|| {
        let model = Model::with_lines(2, Some(1));
        model.look_up(b"c");
        model.look_up(b"a");
        assert!(model.find(b"c").is_some(), "the names share a line");
        model.change(b"c", Some(1));
        let reader = spawn(&model, |m| {
            if m.find(b"c").is_some() {
                assert_eq!(m.find(b"a"), None, "it is in both places");
            }
        });
        model.change(b"a", Some(2));
        model.look_up(b"c");
        reader.join().expect("no panic");
    });
}

#[test]
fn loom_known_a_number_used_again_is_another_directory() {
    bounded_by(2, || {
        let model = Model::new(Some(1));
        let again = Identity { generation: 2, ..DIR };
        model.look_up(b"a");
        let reader = spawn(&model, |m| assert!(m.find(b"a").is_none_or(|n| n == 1)));
        model.change(b"a", None);
        model.known.put(again, b"a", &child(9), model.now());
        reader.join().expect("no panic");
        assert_eq!(model.find(b"a"), None);
    });
}

#[test]
fn loom_known_a_closed_directory_is_not_searched() {
    bounded(|| {
        let model = Model::new(Some(1));
        let walker = spawn(&model, |m| {
            m.look_up(b"a");
        });
        // Relaxed: as the word of an inode is changed.
        model.open.store(false, Ordering::Relaxed);
        model.known.close();
        walker.join().expect("no panic");
        let found = model.known.find(DIR, b"a", model.now()).expect("it was put");
        assert!(!found.searchable);
    });
}
