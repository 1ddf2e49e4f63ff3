//! What an fsync through the mount waits for, and what makes its data survive a loss of power afterwards.

use super::support::{Served, served_as};
use narufs_engine::journal::Durability;
use narufs_engine::volume::AssembleOptions;
use narufs_fuse::{Caching, control};
use std::fs::File;
use std::io::Write;
use std::time::Duration;

/// Bytes that a loss of power would take back.
fn lag(served: &Served) -> u64 {
    served.stats()["power_lag_bytes"].as_u64().expect("a number")
}

fn a_sync_survives_a_loss_of_power_whatever_fsync_waits_for() {
    // So long that nothing happens by itself while the test runs.
    for durability in [Durability::Window(Duration::from_secs(60)), Durability::Process] {
        let files = AssembleOptions { durability, ..AssembleOptions::default() };
        let served = served_as(Caching::Exclusive, files, |_| {});
        let mut file = File::create(served.at("file")).expect("a file");
        for (bytes, sync) in
            [(300, control::sync_power as fn(&_) -> _), (300_000, control::sync_power), (300, control::sync)]
        {
            file.write_all(&vec![7; bytes]).expect("there is room");
            file.sync_all().expect("synced");
            assert!(lag(&served) > 0, "{durability:?}: an fsync of {bytes} bytes waited for the device");
            sync(&served.point).expect("a live mount");
            assert_eq!(lag(&served), 0, "{durability:?}: something is not durable");
            assert_eq!(served.stats()["journal"]["power_lag_ns"], 0);
        }
    }
}

on_each_transport!(a_sync_survives_a_loss_of_power_whatever_fsync_waits_for,);
