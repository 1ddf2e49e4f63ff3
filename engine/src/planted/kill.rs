//! Kill points: steps of a request, and of a server that takes a mount over, at which a process can be made to kill
//! itself.
//!
//! A test and the servers of one mount share a file, whose path servers find in their environment (`NARUFS_KILL_PLAN`).
//! The test says at which step of which request to die, and one death after the other; a server that comes there notes
//! that it has, and is gone. Passes since the last death are counted there too. Compiled only with the feature
//! `planted-bugs`; without it [`step`] and [`Serving`] are nothing.

listed! {
    /// A place on the way of a request, or of a successor; in the order of a request's way.
    #[derive(PartialOrd, Ord)]
    #[repr(u32)]
    Step:

    /// The request was read, and is not noted.
    Read,
    /// It is noted, and nothing is done for it.
    Noted,
    /// A record that decides no request has its place in the journal.
    BesideReserved,
    /// It is about to be persistent.
    BesideWriting,
    /// It is, and memory does not show it.
    BesidePersisted,
    /// Memory shows it, and commits wait for it.
    BesideApplied,
    /// Commits may pass it.
    BesideSealed,
    /// The record that decides the request has its place in the journal, which is not noted.
    Reserved,
    /// The record's place is noted, and it is not persistent.
    Decided,
    /// The record is persistent, and memory does not show it.
    Persisted,
    /// Memory shows it, and commits wait for it.
    Applied,
    /// Commits may pass it; the locks are held.
    Sealed,
    /// The bytes of a write are there, which is not noted; the range is held.
    Copied,
    /// It is noted that they are there; the range is held.
    Wrote,
    /// The operation has given its locks back.
    Unlocked,
    /// The reply is about to be sent.
    Answering,
    /// The kernel has the reply, the slot is in use.
    Answered,
    /// The slot is free again.
    Freed,
    /// A successor: the memory is taken over, nothing is recovered.
    Adopted,
    /// It is to be said which requests were done.
    Judging,
    /// That was said.
    Judged,
    /// What was left in frames and slots is about to be brought back.
    Inheriting,
    /// One file's was.
    InheritedFile,
    /// All of it was.
    Inherited,
    /// The kernel is about to be asked to send requests again.
    Resending,
    /// A request was read that may have been sent again, and nobody has looked at it.
    Redelivered,
    /// It was served.
    Redone,
    /// All were, and what is left of requests is forgotten.
    Drained,
}

/// The steps of a record that decides a request, and of one that decides none.
const RECORD: [[Step; 5]; 2] = [
    [
        Step::BesideReserved,
        Step::BesideWriting,
        Step::BesidePersisted,
        Step::BesideApplied,
        Step::BesideSealed,
    ],
    [Step::Reserved, Step::Decided, Step::Persisted, Step::Applied, Step::Sealed],
];

/// The steps of a record, in this order: reserved, noted, persistent, applied, sealed.
#[inline(always)]
pub(crate) fn record(decides: impl FnOnce() -> bool) -> [Step; 5] {
    RECORD[usize::from(cfg!(feature = "planted-bugs") && decides())]
}

#[cfg(feature = "planted-bugs")]
mod plan {
    use super::super::Bug;
    use super::Step;
    use crate::blocking;
    use rustix::process::{Signal, getpid, kill_process};
    use std::cell::Cell;
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::{Mutex, OnceLock, PoisonError};

    /// The variable of the environment that has the path of the plan.
    pub const PLAN: &str = "NARUFS_KILL_PLAN";

    /// Deaths that a plan has at the most.
    pub const MOST_DEATHS: usize = 32;
    /// More than any opcode that a test kills at.
    const OPCODES: u64 = 64;

    /// Words of four bytes: how many deaths there were, how many there are to be, what is planted, and each death.
    const DIED: u64 = 0;
    const DEATHS: u64 = 1;
    const BUG: u64 = 2;
    const FIRST: u64 = 4;
    /// Words of a death.
    const EACH: u64 = 4;
    const PASSES: u64 = FIRST + EACH * MOST_DEATHS as u64;

