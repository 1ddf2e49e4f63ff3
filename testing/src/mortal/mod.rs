//! A mount whose servers die at named steps of requests and of taking over, and what is asked of it.
//!
//! A [`Case`] is one system call in a directory of its own. [`Mortal::run`] makes the call while servers die as it was
//! planned, and gives what the call returned, what the directory holds afterwards, seen without the kernel's caches, and
//! which steps were passed. Whether that is right is for the test to say, by a mount whose servers do not die.

mod bytes;
mod cases;
mod looks;
mod names;
mod tree;

pub use cases::{Case, Held, LOOKS, Room, Way, cases};
pub use tree::look;

use crate::lab::Ring;
use crate::place::Place;
use crate::supervised::Supervisor;
use narufs_engine::planted::Bug;
use narufs_engine::planted::kill::{Death, PLAN, Plan, Step};
use narufs_fuse::control;
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const IMAGE_BYTES: u64 = 256 << 20;
const SLOTS: u64 = 8192;

/// Only so that a fault does not hang the test.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// What the call returned, and what was seen of the files that it has open.
    pub outcome: String,
    /// What is there, a line each.
    pub tree: Vec<String>,
    /// How often requests of the case's kind have passed each step since the last death, in the order of [`Step::ALL`].
    pub passes: Vec<u32>,
}

impl Ran {
    /// How often a step was passed.
    pub fn passed(&self, step: Step) -> u32 {
        self.passes[step as usize]
    }
}

/// The mount; what is left of it goes with this, its supervisor too.
pub struct Mortal {
    /// The first: its processes go before the place.
    supervisor: Supervisor,
    place: Place,
    plan: Plan,
    /// Directories that cases had.
    rooms: usize,
}

