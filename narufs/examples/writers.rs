//! Threads that append to one file, each told where its bytes went; nothing overlaps and no gap is left.
//!
//! `cargo run -p narufs --example writers`

use narufs::{Fs, OpenOptions, ScratchOptions};

const THREADS: u8 = 8;
const APPENDS: usize = 1000;
const LEN: usize = 100;

fn main() -> narufs::Result<()> {
    let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
    let file = fs.open_with("/log", OpenOptions::new().read(true).append(true).create(true))?;
    let offsets: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let write = |n| {
            let file = &file;
            move || (0..APPENDS).map(|_| file.append_all(&[n; LEN])).collect::<narufs::Result<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(write(n))).collect();
        threads.into_iter().map(|t| t.join().expect("no thread panics")).collect::<narufs::Result<_>>()
    })?;
    let mut found = [0; LEN];
    for (n, offsets) in (0..THREADS).zip(&offsets) {
        for offset in offsets {
            file.read_exact_at(&mut found, *offset)?;
            assert_eq!(found, [n; LEN]);
        }
    }
    println!("{} appends of {LEN} bytes make {} bytes", APPENDS * THREADS as usize, file.metadata()?.len());
    drop(file);
    fs.close()
}
