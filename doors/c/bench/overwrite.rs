//! Overwrites 4 KiB blocks of a cached file, and prints nanoseconds a call: `overwrite THREADS CALLS`. Each thread has
//! blocks of its own in a file that all share. overwrite.c is the same in C.

use narufs::{File, Fs, OpenOptions, ScratchOptions};
use std::time::Instant;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;

fn overwrite(file: &File, thread: u64, calls: u64) {
    let block = [0; BLOCK];
    for n in 0..calls {
        let at = (thread * BLOCKS + n % BLOCKS) * BLOCK as u64;
        assert_eq!(file.write_at(&block, at).ok(), Some(BLOCK));
    }
}

fn main() -> narufs::Result<()> {
    let mut words = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (threads, total) = (words.next().unwrap_or(1).max(1), words.next().unwrap_or(1_000_000));
    let fs = Fs::scratch(&ScratchOptions::new(256 << 20))?;
    let file = fs.open_with("/f", OpenOptions::new().read(true).write(true).create(true).mode(0o600))?;
    // By one thread: frames that threads take side by side share cache lines, by chance and for good.
    (0..threads).for_each(|thread| overwrite(&file, thread, BLOCKS));
    let (begin, calls) = (Instant::now(), total / threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let file = &file;
            scope.spawn(move || overwrite(file, thread, calls));
        }
    });
    println!("{:.1}", begin.elapsed().as_secs_f64() * 1e9 / (calls * threads) as f64);
    drop(file);
    fs.close()
}
