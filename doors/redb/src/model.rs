//! A file as narufs promises it and no better: what a crash may leave of it, and how often it was flushed.
//!
//! Until a sync of the file, any sector of a write may be there or not. Batches and changes of length are records of a
//! journal: whole or not there, and none without those before it. Not here: an older version of a sector that was written
//! twice.

use crate::layer::Layer;
use crate::medium::{Medium, Part};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::StorageBackend;
use std::io;
use std::sync::Arc;

const SECTOR: usize = 512;

/// The file; clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Model(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// What was done since.
    pending: Vec<Change>,
    flushes: usize,
    /// Batches are left in parts: for a test that must fail.
    torn: bool,
    /// More than so many pages are too much for a batch.
    most: usize,
    random: StdRng,
    /// How many images each change adds.
    images_each: usize,
    /// What was promised so far.
    promised: Promised,
    images: Vec<(Vec<u8>, Promised)>,
}

#[derive(Debug)]
enum Change {
    Written(u64, Vec<u8>),
    /// The new length, and whether it is durable.
    Resized(u64, bool),
    /// The parts, and whether they are durable.
    Batch(Vec<(u64, Vec<u8>)>, bool),
}

/// Numbers of transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Promised {
    /// Answered, and to be there.
    pub(crate) answered: u64,
    /// Begun, and perhaps there.
    pub(crate) begun: u64,
}

fn put(bytes: &mut Vec<u8>, offset: u64, what: &[u8]) {
    let (from, to) = (offset as usize, offset as usize + what.len());
    if bytes.len() < to {
        bytes.resize(to, 0);
    }
    bytes[from..to].copy_from_slice(what);
}

impl Inner {
    /// A state that a crash may leave.
    fn image(&mut self) -> Vec<u8> {
        let records = self.pending.iter().filter(|change| !matches!(change, Change::Written(..))).count();
        let kept = self.random.random_range(0..=records);
        let (mut image, mut record) = (self.durable.clone(), 0);
        for change in &self.pending {
            record += usize::from(!matches!(change, Change::Written(..)));
            match change {
                Change::Written(offset, bytes) => {
                    for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                        if self.random.random() {
                            put(&mut image, offset + (number * SECTOR) as u64, sector);
                        }
                    }
                }
                Change::Resized(len, durable) if *durable || record <= kept => image.resize(*len as usize, 0),
                Change::Batch(parts, durable) if *durable || record <= kept => {
                    for (offset, bytes) in parts {
                        put(&mut image, *offset, bytes);
                    }
                }
                Change::Batch(parts, _) if self.torn && record == kept + 1 => {
                    for (offset, bytes) in parts {
                        if self.random.random() {
                            put(&mut image, *offset, bytes);
                        }
                    }
                }
                Change::Resized(..) | Change::Batch(..) => {}
            }
        }
        image
    }

    fn look(&mut self) {
        for _ in 0..self.images_each {
            let image = self.image();
            self.images.push((image, self.promised));
        }
    }
}

impl Model {
    pub(crate) fn new() -> Model {
        Model(Arc::new(Mutex::new(Inner {
            live: Vec::new(),
            durable: Vec::new(),
            pending: Vec::new(),
            flushes: 0,
            torn: false,
            most: usize::MAX,
            random: StdRng::seed_from_u64(1),
            images_each: 0,
            promised: Promised::default(),
            images: Vec::new(),
        })))
    }

    /// From now on each change is followed by so many crashes.
    pub(crate) fn crash(&self, images_each: usize) {
        self.0.lock().images_each = images_each;
    }

    pub(crate) fn tear(&self) {
        self.0.lock().torn = true;
    }

    pub(crate) fn refuse_batches_beyond(&self, pages: usize) {
        self.0.lock().most = pages;
    }

    pub(crate) fn promise(&self, change: impl FnOnce(&mut Promised)) {
        change(&mut self.0.lock().promised);
    }

    /// What crashes have left, and what had been promised then.
    pub(crate) fn images(&self) -> Vec<(Vec<u8>, Promised)> {
        std::mem::take(&mut self.0.lock().images)
    }

    pub(crate) fn flushes(&self) -> usize {
        self.0.lock().flushes
    }
}

impl Medium for Model {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().live.len() as u64)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let inner = self.0.lock();
        let from = offset as usize;
        let there = inner.live.get(from..from + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(there);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.0.lock();
        put(&mut inner.live, offset, bytes);
        inner.pending.push(Change::Written(offset, bytes.to_vec()));
        inner.look();
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.live.resize(len as usize, 0);
        inner.pending.push(Change::Resized(len, false));
        inner.look();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.look();
        inner.flushes += 1;
        inner.durable = inner.live.clone();
        inner.pending.clear();
        inner.look();
        Ok(())
    }

    fn commit<'a>(&self, parts: impl Iterator<Item = Part<'a>>, durable: bool) -> io::Result<bool> {
        let parts: Vec<(u64, Vec<u8>)> = parts.map(|(offset, bytes)| (offset, bytes.to_vec())).collect();
        let mut inner = self.0.lock();
        if parts.len() > inner.most {
            return Ok(false);
        }
        for (offset, bytes) in &parts {
            put(&mut inner.live, *offset, bytes);
        }
        inner.pending.push(Change::Batch(parts, false));
        inner.look();
        if durable {
            inner.flushes += 1;
            for change in &mut inner.pending {
                match change {
                    Change::Written(..) => {}
                    Change::Resized(_, is_durable) | Change::Batch(_, is_durable) => *is_durable = true,
                }
            }
            if !inner.pending.iter().any(|change| matches!(change, Change::Written(..))) {
                inner.durable = inner.live.clone();
                inner.pending.clear();
            }
            inner.look();
        }
        Ok(true)
    }
}

/// The layer over a model, as redb sees it.
#[derive(Debug)]
pub(crate) struct OnModel(pub(crate) Layer<Model>);

impl StorageBackend for OnModel {
    fn len(&self) -> io::Result<u64> {
        self.0.medium().len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.set_alone(false)
    }
}
