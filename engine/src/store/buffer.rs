//! Pages as journals see them that log images.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::page::Page;
use crate::device::BLOCK_SIZE;
use crate::format::{DeltaHeader, DeltaKind, U16, U64};
use crate::journal::baseline::{Buffer, UNIT, UNITS};

impl Page {
    /// Appends a write of all bytes of a range, whatever they are: no word is left out because it follows itself.
    fn log_range(&self, bytes: &[u8; BLOCK_SIZE], range: Range<usize>, into: &mut Vec<u8>) {
        let header = DeltaHeader {
            block: U64::new(self.block()),
            offset: U16::new(range.start as u16),
            len: U16::new(range.len() as u16),
            kind: DeltaKind::Write as u8,
            aux: self.kind() as u8,
            again: U16::ZERO,
        };
        into.extend_from_slice(header.as_bytes());
        into.extend_from_slice(&bytes[range]);
    }

    fn log_units_of(&self, bytes: &[u8; BLOCK_SIZE], units: u16, into: &mut Vec<u8>) {
        for unit in (0..UNITS).filter(|unit| units & 1 << unit != 0) {
            self.log_range(bytes, unit * UNIT..(unit + 1) * UNIT, into);
        }
    }
}

impl Buffer for Page {
    fn block(&self) -> u64 {
        Page::block(self)
    }

    fn copy(&self, into: &mut [u8; BLOCK_SIZE]) {
        self.read(|bytes| into.copy_from_slice(bytes));
    }

    fn log_block(&self, frozen: Option<&[u8; BLOCK_SIZE]>, into: &mut Vec<u8>) {
        match frozen {
            Some(bytes) => self.log_range(bytes, 0..BLOCK_SIZE, into),
            None => self.read(|bytes| self.log_range(bytes, 0..BLOCK_SIZE, into)),
        }
    }

    fn log_units(&self, units: u16, frozen: Option<&[u8; BLOCK_SIZE]>, into: &mut Vec<u8>) {
        match frozen {
            Some(bytes) => self.log_units_of(bytes, units, into),
            None => self.read(|bytes| self.log_units_of(bytes, units, into)),
        }
    }
}
