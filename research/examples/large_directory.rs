//! One directory of very many names, through the library: made, looked up, listed and removed, with what each takes.
//!
//! `cargo run --release --locked -p narufs-research --example large_directory -- IMAGE NAMES [MIB]` makes the image IMAGE,
//! and mounts it with MIB of memory for metadata pages (256). The names are links of one file, so that the directory
//! alone is measured.

use narufs_engine::format::ROOT_NID;
use narufs_engine::path::{self, Fs, OpenOptions};
use narufs_engine::store::StoreOptions;
use narufs_engine::vfs::Context;
use narufs_engine::volume::VolumeOptions;
use narufs_engine::{FormatOptions, Result};
use std::time::Instant;

fn name(n: u64) -> Vec<u8> {
    // Odd multiples modulo a power of two are a permutation of no obvious order.
    format!("name-{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

/// The most memory that this process has had, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()).map_or(0, |kib| kib.parse().unwrap_or(0) / 1024)
}

fn timed(what: &str, names: u64, fs: &Fs, dir: u64, work: impl FnOnce() -> Result<u64>) -> Result<()> {
    let begun = Instant::now();
    let done = work()?;
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(done, names, "{what}");
    let size = fs.inodes().getattr(dir)?.size >> 20;
    println!("| {what} | {seconds:.1} | {:.2} | {size} | {} |", seconds / names as f64 * 1e6, peak());
    Ok(())
}

fn list(fs: &Fs, dir: u64, mut visit: impl FnMut(&[u8])) -> Result<u64> {
    let handle = fs.inodes().opendir(&Context::root(), dir)?;
    let mut count = 0;
    let read = fs.inodes().readdir(&handle, 2, &mut |entry| {
        count += 1;
        visit(entry.name);
        true
    });
    fs.inodes().releasedir(handle);
    read.map(|()| count)
}

fn main() -> Result<()> {
    let usage = "large_directory IMAGE NAMES [MIB]";
    let mut args = std::env::args().skip(1);
    let (image, names) = (args.next().expect(usage), args.next().expect(usage));
    let names: u64 = names.parse().expect("a number of names");
    let mib: Option<usize> = args.next().map(|mib| mib.parse().expect("a number of MiB"));
    // Twice what the entries take, and room for the rest.
    let blocks = names / 40 + (1 << 16);
    path::format(&image, &FormatOptions { blocks: Some(blocks), ..FormatOptions::default() })?;
    let mut options = VolumeOptions::default();
    if let Some(mib) = mib {
        options.image.store = StoreOptions::with_memory(mib << 20);
    }
    let fs = Fs::mount(&image, &options)?;
    fs.create_dir("/d")?;
    let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
    drop(fs.open("/linked", options)?);
    let (ctx, inodes) = (Context::root(), fs.inodes());
    let nid = |name: &[u8]| -> Result<u64> {
        let entry = inodes.lookup(&ctx, ROOT_NID, name)?;
        inodes.forget(entry.nid, 1);
        Ok(entry.nid)
    };
    let (dir, file) = (nid(b"d")?, nid(b"linked")?);
    println!(
        "| {names} names | s | us each | MiB of directory | peak MiB of memory |\n| --- | ---: | ---: | ---: | ---: |"
    );
    let make = || {
        for n in 0..names {
            inodes.link(&ctx, file, dir, &name(n))?;
            inodes.forget(file, 1);
        }
        Ok(names)
    };
    timed("made", names, &fs, dir, make)?;
    let look_up = || {
        for n in 0..names {
            inodes.lookup(&ctx, dir, &name(n))?;
            inodes.forget(file, 1);
        }
        Ok(names)
    };
    timed("looked up", names, &fs, dir, look_up)?;
    timed("listed", names, &fs, dir, || list(&fs, dir, |_| {}))?;
    let half = names / 2;
    let remove = || {
        for n in 0..half {
            inodes.unlink(&ctx, dir, &name(n))?;
        }
        Ok(half)
    };
    timed("half removed, as made", half, &fs, dir, remove)?;
    let remove = || {
        let mut left = Vec::new();
        list(&fs, dir, |name| left.push(name.to_vec()))?;
        for name in &left {
            inodes.unlink(&ctx, dir, name)?;
        }
        Ok(left.len() as u64)
    };
    timed("the rest removed, as listed", names - half, &fs, dir, remove)?;
    fs.remove_dir("/d")?;
    fs.unmount()
}
