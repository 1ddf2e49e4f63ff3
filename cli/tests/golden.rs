//! What makes golden images: whenever the server is killed after one of its steps, there is what the step promises.
//! Needs root and /dev/fuse.

use narufs_engine::volume::ImageOptions;
use narufs_testing::golden::make::{Promise, Step, killed_after, ways};
use narufs_testing::golden::manifest;
use narufs_testing::golden::media::{differences, media, mounted};
use narufs_testing::place::require_mounts;
use std::collections::BTreeSet;
use std::path::Path;

/// The names in lines of a tree.
fn names(lines: &[String]) -> BTreeSet<&str> {
    lines.iter().filter_map(|line| line.split(' ').next()).collect()
}

/// The line of a file that a step itself has synced.
fn synced(lines: &[String]) -> Option<&String> {
    lines.iter().find(|line| line.starts_with("/synced "))
}

/// Kills the server after these steps, and compares what is found then with what was seen before.
fn is_kept(emulated: bool, steps: &[Step], without_memory: bool) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let set = dir.path();
    let narufs = Path::new(env!("CARGO_BIN_EXE_narufs"));
    killed_after(narufs, emulated, steps, without_memory, set).map_err(|e| e.to_string())?;
    assert_eq!(set.join("ring.gz").exists(), !without_memory, "the ring is left, or its staging is not");
    let expected = manifest(set).map_err(|e| e.to_string())?;
    let media = media(set).map_err(|e| e.to_string())?;
    let options = ImageOptions { read_only: true, ..ImageOptions::default() };
    let found = mounted(&media, &options, |found, _| found)?;
    let last = steps.last().map(|step| step.promise());
    if last == Some(Promise::Names) {
        assert!(synced(&expected).is_some(), "{expected:#?}");
        let is_same = names(&found) == names(&expected) && synced(&found) == synced(&expected);
        return if is_same { Ok(()) } else { Err(format!("{found:#?}, not {expected:#?}")) };
    }
    let (more, fewer) = differences(&found, &expected);
    if more.is_empty() && fewer.is_empty() { Ok(()) } else { Err(format!("{more:#?} for {fewer:#?}")) }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn after_each_step_of_a_golden_image_there_is_what_it_promises() {
    require_mounts();
    let mut seen: Vec<&[Step]> = Vec::new();
    for way in ways() {
        for count in 1..=way.len() {
            let steps = &way[..count];
            if seen.contains(&steps) {
                continue;
            }
            seen.push(steps);
            for emulated in [false, true] {
                // Memory is lost only where a ring is staged in it.
                let is_durable = steps.last().map(|step| step.promise()) == Some(Promise::AllWithoutMemory);
                for without_memory in [false, true] {
                    if without_memory && (emulated || !is_durable) {
                        continue;
                    }
                    let kept = is_kept(emulated, steps, without_memory);
                    kept.unwrap_or_else(|e| {
                        panic!("{steps:?}, emulated: {emulated}, no memory: {without_memory}: {e}")
                    });
                }
            }
        }
    }
    assert!(seen.len() > 8, "{seen:?}");
}
