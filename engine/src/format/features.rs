//! Feature bits: what an image uses beyond its format version, and what a build that does not know it may do.
//!
//! A build keeps the bits that it does not know: they are retained here, and every writer of the superblock
//! writes back the words that it has read. docs/FORMAT.md, "Versions and features", says how a bit is added.

use super::Superblock;
use bitflags::bitflags;
use std::fmt;

bitflags! {
    /// Features that a build which does not know them may ignore, also when it writes or repairs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Compat: u64 {}
}

bitflags! {
    /// Features that a build which does not know them may read past, but must not write past.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct RoCompat: u64 {}
}

bitflags! {
    /// Features without which nothing else of the image can be understood.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Incompat: u64 {
        /// There may be batches in the orphan tables whose pages are to be moved.
        const BATCHES = 1;
    }
}

/// The three words of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// May be ignored where it is not known.
    pub compat: Compat,
    /// May be read, and not written, where it is not known.
    pub ro_compat: RoCompat,
    /// Must be known.
    pub incompat: Incompat,
}

/// What may be done with an image that has some features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    Write,
    /// It can be mounted read-only. A check would take what it does not know for damage.
    Read,
    /// Nothing.
    Refused,
}

impl Features {
    /// Those of a superblock, unknown bits among them.
    pub fn of(sb: &Superblock) -> Features {
        Features {
            compat: Compat::from_bits_retain(sb.compat.get()),
            ro_compat: RoCompat::from_bits_retain(sb.ro_compat.get()),
            incompat: Incompat::from_bits_retain(sb.incompat.get()),
        }
    }

    /// Those among them that this build does not know.
    pub fn unknown(self) -> Features {
        Features {
            compat: self.compat.difference(Compat::all()),
            ro_compat: self.ro_compat.difference(RoCompat::all()),
            incompat: self.incompat.difference(Incompat::all()),
        }
    }

    /// What this build may do with an image that has them.
    pub fn access(self) -> Access {
        let unknown = self.unknown();
        match (unknown.incompat.is_empty(), unknown.ro_compat.is_empty()) {
            (false, _) => Access::Refused,
            (true, false) => Access::Read,
            (true, true) => Access::Write,
        }
    }
}

/// The words that are not zero, in hexadecimal.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            ("compat", self.compat.bits()),
            ("ro_compat", self.ro_compat.bits()),
            ("incompat", self.incompat.bits()),
        ];
        let mut words = words.iter().filter(|(_, bits)| *bits != 0).peekable();
        if words.peek().is_none() {
            return f.write_str("none");
        }
        while let Some((name, bits)) = words.next() {
            write!(f, "{name} {bits:#x}{}", if words.peek().is_some() { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn words(compat: u64, ro_compat: u64, incompat: u64) -> Features {
        Features {
            compat: Compat::from_bits_retain(compat),
            ro_compat: RoCompat::from_bits_retain(ro_compat),
            incompat: Incompat::from_bits_retain(incompat),
        }
    }

    #[test]
    fn every_bit_that_is_not_known_counts() {
        for bit in (0..64).map(|n| 1u64 << n) {
            let known = Compat::all().bits() | RoCompat::all().bits() | Incompat::all().bits();
            if known & bit != 0 {
                continue;
            }
            assert_eq!(words(bit, 0, 0).access(), Access::Write);
            assert_eq!(words(bit, bit, 0).access(), Access::Read);
            assert_eq!(words(bit, bit, bit).access(), Access::Refused);
            assert_eq!(words(0, 0, bit).access(), Access::Refused);
            assert_eq!(words(bit, bit, bit).unknown(), words(bit, bit, bit));
        }
        assert_eq!(Features::default().access(), Access::Write);
        let all = words(Compat::all().bits(), RoCompat::all().bits(), Incompat::all().bits());
        assert_eq!((all.access(), all.unknown()), (Access::Write, Features::default()));
    }

    #[test]
    fn words_that_are_zero_are_not_shown() {
        assert_eq!(Features::default().to_string(), "none");
        assert_eq!(words(0, 0x10, 0).to_string(), "ro_compat 0x10");
        assert_eq!(words(1, 0, 1 << 63).to_string(), "compat 0x1, incompat 0x8000000000000000");
    }
}
