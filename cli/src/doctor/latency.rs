//! How long reads, writes and flushes take, one at a time: what an fsync of one program waits for.
//!
//! It takes a second at the most, unless one call alone takes longer. Beside an image a file without a name is written,
//! which goes with this process whatever happens. Of a block device nothing changes: what is written to it is what was read
//! from the same place before, and only while nobody else may open it.

use narufs_engine::device::IoBuf;
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// As long as it may take all in all.
const MOST: Duration = Duration::from_millis(900);
/// Samples that are enough.
const ENOUGH: usize = 400;
/// Bytes of a read or write.
const BYTES: usize = 4096;
/// Reads and writes go to so many places, one after the other.
const PLACES: u64 = 256;

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub reads: Vec<Duration>,
    pub writes: Vec<Duration>,
    pub flushes: Vec<Duration>,
}

/// Writes and flushes of a file in this directory.
pub(super) fn of_directory(dir: &Path) -> io::Result<Times> {
    let how = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    // Not every file system takes the direct way.
    let file = open(dir, how | OFlags::DIRECT, mode).or_else(|_| open(dir, how, mode))?;
    let file = File::from(file);
    let buf = filled();
    // Blocks are there before it counts, as an image's are.
    for place in 0..PLACES {
        file.write_all_at(&buf, place * BYTES as u64)?;
    }
    file.sync_all()?;
    let mut times = Times::default();
    sampled(|place| {
        timed(&mut times.writes, || file.write_all_at(&buf, place * BYTES as u64))?;
        timed(&mut times.flushes, || file.sync_data())
    })?;
    Ok(times)
}

/// Reads of a device that may be in use.
pub(super) fn of_reads(device: &Path) -> io::Result<Times> {
    let file = File::from(open(device, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?);
    let apart = distance(&file)?;
    let mut buf = IoBuf::zeroed(BYTES);
    let mut times = Times::default();
    sampled(|place| timed(&mut times.reads, || file.read_exact_at(&mut buf, place * apart)))?;
    Ok(times)
}

/// Reads, writes and flushes of a device that nobody uses.
pub(super) fn of_device(device: &Path) -> io::Result<Times> {
    // Of a block device that says that nobody else has it so, a mount among them.
    let how = OFlags::RDWR | OFlags::EXCL | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = File::from(open(device, how, Mode::empty())?);
    let apart = distance(&file)?;
    let mut buf = IoBuf::zeroed(BYTES);
    let mut times = Times::default();
    sampled(|place| {
        timed(&mut times.reads, || file.read_exact_at(&mut buf, place * apart))?;
        timed(&mut times.writes, || file.write_all_at(&buf, place * apart))?;
        timed(&mut times.flushes, || file.sync_data())
    })?;
    Ok(times)
}

/// How far the places of a device lie apart.
fn distance(mut device: &File) -> io::Result<u64> {
    let bytes = device.seek(SeekFrom::End(0))?;
    let apart = bytes / PLACES / BYTES as u64 * BYTES as u64;
    if apart == 0 { Err(io::Error::other("it is too small")) } else { Ok(apart) }
}

/// A block that no layer can leave out.
fn filled() -> IoBuf {
    let mut buf = IoBuf::zeroed(BYTES);
    buf.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n % 251) as u8);
    buf
}

/// Calls it with one place after the other while there is time.
fn sampled(mut sample: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let begin = Instant::now();
    for n in 0..ENOUGH as u64 {
        sample(n * 97 % PLACES)?;
        if begin.elapsed() > MOST {
            break;
        }
    }
    Ok(())
}

fn timed(into: &mut Vec<Duration>, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let begin = Instant::now();
    call()?;
    into.push(begin.elapsed());
    Ok(())
}

/// The one that as many are below as above.
pub(super) fn median(times: &[Duration]) -> Option<Duration> {
    share(times, 50)
}

/// So many of a hundred take no longer.
fn share(times: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
}

/// Median and the 99th of a hundred, in words.
pub(super) fn summary(times: &[Duration]) -> Option<String> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (usual, long) = (median(times)?, share(times, 99)?);
    Some(format!("{:.2} ms, {:.2} in one of a hundred", ms(usual), ms(long)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory on a disk, which memory that stands for one may not be.
    fn on_disk() -> PathBuf {
        let program = std::env::current_exe().expect("this program");
        program.parent().expect("it lies in a directory").into()
    }

    #[test]
    fn writes_and_flushes_beside_an_image_are_measured_and_leave_nothing() {
        let dir = tempfile::tempdir_in(on_disk()).expect("room");
        let times = of_directory(dir.path()).expect("it can be written");
        assert!(!times.writes.is_empty() && times.writes.len() == times.flushes.len());
        assert!(times.reads.is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn what_was_read_is_written_back() {
        let file = tempfile::NamedTempFile::new_in(on_disk()).expect("room");
        let bytes: Vec<u8> = (0..PLACES as usize * BYTES).map(|n| (n / 7) as u8).collect();
        std::fs::write(file.path(), &bytes).expect("room");
        assert!(!of_reads(file.path()).expect("it can be read").reads.is_empty());
        let times = of_device(file.path()).expect("it can be written");
        assert_eq!(times.reads.len(), times.writes.len());
        assert_eq!(std::fs::read(file.path()).expect("it is there"), bytes);
        let short = tempfile::NamedTempFile::new_in(on_disk()).expect("room");
        assert!(of_reads(short.path()).is_err());
    }

    #[test]
    fn shares_are_taken_of_what_is_there() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(median(&times), Some(Duration::from_millis(51)));
        assert_eq!(share(&times, 99), Some(Duration::from_millis(100)));
        assert_eq!((median(&[]), summary(&[])), (None, None));
        assert_eq!(summary(&times[..1]).as_deref(), Some("100.00 ms, 100.00 in one of a hundred"));
    }
}