    /// One death.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Death {
        /// Of the request that is served; 0: none is.
        pub opcode: u32,
        /// Where.
        pub step: Step,
        /// How often that is passed before.
        pub passes: u32,
        /// How.
        pub how: How,
    }

    /// What happens to a server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[repr(u32)]
    pub enum How {
        /// It is killed.
        Killed,
        /// It dies of itself.
        OfItself,
        /// It goes on, but for the thread, until somebody kills it.
        Stopped,
    }

    impl Death {
        /// A kill at the first pass.
        pub fn at(opcode: u32, step: Step) -> Death {
            Death { opcode, step, passes: 0, how: How::Killed }
        }
    }

    /// What a test and the servers of a mount share.
    #[derive(Debug)]
    pub struct Plan {
        file: File,
    }

    impl Plan {
        /// A new one, at this path.
        ///
        /// # Errors
        /// Those of the file.
        pub fn create(path: &Path) -> io::Result<Plan> {
            let file = File::options().read(true).write(true).create_new(true).open(path)?;
            file.set_len((PASSES + OPCODES * Step::ALL.len() as u64) * 4)?;
            Ok(Plan { file })
        }

        fn word(&self, at: u64) -> io::Result<u32> {
            let mut bytes = [0; 4];
            self.file.read_exact_at(&mut bytes, at * 4)?;
            Ok(u32::from_ne_bytes(bytes))
        }

        fn set(&self, at: u64, word: u32) -> io::Result<()> {
            self.file.write_all_at(&word.to_ne_bytes(), at * 4)
        }

        /// Has servers die so, one after the other; passes are counted anew. To be called while nothing is asked but what
        /// nobody waits for, as the release of a file.
        ///
        /// # Errors
        /// Those of the file.
        pub fn arm(&self, deaths: &[Death]) -> io::Result<()> {
            assert!(deaths.len() <= MOST_DEATHS, "a plan has room for {MOST_DEATHS} deaths");
            self.set(DEATHS, 0)?;
            self.set(DIED, 0)?;
            self.count_anew()?;
            for (at, death) in (FIRST..).step_by(EACH as usize).zip(deaths) {
                let words = [death.opcode, death.step as u32, death.passes, death.how as u32];
                (at..).zip(words).try_for_each(|(at, word)| self.set(at, word))?;
            }
            self.set(DEATHS, deaths.len() as u32)
        }

        /// From the last step to the first: of a request that passes them meanwhile, what begins and is counted is counted
        /// when it ends.
        fn count_anew(&self) -> io::Result<()> {
            let words = OPCODES * Step::ALL.len() as u64;
            (PASSES..PASSES + words).rev().try_for_each(|at| self.set(at, 0))
        }

        /// Breaks a rule in the servers that are started from now on.
        ///
        /// # Errors
        /// Those of the file.
        pub fn plant(&self, bug: Option<Bug>) -> io::Result<()> {
            let number = bug.and_then(|bug| Bug::ALL.iter().position(|other| *other == bug));
            self.set(BUG, number.map_or(0, |number| number as u32 + 1))
        }

        /// The rule that is broken.
        pub(in crate::planted) fn bug(&self) -> Option<Bug> {
            let number = self.word(BUG).ok()?.checked_sub(1)?;
            Bug::ALL.get(number as usize).copied()
        }

        /// Deaths of the plan that there were.
        ///
        /// # Errors
        /// Those of the file.
        pub fn died(&self) -> io::Result<usize> {
            Ok(self.word(DIED)? as usize)
        }

        fn passes_at(opcode: u32, step: Step) -> u64 {
            PASSES + u64::from(opcode) % OPCODES * Step::ALL.len() as u64 + step as u64
        }

        /// How often requests of this kind have come to a step, since the plan was made, or since its last death.
        ///
        /// # Errors
        /// Those of the file.
        pub fn passes(&self, opcode: u32, step: Step) -> io::Result<u32> {
            self.word(Plan::passes_at(opcode, step))
        }

        /// Counts a pass; whether and how the process is to end here.
        fn pass(&self, opcode: u32, step: Step) -> io::Result<Option<How>> {
            let count = Plan::passes_at(opcode, step);
            self.set(count, self.word(count)?.saturating_add(1))?;
            let died = self.word(DIED)?;
            if died >= self.word(DEATHS)? {
                return Ok(None);
            }
            let at = FIRST + u64::from(died) * EACH;
            if (self.word(at)?, self.word(at + 1)?) != (opcode, step as u32) {
                return Ok(None);
            }
            match self.word(at + 2)? {
                0 => {
                    self.count_anew()?;
                    self.set(DIED, died + 1)?;
                    let how = self.word(at + 3)?;
                    Ok([How::Killed, How::OfItself, How::Stopped].into_iter().find(|one| *one as u32 == how))
                }
                left => self.set(at + 2, left - 1).map(|()| None),
            }
        }
    }

    /// The plan that this process was started with.
    pub(in crate::planted) fn given() -> Option<&'static Plan> {
        static GIVEN: OnceLock<Option<Plan>> = OnceLock::new();
        let open = || {
            let file = File::options().read(true).write(true).open(std::env::var_os(PLAN)?).ok()?;
            Some(Plan { file })
        };
        GIVEN.get_or_init(open).as_ref()
    }

    thread_local! {
        // Not a modelled atomic: it carries no protocol.
        static SERVED: Cell<Kind> = const { Cell::new(Kind(0)) };
    }

    /// Opens the plan, in a process that soon may not any more.
    pub fn open_plan() {
        let _ = given();
    }

    /// What steps are of.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Kind(u32);

    impl Kind {
        /// A request with this opcode.
        pub fn of(opcode: u32) -> Kind {
            Kind(opcode)
        }

        /// What those of this thread are of, for the thread that goes on with it.
        pub fn served() -> Kind {
            SERVED.get()
        }
    }

    /// While it lives, steps of this thread are of this kind.
    #[derive(Debug)]
    pub struct Serving(Kind);

    impl Serving {
        /// Begins.
        pub fn of(kind: Kind) -> Serving {
            Serving(SERVED.replace(kind))
        }
    }

    impl Drop for Serving {
        fn drop(&mut self) {
            SERVED.set(self.0);
        }
    }

    /// Counts a step, and ends the process, or has the thread stand still, if that is planned.
    ///
    /// # Panics
    /// If the plan cannot be read.
    pub fn step(step: Step) {
        static ONE: Mutex<()> = Mutex::new(());
        let Some(plan) = given() else { return };
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let how = match plan.pass(SERVED.get().0, step).expect("the plan can be read and written") {
            None => return,
            Some(how) => how,
        };
        if how == How::Stopped {
            drop(one);
            blocking::about_to_block();
        } else {
            // Nobody passes another step: the lock is held.
            let signal = if how == How::Killed { Signal::KILL } else { Signal::ABORT };
            let _ = kill_process(getpid(), signal);
        }
        loop {
            std::thread::park();
        }
    }
}

#[cfg(feature = "planted-bugs")]
pub(super) use plan::given;
#[cfg(feature = "planted-bugs")]
pub use plan::{Death, How, Kind, MOST_DEATHS, PLAN, Plan, Serving, open_plan, step};

/// Nothing, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[derive(Debug, Clone, Copy)]
pub struct Kind;

#[cfg(not(feature = "planted-bugs"))]
impl Kind {
    /// Nothing, in this build.
    #[inline(always)]
    pub fn of(_opcode: u32) -> Kind {
        Kind
    }

    /// Nothing, in this build.
    #[inline(always)]
    pub fn served() -> Kind {
        Kind
    }
}

/// Nothing, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[derive(Debug)]
pub struct Serving;

#[cfg(not(feature = "planted-bugs"))]
impl Serving {
    /// Nothing, in this build.
    #[inline(always)]
    pub fn of(_kind: Kind) -> Serving {
        Serving
    }
}

/// Nothing, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub fn step(_step: Step) {}

/// Nothing, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub fn open_plan() {}
