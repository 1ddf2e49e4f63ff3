//! What is surely on media, and what may be, after a prefix of the log.

use std::collections::{BTreeMap, HashMap};
use std::thread::ThreadId;

use super::image::{Image, PAGE, Page, mark};
use super::media::{Event, PmemSpec};
use crate::pmem::{DurabilityLevel, LINE};

/// How far a device write has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    InFlight,
    Done,
    Failed,
}

/// One block of a device write that no flush has covered.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub write: u64,
    pub block: u64,
    pub contents: Page,
    pub progress: Progress,
    /// When it was issued.
    pub at: u64,
    /// Whether the flush under way covers it.
    covered: bool,
}

impl Pending {
    /// A write that is on durable media.
    pub fn done(block: u64, contents: Page) -> Self {
        Self { write: u64::MAX, block, contents, progress: Progress::Done, at: 0, covered: false }
    }
}

/// The states that a cache line passed through since it was last persisted.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    /// Number of states that came before those listed.
    persisted: u64,
    pub states: Vec<[u8; LINE]>,
    /// When each came about.
    pub at: Vec<u64>,
    /// How many of them the last store made.
    pub last_store: usize,
}

/// One persistent memory.
#[derive(Debug, Clone)]
pub(super) struct PmemFrontier {
    pub spec: PmemSpec,
    pub persisted: Image,
    /// Lines with stores that are not surely persistent, by number.
    pub lines: BTreeMap<usize, Line>,
}

/// Device and persistent memories after a prefix of the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Frontier {
    pub blocks: u64,
    pub device: Image,
    /// In the order of issue.
    pub pending: Vec<Pending>,
    /// None for one that a loss of power took.
    pub pmems: Vec<Option<PmemFrontier>>,
    /// Counts writes and stores: the order of their issue.
    pub clock: u64,
    /// Lines that each thread wrote back since its last fence: memory, line, number of the state.
    pub written_back: HashMap<ThreadId, Vec<(usize, usize, u64)>>,
}

impl PmemFrontier {
    /// Memory of which nothing has been stored.
    pub fn new(spec: PmemSpec) -> Self {
        Self { spec, persisted: Image::default(), lines: BTreeMap::new() }
    }

    /// A line as it is persisted.
    pub fn persisted_line(&self, line: usize) -> [u8; LINE] {
        let offset = line * LINE;
        let mut bytes = [0; LINE];
        if let Some(page) = self.persisted.get((offset / PAGE) as u64) {
            bytes.copy_from_slice(&page[offset % PAGE..offset % PAGE + LINE]);
        }
        bytes
    }

    /// A number for what the processor sees.
    fn content(&self) -> u128 {
        let mut content = self.persisted.mark();
        let mut at = None;
        let mut bytes = [0; PAGE];
        let mut add = |at: Option<u64>, bytes: &[u8; PAGE]| {
            content ^= at.map_or(0, |page| self.persisted.mark_of(page) ^ mark(page, bytes));
        };
        for (line, history) in &self.lines {
            let Some(last) = history.states.last() else { continue };
            let (page, within) = ((line * LINE / PAGE) as u64, line * LINE % PAGE);
            if at != Some(page) {
                add(at, &bytes);
                self.persisted.read(page, &mut bytes);
                at = Some(page);
            }
            bytes[within..within + LINE].copy_from_slice(last);
        }
        add(at, &bytes);
        content
    }

    /// Sets a line as the processor sees it.
    pub fn set_line(&mut self, line: usize, bytes: &[u8; LINE]) {
        let offset = line * LINE;
        self.persisted.patch((offset / PAGE) as u64, offset % PAGE, bytes);
    }

    /// A store inside one line, which may become persistent word by word.
    fn store(&mut self, offset: usize, data: &[u8], clock: u64) {
        let line = offset / LINE;
        let persisted = self.persisted_line(line);
        let history = self.lines.entry(line).or_default();
        let mut state = history.states.last().copied().unwrap_or(persisted);
        let before = history.states.len();
        let mut at = 0;
        while at < data.len() {
            let inside = offset % LINE + at;
            let word = (8 - inside % 8).min(data.len() - at);
            state[inside..inside + word].copy_from_slice(&data[at..at + word]);
            history.states.push(state);
            history.at.push(clock);
            at += word;
        }
        history.last_store = history.states.len() - before;
    }

    /// Takes back the last `words` steps of the last store.
    pub fn cut_short(&mut self, line: usize, words: usize) {
        if let Some(history) = self.lines.get_mut(&line) {
            history.states.truncate(history.states.len().saturating_sub(words));
            history.at.truncate(history.states.len());
        }
    }

    fn persist(&mut self, line: usize, upto: u64) {
        let Some(history) = self.lines.get_mut(&line) else { return };
        let count = (upto.saturating_sub(history.persisted) as usize).min(history.states.len());
        let Some(last) = history.states.drain(..count).next_back() else { return };
        history.at.drain(..count);
        history.persisted += count as u64;
        self.set_line(line, &last);
    }
}

