//! What making and removing a file costs where 99, 50 and 1 of a hundred inode ids of the table are in use, through the
//! library.
//!
//! `cargo run --release --locked -p narufs-research --example full_table -- IMAGE IDS` makes the image IMAGE and a table
//! of at least IDS ids. What is freed to come to a share lies all over the table, in no order.

use narufs_engine::path::{self, Fs};
use narufs_engine::volume::VolumeOptions;
use narufs_engine::{FormatOptions, Result};
use std::time::Instant;

/// Files that are made and removed in a round.
const FILES: u64 = 2000;
/// Rounds; of an odd number of them there is a median.
const ROUNDS: usize = 15;
/// Names in a directory.
const NAMES: u64 = 1000;

/// The file that has the place `n`: odd multiples modulo a power of two are a permutation of no obvious order.
fn name(n: u64, ids: u64) -> String {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % ids.next_power_of_two();
    format!("/{}/{n}", n / NAMES)
}

fn median(mut ns: Vec<f64>) -> f64 {
    ns.sort_by(f64::total_cmp);
    ns[ns.len() / 2]
}

/// Nanoseconds that each of [`FILES`] steps takes.
fn timed(step: impl Fn(u64) -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    (0..FILES).try_for_each(step)?;
    Ok(begun.elapsed().as_nanos() as f64 / FILES as f64)
}

fn show(fs: &Fs, share: u64) -> Result<()> {
    let (mut made, mut removed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        made.push(timed(|n| fs.create(format!("/own/{n}")).map(drop))?);
        removed.push(timed(|n| fs.remove_file(format!("/own/{n}")))?);
        // What is removed gives its id back once that is committed.
        fs.inodes().syncfs()?;
    }
    println!("| {share} % | {:.0} | {:.0} |", median(made), median(removed));
    Ok(())
}

fn main() -> Result<()> {
    let usage = "full_table IMAGE IDS";
    let mut args = std::env::args().skip(1);
    let (image, ids) = (args.next().expect(usage), args.next().expect(usage));
    let ids: u64 = ids.parse().expect("a number of ids");
    // An inode takes a sixteenth of a block, a name a hundredth or so; and room for the rest.
    let blocks = ids / 8 + (1 << 16);
    path::format(&image, &FormatOptions { blocks: Some(blocks), ..FormatOptions::default() })?;
    let fs = Fs::mount(&image, &VolumeOptions::default())?;
    fs.create_dir("/own")?;
    for dir in 0..=ids.next_power_of_two() / NAMES {
        fs.create_dir(format!("/{dir}"))?;
    }
    for n in 0..ids {
        drop(fs.create(name(n, ids))?);
    }
    println!("| of {ids} ids in use | ns to make a file | to remove it |\n| ---: | ---: | ---: |");
    let mut left = ids;
    for share in [99, 50, 1] {
        let keep = ids / 100 * share;
        for n in keep..left {
            fs.remove_file(name(n, ids))?;
        }
        left = keep;
        fs.inodes().syncfs()?;
        show(&fs, share)?;
    }
    fs.unmount()
}
