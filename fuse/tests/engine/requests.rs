//! Requests are counted by what they ask for.

use super::support::served;
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

on_each_transport!(requests_are_counted_by_name,);
