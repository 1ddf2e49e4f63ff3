use super::super::rates::{Cause, Journal, Lock, Operation};
use super::super::{Watched, rates};
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

const CLASSES: [&str; 7] = ["growth", "range", "credits", "directory move", "inode", "page", "allocator"];

/// A mount at which all is as long as it gets.
fn busy() -> rates::Rates {
    let operation = |name: &str| Operation {
        name: name.to_owned(),
        rate: 123_456.0,
        p50: 1_500,
        p90: 45_000,
        p99: 999_400_000,
        max: 17_000_000_000,
    };
    let names = ["copy_file_range_64", "setlk", "getattr", "write", "read"];
    let share = Share { used: 1023 << 20, of: 1023 << 30 };
    rates::Rates {
        server: 4_194_303,
        transport: "device".into(),
        supervisor: Some(1),
        restarts: 123,
        longest_pause: 12.3,
        durability: Some("process".into()),
        room: share,
        operations: names.map(operation).into(),
        all: operation("all"),
        device: vec![Cause {
            name: "data write back".into(),
            writes: 1e5,
            written_bytes: 1023e6,
            ..Cause::default()
        }],
        device_all: Cause { name: "all".into(), writes: 1e5, written_bytes: 1023e6, ..Cause::default() },
        journal: Some(Journal {
            commits: 9999.0,
            served: 12.3,
            fill: 0.97,
            laps: 0.123,
            power_lag: 0.0456,
            ..Journal::default()
        }),
        cache: rates::Cache { frames: share, dirty: share, hits: Some(0.991), ..rates::Cache::default() },
        locks: CLASSES.map(|class| Lock { class: class.into(), waits: 12_345.0, seconds: 1.234 }).into(),
        memory: share,
        metadata: share,
        metadata_dirty: 1023 << 20,
        ..rates::Rates::default()
    }
}

fn app(count: usize) -> App {
    let interval = Duration::from_secs(1);
    let mut mounts: Vec<Watched> =
        (0..count).map(|at| Watched::new(format!("/mnt/naru{at}"), interval)).collect();
    mounts[0].take(Ok(busy()));
    App { mounts, at: 0, paused: false, interval }
}

fn drawn(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it cannot fail");
    terminal.draw(|frame| draw(frame, app)).expect("it cannot fail");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(line).collect()
}

#[test]
fn on_small_and_large_screens_nothing_is_cut_off() {
    for (width, height) in [(80, 24), (100, 30), (200, 50)] {
        let lines = drawn(&app(2), width, height);
        let shown = lines.join("\n");
        for whole in [
            "/mnt/naru0  mount 1 of 2",
            "fsync process",
            "pid 4194303 /dev/fuse",
            "123 restarts, <= 12.3 s",
            "operations 123.5k/s",
            "p99 999ms",
            "123.5k",
            "1.5µs",
            "976M",
            "9999 commits/s for 12.3 each",
            "97 % full, 0.123 laps/s, lag 46ms",
            "1023M of 1023G, 99 % hits",
            "1023M of 1023G, 1023M dirty",
            "12.3k   1.234",
            "allocator",
            "←→ other mounts",
        ] {
            assert!(shown.contains(whole), "{whole} at {width}x{height}:\n{shown}");
        }
        assert!(width < 200 || shown.contains("copy_file_range_64 ") && shown.contains("17.0s"), "{shown}");
        // Both halves are there to their last line.
        let memory = lines.iter().rposition(|line| line.starts_with("memory")).expect("it is shown");
        assert_eq!(memory, usize::from(height) - 2, "{shown}");
        // Columns of numbers end below their headings.
        let heading = lines.iter().find(|line| line.starts_with("operation ")).expect("a heading");
        let row = lines.iter().find(|line| line.starts_with("getattr")).expect("a row");
        let end = |line: &str, of: &str| {
            line.chars().count() - line.split_once(of).map_or(0, |(_, rest)| rest.chars().count())
        };
        assert_eq!(end(heading, "p99"), end(row, "999ms"), "{shown}");
    }
}

#[test]
fn a_mount_that_is_gone_is_said_wherever_one_looks() {
    let mut app = app(2);
    app.mounts[1].take(Err("no narufs is mounted here".into()));
    assert!(drawn(&app, 80, 24)[23].contains("/mnt/naru1 is gone"));
    app.at = 1;
    assert!(drawn(&app, 80, 24)[0].contains("gone: no narufs is mounted here"));
    app.mounts[1].take(Ok(busy()));
    assert!(!drawn(&app, 80, 24).join("\n").contains("gone"));
}

#[test]
fn numbers_fit_their_columns() {
    for power in 0..10 {
        for factor in [0.1, 0.995, 0.9996, 1.0, 9.95] {
            let number = factor * 10f64.powi(power);
            assert!(short(number).chars().count() <= 7, "{}", short(number));
        }
    }
    for power in 0..34 {
        for ns in [(1u64 << power) - 1, 1 << power, (1 << power) + 1] {
            assert!(time(ns).chars().count() <= 6, "{}", time(ns));
        }
    }
    for power in 0..16 {
        assert!(bytes(10f64.powi(power) * 1.0237).chars().count() <= 5, "{}", bytes(10f64.powi(power)));
    }
    assert_eq!(
        [0.0, 0.25, 5.0, 123.4, 12_345.0, 2.5e6].map(short),
        ["0", "0.2", "5.0", "123", "12.3k", "2.5M"]
    );
    assert_eq!(
        [0, 1_500, 45_000, 2_000_000, 17_000_000_000].map(time),
        ["-", "1.5µs", "45µs", "2.0ms", "17.0s"]
    );
    assert_eq!(
        [0.0, 1023.0, 1024.0, 1023.9 * 1024.0, 3.25e9].map(bytes),
        ["0", "1023", "1.0K", "1.0M", "3.0G"]
    );
}
