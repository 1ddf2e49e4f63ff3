//! Mapped files in shared memory: what is kept, and what is refused.

use super::*;
use std::os::unix::fs::PermissionsExt;

const PAGE: usize = 4096;

/// A directory in shared memory that goes away with the test.
fn shm() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("narufs-test-").tempdir_in("/dev/shm").expect("shared memory")
}

#[test]
fn what_one_mapping_wrote_the_next_one_reads() {
    let dir = shm();
    for medium in [Medium::Staging, Medium::Emulated(EmulationCosts::default())] {
        let path = dir.path().join("ring");
        let memory = MappedMemory::create(&path, 4 * PAGE, medium).expect("create");
        memory.write(100, b"record");
        memory.persist(100, 6);
        memory.write_u64(128, 42);
        memory.persist(128, 8);
        assert_eq!(memory.counts(), (2, 2));
        assert!(matches!(MappedMemory::open(&path, medium), Err(Error::InUse(_))));
        drop(memory);
        let memory = MappedMemory::open(&path, medium).expect("open");
        assert_eq!((memory.len(), memory.medium()), (4 * PAGE, medium));
        let mut seen = [0; 6];
        memory.read(100, &mut seen);
        assert_eq!(&seen, b"record");
        let mode = std::fs::metadata(&path).expect("stat").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        unlink(&path).expect("unlink");
        unlink(&path).expect("there is none");
    }
}

#[test]
fn durability_is_that_of_the_medium() {
    let dir = shm();
    let staging = MappedMemory::create(&dir.path().join("s"), PAGE, Medium::Staging).expect("create");
    let emulated = Medium::Emulated(EmulationCosts::default());
    let emulated = MappedMemory::create(&dir.path().join("e"), PAGE, emulated).expect("create");
    assert_eq!(
        (staging.durability(), emulated.durability()),
        (DurabilityLevel::Process, DurabilityLevel::Power)
    );
}

#[test]
fn dax_is_refused_where_there_is_none() {
    let dir = shm();
    let path = dir.path().join("dax");
    let Err(Error::Refused(why)) = MappedMemory::create(&path, PAGE, Medium::Dax) else {
        panic!("shared memory is not persistent memory");
    };
    assert!(why.contains("MAP_SYNC"), "{why}");
    assert!(!path.exists(), "nothing is left behind");
    assert!(matches!(MappedMemory::open(Path::new("/dev/null"), Medium::Dax), Err(Error::Refused(_))));
}

#[test]
fn a_full_file_system_is_an_error() {
    let dir = shm();
    let path = dir.path().join("huge");
    let Err(Error::Refused(why)) = MappedMemory::create(&path, 1 << 45, Medium::Staging) else {
        panic!("no machine has this much memory");
    };
    assert!(why.contains("no room"), "{why}");
    assert!(!path.exists(), "nothing is left behind");
}

#[test]
fn links_odd_sizes_and_what_is_no_file_are_refused() {
    let dir = shm();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/dev/shm/target", &link).expect("symlink");
    assert!(matches!(MappedMemory::open(&link, Medium::Staging), Err(Error::Refused(_))));
    assert!(matches!(MappedMemory::create(&link, PAGE, Medium::Staging), Err(Error::Errno(libc::EEXIST))));
    assert!(link.is_symlink(), "what was there stays");
    for (name, len) in [("empty", 0), ("odd", 100)] {
        let path = dir.path().join(name);
        std::fs::write(&path, vec![0; len]).expect("write");
        assert!(matches!(MappedMemory::open(&path, Medium::Staging), Err(Error::Refused(_))));
    }
    assert!(MappedMemory::open(dir.path(), Medium::Staging).is_err());
}
