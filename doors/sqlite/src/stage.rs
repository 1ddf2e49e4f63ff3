//! What a transaction has written to its database and not committed: a layer above the file, in memory.
//!
//! It is kept in pieces of 4 KiB at multiples of that, each whole: where a write covers a piece in part, the rest is read
//! from the file once. The layer has a length of its own, which is the file's as this connection sees it.

use narufs::{Batch, File, Result};
use std::collections::BTreeMap;

/// Bytes of a piece.
pub const PIECE: u64 = 4096;

type Piece = Box<[u8; PIECE as usize]>;

/// Pieces that are kept for the next transaction.
const SPARE: usize = 64;

/// The layer. Empty, and without a length, it is not there.
#[derive(Default)]
pub struct Stage {
    pieces: BTreeMap<u64, Piece>,
    /// The length of the file with this layer; none while there is no layer.
    len: Option<u64>,
    spare: Vec<Piece>,
}

impl Stage {
    /// Whether the file is all that there is.
    pub fn is_empty(&self) -> bool {
        self.len.is_none()
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The length of the file with this layer.
    pub fn len(&self, file: &File) -> Result<u64> {
        match self.len {
            Some(len) => Ok(len),
            None => Ok(file.metadata()?.len()),
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.len = None;
        let room = SPARE - self.spare.len().min(SPARE);
        let pieces = std::mem::take(&mut self.pieces);
        self.spare.extend(pieces.into_values().take(room));
    }

    /// Reads through the layer; gives how many bytes there are.
    pub fn read(&self, file: &File, into: &mut [u8], offset: u64) -> Result<usize> {
        let Some(len) = self.len else { return file.read_at(into, offset) };
        let there = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX).min(into.len());
        let into = &mut into[..there];
        let mut done = 0;
        while done < there {
            let at = offset + done as u64;
            let (number, within) = (at / PIECE, (at % PIECE) as usize);
            let n = (PIECE as usize - within).min(there - done);
            let part = &mut into[done..done + n];
            match self.pieces.get(&number) {
                Some(piece) => part.copy_from_slice(&piece[within..within + n]),
                None => read_or_zeros(file, part, at)?,
            }
            done += n;
        }
        Ok(there)
    }

    /// Writes into the layer.
    pub fn write(&mut self, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
        let len = self.len(file)?;
        // What the file has beyond the end that this connection sees is not to come back.
        if offset > len {
            let real = file.metadata()?.len();
            self.zeros(file, len..offset.min(real))?;
        }
        self.put(file, bytes, offset)?;
        self.len = Some(len.max(offset + bytes.len() as u64));
        Ok(())
    }

    fn zeros(&mut self, file: &File, range: std::ops::Range<u64>) -> Result<()> {
        const ZEROS: [u8; PIECE as usize] = [0; PIECE as usize];
        let mut at = range.start;
        while at < range.end {
            let n = (PIECE - at % PIECE).min(range.end - at);
            self.put(file, &ZEROS[..n as usize], at)?;
            at += n;
        }
        Ok(())
    }

    fn put(&mut self, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, within) = (at / PIECE, (at % PIECE) as usize);
            let n = (PIECE as usize - within).min(bytes.len() - done);
            if !self.pieces.contains_key(&number) {
                let mut piece = self.spare.pop().unwrap_or_else(|| Box::new([0; PIECE as usize]));
                if n < PIECE as usize {
                    let len = self.len(file)?;
                    let start = number * PIECE;
                    let seen = (len.saturating_sub(start).min(PIECE)) as usize;
                    read_or_zeros(file, &mut piece[..seen], start)?;
                    piece[seen..].fill(0);
                }
                self.pieces.insert(number, piece);
            }
            let piece = self.pieces.get_mut(&number).expect("put there above");
            piece[within..within + n].copy_from_slice(&bytes[done..done + n]);
            done += n;
        }
        Ok(())
    }

    /// Cuts the file, or makes it longer by zeros, as far as the layer is concerned.
    pub fn set_len(&mut self, file: &File, len: u64) -> Result<()> {
        let now = self.len(file)?;
        if len > now {
            let real = file.metadata()?.len();
            self.zeros(file, now..len.min(real))?;
        } else {
            let _cut = self.pieces.split_off(&len.div_ceil(PIECE));
            if let Some(last) = self.pieces.get_mut(&(len / PIECE)) {
                last[(len % PIECE) as usize..].fill(0);
            }
        }
        self.len = Some(len);
        Ok(())
    }

    /// The layer in order: bytes and their offsets, as far as the file goes.
    fn parts(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let len = self.len.unwrap_or(0);
        self.pieces.iter().filter_map(move |(number, piece)| {
            let at = number * PIECE;
            let n = len.saturating_sub(at).min(PIECE) as usize;
            (n > 0).then(|| (&piece[..n], at))
        })
    }

    /// Adds the layer to a batch.
    pub fn add_to(&self, batch: &mut Batch, file: &File) -> Result<()> {
        self.parts().try_for_each(|(bytes, at)| batch.write_all_at(file, bytes, at))
    }

    /// Whether the file is longer than the layer says: it is to be cut once the layer is in it.
    pub fn cuts(&self, file: &File) -> Result<Option<u64>> {
        let Some(len) = self.len else { return Ok(None) };
        let real = file.metadata()?.len();
        Ok((real > len).then_some(len))
    }

    /// Makes the file as long as the layer, where no piece of it does.
    pub fn grows(&self, file: &File) -> Result<Option<u64>> {
        let Some(len) = self.len else { return Ok(None) };
        let real = file.metadata()?.len();
        let last = self.pieces.last_key_value().map_or(0, |(number, _)| (number + 1) * PIECE);
        Ok((len > real && last < len).then_some(len))
    }

    /// Forgets what the file has already, so that a rollback needs no room.
    pub fn drop_equal(&mut self, file: &File) -> Result<()> {
        let mut there = [0; PIECE as usize];
        let len = self.len(file)?;
        let mut failed = None;
        self.pieces.retain(|number, piece| {
            let at = number * PIECE;
            let n = len.saturating_sub(at).min(PIECE) as usize;
            match file.read_at(&mut there[..n], at) {
                Ok(read) => read < n || there[..n] != piece[..n],
                Err(e) => {
                    failed = Some(e);
                    true
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Writes the layer into the file as any writer would, and forgets it.
    pub fn write_home(&mut self, file: &File) -> Result<()> {
        self.parts().try_for_each(|(bytes, at)| file.write_all_at(bytes, at))?;
        if let Some(len) = self.len
            && file.metadata()?.len() != len
        {
            file.set_len(len)?;
        }
        self.clear();
        Ok(())
    }
}

/// Reads; what the file does not have is zeros.
fn read_or_zeros(file: &File, into: &mut [u8], offset: u64) -> Result<()> {
    let read = file.read_at(into, offset)?;
    into[read..].fill(0);
    Ok(())
}
