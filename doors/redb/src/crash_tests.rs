//! redb itself over the layer, over a file that loses what it may: what was answered is there, and whole.

use crate::layer::{Layer, MOST};
use crate::model::{Model, OnModel, Promised};
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use redb::{TableError, WriteTransaction};

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const LAST: TableDefinition<u64, u64> = TableDefinition::new("last");

/// Transactions whose rows stay.
const KEPT: u64 = 3;

/// What is run, and over what.
#[derive(Clone, Copy)]
struct Case {
    two_phases: bool,
    quick_repair: bool,
    /// Every how many transactions one is durable.
    durable_each: u64,
    rows: u64,
    /// Of a row.
    bytes: usize,
    /// Pages that the layer takes.
    most: usize,
    /// Pages that a batch takes.
    batch: usize,
    transactions: u64,
    images_each: usize,
}

const SMALL: Case = Case {
    two_phases: false,
    quick_repair: false,
    durable_each: 1,
    rows: 2,
    bytes: 100,
    most: MOST,
    batch: usize::MAX,
    transactions: 30,
    images_each: 4,
};

fn database(model: &Model, most: usize) -> Database {
    let layer = Layer::new(model.clone(), most);
    layer.set_alone(true).expect("nothing is staged");
    Builder::new().create_with_backend(OnModel(layer)).expect("it is empty")
}

impl Case {
    fn begin(&self, db: &Database, number: u64) -> WriteTransaction {
        let mut write = db.begin_write().expect("nobody else writes");
        write.set_two_phase_commit(self.two_phases);
        write.set_quick_repair(self.quick_repair);
        if !number.is_multiple_of(self.durable_each) {
            write.set_durability(Durability::None).expect("there is no savepoint");
        }
        write
    }

    fn run(&self, db: &Database, model: &Model) {
        for number in 1..=self.transactions {
            let write = self.begin(db, number);
            {
                let mut rows = write.open_table(ROWS).expect("a table");
                for row in 0..self.rows {
                    let value = vec![number as u8; self.bytes];
                    rows.insert(number * 1000 + row, &*value).expect("room");
                    if let Some(old) = number.checked_sub(KEPT) {
                        rows.remove(old * 1000 + row).expect("a table");
                    }
                }
                write.open_table(LAST).expect("a table").insert(0, number).expect("room");
            }
            model.promise(|promised| promised.begun = number);
            write.commit().expect("it has power");
            if number.is_multiple_of(self.durable_each) {
                model.promise(|promised| promised.answered = number);
            }
        }
    }

    /// What is wrong with what a crash has left, if anything.
    fn judge(&self, image: &[u8], promised: Promised) -> Result<(), String> {
        let memory = InMemoryBackend::new();
        memory.set_len(image.len() as u64).map_err(|e| e.to_string())?;
        memory.write(0, image).map_err(|e| e.to_string())?;
        let mut db = Builder::new().create_with_backend(memory).map_err(|e| e.to_string())?;
        if !db.check_integrity().map_err(|e| e.to_string())? {
            return Err("it was not whole".to_owned());
        }
        let read = db.begin_read().map_err(|e| e.to_string())?;
        let last = match read.open_table(LAST) {
            Err(TableError::TableDoesNotExist(_)) => 0,
            last => {
                last.map_err(|e| e.to_string())?.get(0).map_err(|e| e.to_string())?.map_or(0, |n| n.value())
            }
        };
        if last < promised.answered || last > promised.begun {
            return Err(format!("{last} is the last, and {promised:?}"));
        }
        if last == 0 {
            return Ok(());
        }
        let rows = read.open_table(ROWS).map_err(|e| e.to_string())?;
        let mut found = 0;
        for row in rows.iter().map_err(|e| e.to_string())? {
            let (key, value) = row.map_err(|e| e.to_string())?;
            let number = key.value() / 1000;
            let is_of_it =
                value.value().len() == self.bytes && value.value().iter().all(|b| *b == number as u8);
            if !is_of_it || number + KEPT <= last {
                return Err(format!("row {} after {last}", key.value()));
            }
            found += 1;
        }
        let expected = last.min(KEPT) * self.rows;
        if found == expected { Ok(()) } else { Err(format!("{found} rows of {expected} after {last}")) }
    }

