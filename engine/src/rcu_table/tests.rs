#![allow(unsafe_code, reason = "looks at a shard as a reader does")]

use super::*;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, thread};
use std::collections::BTreeSet;

/// An entry that says when it goes.
struct Entry {
    key: u64,
    alive: Arc<AtomicUsize>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Relaxed: a number that is looked at when all threads have ended.
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

fn entry(key: u64, alive: &Arc<AtomicUsize>) -> Arc<Entry> {
    alive.fetch_add(1, Ordering::Relaxed);
    Arc::new(Entry { key, alive: Arc::clone(alive) })
}

fn table(shards: usize) -> (RcuTable<Arc<Entry>, Vec<u64>>, Arc<AtomicUsize>) {
    (RcuTable::new(shards), Arc::default())
}

fn insert(table: &RcuTable<Arc<Entry>, Vec<u64>>, key: u64, alive: &Arc<AtomicUsize>) {
    table.lock(key).insert(key, entry(key, alive));
}

#[test]
fn what_is_there_is_found_and_nothing_else() {
    let (table, alive) = table(4);
    let keys = || (0..3000).map(|n| n * n).chain([u64::MAX, u64::MAX - 1, 1 << 63]);
    assert!(table.get(0).is_none());
    keys().for_each(|key| insert(&table, key, &alive));
    let there: BTreeSet<u64> = keys().collect();
    for key in keys().flat_map(|key| [key.wrapping_sub(1), key, key.wrapping_add(1)]) {
        assert_eq!(table.get(key).map(|entry| entry.key), there.contains(&key).then_some(key));
        assert_eq!(table.lock(key).get(key).is_some(), there.contains(&key));
    }
    assert_eq!(table.len(), there.len());
    let all: BTreeSet<u64> =
        table.each_locked().flat_map(|shard| shard.entries().map(|e| e.key).collect::<Vec<_>>()).collect();
    assert_eq!(all, there);
    for key in keys().filter(|key| key % 3 != 0) {
        table.lock(key).remove_if(key, |_| false);
        table.lock(key).remove_if(key, |entry| entry.key == key);
        assert!(table.get(key).is_none());
    }
    assert!(keys().all(|key| table.get(key).is_some() == (key % 3 == 0)));
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn an_entry_takes_the_place_of_another() {
    let (table, alive) = table(1);
    insert(&table, 5, &alive);
    let old = table.get(5).expect("there");
    insert(&table, 5, &alive);
    assert!(!Arc::ptr_eq(&old, &table.get(5).expect("there")));
    assert_eq!(table.len(), 1);
    drop(old);
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

/// Nothing that was there leaves anything that grows with how much has been there.
#[test]
fn what_comes_and_goes_leaves_nothing_behind() {
    let (table, alive) = table(1);
    let sizes = || table.lock(0).sizes();
    for key in 0..100_000 {
        insert(&table, key * 7, &alive);
        if key >= 10 {
            table.lock(0).remove_if((key - 10) * 7, |_| true);
        }
        let (leaves, places, limbo) = sizes();
        assert!(leaves <= 10 && places <= 128 && limbo <= 16, "{leaves} leaves, {places}, {limbo}");
        assert!(alive.load(Ordering::Relaxed) <= 10 + 16 + 1);
    }
    (0..50_000).for_each(|key| insert(&table, key << 20, &alive));
    assert!(sizes().1 >= 2 * sizes().0);
    for key in 0..100_000 {
        table.lock(0).remove_if(key << 20, |_| true);
        table.lock(0).remove_if(key * 7, |_| true);
    }
    let (leaves, places, limbo) = sizes();
    assert!(leaves == 0 && places <= 32 && limbo <= 16, "{leaves} leaves, {places}, {limbo}");
}

#[test]
fn a_sweep_looks_at_each_in_turn_and_leaves_what_is_used() {
    let (table, alive) = table(1);
    (0..1000).for_each(|key| insert(&table, key, &alive));
    let used: Vec<_> = (0..1000).step_by(10).map(|key| table.get(key)).collect();
    let mut met = BTreeSet::new();
    let nobody = |_: &mut Vec<u64>, _, _: &Arc<Entry>| unreachable!("none may go");
    for _ in 0..100 {
        table.lock(0).sweep(0, 10, |entry| !met.insert(entry.key), nobody);
    }
    assert_eq!(met.len(), 900, "those that are used are not asked about");
    let mut shard = table.lock(0);
    let gone = |beside: &mut Vec<u64>, key, entry: &Arc<Entry>| {
        assert_eq!(entry.key, key);
        beside.push(key);
    };
    shard.sweep(500, 2000, |entry| entry.key % 2 == 1, gone);
    assert!((480..=500).contains(&shard.len()), "{} are left", shard.len());
    shard.sweep(0, 2000, |entry| entry.key % 4 == 2, gone);
    shard.sweep(0, 2000, |entry| entry.key % 4 == 2, gone);
    assert_eq!(shard.len() + shard.beside().len(), 1000);
    let left: BTreeSet<u64> = std::mem::take(shard.beside()).into_iter().collect();
    assert!(left.iter().all(|key| key % 10 != 0 && key % 4 != 0));
    drop(shard);
    for key in 0..1000 {
        assert_eq!(table.get(key).is_none(), left.contains(&key));
    }
    drop(used);
    table.lock(0).sweep(0, 2000, |_| true, |_, _, _| {});
    assert_eq!(table.len(), 0);
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

/// A reader that is held up holds up what was to leave, and nobody else.
#[test]
fn what_is_marked_waits_for_readers_and_stays_if_it_is_wanted() {
    let (table, alive) = table(1);
    (0..10).for_each(|key| insert(&table, key, &alive));
    let reading = table.readers.enter();
    let mut left = 0;
    table.lock(0).sweep(4, 100, |_| true, |_, _, _| left += 1);
    assert_eq!(table.len(), 10, "a reader is inside");
    let marked: Vec<u64> = (0..10)
        .filter(|key| {
            // SAFETY: the reader is inside. Guarded by itself.
            matches!(unsafe { table.shards[0].optimistic_read(*key) }, OptimisticRead::Leaving)
        })
        .collect();
    assert_eq!(marked.len(), 6);
    assert!(table.get(marked[0]).is_some(), "it is found all the same, and stays");
    table.lock(0).remove_if(marked[1], |_| true);
    insert(&table, marked[1], &alive);
    table.lock(0).sweep(0, 100, |_| true, |_, _, _| left += 1);
    assert_eq!(table.len(), 10, "nothing is marked before those are gone");
    drop(reading);
    table.lock(0).sweep(6, 100, |_| true, |_, _, _| left += 1);
    assert_eq!((table.len(), left), (6, 4));
    assert!(marked[..2].iter().all(|key| table.get(*key).is_some()));
    assert!(marked[2..].iter().all(|key| table.get(*key).is_none()));
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

/// Many more threads than cores look, come, go and sweep: what is found is the right one and alive, a key has one
/// entry at a time, and nothing is lost.
#[test]
fn many_threads_find_and_let_go() {
    const KEYS: u64 = 200;
    let (table, alive) = table(2);
    let threads = 4 * crate::sync::available_cores().min(4) as u64;
    let found = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (table, alive, found) = (&table, &alive, &found);
            scope.spawn(move || {
                let mut number = thread + 1;
                let mut kept: Option<Arc<Entry>> = None;
                for step in 0..3000 {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(thread | 1);
                    let key = (number >> 33) % KEYS;
                    match table.get(key) {
                        Some(entry) => {
                            assert_eq!(entry.key, key);
                            found.fetch_add(1, Ordering::Relaxed);
                            if step % 7 == 0 {
                                kept = Some(entry);
                            }
                        }
                        None => {
                            let mut shard = table.lock(key);
                            if shard.get(key).is_none() {
                                shard.insert(key, entry(key, alive));
                            }
                            shard.sweep(
                                20,
                                16,
                                |entry| !entry.key.is_multiple_of(5),
                                |beside, key, _| {
                                    beside.push(key);
                                    beside.truncate(1);
                                },
                            );
                        }
                    }
                    if step % 11 == 0 {
                        table.lock(key).remove_if(key, |entry| entry.key == key);
                    }
                    if let Some(entry) = &kept {
                        // Relaxed: it is alive, so it is counted.
                        assert!(entry.alive.load(Ordering::Relaxed) > 0);
                    }
                }
            });
        }
    });
    assert!(found.into_inner() > 0);
    let all = table.each_locked().map(|shard| shard.entries().count()).sum::<usize>();
    assert_eq!(all, table.len());
    for key in 0..KEYS {
        table.lock(key).remove_if(key, |_| true);
    }
    assert_eq!(table.len(), 0);
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}
