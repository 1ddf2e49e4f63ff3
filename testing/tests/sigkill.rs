//! SIGKILL under load: the checker knows which operations returned and which were synced.
//!
//! `NARUFS_SEED=n` replays one round; `NARUFS_TEST_SCALE=n` runs n times as many.

use narufs_engine::device::{BLOCK_SIZE, ImageFile, open_device};
use narufs_engine::fsck;
use narufs_engine::mkfs::{FormatOptions, format};
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::volume::{ImageOptions, staging_path};
use narufs_testing::oracle::Kept;
use narufs_testing::settings;
use narufs_testing::stress::{Server, read_notes};
use rand::{Rng, SeedableRng};
use std::process::{Child, Command};

const THREADS: u64 = 4;
const IMAGE_BYTES: u64 = 256 << 20;

/// A process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The staging of an image, removed with the test.
struct Staging(std::path::PathBuf);

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// One kill; with `baselines`, of a mount that has them. What is `kept` then?
fn round(seed: u64, baselines: Option<&str>, kept: Kept) -> Result<u64, String> {
    let work = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
    let (image, notes_path) = (work.path().join("image"), work.path().join("notes"));
    std::fs::File::create(&image).and_then(|f| f.set_len(IMAGE_BYTES)).map_err(|e| e.to_string())?;
    std::fs::write(&notes_path, [0; 16 * THREADS as usize]).map_err(|e| e.to_string())?;
    let notes = std::fs::File::open(&notes_path).map_err(|e| e.to_string())?;
    let said = |what: &'static str| move |e: narufs_engine::Error| format!("{what}: {e}");
    let open = || ImageFile::open(&image).map(open_device).map_err(said("open"));
    let options = FormatOptions {
        journal_slots: Some(8192),
        sparse: true,
        blocks: Some(IMAGE_BYTES / BLOCK_SIZE as u64),
        ..FormatOptions::default()
    };
    let sb = format(open()?.as_ref(), &options).map_err(said("format"))?;
    let _staging = Staging(staging_path(&sb.uuid));
    let server = Server::start(&image).map_err(said("first mount"))?;
    server.prepare(THREADS).map_err(|e| format!("prepare: errno {e}"))?;
    server.stop().map_err(said("first unmount"))?;

    let mut child = Command::new(env!("CARGO_BIN_EXE_narufs-stress"))
        .args([image.as_os_str(), notes_path.as_os_str()])
        .args([seed.to_string(), THREADS.to_string()])
        .args(baselines)
        .spawn()
        .map(Killed)
        .map_err(|e| e.to_string())?;
    // The moment of the kill is a number of operations, so that it does not depend on the machine's speed.
    let wanted = rand::rngs::StdRng::seed_from_u64(seed).random_range(50..4000);
    let returned = || (0..THREADS).filter_map(|t| read_notes(&notes, t).ok()).map(|n| n[1]).sum::<u64>();
    while returned() < wanted {
        if let Ok(Some(status)) = child.0.try_wait() {
            return Err(format!("the load ended by itself: {status}"));
        }
        std::thread::yield_now();
    }
    drop(child);

    // The kernel lets go of the image once the killed process's last requests are over.
    let server = loop {
        match Server::start(&image) {
            Err(narufs_engine::Error::InUse(_)) => std::thread::yield_now(),
            other => break other.map_err(said("recovery"))?,
        }
    };
    let mut total = 0;
    for thread in 0..THREADS {
        total += server.judge(&notes, seed, thread, kept)?;
    }
    server.stop().map_err(said("unmount"))?;
    let media =
        narufs_engine::volume::open(&image, None, EmulationCosts::default(), &ImageOptions::default());
    let report =
        fsck::check(&media.map_err(said("open"))?, &fsck::Options::default()).map_err(said("fsck"))?;
    if report.issues.is_empty() { Ok(total) } else { Err(format!("fsck: {:?}", report.issues)) }
}

#[test]
fn nothing_that_returned_is_lost_with_the_process() {
    let seeds = settings::seeds(20);
    let mut total = 0;
    for seed in seeds.clone() {
        total += round(seed, None, Kept::All).unwrap_or_else(|e| panic!("NARUFS_SEED={seed}: {e}"));
    }
    println!("rounds {seeds:?}: {total} operations had returned");
}

#[cfg(feature = "baselines")]
#[test]
fn baselines_lose_nothing_that_returned_with_the_process() {
    for (name, _) in narufs_testing::baselines_of_images() {
        for seed in settings::seeds(2) {
            round(seed, Some(name), Kept::All).unwrap_or_else(|e| panic!("{name}, NARUFS_SEED={seed}: {e}"));
        }
    }
}

/// With the journals that narufs is measured against: what their transactions had not committed may be gone, the rest
/// is not.
#[cfg(feature = "baselines")]
#[test]
fn nothing_that_a_baseline_promised_is_lost_with_the_process() {
    for (name, kept) in
        [("journal-jbd2", Kept::Prefix), ("journal-fine", Kept::Prefix), ("journal-paper", Kept::All)]
    {
        let seeds = settings::seeds(3);
        let mut total = 0;
        for seed in seeds.clone() {
            total +=
                round(seed, Some(name), kept).unwrap_or_else(|e| panic!("{name}, NARUFS_SEED={seed}: {e}"));
        }
        println!("{name}, rounds {seeds:?}: {total} operations had returned");
    }
}
