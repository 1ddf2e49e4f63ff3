//! Names for code addresses of a traced process: where in the engine an access is made.

use addr2line::Loader;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Accesses of the C library's heap.
pub const HEAP: &str = "heap of the C library";

/// What is no access of the engine's, nor for it.
const OUTSIDE: &str = "outside the engine";
/// Where the engine's sources lie.
const ENGINE: &str = "engine/src/";
/// Sources that wrap primitives for all others, and name no structure.
const WRAPPERS: [&str; 5] = ["sync/", "lane.rs", "blocking.rs", "hasher.rs", "lib.rs"];

/// A mapped object file.
struct Module {
    start: u64,
    end: u64,
    base: u64,
    path: PathBuf,
}

/// The places of a process.
pub struct Places {
    modules: Vec<Module>,
    program: PathBuf,
    loaders: HashMap<PathBuf, Option<Loader>>,
    known: HashMap<u64, Code>,
    engine: Rc<str>,
    in_heap: bool,
}

/// What is known of one instruction.
#[derive(Clone)]
enum Code {
    /// Of the program, at this place of the engine.
    Engine(Rc<str>),
    /// Of the program, called by the engine or wrapping something for it.
    Program,
    /// The beginning of a function of the heap.
    Heap,
    /// Of another object file.
    Other,
}

impl Places {
    /// Those of a process that has started.
    pub fn of(pid: u32, program: &Path) -> io::Result<Places> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let mut modules: Vec<Module> = Vec::new();
        for line in maps.lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [range, _, offset, _, _, path] = fields[..] else { continue };
            let Some((start, end)) = range.split_once('-') else { continue };
            let number = |text: &str| u64::from_str_radix(text, 16).map_err(io::Error::other);
            let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
            let same = modules.iter().find(|module| module.path == Path::new(path));
            let base = same.map_or(start - offset, |module| module.base);
            modules.push(Module { start, end, base, path: path.into() });
        }
        let program = fs::canonicalize(program)?;
        let (loaders, known, engine) = (HashMap::new(), HashMap::new(), Rc::from(OUTSIDE));
        Ok(Places { modules, program, loaders, known, engine, in_heap: false })
    }

    /// What comes next belongs to no place of before.
    pub fn begin(&mut self) {
        self.engine = Rc::from(OUTSIDE);
        self.in_heap = false;
    }

    /// The name of what an instruction does that comes next: where the engine is, or what it has called.
    pub fn next(&mut self, ip: u64) -> Rc<str> {
        let code = match self.known.get(&ip) {
            Some(code) => code.clone(),
            None => {
                let code = self.judge(ip);
                self.known.insert(ip, code.clone());
                code
            }
        };
        match code {
            Code::Engine(place) => {
                self.engine = place;
                self.in_heap = false;
            }
            Code::Program => self.in_heap = false,
            Code::Heap => self.in_heap = true,
            Code::Other => {}
        }
        if self.in_heap { Rc::from(HEAP) } else { Rc::clone(&self.engine) }
    }

    fn judge(&mut self, ip: u64) -> Code {
        let Some(module) = self.modules.iter().find(|module| (module.start..module.end).contains(&ip)) else {
            return Code::Other;
        };
        let (probe, path) = (ip - module.base, &module.path);
        let load = || Loader::new(path).ok();
        let Some(loader) = self.loaders.entry(path.clone()).or_insert_with(load) else { return Code::Other };
        if *path != self.program {
            let heap = ["malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc"];
            let entry = loader.find_symbol_info(probe).filter(|symbol| symbol.address() == probe);
            let of_heap = entry.is_some_and(|symbol| heap.iter().any(|name| symbol.name().ends_with(name)));
            return if of_heap { Code::Heap } else { Code::Other };
        }
        let Ok(mut frames) = loader.find_frames(probe) else { return Code::Program };
        while let Ok(Some(frame)) = frames.next() {
            let file = frame.location.as_ref().and_then(|location| location.file);
            let Some((_, file)) = file.and_then(|file| file.split_once(ENGINE)) else { continue };
            if WRAPPERS.iter().any(|wrapper| file.starts_with(wrapper)) {
                continue;
            }
            let name = frame.function.as_ref().and_then(|name| name.demangle().ok());
            return Code::Engine(Rc::from(format!("{file} {}", short(name.as_deref().unwrap_or("?")))));
        }
        Code::Program
    }
}

/// The last part of a function's path, without what is in angle brackets.
fn short(name: &str) -> String {
    let mut depth = 0u32;
    let mut plain = String::new();
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let parts = plain.split("::").filter(|part| !part.is_empty() && !part.starts_with('{'));
    parts.last().unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_are_shortened_to_the_function() {
        for (whole, name) in [
            ("narufs_engine::journal::Journal::reserve", "reserve"),
            ("<narufs_engine::alloc::Alloc as core::clone::Clone>::clone", "clone"),
            ("narufs_engine::dir::insert::<u8>", "insert"),
            ("narufs_engine::dir::insert::{closure#0}", "insert"),
        ] {
            assert_eq!(short(whole), name);
        }
    }
}
