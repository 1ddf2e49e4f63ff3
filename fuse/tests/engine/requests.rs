//! Requests are counted by what they ask for.

use super::support::served;
use narufs_fuse::control;
use serde_json::Value;
use std::fs;

fn of(stats: &Value, which: &str, name: &str) -> u64 {
    stats[which][name].as_u64().unwrap_or(0)
}

fn requests_are_counted_by_name() {
    let served = served();
    let before = served.stats();
    for name in 0..10 {
        fs::create_dir(served.at(&format!("directory{name}"))).expect("room");
    }
    fs::write(served.at("file"), vec![1; 3000]).expect("room");
    fs::File::open(served.at("file")).and_then(|file| file.sync_all()).expect("synced");
    let after = served.stats();
    let more = |which: &str, name: &str| of(&after, which, name) - of(&before, which, name);
    for (name, times) in
        [("MKDIR", 10), ("CREATE", 1), ("WRITE", 1), ("FSYNC", 1), ("OPEN", 1), ("RENAME", 0)]
    {
        assert_eq!(more("requests", name), times, "{name}: {after}");
        assert_eq!(more("requests_awaited", name), times, "{name}: {after}");
    }
    // The counters were asked for in between, by a control call, which counts itself.
    assert_eq!((more("requests", "IOCTL"), more("requests_awaited", "IOCTL")), (1, 1));
    assert_eq!(more("requests_awaited", "RELEASE"), 0, "nobody waits for it: {after}");
    // What there was none of is not named.
    assert!(after["requests"].get("RENAME").is_none());
}

fn requests_are_measured_by_name() {
    let served = served();
    for name in 0..10 {
        fs::create_dir(served.at(&format!("directory{name}"))).expect("room");
    }
    fs::write(served.at("file"), vec![1; 3000]).expect("room");
    fs::File::open(served.at("file")).and_then(|file| file.sync_all()).expect("synced");
    let all = control::latencies(&served.point).expect("a live mount");
    let of = |name: &str| all.get(name).cloned().unwrap_or_default();
    for (name, times) in [("MKDIR", 10), ("WRITE", 1), ("FSYNC", 1), ("RENAME", 0), ("FORGET", 0)] {
        // Another thread may have answered: all the same before its caller went on.
        assert_eq!(of(name).buckets.iter().map(|(_, count)| count).sum::<u64>(), times, "{name}: {all:?}");
        assert_eq!(of(name).sum_ns > 0, times > 0, "{name}: {all:?}");
    }
    assert_eq!((of("WRITE").bytes, of("MKDIR").bytes), (3000, 0));
    let counters = served.counters();
    assert_eq!(counters["latencies"]["WRITE"]["bytes"], 3000, "the server itself reads the same");
    assert_eq!(counters["server_pid"], std::process::id());
    assert_eq!(counters["failed"], false);
}

on_each_transport!(requests_are_counted_by_name, requests_are_measured_by_name,);
