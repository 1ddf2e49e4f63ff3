//! What the journal's part of an operation costs, phase by phase, and what that lets one expect of more cores.
//!
//! For `cargo bench -p narufs-research --bench journal`, whose tables are those of experiment 11. [`phases`] measures each
//! phase with nothing else between two looks at the clock; [`word`] the word that all reservations add to, by itself;
//! [`lanes`] is the alternative to that word, [`side`] measures both side by side; [`model`] computes from such figures
//! how many creations a second a machine with many cores can make, with that word and with a ring for each lane.

#[cfg(not(loom))]
use narufs_engine::journal::{Journal, Media, Options};

pub mod lanes;
#[cfg(not(loom))]
pub mod model;
#[cfg(not(loom))]
pub mod phases;
#[cfg(not(loom))]
pub mod side;
#[cfg(not(loom))]
pub mod word;

/// Processor time of this thread so far, in ns: what else runs on the machine does not count.
#[cfg(not(loom))]
fn cpu_ns() -> u64 {
    let at = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// An empty ring of an image that there is not, for so many lanes; nobody is asked for a checkpoint.
#[cfg(not(loom))]
fn start(
    memory: std::sync::Arc<dyn narufs_engine::pmem::PersistentMemory>,
    slots: u64,
    lanes: usize,
) -> narufs_engine::Result<Journal> {
    let options = Options {
        image_uuid: [1; 16],
        ring_uuid: [2; 16],
        slots,
        epoch: 1,
        round: 0,
        start: 0,
        lanes,
        need_checkpoint: Box::new(|| ()),
        clock: narufs_engine::clock::Clock::default(),
    };
    Journal::start(Media::Mapped(memory), options)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use narufs_engine::pmem::{MappedMemory, Medium};

    /// As short as can be: what the tables are made with does not rot.
    #[test]
    fn every_figure_is_made() {
        let dir = tempfile::tempdir().expect("a place for the journal");
        for threads in [1, 2] {
            let path = dir.path().join(format!("{threads}"));
            let len = phases::ring_bytes(threads, 8);
            let memory =
                MappedMemory::create(&path, len, Medium::Emulated(Default::default())).expect("it is mapped");
            let found = phases::measure(std::sync::Arc::new(memory), threads, 8, 3).expect("it is measured");
            assert_eq!(found.len(), phases::PHASES.len());
            assert!(found.iter().all(|ns| ns.is_finite() && *ns >= 0.0), "{found:?}");
        }
        for threads in [1, 3] {
            let time = std::time::Duration::from_millis(1);
            assert!(word::measure(threads, time) > 0.0 && side::stamps(threads, time) > 0.0);
            let mut both = side::Both::new(dir.path(), threads, 4).expect("it is mapped");
            let records = both.records(threads, 4, 1).expect("it is measured");
            let commits = both.commits(threads, 3, threads > 1).expect("it is measured");
            assert!(records.word > 0.0 && records.lanes > 0.0 && commits.word > 0.0 && commits.lanes > 0.0);
            drop(both);
            for name in ["word", "lanes"] {
                std::fs::remove_file(dir.path().join(name)).expect("it is there");
            }
        }
    }
}
