//! What the options of a mount are to the engine and to the kernel.

use crate::heap::{self, Pages};
use crate::options::{AtimePolicy, OptionList};
use narufs_engine::cache::available_memory;
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::file::DataOptions;
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::store::StoreOptions;
use narufs_engine::vfs::{self, VfsOptions};
use narufs_engine::volume::scratch::{ScratchOptions, SpillOptions};
use narufs_engine::volume::{self, AssembleOptions};
use narufs_fuse::mount::Atime;
use std::ops::RangeInclusive;
use std::path::Path;

/// Memory of which huge pages may waste some.
const PLENTY: u64 = 1 << 30;

/// Says to the heap how much memory there is for files and metadata.
pub fn fit_heap(options: &OptionList) {
    let metadata = if options.scratch { 0 } else { metadata_memory(options) };
    let is_plenty = memory(options).saturating_add(metadata) >= PLENTY;
    heap::use_pages(if is_plenty { Pages::Huge } else { Pages::Small });
}

/// Bytes of the page cache; with `scratch`, of metadata too.
fn memory(options: &OptionList) -> u64 {
    options.memory.unwrap_or_else(|| DataOptions::default().frames as u64 * BLOCK_SIZE as u64)
}

/// The engine's options for scratch space.
pub fn scratch_options(options: &OptionList) -> ScratchOptions {
    ScratchOptions {
        memory: memory(options),
        metadata_memory: options.metadata_memory,
        spill: options.spill.clone().map(|path| SpillOptions {
            path,
            size: options.spill_size,
            force: options.force,
        }),
        files: assemble_options(options, false),
        #[cfg(feature = "baselines")]
        baselines: options.baselines,
    }
}

/// The engine's options for the image.
pub fn image_options(options: &OptionList) -> volume::ImageOptions {
    let mut durability = volume::ImageOptions {
        commit_interval: options.commit,
        read_only: options.read_only,
        origin: options.origin,
        ..volume::ImageOptions::default()
    };
    durability.store =
        StoreOptions::with_memory(usize::try_from(pages_share(options)).unwrap_or(usize::MAX / 2));
    #[cfg(feature = "baselines")]
    {
        durability.store.baselines = options.baselines;
    }
    durability
}

/// What an emulated journal costs beyond the memory that it stands on.
pub fn emulation_costs(options: &OptionList) -> EmulationCosts {
    EmulationCosts { persist_delay_ns: options.nvm_delay, bytes_per_second: options.nvm_bandwidth }
}

/// What metadata takes unless that is told. An inode that leaves memory takes its file's pages along: many small files
/// want more of it than of the page cache.
const USUAL_METADATA: RangeInclusive<u64> = 64 << 20..=1 << 30;

fn metadata_memory(options: &OptionList) -> u64 {
    options.metadata_memory.unwrap_or_else(|| usual_metadata(available_memory()))
}

/// A sixteenth of the memory that there is, within bounds.
fn usual_metadata(available: u64) -> u64 {
    (available / 16).clamp(*USUAL_METADATA.start(), *USUAL_METADATA.end())
}

/// Bytes of metadata pages: five eighths of the memory for metadata, the rest is for inodes.
fn pages_share(options: &OptionList) -> u64 {
    metadata_memory(options) / 8 * 5
}

/// The engine's options for the files.
pub fn assemble_options(options: &OptionList, read_only: bool) -> AssembleOptions {
    let atime = match options.atime {
        AtimePolicy::Relative => vfs::AtimePolicy::Relative,
        AtimePolicy::Never => vfs::AtimePolicy::Never,
        AtimePolicy::Strict => vfs::AtimePolicy::Strict,
    };
    AssembleOptions {
        fs: VfsOptions { read_only, atime, lazytime: options.lazytime, sync: options.sync },
        data: options.memory.map_or_else(DataOptions::default, DataOptions::with_memory),
        durability: options.durability,
        inodes: AssembleOptions::inodes_within(metadata_memory(options) - pages_share(options)),
        ..AssembleOptions::default()
    }
}

/// What the kernel is asked for.
pub fn kernel_options(image: &Path, options: &OptionList) -> narufs_fuse::mount::FuseOptions {
    let mut kernel = narufs_fuse::mount::FuseOptions::new(&image.display().to_string());
    kernel.permissions = options.permissions;
    if let Some(allow) = options.allow_other {
        kernel.allow_other = allow;
    }
    kernel.suid = options.suid;
    kernel.dev = options.dev;
    kernel.exec = options.exec;
    kernel.sync = options.sync;
    kernel.xattr = options.xattr;
    kernel.io = options.io;
    kernel.transport = options.transport;
    kernel.idle = options.idle;
    kernel.lazytime = options.lazytime;
    kernel.atime = match options.atime {
        AtimePolicy::Relative => Atime::Relative,
        AtimePolicy::Never => Atime::Never,
        AtimePolicy::Strict => Atime::Strict,
    };
    kernel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_takes_a_sixteenth_of_memory_within_bounds() {
        let usual = |mebibytes: u64| usual_metadata(mebibytes << 20) >> 20;
        assert_eq!([0, 256, 1024, 4096, 16384, 1 << 20].map(usual), [64, 64, 64, 256, 1024, 1024]);
        let told = OptionList { metadata_memory: Some(8 << 20), ..OptionList::default() };
        assert_eq!((metadata_memory(&told), pages_share(&told)), (8 << 20, 5 << 20));
    }
}
