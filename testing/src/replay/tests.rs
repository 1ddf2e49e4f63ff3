use super::acked::{Allowed, PROCESSES, Told};
use super::log::{Content, Entry, MAGIC, VERSION};
use super::states::{Disk, Event, event};
use super::*;
use crate::drive::SECTOR;
use crate::model::{Shown, Tree};
use std::io::Write;

fn entry(sector: u64, count: u64, flags: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [sector, count, flags, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(SECTOR, 0);
    bytes.extend_from_slice(data);
    bytes
}

fn record(entries: &[Vec<u8>], count: u64, sector: u32) -> Outcome<Log> {
    let mut file = tempfile::tempfile()?;
    let mut header: Vec<u8> = [MAGIC, VERSION, count].iter().flat_map(|word| word.to_le_bytes()).collect();
    header.extend_from_slice(&sector.to_le_bytes());
    header.resize(SECTOR, 0);
    file.write_all(&header)?;
    file.write_all(&entries.concat())?;
    Log::open(file)
}

#[test]
fn entries_are_read_in_their_order() {
    let entries = [
        entry(3, 1, 0, &[7; SECTOR]),
        entry(0, 0, 1, &[]),
        entry(8, 4, 4, &[]),
        entry(0, 0, 8, &[]),
        entry(1, 1, 3, &[9; SECTOR]),
    ];
    let mut log = record(&entries, 5, 512).expect("a record");
    let mut next = || log.next_entry().expect("sound");
    let written = |offset, flushes, forced, byte| {
        Some(Entry { flushes, forced, offset, content: Content::Data(vec![byte; SECTOR]) })
    };
    assert_eq!(next(), written(3 * 512, false, false, 7));
    assert_eq!(next().map(|e| (e.flushes, e.content)), Some((true, Content::Data(vec![]))));
    assert_eq!(next().map(|e| (e.offset, e.content)), Some((8 * 512, Content::Discarded(4 * 512))));
    assert_eq!(next().map(|e| e.content), Some(Content::Mark));
    assert_eq!(next(), written(512, true, true, 9));
    assert_eq!(next(), None);
}

#[test]
fn what_a_record_says_beyond_its_end_is_an_error() {
    let wrong = [
        (entry(0, 2, 0, &[0; SECTOR]), 1),
        (entry(0, u64::MAX, 0, &[]), 1),
        (entry(u64::MAX, 0, 0, &[]), 1),
        (entry(0, 0, 1 << 40, &[]), 1),
        (entry(0, u64::MAX / 512, 0, &[]), 1),
    ];
    for (entry, count) in wrong {
        let mut log = record(&[entry], count, 512).expect("a record");
        assert!(log.next_entry().is_err());
    }
    let mut short = record(&[entry(0, 0, 1, &[])], 2, 512).expect("a record");
    assert!(short.next_entry().is_ok() && short.next_entry().is_err());
    assert!(record(&[], 0, 0).is_err() && record(&[], 0, 1000).is_err() && record(&[], 0, u32::MAX).is_err());
    assert!(Log::open(tempfile::tempfile().expect("a file")).is_err());
}

#[test]
fn what_goes_beyond_the_file_system_is_an_error_and_what_lies_behind_it_is_the_load_s() {
    let data = |offset, bytes: &[u8]| Entry {
        flushes: false,
        forced: false,
        offset,
        content: Content::Data(bytes.to_vec()),
    };
    assert!(event(data(512, &[0; 2 * SECTOR]), 2).is_err());
    let mut sector = b"ack 1 25 300 400\n".to_vec();
    sector.resize(SECTOR, 0);
    let told = event(data(1024, &sector), 2).expect("the load's word");
    let wanted = Told { process: 1, number: 25, begun: 300, ended: 400 };
    assert_eq!(told, Some(Event::Acknowledged(wanted)));
    for wrong in ["ack 7 1 2 3\n", "ack 0 -1 2 3\n", "nack 0 1 2 3\n", "ack 0 1\n", "\n"] {
        assert!(event(data(1024, wrong.as_bytes()), 2).is_err(), "{wrong:?}");
    }
    let discard = Entry { flushes: false, forced: false, offset: 512, content: Content::Discarded(u64::MAX) };
    let zeros = Event::Written { sector: 1, bytes: vec![0; SECTOR], forced: false };
    assert_eq!(event(discard, 2).expect("as far as it goes"), Some(zeros));
}

#[test]
fn some_sectors_of_a_write_are_there_and_all_that_were_forced() {
    let mut disk = Disk::new(128);
    let written = |byte, forced| Event::Written { sector: 0, bytes: vec![byte; 64 * SECTOR], forced };
    disk.apply(&written(1, false));
    let mut random = StdRng::seed_from_u64(3);
    let left = disk.some_of(&[written(2, true), written(3, false)], 0.5, &mut random);
    let with = |byte| left.chunks(SECTOR).filter(|sector| sector.iter().all(|b| *b == byte)).count();
    assert_eq!((with(1), with(2) + with(3), with(0)), (0, 64, 64));
    assert!(with(2) > 0 && with(3) > 0);
    assert_eq!(disk.bytes()[0], 1);
}

/// A file.
pub(super) fn shown(data: Vec<u8>) -> Shown {
    Shown {
        mode: libc::S_IFREG | 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        data,
        xattrs: Default::default(),
        times: None,
        touched: false,
        same_as: String::new(),
    }
}

/// What is there after so many operations of both.
fn tree(last: u64) -> Tree {
    let mut tree = Tree::new();
    for process in 0..PROCESSES {
        for number in oracle::kept(last) {
            tree.insert(format!("/d{process}/{number}"), shown(oracle::content(process, number)));
        }
        tree.insert(format!("/d{process}/log"), shown(oracle::log(1..=last)));
    }
    tree
}

/// What may be there where so many operations of both were acknowledged.
pub(super) fn allowed(number: u64) -> Allowed {
    let mut acked = Acked::default();
    for process in 0..PROCESSES {
        assert!(!acked.has_begun());
        acked.hear(&Event::Acknowledged(Told { process, number, begun: 0, ended: 0 }));
    }
    assert!(acked.has_begun());
    acked.allowed(Durability::Power)
}

#[test]
fn what_was_acknowledged_must_be_there_and_what_came_after_may() {
    for last in [0_u64, 1, 8, 9, 30] {
        for number in [last, last.saturating_sub(1)] {
            assert_eq!(oracle::judge(&tree(last), &allowed(number)), Ok([last; 2]), "{last}, {number}");
        }
        assert!(oracle::judge(&tree(last), &allowed(last + 1)).is_err());
        assert!(last < 2 || oracle::judge(&tree(last), &allowed(last - 2)).is_err());
    }
    let mut lossy: [Tree; 6] = std::array::from_fn(|_| tree(30));
    lossy[0].remove("/d1/25").expect("it is there");
    lossy[1].get_mut("/d0/24").expect("it is there").data[100] ^= 1;
    lossy[2].get_mut("/d0/log").expect("it is there").data.truncate(29 * 16);
    lossy[3].get_mut("/d0/log").expect("it is there").data[20] = 0;
    let again = lossy[4]["/d0/24"].clone();
    lossy[4].insert("/d0/22".into(), again);
    lossy[5].get_mut("/d1/log").expect("it is there").data.extend([0; 64]);
    for (which, tree) in lossy.iter().enumerate() {
        assert!(oracle::judge(tree, &allowed(30)).is_err(), "{which}");
    }
}

/// A database with the last rows of so many transactions of a process.
fn base(process: usize, last: u64, mode: &str) -> Vec<u8> {
    let work = tempfile::tempdir().expect("room");
    let path = work.path().join("base");
    let mut script =
        format!("PRAGMA journal_mode={mode}; CREATE TABLE told (number INTEGER PRIMARY KEY, content BLOB);");
    for number in oracle::kept(last) {
        let content = database::hex(&oracle::content(process, number));
        script += &format!("INSERT INTO told VALUES ({number}, x'{content}');");
    }
    std::fs::write(work.path().join("script"), script).expect("room");
    let script = std::fs::File::open(work.path().join("script")).expect("there");
    let output = std::process::Command::new("sqlite3").arg(&path).stdin(script).output().expect("sqlite3");
    assert!(output.status.success(), "{output:?}");
    std::fs::read(path).expect("there")
}

#[test]
fn a_database_has_the_rows_of_what_was_acknowledged_or_of_one_more() {
    for last in [0_u64, 1, 8, 9, 30] {
        let mut found = Tree::new();
        for process in 0..PROCESSES {
            let base = base(process, last, ["DELETE", "WAL"][process]);
            found.insert(format!("/d{process}/base"), shown(base));
        }
        for number in [last, last.saturating_sub(1)] {
            assert_eq!(database::judge(&found, &allowed(number)), Ok([last; 2]), "{last}, {number}");
        }
        assert!(database::judge(&found, &allowed(last + 1)).is_err());
        if last > 1 {
            assert!(database::judge(&found, &allowed(last - 2)).is_err());
            let data = &mut found.get_mut("/d1/base").expect("there").data;
            let end = data.len();
            data[end - 2000..].fill(0);
            assert!(database::judge(&found, &allowed(last)).is_err());
        }
    }
}

#[test]
fn a_blank_disk_fails_once_the_load_has_begun() {
    let ack = |process: u64| {
        let mut sector = format!("ack {process} 0 5 6\n").into_bytes();
        sector.resize(SECTOR, 0);
        sector
    };
    let blank = [0; SECTOR];
    let entries = [
        entry(0, 1, 0, &blank),
        entry(0, 0, 1, &[]),
        entry(16, 1, 0, &ack(0)),
        entry(17, 1, 0, &ack(1)),
        entry(0, 1, 0, &blank),
        entry(0, 0, 1, &[]),
    ];
    let mut log = record(&entries, 6, 512).expect("a record");
    let plan = Plan {
        kind: Kind::Narufs,
        load: Load::Files,
        durability: Durability::Power,
        sectors: 16,
        flushes: true,
        states: 0,
        seed: 0,
    };
    let tally = run(&mut log, &plan, &[]).expect("a record");
    assert_eq!(tally, Tally { entries: 6, flushes: 1, states: 1, failed: 1, earlier: 0, acknowledged: 0 });
}

#[test]
fn moments_are_looked_at_with_what_the_record_had_by_then() {
    let dir = tempfile::tempdir().expect("room");
    assert!(moments::read(dir.path()).is_err());
    // By the first one the second process has not begun; at the second one nothing is a file system.
    for size in ["3584", "2560"] {
        std::fs::write(dir.path().join(size), [0; 100]).expect("room");
    }
    let found = moments::read(dir.path()).expect("two moments");
    assert_eq!(found.iter().map(|moment| moment.size).collect::<Vec<_>>(), [2560, 3584]);
    let ack = |process: u64| {
        let mut sector = format!("ack {process} 0 5 6\n").into_bytes();
        sector.resize(SECTOR, 0);
        sector
    };
    let blank = [0; SECTOR];
    let entries =
        [entry(0, 1, 0, &blank), entry(16, 1, 0, &ack(0)), entry(17, 1, 0, &ack(1)), entry(0, 1, 0, &blank)];
    let mut log = record(&entries, 4, 512).expect("a record");
    let plan = Plan {
        kind: Kind::Narufs,
        load: Load::Files,
        durability: Durability::Power,
        sectors: 16,
        flushes: true,
        states: 3,
        seed: 0,
    };
    let tally = run(&mut log, &plan, &found).expect("a record");
    assert_eq!(tally, Tally { entries: 4, states: 3, failed: 3, ..Tally::default() });
    std::fs::write(dir.path().join("name"), []).expect("room");
    assert!(moments::read(dir.path()).is_err());
}
