//! Loads that know what every call must return and what must be there afterwards. Each function is one round.

use super::{Outcome, Work};
use crate::demand;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{Advice, CWD, RenameFlags, fadvise, renameat_with};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

/// One round of a load.
pub type Load = fn(&mut Work<'_>) -> Outcome;

/// All of them, by name.
pub const ALL: [(&str, Load); 5] = [
    ("append", append),
    ("exchange", exchange),
    ("names", names),
    ("unsynced", unsynced),
    ("listing", listing),
];

const WRITERS: usize = 3;
const LINES: usize = 1500;

/// Several append numbered lines to one file: each line is there once, and those of one writer in their order.
fn append(work: &mut Work<'_>) -> Outcome {
    let path = work.dir.join("log");
    let writer = |writer: usize| -> Outcome {
        let mut log = File::options().create(true).append(true).open(&path)?;
        for line in 0..LINES {
            log.write_all(format!("{writer} {line:08}\n").as_bytes())?;
            if writer > 0 && line % (writer * 50) == 0 {
                log.sync_data()?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || writer(number))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(|_| Err("a panic".into())))
    })?;
    // As the server has it.
    fadvise(File::open(&path)?, 0, None, Advice::DontNeed)?;
    let mut next = [0; WRITERS];
    for line in fs::read_to_string(&path)?.lines() {
        let (writer, number) = line.split_once(' ').ok_or_else(|| format!("half a line: {line:?}"))?;
        let (writer, number): (usize, usize) = (writer.parse()?, number.parse()?);
        demand!(
            writer < WRITERS && number == next[writer],
            "after line {} came {line:?}",
            next[writer.min(WRITERS - 1)]
        );
        next[writer] += 1;
    }
    demand!(next == [LINES; WRITERS], "{next:?} lines of {LINES} each are there");
    Ok(fs::remove_file(&path)?)
}

/// Two names change places: each leads to what the other led to, once for each call.
fn exchange(work: &mut Work<'_>) -> Outcome {
    let [one, other] = ["one", "other"].map(|name| work.dir.join(name));
    fs::write(&one, "one")?;
    fs::create_dir(&other)?;
    let ids = |path: &Path| -> Outcome<u64> { Ok(fs::symlink_metadata(path)?.ino()) };
    let (mut first, mut second) = (ids(&one)?, ids(&other)?);
    for time in 0..500 {
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)?;
        std::mem::swap(&mut first, &mut second);
        demand!((ids(&one)?, ids(&other)?) == (first, second), "after {time} exchanges names lead elsewhere");
    }
    // An even number.
    demand!(fs::read_to_string(&one)? == "one", "what was exchanged has other bytes");
    fs::remove_file(&one)?;
    Ok(fs::remove_dir(&other)?)
}

/// The kind of an error that must come.
fn refused<T>(what: &str, outcome: std::io::Result<T>, kind: ErrorKind) -> Outcome {
    match outcome {
        Err(e) if e.kind() == kind => Ok(()),
        Err(e) => Err(format!("{what}: {e}").into()),
        Ok(_) => Err(format!("{what}: it was done").into()),
    }
}

