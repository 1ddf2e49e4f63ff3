//! Proof of narufs: reference model, crash enumeration, stress and real programs.

#[cfg(feature = "baselines")]
use narufs_engine::baseline::{Baselines, JournalBaseline, NAMES, SpillBaseline};

pub mod acl;
pub mod clients;
pub mod content;
pub mod crash;
pub mod dir_target;
pub mod drive;
pub mod golden;
pub mod lab;
pub mod lib_target;
pub mod linear;
pub mod model;
#[cfg(feature = "planted-bugs")]
pub mod mortal;
pub mod op;
pub mod oracle;
pub mod outlive;
pub mod place;
pub mod replay;
pub mod requests;
pub mod served;
pub mod settings;
#[cfg(target_arch = "x86_64")]
pub mod sharing;
pub mod stress;
pub mod supervised;
pub mod target;

/// What an image can be mounted with in place of narufs' own ways, but for other journals.
#[cfg(feature = "baselines")]
pub fn baselines_of_images() -> impl Iterator<Item = (&'static str, Baselines)> {
    let ours = (JournalBaseline::Ours, SpillBaseline::default());
    NAMES.into_iter().filter(move |(_, one)| (one.journal, one.spill) == ours)
}
