//! Random operations with a tiny cache, against a model of what each byte may be after a crash.

use super::image::{Fsync as _, MetaImage, content, path};
use crate::file::{At, ErrorMark, FallocateMode, Fit, SyncKind};
use crate::format::JournalKind;
use crate::sync::Arc;
use crate::sync::atomic::Ordering::SeqCst;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const SPAN: u64 = 40 * 4096;
const BLOCKS: u64 = 300;

/// A set of byte values.
#[derive(Debug, Clone, Copy, Default)]
struct Values([u64; 4]);

impl Values {
    fn only(byte: u8) -> Values {
        let mut values = Values::default();
        values.insert(byte);
        values
    }
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }
    fn contains(self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] & 1 << (byte % 64) != 0
    }
}

/// What a file holds, and what each byte may be after a crash.
#[derive(Default)]
struct Oracle {
    now: Vec<u8>,
    allowed: Vec<Values>,
    sizes: (usize, usize),
}

impl Oracle {
    fn new() -> Oracle {
        Oracle { allowed: vec![Values::only(0); 2 * SPAN as usize], ..Oracle::default() }
    }
    fn note(&mut self) {
        self.sizes.0 = self.sizes.0.min(self.now.len());
        self.sizes.1 = self.sizes.1.max(self.now.len());
        for (i, allowed) in self.allowed.iter_mut().enumerate() {
            allowed.insert(self.now.get(i).copied().unwrap_or(0));
        }
    }
    fn synced(&mut self) {
        self.sizes = (self.now.len(), self.now.len());
        for (i, allowed) in self.allowed.iter_mut().enumerate() {
            *allowed = Values::only(self.now.get(i).copied().unwrap_or(0));
        }
    }
    fn recovered(&mut self, seen: Vec<u8>, seed: u64) {
        assert!(seen.len() >= self.sizes.0 && seen.len() <= self.sizes.1, "seed {seed}: size {}", seen.len());
        for (i, byte) in seen.iter().enumerate() {
            assert!(
                self.allowed[i].contains(*byte),
                "seed {seed}: byte {i} of {} is {byte:#x}, may be {:x?}",
                seen.len(),
                self.allowed[i]
            );
        }
        self.now = seen;
        self.synced();
    }
}

/// On a mapped ring all that was logged survives, on an SSD all that was committed.
fn kind_of(seed: u64) -> JournalKind {
    if seed.is_multiple_of(2) { JournalKind::Pmem } else { JournalKind::Ssd }
}

fn run(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let image = MetaImage::on(kind_of(seed), BLOCKS, rng.random(), 3);
    image.meta().hooks.is_crowded.store(rng.random(), SeqCst);
    let mut path = path(&image, 16);
    let mut file = image.open(1);
    let mut mark = ErrorMark::of(Some(file.data()));
    let mut oracle = Oracle::new();
    // Times that a background, which there is none of, may have been told of the file.
    let mut hurried = 0;
    for _ in 0..60 {
        let at = rng.random_range(0..SPAN);
        let at = if rng.random_bool(0.5) { at / 4096 * 4096 } else { at };
        let size = oracle.now.len() as u64;
        match rng.random_range(0..20) {
            0..6 => {
                let len = if rng.random() { 4096 } else { rng.random_range(1..3 * 4096) };
                let bytes = vec![rng.random_range(1..0xE0u8); len];
                path.write(&file, At::Offset(at), &bytes).expect("room");
                let end = at as usize + len;
                oracle.now.resize(end.max(oracle.now.len()), 0);
                oracle.now[at as usize..end].copy_from_slice(&bytes);
            }
            6 => {
                let bytes = vec![rng.random_range(1..0xE0u8); rng.random_range(1..5000)];
                if size + 5000 < SPAN {
                    path.write(&file, At::Append, &bytes).expect("room");
                    oracle.now.extend(bytes);
                }
            }
            7 => {
                path.truncate(&file, at).expect("always");
                oracle.now.resize(at as usize, 0);
            }
            8 => {
                path.opened(&file);
                path.truncate(&file, 0).expect("always");
                oracle.now.clear();
                if rng.random() {
                    oracle.note();
                    let bytes = vec![rng.random_range(1..0xE0u8); rng.random_range(1..3 * 4096)];
                    path.write(&file, At::Append, &bytes).expect("room");
                    oracle.now = bytes;
                }
                if rng.random() {
                    path.closed(&file);
                    hurried += 1;
                }
            }
            9 | 10 => {
                path.fsync(&file, SyncKind::Data, &mark).expect("no faults");
                oracle.synced();
            }
            11 => {
                path.sync_all(|| Ok(())).expect("no faults");
                oracle.synced();
            }
            12 => {
                let len = rng.random_range(1..5 * 4096);
                path.fallocate(&file, FallocateMode::PunchHole, at, len).expect("always");
                let end = ((at + len) as usize).min(oracle.now.len());
                if (at as usize) < end {
                    oracle.now[at as usize..end].fill(0);
                }
            }
            13 => {
                let len = rng.random_range(1..5 * 4096);
                path.fallocate(&file, FallocateMode::Allocate { keep_size: true }, at, len).expect("room");
            }
            14 => {
                let len = rng.random_range(1..5 * 4096);
                path.fallocate(&file, FallocateMode::ZeroRange { keep_size: false }, at, len).expect("room");
                let end = (at + len) as usize;
                oracle.now.resize(end.max(oracle.now.len()), 0);
                oracle.now[at as usize..end].fill(0);
            }
            15 => {
                let at = at / 4096 * 4096;
                if at + 8192 < size {
                    path.fallocate(&file, FallocateMode::Collapse, at, 8192).expect("within the file");
                    oracle.now.drain(at as usize..at as usize + 8192);
                }
            }
            16 => {
                let at = at / 4096 * 4096;
                if at < size && size < SPAN {
                    path.fallocate(&file, FallocateMode::Insert, at, 8192).expect("within the file");
                    oracle.now.splice(at as usize..at as usize, [0; 8192]);
                }
            }
            17 => image.checkpoint(),
            18 => {
                let written = path.write_direct(&file, At::Offset(at), &[9; 4096], Fit::Part).expect("room");
                oracle.now.resize((written.offset as usize + 4096).max(oracle.now.len()), 0);
                oracle.now[at as usize..at as usize + 4096].fill(9);
            }
            _ => {
                oracle.note();
                image.crash(&mut rng);
                path = super::image::path(&image, 16);
                (file, hurried) = (image.open(1), 0);
                mark = ErrorMark::of(Some(file.data()));
                oracle.recovered(content(&path, &file), seed);
                assert_eq!(image.leaked(), 0, "seed {seed}");
            }
        }
        oracle.note();
        assert!(content(&path, &file) == oracle.now, "seed {seed}: content differs");
    }
    path.sync_all(|| Ok(())).expect("no faults");
    assert_eq!(image.reserved(), 0, "seed {seed}");
    assert_eq!(image.leaked(), 0, "seed {seed}");
    assert!(file.data().is_idle() && Arc::strong_count(&file) <= 1 + hurried, "seed {seed}");
}

