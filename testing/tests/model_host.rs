//! The model itself is held against the file system that holds the temporary directory, where it has all
//! the operations: a wrong model would prove nothing.

use narufs_testing::dir_target::DirTarget;
use narufs_testing::model::Model;
use narufs_testing::op::{Falloc, Generator, Op};
use narufs_testing::target::{Target, compare};

#[test]
#[ignore = "needs a build on a file system with COLLAPSE_RANGE, like ext4 or xfs"]
fn the_model_agrees_with_the_host_file_system() {
    let work = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let probe = work.path().join("probe");
    std::fs::write(&probe, [1; 8192]).unwrap();
    let collapse = DirTarget::new(work.path()).unwrap().apply(&Op::Fallocate {
        path: "/probe".into(),
        mode: Falloc::Collapse,
        offset: 0,
        len: 4096,
    });
    assert!(collapse.is_ok(), "missing: COLLAPSE_RANGE in the file system of the build");
    for seed in 0..40 {
        let dir = tempfile::tempdir_in(work.path()).unwrap();
        let mut target = DirTarget::new(dir.path()).unwrap();
        let mut model = Model::default();
        target.apply(&Op::Chmod { path: "/".into(), mode: 0o755 }).unwrap();
        let mut generator = Generator::new(seed);
        for step in 0..150 {
            let op = generator.next_op();
            if matches!(op, Op::Fsync { .. } | Op::Fdatasync { .. } | Op::FsyncDir { .. } | Op::SyncAll) {
                continue;
            }
            let (want, got) = (model.apply(&op), target.apply(&op));
            assert_eq!(got, want, "seed {seed}, step {step}: {op:?}");
        }
        let shown = target.tree().unwrap();
        if let Err(e) = compare(&model.tree(), &shown) {
            panic!("seed {seed}: {e}");
        }
    }
}