/// Names are made and removed; what a second call of the same must return too.
fn names(work: &mut Work<'_>) -> Outcome {
    let at = |name: &str| work.dir.join(name);
    let look = |name: &str| -> std::io::Result<Metadata> { fs::symlink_metadata(at(name)) };
    let links = look("")?.nlink();
    for _ in 0..100 {
        fs::create_dir(at("dir"))?;
        refused("mkdir again", fs::create_dir(at("dir")), ErrorKind::AlreadyExists)?;
        demand!(look("")?.nlink() == links + 1, "a directory counts for {}", look("")?.nlink());
        File::create_new(at("dir/file"))?;
        refused("create again", File::create_new(at("dir/file")), ErrorKind::AlreadyExists)?;
        refused("rmdir of a full one", fs::remove_dir(at("dir")), ErrorKind::DirectoryNotEmpty)?;
        fs::hard_link(at("dir/file"), at("link"))?;
        demand!(look("link")?.nlink() == 2, "a link counts for {}", look("link")?.nlink());
        refused("link again", fs::hard_link(at("dir/file"), at("link")), ErrorKind::AlreadyExists)?;
        symlink("nowhere", at("symbolic"))?;
        demand!(fs::read_link(at("symbolic"))? == Path::new("nowhere"), "it points elsewhere");
        fs::rename(at("symbolic"), at("renamed"))?;
        refused("rename again", fs::rename(at("symbolic"), at("renamed")), ErrorKind::NotFound)?;
        fs::remove_file(at("dir/file"))?;
        refused("unlink again", fs::remove_file(at("dir/file")), ErrorKind::NotFound)?;
        demand!(look("link")?.nlink() == 1, "a last link counts for {}", look("link")?.nlink());
        fs::rename(at("link"), at("renamed"))?;
        demand!(look("renamed")?.is_file(), "a rename has not replaced");
        fs::remove_file(at("renamed"))?;
        fs::remove_dir(at("dir"))?;
        refused("rmdir again", fs::remove_dir(at("dir")), ErrorKind::NotFound)?;
        demand!(look("")?.nlink() == links, "links of the directory are left");
    }
    demand!(fs::read_dir(at(""))?.next().is_none(), "names are left");
    Ok(())
}

/// What was written and not synced is read back when the kernel's copy is gone; truncations too.
fn unsynced(work: &mut Work<'_>) -> Outcome {
    const MOST: usize = 2 << 20;
    let path = work.dir.join("file");
    let file = File::options().create_new(true).read(true).write(true).open(&path)?;
    let mut model: Vec<u8> = Vec::new();
    for step in 0..60 {
        let random = &mut work.random;
        if step % 12 == 11 {
            let len = random.random_range(0..=model.len());
            file.set_len(len as u64)?;
            model.truncate(len);
        } else {
            let at = random.random_range(0..MOST / 2);
            let mut bytes = vec![0; random.random_range(1..200_000)];
            random.fill(&mut bytes[..]);
            file.write_all_at(&bytes, at as u64)?;
            model.resize(model.len().max(at + bytes.len()), 0);
            model[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        fadvise(&file, 0, None, Advice::DontNeed)?;
        let at = work.random.random_range(0..=model.len());
        let mut found = vec![0; (model.len() - at).min(150_000)];
        file.read_exact_at(&mut found, at as u64)?;
        demand!(found == model[at..at + found.len()], "step {step}: other bytes from {at} on");
    }
    demand!(fs::read(&path)? == model, "other bytes in the end");
    Ok(fs::remove_file(&path)?)
}

const STEADY: usize = 100_000;

/// A directory of many names is listed while others come and go: each that stays comes once.
fn listing(work: &mut Work<'_>) -> Outcome {
    let steady = work.aside.join("listing-steady");
    let dir = work.dir.join("many");
    if work.rounds == 0 {
        fs::create_dir(&dir)?;
        // Links are cheaper than files; an inode has no more of them than that.
        for number in 0..STEADY {
            let first = dir.join(format!("{:06}", number / 20_000 * 20_000));
            match number % 20_000 {
                0 => drop(File::create_new(first)?),
                _ => fs::hard_link(first, dir.join(format!("{number:06}")))?,
            }
        }
        fs::write(&steady, "made")?;
    }
    let mut seen = BTreeSet::new();
    let mut random = StdRng::seed_from_u64(work.random.random());
    for (count, entry) in fs::read_dir(&dir)?.enumerate() {
        let name = entry?.file_name().into_string().map_err(|name| format!("a name {name:?}"))?;
        demand!(!name.bytes().all(|b| b.is_ascii_digit()) || seen.insert(name.clone()), "{name} comes twice");
        if count % 2000 == 0 {
            let other = dir.join(format!("other-{}", random.random_range(0..1000)));
            match fs::remove_file(&other) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::NotFound => drop(File::create_new(&other)?),
                Err(e) => return Err(e.into()),
            }
            // A listing takes as long as some kills.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    demand!(seen.len() == STEADY, "{} of {STEADY} names came", seen.len());
    Ok(())
}
