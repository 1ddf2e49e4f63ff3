//! Loads of other programs: what is lost, too many, or damaged is found.

use super::acked::{Acked, Allowed, Durability, PROCESSES, Told};
use super::oracle::{content, kept};
use super::states::Event;
use super::tests::{allowed, shown};
use super::{git, mail, postgres};
use crate::dir_target::DirTarget;
use crate::model::Tree;
use crate::target::Target;
use std::fmt::Write as _;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;

fn read(dir: &Path) -> Tree {
    DirTarget::new(dir).expect("a directory").tree().expect("it can be read")
}

/// What is there is right for what was acknowledged by then, and for one operation less; for no other number.
fn fits(last: u64, judge: impl Fn(&Allowed) -> Result<[u64; PROCESSES], String>) {
    for number in [last, last.saturating_sub(1)] {
        assert_eq!(judge(&allowed(number)), Ok([last; PROCESSES]), "{last}, {number}");
    }
    assert!(judge(&allowed(last + 1)).is_err(), "one is lost after {last}");
    assert!(last < 2 || judge(&allowed(last - 2)).is_err(), "one too many is there after {last}");
}

/// Repositories of so many commits; of the second process one file of the last is another.
fn repositories(last: u64, lie: bool) -> Tree {
    let work = tempfile::tempdir().expect("room");
    for process in 0..PROCESSES {
        let dir = work.path().join(format!("d{process}"));
        let mut words = Vec::new();
        for number in 1..=last {
            let who = "committer load <load@localhost> 1 +0000";
            write!(words, "commit refs/heads/main\n{who}\ndata {}\n{number}\n", number.to_string().len() + 1)
                .expect("memory");
            let mut file = content(process, number);
            file[0] ^= u8::from(lie && number == last);
            write!(words, "M 100644 inline {number}\ndata {}\n", file.len()).expect("memory");
            words.extend(file);
            if !kept(number).contains(&1) {
                write!(words, "\nD {}", kept(number).start() - 1).expect("memory");
            }
            words.push(b'\n');
        }
        let mut input = tempfile::tempfile().expect("room");
        input.write_all(&words).and_then(|()| input.rewind()).expect("room");
        let run = |command: &mut Command| assert!(command.status().expect("git").success(), "{command:?}");
        run(Command::new("git").args(["init", "-q", "-b", "main"]).arg(&dir));
        run(Command::new("git")
            .arg("-C")
            .arg(&dir)
            .args(["-c", "fastimport.unpackLimit=1000", "fast-import", "--quiet"])
            .stdin(input));
    }
    read(work.path())
}

#[test]
fn a_repository_has_the_commits_that_were_acknowledged_or_one_more() {
    for last in [0, 1, 2, 9, 20] {
        let found = repositories(last, false);
        fits(last, |allowed| git::judge(&found, allowed));
    }
    assert!(git::judge(&repositories(20, true), &allowed(20)).is_err());
    let mut lossy: [Tree; 3] = std::array::from_fn(|_| repositories(10, false));
    let object = |tree: &Tree| {
        let objects = tree
            .iter()
            .filter(|(path, shown)| path.starts_with("/d1/.git/objects/") && shown.data.len() > 60);
        objects.map(|(path, _)| path.clone()).nth(3).expect("there are some")
    };
    let one = object(&lossy[0]);
    lossy[0].remove(&one).expect("it is there");
    let one = object(&lossy[1]);
    lossy[1].get_mut(&one).expect("it is there").data.truncate(40);
    lossy[2].get_mut("/d0/.git/refs/heads/main").expect("it is there").data.clear();
    for (which, tree) in lossy.iter().enumerate() {
        assert!(git::judge(tree, &allowed(10)).is_err(), "{which}");
    }
}

fn boxes(last: u64) -> Tree {
    let of = |process| {
        mail::messages(last)
            .map(move |(message, name)| (format!("/d{process}/{name}"), shown(content(process, message))))
    };
    (0..PROCESSES).flat_map(of).collect()
}

#[test]
fn a_store_of_mail_is_that_of_what_was_acknowledged_or_of_one_operation_more() {
    for last in [0, 1, 2, 3, 4, 5, 30, 31, 32] {
        let found = boxes(last);
        fits(last, |allowed| mail::judge(&found, allowed));
    }
    // After 30 operations there are messages 11 to 18, those up to 15 seen.
    let mut lossy: [Tree; 5] = std::array::from_fn(|_| boxes(30));
    lossy[0].remove("/d1/box0/cur/12:2,S").expect("it is there");
    lossy[1].get_mut("/d0/box1/new/16").expect("it is there").data.truncate(100);
    let again = lossy[2]["/d0/box0/cur/15:2,S"].clone();
    lossy[2].insert("/d0/box0/new/15".into(), again);
    lossy[3].insert("/d1/box1/cur/10:2,S".into(), shown(content(1, 10)));
    lossy[4].insert("/d1/box0/tmp/18".into(), shown(content(1, 18)));
    for (which, tree) in lossy.iter().enumerate() {
        assert!(mail::judge(tree, &allowed(30)).is_err(), "{which}");
    }
    // What is being delivered may be there in part, or by both of its names.
    let mut partly = boxes(30);
    partly.insert("/d0/box1/tmp/19".into(), shown(vec![0; 7]));
    assert_eq!(mail::judge(&partly, &allowed(30)), Ok([30; 2]));
    let mut twice = boxes(31);
    twice.insert("/d0/box1/tmp/19".into(), shown(content(0, 19)));
    assert_eq!(mail::judge(&twice, &allowed(30)), Ok([31; 2]));
    assert!(mail::judge(&twice, &allowed(31)).is_err());
}

