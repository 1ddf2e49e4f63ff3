//! Trees against a map from each block of the file to its block on the device.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::alloc::testing::{bits_set, end_quarantine, image};
use crate::alloc::{Alloc, Class};
use crate::format::Inode;
use crate::store::Store;
use zerocopy::FromZeros;

type Model = BTreeMap<u64, (u64, bool)>;

struct Fixture {
    store: Store,
    alloc: Alloc,
    root: Root,
    model: Model,
}

impl Fixture {
    fn new(blocks: u64) -> Fixture {
        let store = image(blocks);
        let alloc = Alloc::load(&store).expect("a fresh image");
        Fixture { store, alloc, root: Root::new(7, 1), model: Model::new() }
    }

    /// One operation: edits a copy of the root, commits, publishes.
    fn edit<T>(
        &mut self,
        f: impl FnOnce(&mut crate::store::Handle<'_>, &Alloc, &mut Root) -> Result<T>,
    ) -> Result<T> {
        let mut handle = self.store.begin(1000)?;
        let mut root = self.root.clone();
        let value = f(&mut handle, &self.alloc, &mut root)?;
        handle.commit()?;
        self.root = root;
        Ok(value)
    }

    fn insert(&mut self, logical: u32, len: u32, unwritten: bool) -> Result<()> {
        let mut at = logical;
        while at < logical + len {
            let extent = self.edit(|h, alloc, root| {
                let extent = alloc.allocate(h, logical + len - at, None, Class::Data, None)?;
                insert(h, alloc, root, at, extent, unwritten, None)?;
                Ok(extent)
            })?;
            for n in 0..extent.len {
                self.model.insert(u64::from(at + n), (extent.start + u64::from(n), unwritten));
            }
            at += extent.len;
        }
        Ok(())
    }

    fn until_done(
        &mut self,
        mut f: impl FnMut(&mut crate::store::Handle<'_>, &Alloc, &mut Root, u64) -> Result<Progress>,
        from: u64,
    ) {
        let mut next = from;
        for _ in 0..10_000 {
            let progress = self.edit(|h, alloc, root| f(h, alloc, root, next)).expect("no error");
            if progress.done {
                return;
            }
            next = progress.next;
        }
        panic!("no end");
    }

    fn remove(&mut self, range: std::ops::Range<u64>, budget: u32) {
        let start = range.start;
        self.until_done(|h, alloc, root, end| remove(h, alloc, root, start..end, budget), range.end);
        self.model.retain(|logical, _| !range.contains(logical));
    }

    fn mark(&mut self, range: std::ops::Range<u64>, unwritten: bool) {
        let end = range.end;
        self.until_done(
            |h, alloc, root, from| match unwritten {
                true => mark_unwritten(h, alloc, root, from..end, 3),
                false => mark_written(h, alloc, root, from..end, 3, None),
            },
            range.start,
        );
        self.model.range_mut(range).for_each(|(_, mapped)| mapped.1 = unwritten);
    }

    fn collapse(&mut self, from: u64, by: u32) {
        let to = from + u64::from(by);
        self.remove(from..to, 2);
        self.until_done(|h, alloc, root, next| shift_down(h, alloc, root, next, by, 3), to);
        let moved = self.model.split_off(&to);
        self.model.extend(moved.into_iter().map(|(logical, mapped)| (logical - u64::from(by), mapped)));
    }

    fn make_hole(&mut self, from: u64, by: u32) {
        self.until_done(|h, alloc, root, until| shift_up(h, alloc, root, from..until, by, 3), LOGICAL_END);
        let moved = self.model.split_off(&from);
        self.model.extend(moved.into_iter().map(|(logical, mapped)| (logical + u64::from(by), mapped)));
    }

    fn verify(&self) {
        let mut seen = Model::new();
        let mut nodes = 0;
        walk(&self.store, &self.root, &mut |item| match item {
            Item::Node { .. } => nodes += 1,
            Item::Problem(problem) => panic!("{problem:?}"),
            Item::Run(run) => {
                for n in 0..u64::from(run.len) {
                    seen.insert(u64::from(run.logical) + n, (run.block + n, run.unwritten));
                }
            }
        });
        assert_eq!(seen, self.model);
        assert_eq!(self.root.blocks, nodes + self.model.len() as u64);
        assert_eq!(bits_set(&self.store), self.root.blocks, "blocks were lost or have two owners");
        let mut at = 0;
        let mut iterated = 0;
        while let Some(run) = next_run(&self.store, &self.root, at).expect("a good tree") {
            assert!(u64::from(run.logical) >= at);
            at = run.end();
            iterated += u64::from(run.len);
        }
        assert_eq!(iterated, self.model.len() as u64);
        assert_eq!(Root::load(&self.image()).expect("a good root"), self.root);
    }

    fn image(&self) -> Inode {
        let mut inode = Inode::new_zeroed();
        inode.nid.set(self.root.nid);
        inode.generation.set(self.root.generation);
        self.root.store(&mut inode);
        inode
    }

    fn lookups(&self, upto: u32) {
        let image = self.image();
        for logical in 0..upto {
            let block = lookup_block(&self.store, &image, logical).expect("a good tree");
            assert_eq!(block, self.model.get(&u64::from(logical)).map(|(block, _)| *block));
            let found = lookup(&self.store, &self.root, logical).expect("a good tree");
            match (found, self.model.get(&u64::from(logical))) {
                (Mapping::Mapped { block, unwritten, len }, Some(mapped)) => {
                    assert_eq!((block, unwritten), *mapped);
                    assert!(len >= 1);
                }
                (Mapping::Hole { len }, None) => {
                    let next =
                        self.model.range(u64::from(logical)..).next().map_or(LOGICAL_END, |(at, _)| *at);
                    assert_eq!(len, next - u64::from(logical));
                }
                (found, expected) => panic!("block {logical}: {found:?} instead of {expected:?}"),
            }
        }
    }
}

#[test]
fn thousands_of_single_blocks_grow_the_tree_and_leave_nothing_behind() {
    let mut file = Fixture::new(20_000);
    let unused = file.alloc.unused();
    for n in 0..3000u32 {
        file.insert(n * 7919 % 3000 * 2, 1, false).expect("room");
    }
    file.verify();
    file.lookups(6100);
    assert!(file.root.depth() >= 1);
    file.remove(1000..5000, 40);
    file.verify();
    file.lookups(6100);
    file.remove(0..LOGICAL_END, 40);
    file.verify();
    assert!(file.root.is_empty() && file.root.depth() == 0 && file.root.blocks == 0);
    end_quarantine(&file.alloc);
    assert_eq!(file.alloc.unused(), unused);
}

#[test]
fn a_file_written_front_to_back_is_few_runs() {
    let mut file = Fixture::new(20_000);
    for n in 0..1000 {
        let goal = file.model.values().next_back().map(|(block, _)| block + 1);
        let extent = file
            .edit(|h, alloc, root| {
                let extent = alloc.allocate(h, 4, goal, Class::Data, None)?;
                insert(h, alloc, root, n * 4, extent, false, None)?;
                Ok(extent)
            })
            .expect("room");
        assert_eq!(extent.len, 4);
        for at in 0..4 {
            file.model.insert(u64::from(n * 4 + at), (extent.start + u64::from(at), false));
        }
    }
    file.verify();
    assert_eq!((file.root.runs.len(), file.root.depth()), (1, 0));
}

#[test]
fn what_is_mapped_is_not_mapped_again_and_files_have_an_end() {
    let mut file = Fixture::new(1000);
    file.insert(10, 10, false).expect("room");
    for logical in [1, 10, 15, 19] {
        assert!(matches!(file.insert(logical, 10, false), Err(crate::Error::Corrupt { .. })));
    }
    assert_eq!(file.insert(u32::MAX - 4, 4, true), Ok(()));
    let past = file.edit(|h, alloc, root| {
        let extent = alloc.allocate(h, 2, None, Class::Data, None)?;
        insert(h, alloc, root, u32::MAX, extent, false, None)
    });
    assert_eq!(past, Err(crate::Error::Errno(libc::EFBIG)));
    let up = file.edit(|h, alloc, root| shift_up(h, alloc, root, 0..LOGICAL_END, 2, 10));
    assert_eq!(up, Err(crate::Error::Errno(libc::EFBIG)));
    file.verify();
    end_quarantine(&file.alloc);
    assert_eq!(file.alloc.unused(), 999 - file.root.blocks);
}

#[test]
fn a_root_with_attributes_beside_it_holds_four() {
    let mut file = Fixture::new(1000);
    for n in 0..6 {
        file.insert(n * 10, 1, false).expect("room");
    }
    file.edit(|h, alloc, root| root.set_capacity(h, alloc, 4)).expect("room");
    assert_eq!((file.root.depth(), file.root.runs.len()), (1, 1));
    file.remove(0..LOGICAL_END, 100);
    assert_eq!(file.root.blocks, 0);
}

#[test]
fn an_edit_takes_no_more_slots_than_it_says() {
    let mut file = Fixture::new(30_000);
    for n in 0..4000u32 {
        let logical = n.reverse_bits() >> 18;
        let depth = file.root.depth();
        let slots = file
            .edit(|h, alloc, root| {
                let extent = alloc.allocate(h, 1, None, Class::Data, None)?;
                insert(h, alloc, root, logical * 2, extent, false, None)?;
                Ok(h.slots_needed())
            })
            .expect("room");
        assert!(slots <= edit_slots(depth, 1) + 1, "{slots} slots at height {depth}");
    }
    let mut from = 0;
    while from < LOGICAL_END {
        let depth = file.root.depth();
        let (slots, progress) = file
            .edit(|h, alloc, root| {
                let progress = mark_unwritten(h, alloc, root, from..LOGICAL_END, 64)?;
                Ok((h.slots_needed(), progress))
            })
            .expect("room");
        assert!(slots <= edit_slots(depth, 64), "{slots} slots at height {depth}");
        assert!(progress.done || progress.next > from);
        from = if progress.done { LOGICAL_END } else { progress.next };
    }
    while !file.root.is_empty() {
        let depth = file.root.depth();
        let slots = file
            .edit(|h, alloc, root| {
                shift_up(h, alloc, root, 3..LOGICAL_END, 5, 32)?;
                Ok(h.slots_needed())
            })
            .expect("room");
        assert!(slots <= edit_slots(depth, 32), "{slots} slots at height {depth}");
        let slots = file
            .edit(|h, alloc, root| {
                remove(h, alloc, root, 0..LOGICAL_END, 64)?;
                Ok(h.slots_needed())
            })
            .expect("room");
        assert!(slots <= edit_slots(depth, 64), "{slots} slots at height {depth}");
    }
}

#[test]
fn a_foreign_node_is_refused() {
    let mut file = Fixture::new(10_000);
    for n in 0..20 {
        file.insert(n * 3, 1, false).expect("room");
    }
    assert_eq!(file.root.depth(), 1);
    let mut other = file.root.clone();
    other.nid = 8;
    assert!(matches!(lookup(&file.store, &other, 0), Err(crate::Error::Corrupt { .. })));
    let mut looped = file.root.clone();
    looped.depth = 3;
    let mut problems = 0;
    walk(&file.store, &looped, &mut |item| problems += u32::from(matches!(item, Item::Problem(_))));
    assert_eq!(problems, 1);
    assert!(matches!(lookup(&file.store, &looped, 0), Err(crate::Error::Corrupt { .. })));
}

/// No edit makes such a tree; what stood there would be out of order for the next one.
#[test]
fn nothing_is_mapped_below_the_first_key() {
    let mut file = Fixture::new(10_000);
    for n in 10..30 {
        file.insert(n * 3, 1, false).expect("room");
    }
    assert_eq!((file.root.depth(), file.root.runs[0].logical), (1, 0));
    file.root.runs[0].logical = 30;
    assert!(matches!(file.insert(3, 1, false), Err(crate::Error::Corrupt { .. })));
    file.insert(31, 1, false).expect("room");
}

#[derive(Debug, Clone)]
enum Step {
    Insert { at: u32, len: u32, unwritten: bool },
    Remove { at: u64, len: u64, budget: u32 },
    Mark { at: u64, len: u64, unwritten: bool },
    Collapse { at: u64, by: u32 },
    MakeHole { at: u64, by: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u32..600, 1u32..12, any::<bool>()).prop_map(|(at, len, unwritten)| Step::Insert { at, len, unwritten }),
        2 => (0u64..600, 1u64..40, 1u32..5).prop_map(|(at, len, budget)| Step::Remove { at, len, budget }),
        2 => (0u64..600, 1u64..40, any::<bool>()).prop_map(|(at, len, unwritten)| Step::Mark { at, len, unwritten }),
        1 => (0u64..600, 1u32..40).prop_map(|(at, by)| Step::Collapse { at, by }),
        1 => (0u64..600, 1u32..40).prop_map(|(at, by)| Step::MakeHole { at, by }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn agrees_with_a_map(seed in 0u32..600, steps in proptest::collection::vec(step(), 1..120)) {
        let mut file = Fixture::new(5000);
        // Enough single runs that some cases start with a tree of several leaves.
        for n in 0..seed {
            file.insert(n * 2, 1, n % 3 == 0).expect("room");
        }
        for step in steps {
            match step {
                Step::Insert { at, len, unwritten } => {
                    let free = (0..len).take_while(|n| !file.model.contains_key(&u64::from(at + n))).count() as u32;
                    if free > 0 {
                        file.insert(at, free, unwritten).expect("room");
                    }
                }
                Step::Remove { at, len, budget } => file.remove(at..at + len, budget),
                Step::Mark { at, len, unwritten } => file.mark(at..at + len, unwritten),
                Step::Collapse { at, by } => file.collapse(at, by),
                Step::MakeHole { at, by } => file.make_hole(at, by),
            }
            end_quarantine(&file.alloc);
        }
        file.verify();
        file.lookups(1300);
        file.remove(0..LOGICAL_END, 50);
        file.verify();
        end_quarantine(&file.alloc);
        prop_assert_eq!(file.alloc.unused(), 4999);
    }
}