    /// The same; redb may panic on what it takes for whole.
    fn wrong_with(&self, image: &[u8], promised: Promised) -> Option<String> {
        let judged = std::panic::catch_unwind(|| self.judge(image, promised));
        judged.unwrap_or_else(|_| Err("redb has panicked".to_owned())).err()
    }

    /// How many states crashes have left, and what is wrong with them.
    fn crashes(&self, model: &Model) -> (usize, Vec<String>) {
        let db = database(model, self.most);
        model.refuse_batches_beyond(self.batch);
        model.crash(self.images_each);
        self.run(&db, model);
        drop(db);
        let images = model.images();
        let wrong = images.iter().filter_map(|(image, promised)| self.wrong_with(image, *promised)).collect();
        (images.len(), wrong)
    }

    fn holds(&self) {
        let (states, wrong) = self.crashes(&Model::new());
        assert!(states > 50, "{states} states");
        assert_eq!(wrong, [""; 0], "{} of {states} states", wrong.len());
    }
}

#[test]
fn what_was_answered_is_there_after_a_crash_with_one_phase() {
    SMALL.holds();
}

#[test]
fn what_was_answered_is_there_after_a_crash_with_two_phases() {
    Case { two_phases: true, ..SMALL }.holds();
    Case { two_phases: true, quick_repair: true, ..SMALL }.holds();
}

#[test]
fn what_was_answered_is_there_after_a_crash_where_some_commits_are_not_durable() {
    Case { durable_each: 3, ..SMALL }.holds();
    Case { durable_each: 2, two_phases: true, ..SMALL }.holds();
}

#[test]
fn what_was_answered_is_there_after_a_crash_where_the_layer_is_full() {
    let large = Case { rows: 10, bytes: 3000, most: 8, transactions: 8, images_each: 1, ..SMALL };
    large.holds();
    Case { two_phases: true, ..large }.holds();
    Case { two_phases: true, quick_repair: true, ..large }.holds();
}

#[test]
fn what_was_answered_is_there_after_a_crash_where_batches_are_refused() {
    let refused = Case { rows: 4, bytes: 1000, batch: 3, transactions: 10, images_each: 1, ..SMALL };
    refused.holds();
    Case { two_phases: true, ..refused }.holds();
}

/// What joins two phases leans on that.
#[test]
fn a_batch_that_is_left_in_parts_is_noticed() {
    let model = Model::new();
    model.tear();
    let (_, wrong) = Case { two_phases: true, ..SMALL }.crashes(&model);
    assert!(!wrong.is_empty());
}

/// Flushes of commits that change one row each and make nothing longer.
fn flushes(case: Case, alone: bool) -> usize {
    let model = Model::new();
    let layer = Layer::new(model.clone(), MOST);
    layer.set_alone(alone).expect("nothing is staged");
    let db = Builder::new().create_with_backend(OnModel(layer)).expect("it is empty");
    let commit = |number| {
        let write = case.begin(&db, number);
        write.open_table(LAST).expect("a table").insert(0, number).expect("room");
        write.commit().expect("it has power");
    };
    (1..=20).for_each(commit);
    let before = model.flushes();
    (21..=40).for_each(commit);
    model.flushes() - before
}

#[test]
fn a_commit_is_one_flush_with_one_phase_and_with_two() {
    let two_phases = Case { two_phases: true, ..SMALL };
    let quick_repair = Case { two_phases: true, quick_repair: true, ..SMALL };
    assert_eq!([SMALL, two_phases, quick_repair].map(|case| flushes(case, true)), [20, 20, 20]);
    // As redb asks for them.
    assert_eq!([SMALL, two_phases, quick_repair].map(|case| flushes(case, false)), [20, 40, 40]);
}