/// A server's directory with the rows of so many transactions.
fn server(work: &Path, last: u64) -> Tree {
    let base = work.join("pg");
    let mut asks = String::from("CREATE EXTENSION amcheck\n");
    for process in 0..PROCESSES {
        writeln!(asks, "CREATE TABLE told{process} (number bigint PRIMARY KEY, content bytea)")
            .expect("memory");
        // As it is, for what is damaged to be found.
        writeln!(asks, "ALTER TABLE told{process} ALTER content SET STORAGE EXTERNAL").expect("memory");
        for number in kept(last) {
            let content: String =
                content(process, number).iter().fold(String::new(), |hex, b| hex + &format!("{b:02x}"));
            writeln!(asks, "INSERT INTO told{process} VALUES ({number}, '\\x{content}')").expect("memory");
        }
    }
    postgres::single_user(work, &base, &asks).expect("PostgreSQL");
    read(work)
}

#[test]
fn a_server_has_the_rows_of_what_was_acknowledged_or_of_one_transaction_more() {
    let mut versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL, as Debian has it");
    let version = versions.next().expect("a version of it").expect("it can be read").file_name();
    let version = version.to_str().expect("a number");
    let empty = tempfile::tempdir().expect("room");
    let mut initdb = postgres::program(empty.path(), version, "initdb").expect("a user of it");
    initdb.args(["--no-sync", "--data-checksums", "--wal-segsize=1", "-A", "trust", "--locale=C", "-D"]);
    let made = initdb.arg(empty.path().join("pg")).output().expect("initdb");
    assert!(made.status.success(), "{made:?}");
    let empty = read(empty.path());
    for last in [0, 10] {
        let work = tempfile::tempdir().expect("room");
        super::look::copy(&empty, "", work.path()).expect("room");
        let mut found = server(work.path(), last);
        fits(last, |allowed| postgres::judge(&found, allowed));
        // The last page of the second table's values.
        let pages =
            found.values_mut().filter(|shown| shown.data.windows(9).any(|bytes| bytes == b"1 9 0    "));
        let damaged =
            pages.map(|shown| shown.data.iter_mut().rev().take(3000).for_each(|byte| *byte ^= 1)).count();
        assert!(last == 0 || damaged > 0 && postgres::judge(&found, &allowed(last)).is_err());
    }
}

fn told(process: usize, number: u64, begun: u64, ended: u64) -> Event {
    Event::Acknowledged(Told { process, number, begun, ended })
}

#[test]
fn with_a_window_what_is_older_must_be_there_and_all_be_of_one_moment() {
    let mut acked = Acked::default();
    for event in
        [told(0, 0, 0, 1), told(1, 0, 0, 1), told(0, 1, 10, 20), told(1, 1, 15, 30), told(0, 2, 130, 140)]
    {
        acked.hear(&event);
    }
    let of = |durability| acked.allowed(durability).0;
    assert_eq!(of(Durability::Power), [2..=3, 1..=2]);
    assert_eq!(of(Durability::Process), [0..=3, 0..=2]);
    // The last sync began at 130.
    assert_eq!(of(Durability::Window(130)), [0..=3, 0..=2]);
    assert_eq!(of(Durability::Window(105)), [1..=3, 0..=2]);
    assert_eq!(of(Durability::Window(99)), [1..=3, 1..=2]);
    for found in [[2, 1], [3, 2], [1, 0], [0, 1], [2, 2], [0, 0]] {
        assert!(acked.at_one_moment(&found), "{found:?}");
    }
    // The second process had not begun its second before its first was acknowledged.
    for found in [[0, 2], [3, 0], [4, 2]] {
        assert!(!acked.at_one_moment(&found), "{found:?}");
    }
    assert!(acked.is_ahead_of(&[1, 1]) && !acked.is_ahead_of(&[2, 1]) && !acked.is_ahead_of(&[3, 2]));
    assert!(acked.allowed(Durability::Window(99)).each(|_, _| Ok(0)).is_err());
}

#[test]
fn durability_is_said_as_a_mount_has_it() {
    assert_eq!("power".parse(), Ok(Durability::Power));
    assert_eq!("process".parse(), Ok(Durability::Process));
    assert_eq!("window=100ms".parse(), Ok(Durability::Window(100_000)));
    assert_eq!("window=2s".parse(), Ok(Durability::Window(2_000_000)));
    for wrong in ["", "window", "window=", "window=5", "window=-1s", "window=99999999999999999999s", "none"] {
        assert!(wrong.parse::<Durability>().is_err(), "{wrong}");
    }
}
