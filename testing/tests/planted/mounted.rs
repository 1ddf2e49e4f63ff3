//! Bugs of servers that follow one another, which a mount shows.

use narufs_engine::planted::chosen;
use narufs_engine::planted::kill::{Death, How, Step};
use narufs_fuse::wire::Opcode;
use narufs_testing::mortal::{Case, Mortal, Way, cases};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;

fn told(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn mortal(way: Way) -> Result<Mortal, String> {
    let program = Path::new(env!("CARGO_BIN_EXE_narufs-mortal"));
    Mortal::new(program, Path::new(env!("CARGO_TARGET_TMPDIR")), way.options(), chosen())
}

fn mkdir() -> Result<Case, String> {
    cases()
        .into_iter()
        .find(|case| case.opcode == Opcode::Mkdir && case.way == Way::Usual)
        .ok_or("no case".into())
}

/// A call returns once, and without an error, whether it was done before the server's death or not.
pub fn a_call_happens_once() -> Result<(), String> {
    let (mut mortal, case) = (mortal(Way::Usual)?, mkdir()?);
    for step in [Step::Noted, Step::Sealed] {
        let ran = mortal.run(&case, &[Death::at(case.opcode as u32, step)])?;
        if ran.outcome.contains("Os") || ran.tree.len() != 2 {
            return Err(format!("killed at {step:?}: {}, and there is {:?}", ran.outcome, ran.tree));
        }
    }
    Ok(())
}

/// A directory is there for all to see, and the server that has made it dies before it says so: it was made, and no call is
/// told that there is one already.
pub fn a_name_that_others_have_seen() -> Result<(), String> {
    let (mut mortal, case) = (mortal(Way::Usual)?, mkdir()?);
    let ran = mortal.run(&case, &[Death::at(case.opcode as u32, Step::Unlocked)])?;
    let is_once = !ran.outcome.contains("Os") && ran.tree.len() == 2;
    if is_once { Ok(()) } else { Err(format!("{}, and there is {:?}", ran.outcome, ran.tree)) }
}

/// Of two writes to the same place the second has returned when the server dies, the first has not: what the second has
/// written stays.
pub fn a_write_that_another_has_followed() -> Result<(), String> {
    const LEN: usize = 4096;
    let mortal = mortal(Way::Asked)?;
    let path = mortal.point().join("file");
    fs::write(&path, [0; LEN]).map_err(told)?;
    let open = || File::options().read(true).write(true).open(&path).map_err(told);
    let (first, second) = (open()?, open()?);
    let stopped = Death { how: How::Stopped, ..Death::at(Opcode::Write as u32, Step::Unlocked) };
    mortal.plan().arm(&[stopped]).map_err(told)?;
    std::thread::scope(|scope| {
        let (say, hear) = mpsc::channel();
        let follow = || -> Result<(), String> {
            mortal.wait(|| Ok(mortal.plan().died()? == 1))?;
            let (say, hear) = mpsc::channel();
            scope.spawn(move || drop(say.send(second.write_all_at(&[2; LEN], 0))));
            mortal.hear(&hear, || false)?.map_err(told)
        };
        scope.spawn(move || drop(say.send(first.write_all_at(&[1; LEN], 0))));
        let followed = follow();
        mortal.kill();
        if followed.is_err() {
            mortal.cut();
        }
        let outcome: io::Result<()> = mortal.hear(&hear, || false)?;
        followed.and(outcome.map_err(told))
    })?;
    let there = fs::read(&path).map_err(told)?;
    if there == [2; LEN] { Ok(()) } else { Err(format!("bytes of {:?} took its place", there.first())) }
}
