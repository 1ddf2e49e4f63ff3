//! Durable commits of redb, on a file of this directory's file system and in an image of narufs there, in turn.
//!
//! `commits DIR [COMMITS] [ROUNDS] [JOURNAL]`: commits a second (the median of the rounds, the least and the most), and
//! flushes of the device for each where the directory lies on one, those of others among them. With a path for a journal in
//! emulated NVM, which outlives this process and not the machine, the image has that.

use narufs::{FormatOptions, Fs, Journal, MountOptions};
use narufs_redb::NarufsBackend;
use redb::{Builder, Database, TableDefinition};
use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What is measured.
struct Load {
    name: &'static str,
    two_phases: bool,
    quick_repair: bool,
    /// Of a commit.
    rows: u64,
    /// Commits, as a part of those asked for.
    part: u64,
}

const LOADS: [Load; 4] = [
    Load { name: "one row", two_phases: false, quick_repair: false, rows: 1, part: 1 },
    Load { name: "one row, two phases", two_phases: true, quick_repair: false, rows: 1, part: 1 },
    Load { name: "one row, quick repair", two_phases: true, quick_repair: true, rows: 1, part: 1 },
    Load { name: "100 rows", two_phases: false, quick_repair: false, rows: 100, part: 4 },
];

/// One round: commits a second, and flushes for each.
struct Figure {
    rate: f64,
    flushes: Option<f64>,
}

/// Bytes of a row.
const BYTES: usize = 100;

/// Flushes of the device that a directory lies on, so far: the 16th number of its statistics.
fn flushes(dir: &Path) -> Option<u64> {
    let device = dir.metadata().ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    stat.split_whitespace().nth(15)?.parse().ok()
}

fn commits(db: &Database, load: &Load, numbers: std::ops::Range<u64>) -> Outcome<()> {
    for number in numbers {
        let mut write = db.begin_write()?;
        write.set_two_phase_commit(load.two_phases);
        write.set_quick_repair(load.quick_repair);
        {
            let mut rows = write.open_table(ROWS)?;
            for row in 0..load.rows {
                // Spread over the table, as keys of users are.
                let key = (number * load.rows + row).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                rows.insert(key, &[number as u8; BYTES][..])?;
            }
        }
        write.commit()?;
    }
    Ok(())
}

fn measured(dir: &Path, db: &Database, load: &Load, count: u64) -> Outcome<Figure> {
    // The first make the file longer.
    commits(db, load, 0..count / 5)?;
    let (before, began) = (flushes(dir), Instant::now());
    commits(db, load, count / 5..count / 5 + count)?;
    let seconds = began.elapsed().as_secs_f64();
    let flushes = before.zip(flushes(dir)).map(|(before, after)| (after - before) as f64 / count as f64);
    Ok(Figure { rate: count as f64 / seconds, flushes })
}

fn by_file(dir: &Path, load: &Load, count: u64) -> Outcome<Figure> {
    let path = dir.join("commits.redb");
    let figure = measured(dir, &Builder::new().create(&path)?, load, count)?;
    std::fs::remove_file(path)?;
    Ok(figure)
}

fn by_narufs(dir: &Path, load: &Load, count: u64, journal: Option<&Path>) -> Outcome<Figure> {
    let image = dir.join("commits.image");
    let mut options = FormatOptions::new().size(512 << 20).force(true);
    if let Some(path) = journal {
        options = options.journal(Journal::Emulated(path.into()));
    }
    Fs::format(&image, &options)?;
    let fs = Fs::open(&image, &MountOptions::new())?;
    let db = Builder::new().create_with_backend(NarufsBackend::create(&fs, "/commits.redb")?)?;
    let figure = measured(dir, &db, load, count)?;
    drop(db);
    fs.close()?;
    std::fs::remove_file(image)?;
    if let Some(path) = journal {
        std::fs::remove_file(path)?;
    }
    Ok(figure)
}

fn shown(name: &str, figures: &mut [Figure]) -> f64 {
    figures.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let middle = &figures[figures.len() / 2];
    let (least, most) = (figures[0].rate, figures[figures.len() - 1].rate);
    let flushes = middle.flushes.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
    println!("{name:<34} {:>9.0} {:>9.0} to {:<9.0} {flushes:>8}", middle.rate, least, most);
    middle.rate
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| words.get(at).map_or(Ok(usual), |word| word.parse());
    let dir = PathBuf::from(words.first().ok_or("commits DIR [COMMITS] [ROUNDS] [JOURNAL]")?);
    let (count, rounds) = (number(1, 500)?, number(2, 5)?);
    let journal = words.get(3).map(Path::new);
    println!(
        "{:<34} {:>9} {:>22} {:>8}",
        format!("{count} commits, {rounds} rounds"),
        "commits/s",
        "spread",
        "flushes"
    );
    for load in LOADS {
        let (mut file, mut narufs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            file.push(by_file(&dir, &load, count / load.part)?);
            narufs.push(by_narufs(&dir, &load, count / load.part, journal)?);
        }
        let before = shown(&format!("{}, file", load.name), &mut file);
        let now = shown(&format!("{}, narufs", load.name), &mut narufs);
        println!("{:<34} {:>9.2}x", "", now / before);
    }
    Ok(())
}
