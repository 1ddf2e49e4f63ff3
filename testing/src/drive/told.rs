//! What a drive is told, a line each, and what it answers, a line each:
//!
//! | line | what it does |
//! | --- | --- |
//! | `fail KIND N LASTS [ERRNO]` | requests fail, with EIO or this number |
//! | `short KIND N LASTS BYTES` | so many bytes of requests are done at the most, and are answered |
//! | `hold KIND N LASTS` | requests are not done, nor answered, until they are released |
//! | `release` | does what is held, and holds nothing any more |
//! | `mend` | the same, and nothing fails or is short any more |
//! | `held N` | answers when so many requests are held |
//! | `count` | answers how many requests there were: `read 3 write 5 flush 1 failed 0 short 0 held 0` |
//!
//! KIND is `read`, `write`, `flush` or `any`; N counts requests of that kind from now, the next is 1; LASTS is `once` or
//! `on`. The answer is `ok` where nothing else is said, and else `error: ` and why.

use super::faults::{Counts, Faults, Kind, Lasts, Rule, Wrong};

/// Does as a line says; the answer.
#[must_use]
pub fn tell(faults: &Faults, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match obey(faults, &words) {
        Ok(Some(counts)) => said(&counts),
        Ok(None) => "ok".into(),
        Err(why) => format!("error: {why}"),
    }
}

fn said(counts: &Counts) -> String {
    let Counts { reads, writes, flushes, failed, short, held } = counts;
    format!("read {reads} write {writes} flush {flushes} failed {failed} short {short} held {held}")
}

fn obey(faults: &Faults, words: &[&str]) -> Result<Option<Counts>, String> {
    match words {
        ["fail", kind, nth, lasts] => faults.add(rule(kind, nth, lasts, Wrong::Fails(libc::EIO))?),
        ["fail", kind, nth, lasts, errno] => {
            faults.add(rule(kind, nth, lasts, Wrong::Fails(number(errno)? as i32))?);
        }
        ["short", kind, nth, lasts, bytes] => {
            faults.add(rule(kind, nth, lasts, Wrong::Short(number(bytes)? as usize))?);
        }
        ["hold", kind, nth, lasts] => faults.add(rule(kind, nth, lasts, Wrong::Held)?),
        ["release"] => faults.release(),
        ["mend"] => faults.mend(),
        ["held", count] => faults.wait_for_held(number(count)?),
        ["count"] => return Ok(Some(faults.counts())),
        _ => return Err("say fail, short, hold, release, mend, held or count, each with its words".into()),
    }
    Ok(None)
}

fn rule(kind: &str, nth: &str, lasts: &str, wrong: Wrong) -> Result<Rule, String> {
    let kind = match kind {
        "any" => None,
        "read" => Some(Kind::Read),
        "write" => Some(Kind::Write),
        "flush" => Some(Kind::Flush),
        other => return Err(format!("{other}: say read, write, flush or any")),
    };
    let lasts = match lasts {
        "once" => Lasts::Once,
        "on" => Lasts::On,
        other => return Err(format!("{other}: say once or on")),
    };
    Ok(Rule { kind, spared: number(nth)? - 1, lasts, wrong })
}

fn number(word: &str) -> Result<u64, String> {
    let number = word.parse().ok().filter(|number| (1..=u64::from(u32::MAX >> 1)).contains(number));
    number.ok_or_else(|| format!("{word}: say a number from 1 on"))
}

#[cfg(test)]
mod tests {
    use super::super::faults::Outcome;
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[test]
    fn a_line_makes_a_rule_and_is_answered() {
        let faults = Faults::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let meet = |kind| {
            let seen = Arc::clone(&seen);
            faults.meet(kind, move |outcome| seen.lock().push(outcome));
        };
        for line in
            ["fail write 2 once", "fail flush 1 on 28", " short  read 1 once 512\n", "hold any 4 once"]
        {
            assert_eq!(tell(&faults, line), "ok");
        }
        [Kind::Write, Kind::Write, Kind::Read].into_iter().for_each(meet);
        meet(Kind::Flush);
        meet(Kind::Write);
        assert_eq!(tell(&faults, "count"), "read 1 write 3 flush 1 failed 2 short 1 held 0");
        assert_eq!(tell(&faults, "hold write 1 on"), "ok");
        meet(Kind::Write);
        assert_eq!(tell(&faults, "held 1"), "ok");
        assert_eq!(tell(&faults, "count"), "read 1 write 4 flush 1 failed 2 short 1 held 1");
        assert_eq!(tell(&faults, "release"), "ok");
        assert_eq!(tell(&faults, "mend"), "ok");
        meet(Kind::Flush);
        use Outcome::{Failed, Short, Whole};
        let failed = [Failed(libc::EIO), Failed(28)];
        assert_eq!(*seen.lock(), [Whole, failed[0], Short(512), failed[1], Whole, Whole, Whole]);
    }

    #[test]
    fn what_makes_no_sense_is_answered_and_does_nothing() {
        let faults = Faults::default();
        for line in [
            "",
            "fail",
            "fail all 1 once",
            "fail read 0 once",
            "fail read 1 twice",
            "short read 1 on",
            "short read 1 on 0",
            "held x",
            "fail read 1 once 99999999999",
        ] {
            assert!(tell(&faults, line).starts_with("error: "), "{line}");
        }
        faults.meet(Kind::Read, |outcome| assert_eq!(outcome, Outcome::Whole));
    }
}
