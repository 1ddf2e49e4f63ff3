//! Values in numbered slots that are used again.

/// Values in numbered slots that are used again.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a value into a free slot; gives the slot.
    pub fn insert(&mut self, value: T) -> usize {
        if let Some(slot) = self.free.pop() {
            self.slots[slot] = Some(value);
            return slot;
        }
        self.slots.push(Some(value));
        self.slots.len() - 1
    }

    /// The value of a slot in use.
    pub fn get_mut(&mut self, slot: usize) -> &mut T {
        self.slots[slot].as_mut().expect("a slot is used between its insert and its remove")
    }

    /// Takes the value of a slot out.
    pub fn remove(&mut self, slot: usize) -> T {
        let value = self.slots[slot].take().expect("a slot is removed once");
        self.free.push(slot);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), 'a');
        assert_eq!(slab.insert('c'), a);
        assert_eq!((*slab.get_mut(a), *slab.get_mut(b)), ('c', 'b'));
    }
}