impl Mortal {
    /// A mount below `under`, served by this program, with these options; `bug`: what is broken in all its servers.
    ///
    /// # Errors
    /// What the command says, and those of files.
    pub fn new(program: &Path, under: &Path, options: &str, bug: Option<Bug>) -> Result<Mortal, String> {
        let place = Place::make(under, Ring::Ssd, IMAGE_BYTES, SLOTS).map_err(|e| e.to_string())?;
        let path = place.image().with_file_name("plan");
        let plan = Plan::create(&path).map_err(told)?;
        plan.plant(bug).map_err(told)?;
        let mut command = Command::new(program);
        command.env(PLAN, path).arg("mount").args([place.image(), place.point()]);
        command.args(["-o", "supervise=yes,noatime,commit=3600,memory=64M", "-o", options]);
        let out = command.stdin(Stdio::null()).output().map_err(told)?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).into_owned());
        }
        let supervisor = Supervisor::of(&place.point()).map_err(told)?;
        Ok(Mortal { supervisor, place, plan, rooms: 0 })
    }

    /// Where it is mounted.
    pub fn point(&self) -> PathBuf {
        self.place.point()
    }

    /// What its servers go by.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Has the kernel forget what nobody uses.
    fn forget(&self) -> Result<(), String> {
        mount_remount(self.point(), MountFlags::NOATIME, "").map_err(|e| format!("remount: {e}"))
    }

    /// Makes a case's call in a new directory, while servers die so.
    ///
    /// # Errors
    /// What cannot be: a call that does not return, a death that does not come.
    pub fn run(&mut self, case: &Case, deaths: &[Death]) -> Result<Ran, String> {
        self.rooms += 1;
        let path = self.point().join(format!("room-{}", self.rooms));
        self.plan.arm(&[]).map_err(told)?;
        let room = Room::make(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let held = (case.prepare)(&room).map_err(|e| format!("it was not prepared: {e}"))?;
        room.date().map_err(|e| format!("no time was set: {e}"))?;
        if case.is_cold {
            self.forget()?;
        }
        self.settle(case)?;
        self.plan.arm(deaths).map_err(told)?;
        let (outcome, held) = self.call(case, &room, held, deaths)?;
        self.wait(|| Ok(self.plan.died()? == deaths.len()))
            .map_err(|e| format!("{} of {} deaths came: {e}", self.plan.died().unwrap_or(0), deaths.len()))?;
        if deaths.is_empty() {
            // The caller may not have waited for it.
            self.wait(|| Ok(self.passes(case, Step::Answered)? > 0))?;
            self.settle(case)?;
        } else {
            // Answered when a server serves: there is nothing to do meanwhile.
            control::supervisor_pid(&self.point()).map_err(told)?;
            self.wait(|| self.has_drained(deaths))?;
        }
        let passes = Step::ALL.iter().map(|step| self.passes(case, *step)).collect::<Result<_, _>>();
        let passes = passes.map_err(told)?;
        let seen = held.look().map_err(|e| format!("of what is held: {e}"))?;
        drop((held, room));
        self.forget()?;
        let tree = look(&path, case.is_measured).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Ran { outcome: format!("{outcome}{seen}"), tree, passes })
    }

    fn passes(&self, case: &Case, step: Step) -> std::io::Result<u32> {
        self.plan.passes(case.opcode as u32, step)
    }

    /// Waits until no request of the case's kind is in service.
    fn settle(&self, case: &Case) -> Result<(), String> {
        self.wait(|| {
            let freed = self.passes(case, Step::Freed)?;
            Ok(freed >= self.passes(case, Step::Read)?)
        })
    }

    /// Waits for what must come.
    ///
    /// # Errors
    /// That it does not come.
    pub fn wait(&self, mut is_there: impl FnMut() -> std::io::Result<bool>) -> Result<(), String> {
        let begin = Instant::now();
        while !is_there().map_err(told)? {
            if begin.elapsed() > PATIENCE {
                return Err("nothing came for too long".into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The call, by a thread of its own: should it not return, the mount is cut off.
    fn call(
        &self,
        case: &Case,
        room: &Room,
        mut held: Held,
        deaths: &[Death],
    ) -> Result<(String, Held), String> {
        let returned = std::thread::scope(|scope| {
            let (say, hear) = mpsc::channel();
            let held = &mut held;
            scope.spawn(move || {
                // Who does not hear it any more has cut the mount off.
                let _ = say.send((case.call)(room, held));
            });
            let returned = self.hear(&hear, || self.is_lost(case, deaths).unwrap_or(true));
            if returned.is_err() {
                self.cut();
            }
            returned
        })?;
        let outcome = match returned {
            Ok(outcome) => outcome,
            Err(e) => format!("{e:?}"),
        };
        Ok((outcome, held))
    }

    /// Whether a call will not return: all deaths have come, the last server has done what it was sent again, and the
    /// kernel has not taken the answer.
    fn is_lost(&self, case: &Case, deaths: &[Death]) -> std::io::Result<bool> {
        let (tried, taken) = (self.passes(case, Step::Answering)?, self.passes(case, Step::Answered)?);
        Ok(self.has_drained(deaths)? && tried > taken)
    }

    /// Whether the last server has done what was sent to it again.
    fn has_drained(&self, deaths: &[Death]) -> std::io::Result<bool> {
        Ok(self.plan.died()? == deaths.len() && self.plan.passes(0, Step::Drained)? > 0)
    }

    /// What is heard as soon as it comes; given up when it will not.
    pub fn hear<T>(&self, from: &mpsc::Receiver<T>, is_lost: impl Fn() -> bool) -> Result<T, String> {
        let begin = Instant::now();
        loop {
            match from.recv_timeout(Duration::from_secs(1)) {
                Ok(heard) => return Ok(heard),
                Err(mpsc::RecvTimeoutError::Timeout)
                    if begin.elapsed() < PATIENCE && !self.supervisor.is_over() && !is_lost() => {}
                Err(e) => return Err(format!("the call does not return: {e}")),
            }
        }
    }

    /// Kills the server that there is now, whatever it is doing.
    pub fn kill(&self) {
        self.supervisor.signal_server(Signal::KILL);
    }

    /// Cuts off who uses the mount: whoever waits for an answer gets an error.
    pub fn cut(&self) {
        let _ = self.place.detach();
    }

    /// Unmounts, has the image checked, and looks at it by a new mount.
    ///
    /// # Errors
    /// What is wrong.
    pub fn end(self, program: &Path, with: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
        let run = |words: &[&str]| -> Result<(), String> {
            let mut command = Command::new(program);
            command.arg(words[0]).args(if words[0] == "mount" { Some(self.place.image()) } else { None });
            let out = command.arg(self.point()).args(&words[1..]).output().map_err(told)?;
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            if out.status.success() { Ok(()) } else { Err(format!("{}: {said}", words[0])) }
        };
        run(&["umount"])?;
        self.supervisor.wait().map_err(told)?;
        self.place.check()?;
        run(&["mount", "-o", "noatime"])?;
        let outcome = with(&self.point());
        run(&["umount"])?;
        outcome.and(self.place.check())
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        // Whoever waits for an answer gets an error; then its processes go.
        self.cut();
    }
}

fn told(e: impl std::fmt::Display) -> String {
    e.to_string()
}
