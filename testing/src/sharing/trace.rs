//! Every memory access of an operation, seen from outside.
//!
//! The traced process is this program once more. Its lanes are threads with stacks and heaps of their own; each
//! raises a signal before an operation and after it, and between the two the tracer lets it go one instruction at a
//! time, decodes what comes next, and works out from the registers what memory it will touch. The lanes take
//! turns, so nothing waits and nothing depends on the time.

use super::ops::{Bench, Lane, OPERATIONS};
use super::places::Places;
use super::ptrace::{self, Event, Tid};
use super::{Footprint, Traced};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register, UsedMemory};
use narufs_engine::vfs::Vfs;
use signal_hook::consts::SIGUSR1;
use signal_hook::low_level::raise;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::channel;

/// The argument that makes the program be traced.
pub const TRACED: &str = "--traced";

const LINE: u64 = 64;
const LONGEST_INSTRUCTION: usize = 15;
const SIGTRAP: i32 = libc::SIGTRAP;

/// Carries the catalogue out on two lanes, in the traced process.
pub fn be_traced() {
    let bench = Bench::new();
    let fs = bench.inodes();
    let (first_done, second_may) = channel();
    let (second_done, first_may) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            lane(fs, 0);
            let _ = first_done.send(());
            // Its stack and its heap must not become the other's.
            let _ = first_may.recv();
        });
        scope.spawn(move || {
            let _ = second_may.recv();
            lane(fs, 1);
            drop(second_done);
        });
    });
}

/// Keeps this thread on a core of its own, if there are two, and in that core's lane.
fn on_its_core(number: usize) {
    let all = rustix::thread::sched_getaffinity(None).expect("it is ours");
    let cores: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
    let core = cores[number % cores.len()];
    let mut own = rustix::thread::CpuSet::new();
    own.set(core);
    rustix::thread::sched_setaffinity(None, &own).expect("one of those that it may use");
    narufs_engine::lane::pin(Some(if cores.len() > 1 { core } else { number }));
}

fn lane(fs: &Vfs, number: u32) {
    on_its_core(number as usize);
    let lane = Lane::new(fs, number);
    ptrace::trace_me().expect("a tracer has started this");
    for (_, prepare) in OPERATIONS {
        // Once before, so that what is loaded on first use is there.
        drop(prepare(&lane, 0)());
        let act = prepare(&lane, 1);
        raise(SIGUSR1).expect("it is ours");
        let left = act();
        raise(SIGUSR1).expect("it is ours");
        drop(left);
    }
}

/// A process that does not outlive its tracer.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Traces the catalogue as `program` carries it out, which is `narufs-sharing`.
///
/// # Errors
/// Where tracing is not allowed, or the program fails.
pub fn run(program: &Path) -> io::Result<Vec<Traced>> {
    let child = Killed(Command::new(program).arg(TRACED).stdin(Stdio::null()).spawn()?);
    let pid = child.0.id();
    let mut tracer = None;
    let mut windows = Vec::new();
    loop {
        let (tid, event) = ptrace::wait(-1)?;
        match event {
            Event::Ended(0) if u32::try_from(tid) == Ok(pid) => break,
            Event::Ended(status) if u32::try_from(tid) == Ok(pid) => {
                return Err(io::Error::other(format!("the traced process ended with status {status}")));
            }
            Event::Ended(_) => {}
            Event::Stopped(SIGUSR1) => {
                let tracer = match &mut tracer {
                    Some(tracer) => tracer,
                    none => none.insert(Tracer::of(pid, program)?),
                };
                windows.push(tracer.window(tid)?);
            }
            Event::Stopped(signal) => ptrace::go_on(tid, signal)?,
        }
    }
    let second = windows.split_off(windows.len() / 2);
    if windows.len() != OPERATIONS.len() {
        return Err(io::Error::other(format!("{} operations were seen", windows.len())));
    }
    let both = windows.into_iter().zip(second).zip(OPERATIONS);
    let traced = both.map(|((first, second), (name, _))| Traced {
        name,
        lanes: [first.footprint, second.footprint],
        steps: first.steps,
        files: first.files,
    });
    Ok(traced.collect())
}

/// One run of an operation.
#[derive(Default)]
struct Window {
    footprint: Footprint,
    steps: BTreeMap<String, u64>,
    files: Vec<String>,
}

