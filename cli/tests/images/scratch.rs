//! What `narufs mount --scratch` refuses, in one line each, and leaves as it is.

use crate::support::{Work, narufs};

#[test]
fn scratch_space_is_refused_in_words() {
    let work = Work::new();
    let (dir, spill) = (work.at("mnt"), work.at("spill"));
    std::fs::create_dir(&dir).expect("made");
    std::fs::write(&spill, vec![7; 4 << 20]).expect("room");
    narufs(&["mount", "--spill", &spill, &spill, &dir]).refused(1, "spill goes with scratch");
    narufs(&["mount", "--scratch", &spill, &dir]).refused(1, "scratch space has no image");
    narufs(&["mount", "--scratch", "-o", "ro", &dir]).refused(1, "cannot be mounted ro");
    narufs(&["mount", "--scratch", "--force", &dir]).refused(1, "go with spill");
    narufs(&["mount", &dir]).refused(1, "say IMAGE and DIR");
    narufs(&["mount", "--scratch", "--memory", "4K", &dir]).refused(32, "too small");
    narufs(&["mount", "--scratch", "--spill", &spill, &dir]).refused(32, "it holds data already");
    narufs(&["mount", "-o", "scratch,spill=/nowhere/at/all", "none", &dir]).refused(32, "/nowhere/at");
    assert!(std::fs::read(&spill).expect("it is there").iter().all(|b| *b == 7));
}
