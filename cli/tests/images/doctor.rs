//! `narufs doctor`: what it says of a machine, an image and a directory, and that it leaves nothing behind.

use crate::support::{Work, narufs};
use serde_json::Value;

fn find<'j>(json: &'j Value, about: &str) -> Option<&'j Value> {
    json["findings"].as_array().expect("a list").iter().find(|finding| finding["about"] == about)
}

/// Checks a document, and that its verdict is the worst in it and goes with the status.
fn looked_at(words: &[&str]) -> Value {
    let said = narufs(&[&["doctor", "--json"], words].concat());
    assert_eq!(said.err, "", "{said:?}");
    let json = said.json();
    let findings = json["findings"].as_array().expect("a list");
    let has = |verdict: &str| findings.iter().any(|finding| finding["verdict"] == verdict);
    for finding in findings {
        let is_good = finding["verdict"] == "good";
        assert!(finding["found"].is_string() && finding["remedy"].is_string() != is_good, "{finding}");
    }
    let worst = ["stops", "better", "good"].into_iter().find(|verdict| has(verdict));
    assert_eq!(json["verdict"].as_str(), worst);
    assert_eq!(said.status, i32::from(has("stops")), "{json}");
    json
}

#[test]
fn the_machine_an_image_and_a_place_for_one_are_told_of() {
    let json = looked_at(&[]);
    for about in ["kernel", "/dev/fuse", "fusermount3", "/dev/shm", "memory", "supervision"] {
        assert!(find(&json, about).is_some(), "{about}: {json}");
    }
    assert!(find(&json, "flush").is_none(), "nothing is timed without a place: {json}");

    let work = Work::new();
    let image = work.mkfs("image", &["--journal-size", "1M"]);
    let json = looked_at(&[&image]);
    for about in ["image", "journal", "space", "below", "device"] {
        assert!(find(&json, about).is_some(), "{about}: {json}");
    }
    assert_eq!(find(&json, "space").expect("it is there")["verdict"], "better", "the image is sparse");
    assert!(find(&json, "flush").or(find(&json, "latency")).is_some(), "{json}");
    let json = looked_at(&[&work.at("")]);
    assert!(find(&json, "below").is_some() && find(&json, "image").is_none(), "{json}");
    std::fs::write(work.at("letters"), "none").expect("room");
    let json = looked_at(&[&work.at("letters")]);
    assert_eq!(find(&json, "image").expect("it is there")["verdict"], "better", "{json}");
    for (name, verdict, remedy) in [("cut", "stops", "narufs fsck"), ("zeros", "better", "narufs mkfs /")] {
        let bytes = std::fs::read(&image).expect("it is there");
        let bytes = if name == "cut" { &bytes[..8 << 10] } else { &[0; 8 << 10] };
        std::fs::write(work.at(name), bytes).expect("room");
        let json = looked_at(&[&work.at(name)]);
        let found = find(&json, "image").expect("it is there");
        assert_eq!(found["verdict"], verdict, "{json}");
        assert!(found["remedy"].as_str().is_some_and(|words| words.contains(remedy)), "{json}");
    }
    let mut left: Vec<_> = std::fs::read_dir(work.at(""))
        .expect("it is there")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["cut", "image", "letters", "zeros"], "it leaves something");

    let text = narufs(&["doctor", &image]);
    assert!(
        text.out.lines().all(|line| !line.is_empty()) && text.out.contains("could be better"),
        "{text:?}"
    );
    narufs(&["doctor", &work.at("absent")]).refused(1, "No such file");
    assert_eq!(narufs(&["doctor", "--nonsense"]).status, 2);
}