#[test]
fn each_byte_is_one_that_it_may_be() {
    let first = std::env::var("NARUFS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..120, |seed| seed..seed + 1);
    for seed in seeds {
        run(seed);
    }
}

#[test]
fn replacing_by_truncation_leaves_the_old_or_the_new() {
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let image = MetaImage::on(kind_of(seed), BLOCKS, rng.random(), 3);
        image.meta().hooks.is_crowded.store(rng.random(), SeqCst);
        let path = path(&image, 16);
        let file = image.open(1);
        let (old, new) = (vec![1; rng.random_range(1..9000)], vec![2; rng.random_range(1..9000)]);
        path.write(&file, At::Append, &old).expect("room");
        path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("no faults");
        path.opened(&file);
        path.truncate(&file, 0).expect("always");
        if rng.random() {
            image.checkpoint();
        }
        path.write(&file, At::Append, &new).expect("room");
        if rng.random() {
            path.closed(&file);
            if rng.random() {
                path.settle_deferred().expect("no faults");
            }
        }
        if rng.random() {
            image.checkpoint();
        }
        image.crash(&mut rng);
        let (path, file) = (super::image::path(&image, 16), image.open(1));
        let seen = content(&path, &file);
        assert!(seen == old || seen == new, "seed {seed}: {} bytes of {:?}", seen.len(), seen.first());
    }
}

#[test]
fn a_rewriting_that_has_only_begun_is_not_recorded_for_the_close_before_it() {
    let image = MetaImage::new(BLOCKS, false);
    let path = path(&image, 16);
    let (file, after) = (image.open(1), image.open(2));
    for file in [&file, &after] {
        path.write(file, At::Append, &[1; 5000]).expect("room");
        path.fsync(file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("no faults");
    }
    let rewrite = |file| {
        path.opened(file);
        path.truncate(file, 0).expect("always");
        path.write(file, At::Append, &[2; 300]).expect("room");
    };
    rewrite(&file);
    path.closed(&file);
    // The next one begins before the background has come to the first; and a close may be heard of late.
    rewrite(&file);
    path.opened(&file);
    path.truncate(&file, 0).expect("always");
    path.closed(&file);
    // What is written in its turn after that.
    rewrite(&after);
    path.closed(&after);
    std::thread::scope(|scope| {
        scope.spawn(|| path.run_background());
        while after.data().logged_size() != 300 {
            std::thread::yield_now();
        }
        path.stop();
    });
    image.crash(&mut StdRng::seed_from_u64(1));
    let (path, file) = (super::image::path(&image, 16), image.open(1));
    assert!(content(&path, &file) == [1; 5000], "a close has recorded an empty file");
}