impl Window {
    /// Takes note of a place that comes for the first time.
    fn first_at(&mut self, place: &str) {
        self.steps.insert(place.to_owned(), 1);
        // Names outside of the engine have no file in them.
        let file = place.split_once(".rs ").map(|(file, _)| format!("{file}.rs"));
        if let Some(file) = file.filter(|file| !self.files.contains(file)) {
            self.files.push(file);
        }
    }
}

/// What a tracer knows of the code it sees.
struct Tracer {
    memory: File,
    places: Places,
    decoded: HashMap<u64, Vec<UsedMemory>>,
    factory: InstructionInfoFactory,
}

impl Tracer {
    fn of(pid: u32, program: &Path) -> io::Result<Tracer> {
        Ok(Tracer {
            memory: File::open(format!("/proc/{pid}/mem"))?,
            places: Places::of(pid, program)?,
            decoded: HashMap::new(),
            factory: InstructionInfoFactory::new(),
        })
    }

    /// Follows a thread to the next signal, and lets it go on.
    fn window(&mut self, tid: Tid) -> io::Result<Window> {
        let (mut window, mut signal) = (Window::default(), 0);
        self.places.begin();
        loop {
            let place = self.account(tid, &mut window.footprint)?;
            match window.steps.get_mut(&*place) {
                Some(count) => *count += 1,
                None => window.first_at(&place),
            }
            ptrace::step(tid, signal)?;
            signal = match ptrace::wait(tid)?.1 {
                Event::Stopped(SIGTRAP) => 0,
                Event::Stopped(SIGUSR1) => break,
                Event::Stopped(other) => other,
                Event::Ended(status) => {
                    return Err(io::Error::other(format!("a lane ended with status {status}")));
                }
            };
        }
        ptrace::go_on(tid, 0)?;
        Ok(window)
    }

    /// Notes what the next instruction will touch; gives its place.
    fn account(&mut self, tid: Tid, footprint: &mut Footprint) -> io::Result<Rc<str>> {
        let registers = ptrace::registers(tid)?;
        let place = self.places.next(registers.rip);
        if !self.decoded.contains_key(&registers.rip) {
            let mut bytes = [0; LONGEST_INSTRUCTION];
            let read = self.memory.read_at(&mut bytes, registers.rip)?;
            let instruction =
                Decoder::with_ip(64, &bytes[..read], registers.rip, DecoderOptions::NONE).decode();
            let used = self.factory.info(&instruction).used_memory().to_vec();
            self.decoded.insert(registers.rip, used);
        }
        let used = self.decoded.get(&registers.rip).map_or(&[][..], Vec::as_slice);
        for memory in used {
            let (reads, writes) = directions(memory.access());
            let Some(address) = memory.virtual_address(0, |register, _, _| value(&registers, register))
            else {
                continue;
            };
            let bytes = (memory.memory_size().size() as u64).max(1);
            let last = address.wrapping_add(bytes - 1).max(address);
            for line in address / LINE..=last / LINE {
                let touch = footprint.entry(line).or_default();
                let note = |first: &mut Option<String>| {
                    first.get_or_insert_with(|| place.to_string());
                };
                let mask = bytes_of(line, address, last);
                if reads {
                    note(&mut touch.read);
                    touch.touched_bytes |= mask;
                }
                if writes {
                    note(&mut touch.written);
                    touch.touched_bytes |= mask;
                    touch.written_bytes |= mask;
                }
            }
        }
        Ok(place)
    }
}

/// The bytes of a line from one address to another, a bit each.
fn bytes_of(line: u64, first: u64, last: u64) -> u64 {
    let start = first.max(line * LINE) % LINE;
    let end = last.min(line * LINE + (LINE - 1)) % LINE;
    (u64::MAX >> (LINE - 1 - end)) & (u64::MAX << start)
}

fn directions(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        // Prefetches, lea: nothing is moved that another core would have to give up.
        _ => (false, false),
    }
}

fn value(registers: &libc::user_regs_struct, register: Register) -> Option<u64> {
    let whole = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::RIP => registers.rip,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        // Of vectors: gathers, which the engine has none of.
        _ => return None,
    };
    Some(if register.size() == 4 { whole & u64::from(u32::MAX) } else { whole })
}