impl Frontier {
    /// Applies an event that happened.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::WriteIssued { write, block, contents } => {
                self.clock += 1;
                let at = self.clock;
                for (block, contents) in (*block..).zip(contents) {
                    let (contents, progress) = (contents.clone(), Progress::InFlight);
                    let write = *write;
                    self.pending.push(Pending { write, block, contents, progress, at, covered: false });
                }
            }
            Event::WriteEnded { write, ok, durable } => {
                let progress = if *ok { Progress::Done } else { Progress::Failed };
                self.pending.iter_mut().filter(|p| p.write == *write).for_each(|p| p.progress = progress);
                if *ok && *durable {
                    self.complete_write(*write);
                }
            }
            Event::FlushBegan => {
                self.pending.iter_mut().for_each(|p| p.covered = p.progress != Progress::InFlight);
            }
            Event::FlushEnded { ok: true } => self.complete_flush(),
            Event::FlushEnded { ok: false } => self.pending.iter_mut().for_each(|p| p.covered = false),
            Event::PmemAdded { spec } => self.pmems.push(Some(PmemFrontier::new(*spec))),
            Event::Store { pmem, offset, data, .. } => {
                self.clock += 1;
                if let Some(memory) = &mut self.pmems[*pmem] {
                    memory.store(*offset, data, self.clock);
                }
            }
            Event::WriteBack { pmem, first_line, lines, thread } => {
                let Some(memory) = &self.pmems[*pmem] else { return };
                let list = self.written_back.entry(*thread).or_default();
                for line in *first_line..first_line + lines {
                    if let Some(history) = memory.lines.get(&line) {
                        list.push((*pmem, line, history.persisted + history.states.len() as u64));
                    }
                }
            }
            Event::Fence { thread } => {
                for (pmem, line, upto) in self.written_back.remove(thread).unwrap_or_default() {
                    if let Some(memory) = &mut self.pmems[pmem] {
                        memory.persist(line, upto);
                    }
                }
            }
        }
    }

    /// A write is on media by itself, in the place of all that had been written there before.
    fn complete_write(&mut self, write: u64) {
        let (own, others): (Vec<_>, _) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.write == write);
        self.pending = others;
        for pending in own {
            let is_older = |other: &Pending| {
                other.block == pending.block && other.at < pending.at && other.progress != Progress::InFlight
            };
            self.pending.retain(|other| !is_older(other));
            self.device.set(pending.block, pending.contents);
        }
    }

    /// What the flush covered is on media; a failed write is forgotten once a later one to its block is.
    fn complete_flush(&mut self) {
        let mut later_done: Vec<u64> = Vec::new();
        let mut durable = Vec::new();
        let mut kept = Vec::new();
        for pending in std::mem::take(&mut self.pending).into_iter().rev() {
            match (pending.covered, pending.progress) {
                (true, Progress::Done) => {
                    later_done.push(pending.block);
                    durable.push(pending);
                }
                (true, Progress::Failed) if later_done.contains(&pending.block) => {}
                _ => kept.push(Pending { covered: false, ..pending }),
            }
        }
        for pending in durable.into_iter().rev() {
            self.device.set(pending.block, pending.contents);
        }
        kept.reverse();
        self.pending = kept;
    }

    /// Forgets failed writes to blocks that have been written again since, which a kill does not take back.
    pub fn forget_overwritten_failures(&mut self) {
        let mut later_done: Vec<u64> = Vec::new();
        let mut kept = Vec::new();
        for pending in std::mem::take(&mut self.pending).into_iter().rev() {
            match pending.progress {
                Progress::Failed if later_done.contains(&pending.block) => continue,
                Progress::Done => later_done.push(pending.block),
                _ => {}
            }
            kept.push(pending);
        }
        kept.reverse();
        self.pending = kept;
    }

    /// A number for what a process finds: contents that are the same have the same one, others another, but for a chance in
    /// 2^128.
    pub fn content(&self) -> u128 {
        let mut content = self.device.mark();
        let mut over: HashMap<u64, &Page> = HashMap::new();
        for pending in &self.pending {
            over.insert(pending.block, &pending.contents);
        }
        for (block, contents) in over {
            content ^= self.device.mark_of(block) ^ mark(block, contents);
        }
        for (number, pmem) in (1u32..).zip(&self.pmems) {
            if let Some(pmem) = pmem {
                content ^= pmem.content().rotate_left(number) ^ u128::from(number);
            }
        }
        content
    }

    /// Ends what belonged to the process: its threads, and its right to writes in flight.
    pub fn end_process(&mut self) {
        self.written_back.clear();
    }

    /// Takes away what a loss of power takes.
    pub fn lose_power(&mut self) {
        for pmem in &mut self.pmems {
            if pmem.as_ref().is_some_and(|p| p.spec.durability == DurabilityLevel::Process) {
                *pmem = None;
            }
        }
    }
}
