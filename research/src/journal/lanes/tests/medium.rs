//! A small medium of cache lines with all the states in which a crash can leave it.
//!
//! Stores to a line persist in order, lines in any; a line is persistent for certain once a write-back of it was
//! followed by a fence of the same thread. Which thread it is says the test, for one thread plays all.

use narufs_engine::pmem::{DurabilityLevel, LINE, PersistentMemory};
use std::sync::{Mutex, MutexGuard};

type Line = [u8; LINE];

#[derive(Default)]
struct State {
    /// What a line is for certain, and what was stored to it since, oldest first.
    lines: Vec<(Line, Vec<Line>)>,
    /// By whom, which line, and how many of its stores were there: written back, not fenced.
    on_the_way: Vec<(usize, usize, usize)>,
    who: usize,
    /// The states after each event since they were last taken.
    crashes: Vec<Vec<u8>>,
    recording: bool,
}

/// The medium.
#[derive(Default)]
pub struct Lines(Mutex<State>);

/// Most states of one moment; a protocol that fences has few, one that does not shows it in the first.
const MOST: usize = 1 << 10;

impl Lines {
    pub fn new(len: usize) -> Lines {
        let lines = vec![([0; LINE], Vec::new()); len.div_ceil(LINE)];
        Lines(Mutex::new(State { lines, ..State::default() }))
    }

    /// Who acts from now on.
    pub fn act_as(&self, who: usize) {
        self.state().who = who;
    }

    /// Whether the states after each event are kept.
    pub fn record(&self, on: bool) {
        self.state().recording = on;
    }

    /// The states since this was last called, and those now.
    pub fn crashes(&self) -> Vec<Vec<u8>> {
        let mut state = self.state();
        state.note();
        std::mem::take(&mut state.crashes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds it")
    }
}

impl State {
    fn note(&mut self) {
        let unsure: Vec<usize> = (0..self.lines.len()).filter(|i| !self.lines[*i].1.is_empty()).collect();
        let mut chosen = vec![0_usize; unsure.len()];
        let certain: Vec<u8> = self.lines.iter().flat_map(|(line, _)| *line).collect();
        for _ in 0..MOST {
            let mut bytes = certain.clone();
            for (line, chosen) in unsure.iter().zip(&chosen) {
                if let Some(version) = chosen.checked_sub(1) {
                    bytes[line * LINE..][..LINE].copy_from_slice(&self.lines[*line].1[version]);
                }
            }
            self.crashes.push(bytes);
            // Counts on, each line a digit.
            let more = unsure.iter().zip(&mut chosen).any(|(line, digit)| {
                *digit = (*digit + 1) % (self.lines[*line].1.len() + 1);
                *digit != 0
            });
            if !more {
                return;
            }
        }
    }

    fn newest(&self, line: usize) -> Line {
        let (certain, since) = &self.lines[line];
        *since.last().unwrap_or(certain)
    }
}

impl PersistentMemory for Lines {
    fn len(&self) -> usize {
        self.state().lines.len() * LINE
    }

    fn write(&self, offset: usize, data: &[u8]) {
        let mut state = self.state();
        let mut done = 0;
        while done < data.len() {
            let (line, at) = ((offset + done) / LINE, (offset + done) % LINE);
            let piece = (LINE - at).min(data.len() - done);
            let mut new = state.newest(line);
            new[at..at + piece].copy_from_slice(&data[done..done + piece]);
            state.lines[line].1.push(new);
            done += piece;
        }
        // All states on the way here are among those now.
        if state.recording {
            state.note();
        }
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let state = self.state();
        for (i, byte) in into.iter_mut().enumerate() {
            *byte = state.newest((offset + i) / LINE)[(offset + i) % LINE];
        }
    }

    fn write_back(&self, offset: usize, len: usize) {
        let mut state = self.state();
        for line in offset / LINE..(offset + len).div_ceil(LINE) {
            let entry = (state.who, line, state.lines[line].1.len());
            state.on_the_way.push(entry);
        }
    }

    fn fence(&self) {
        let mut state = self.state();
        let who = state.who;
        let (done, left) =
            std::mem::take(&mut state.on_the_way).into_iter().partition(|entry| entry.0 == who);
        state.on_the_way = left;
        let done: Vec<(usize, usize, usize)> = done;
        for (_, line, count) in done {
            let (certain, since) = &mut state.lines[line];
            let count = count.min(since.len());
            if let Some(last) = since.drain(..count).next_back() {
                *certain = last;
            }
            // What is on the way for others counts from what is left.
            for entry in state.on_the_way.iter_mut().filter(|entry| entry.1 == line) {
                entry.2 = entry.2.saturating_sub(count);
            }
        }
    }

    fn durability(&self) -> DurabilityLevel {
        DurabilityLevel::Power
    }

    fn counts(&self) -> (u64, u64) {
        (0, 0)
    }
}
