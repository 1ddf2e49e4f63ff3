//! What a file is stored in, as far as this machine tells: the layers of an overlay, and the file of a loop device, also where
//! partitions, or devices that are made of devices, lie between.
//!
//! Not told: layers that have another name here than where they were mounted, and what lies behind a network or a program.
//!
//! What this leaves to others: whose that is ([`candidate`](super::candidate)). Who asks may have to wait for a mount.

use super::program::Program;
use narufs_fuse::mount::mountinfo::{self, Entry};
use std::collections::{HashSet, VecDeque};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file with more file systems below it than this is stored strangely.
const MOST: usize = 32;

/// What this is stored in, and what that is, from above.
pub fn beneath(program: &Program) -> Vec<Program> {
    let (mut all, mut devices) = (Vec::new(), HashSet::new());
    let mut paths: VecDeque<PathBuf> = stores(program).into();
    while let Some(path) = paths.pop_front()
        && all.len() < MOST
    {
        match Program::open(&path) {
            // What lies in one file system is stored in the same.
            Ok(place) if place.device().is_ok_and(|device| !devices.insert(device)) => {}
            Ok(place) => {
                paths.extend(stores(&place));
                all.push(place);
            }
            Err(e) => tracing::debug!("{}: {e}", path.display()),
        }
    }
    all
}

/// The same, one step.
fn stores(place: &Program) -> Vec<PathBuf> {
    let mount = mount_of(place);
    if let Some(overlay) = mount.as_ref().filter(|mount| mount.kind == "overlay") {
        return layers(&overlay.options);
    }
    let source = mount.map(|mount| PathBuf::from(mount.source)).filter(|source| source.is_absolute());
    let source = source.and_then(|source| fs::metadata(source).ok());
    let device = source.filter(|found| found.file_type().is_block_device()).map(|found| found.rdev());
    let device = device.map(|device| (rustix::fs::major(device), rustix::fs::minor(device)));
    // Where the source is none, or not here, the file may tell.
    let device = device.or_else(|| place.device().ok());
    let about = device.map(|(major, minor)| PathBuf::from(format!("/sys/dev/block/{major}:{minor}")));
    about.map(|about| files_of(&about)).unwrap_or_default()
}

/// The mount that it was found in, if it is seen here.
fn mount_of(place: &Program) -> Option<Entry> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", place.as_fd().as_raw_fd())).ok()?;
    let number = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    // Names of mount points are of any bytes.
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let is_it = |line: &&[u8]| line.split(|byte| *byte == b' ').next() == Some(number.as_bytes());
    mountinfo::parse(table.split(|byte| *byte == b'\n').find(is_it)?).pop()
}

/// The layers that an overlay's options name, the one that is written to first. Names with a colon or a blank in them are
/// none that this knows.
fn layers(options: &str) -> Vec<PathBuf> {
    let of = |option: &str| {
        let (name, value) = option.split_once('=')?;
        let is_layer = matches!(name, "lowerdir" | "lowerdir+" | "datadir+" | "upperdir");
        is_layer
            .then(|| value.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect::<Vec<_>>())
    };
    let is_upper = |option: &&str| option.starts_with("upperdir=");
    let (upper, others): (Vec<_>, Vec<_>) = options.split(',').partition(is_upper);
    upper.into_iter().chain(others).filter_map(of).flatten().collect()
}

/// The files of the loop devices that a block device is, or is made of; `about` is what the kernel tells of it.
fn files_of(about: &Path) -> Vec<PathBuf> {
    // A partition's is its disk's.
    let told = ["loop/backing_file", "../loop/backing_file"];
    let told = told.iter().find_map(|name| fs::read_to_string(about.join(name)).ok());
    let mut files: Vec<PathBuf> = told.iter().map(|path| path.trim_end_matches('\n').into()).collect();
    let parts = fs::read_dir(about.join("slaves")).into_iter().flatten().flatten();
    files.extend(parts.flat_map(|part| files_of(&part.path())));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_an_overlay_are_those_that_its_options_name() {
        let options =
            "rw,noatime,rw,lowerdir=/a:/b::/c,upperdir=/d,workdir=/e,redirect_dir=on,lowerdir+=/f,xino=off";
        let expected = ["/d", "/a", "/b", "/c", "/f"].map(PathBuf::from);
        assert_eq!(layers(options), expected);
        assert!(layers("rw,relatime").is_empty());
    }

    #[test]
    fn loop_devices_are_found_below_what_is_made_of_them_and_of_their_partitions() {
        let sys = tempfile::tempdir().expect("room");
        let make = |name: &str| fs::create_dir_all(sys.path().join(name)).expect("room");
        for disk in ["loop0", "loop1"] {
            make(&format!("{disk}/loop"));
            let told = sys.path().join(disk).join("loop/backing_file");
            fs::write(told, format!("/of/{disk}\n")).expect("room");
        }
        for name in ["loop1/loop1p1", "dm-0/slaves", "dm-1/slaves", "vda"] {
            make(name);
        }
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(sys.path().join(to), sys.path().join(name)).expect("room");
        };
        link("loop1/loop1p1", "dm-0/slaves/loop1p1");
        link("loop0", "dm-0/slaves/loop0");
        link("dm-0", "dm-1/slaves/dm-0");
        let mut found = files_of(&sys.path().join("dm-1"));
        found.sort();
        assert_eq!(found, ["/of/loop0", "/of/loop1"].map(PathBuf::from));
        assert!(files_of(&sys.path().join("vda")).is_empty());
    }

    #[test]
    fn this_program_is_found_in_a_mount() {
        let own = Program::own().expect("a program");
        assert!(mount_of(&own).is_some());
        assert!(beneath(&own).len() <= MOST);
    }
}
