//! What checkpoint rounds bring home in a second, where their time goes, and what they cost who works meanwhile.
//!
//! For `cargo bench -p narufs-research --bench checkpoint`, whose tables are those of experiment 12. [`volume`] is the file
//! system that is measured, [`rounds`] its rounds over scattered pages, [`creates`] creations beside rounds, and
//! [`random`] what the device does with random writes of 4 KiB, without a file system.

pub mod creates;
pub mod random;
pub mod rounds;
pub mod volume;

#[cfg(test)]
mod tests {
    use super::*;
    use narufs_engine::store::WriteHome;
    use volume::{How, Volume};

    /// As short as can be: what the tables are made with does not rot.
    #[test]
    fn every_figure_is_made() {
        let dir = tempfile::tempdir().expect("a place for the image");
        for how in [How::Usual, How::Plain] {
            let path = dir.path().join(format!("{how:?}"));
            Volume::format(&path, how, 16_384, 8192).expect("it is made");
            let volume = Volume::mount(&path, how, WriteHome::default(), false).expect("it is mounted");
            let files = rounds::scattered(volume.fs(), 20).expect("files are made");
            let found = rounds::measure(&volume, &files, 15, 2, &mut 1).expect("a round");
            assert!(found.home_bytes >= 2 * 15 * 4096 && found.bytes_per_second() > 0.0);
            volume.unmount().expect("it is unmounted");
            let volume = Volume::mount(&path, how, WriteHome::default(), true).expect("it is mounted");
            for beside in [false, true] {
                let found = creates::measure(&volume, 2, 50, beside).expect("files are made");
                assert!(found > 0.0);
            }
            volume.unmount().expect("it is unmounted");
            let device = how.open(&path).expect("an image");
            assert!(
                random::writes(&*device, 0..64, 32, std::time::Duration::from_millis(1)).expect("writes")
                    > 0.0
            );
        }
    }
}
