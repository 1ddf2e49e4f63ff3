//! The report: a table of pairs, the structures behind it, and a picture.

use super::{Grain, Traced, matrix, structures};
use maud::html;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The report as Markdown.
pub fn text(traced: &[Traced]) -> String {
    let pairs = matrix(traced, Grain::Line);
    let mut out = String::from(HEAD);
    let _ = writeln!(out, "| | operation | instructions | {} |", columns(traced.len()));
    let _ = writeln!(out, "| ---: | --- | ---: |{}", " ---: |".repeat(traced.len()));
    for (a, one) in traced.iter().enumerate() {
        let _ = write!(out, "| {} | {} | {} |", a + 1, one.name, one.steps.values().sum::<u64>());
        for b in 0..traced.len() {
            let count = pairs.get(&(a.min(b), a.max(b))).map_or(0, |found| structures(found).len());
            let _ = if count == 0 { write!(out, " · |") } else { write!(out, " {count} |") };
        }
        out.push('\n');
    }
    let free = pairs.values().filter(|found| found.is_empty()).count();
    let (all, apart) = (pairs.len(), free_pairs(traced).len());
    let _ =
        writeln!(out, "\n{free} of {all} pairs share no line that one of them writes, {apart} no byte.\n");
    out.push_str("## What is shared\n| source file | functions that write | pairs | for example |\n| --- | --- | ---: | --- |\n");
    let mut behind: BTreeMap<&str, (BTreeSet<&str>, usize, (usize, usize))> = BTreeMap::new();
    for (pair, found) in &pairs {
        for file in structures(found) {
            let entry = behind.entry(file).or_insert_with(|| (BTreeSet::new(), 0, *pair));
            entry.1 += 1;
        }
        for place in found.keys() {
            if let Some((file, function)) = place.split_once(' ')
                && let Some(entry) = behind.get_mut(file)
            {
                entry.0.insert(function);
            }
        }
    }
    let mut rows: Vec<_> = behind.into_iter().collect();
    rows.sort_by_key(|(file, (_, count, _))| (std::cmp::Reverse(*count), *file));
    for (file, (functions, count, (a, b))) in rows {
        let functions: Vec<String> = functions.iter().map(|name| format!("`{name}`")).collect();
        let (a, b) = (a + 1, b + 1);
        let _ = writeln!(out, "| `{file}` | {} | {count} | {a} with {b} |", functions.join(", "));
    }
    out.push_str("\n## Where the instructions go\nBy module of the engine; what it calls outside the engine is its own, but for the heap.\n\n| operation | instructions of its modules |\n| --- | --- |\n");
    for one in traced {
        let _ = writeln!(out, "| {} | {} |", one.name, modules(one));
    }
    out.push_str(FILES);
    for one in traced {
        let _ = writeln!(out, "| {} | {} | {} |", one.name, one.files.len(), one.files.join(", "));
    }
    out
}

/// The modules with most instructions, at least a hundredth of all.
fn modules(one: &Traced) -> String {
    let mut by_module: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, count) in &one.steps {
        let file = place.split_once(' ').map_or(place.as_str(), |(file, _)| file);
        *by_module.entry(file.split_once('/').map_or(file, |(module, _)| module)).or_default() += count;
    }
    let all: u64 = by_module.values().sum();
    let mut rows: Vec<_> = by_module.into_iter().filter(|(_, count)| count * 100 >= all).collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    rows.into_iter().map(|(module, count)| format!("{module} {count}")).collect::<Vec<_>>().join(", ")
}

const HEAD: &str = "# 0002: What operations share
- **Date**: 2026-11-21; made anew since, last with the commit that changed this page
- **Question**: Which cache lines do pairs of operations that commute write and touch both?
- **Command**: `make sharing`
- **Result**: the table below, and [the picture](0002-shared-cache-lines.svg)
- **Decision**: No pair may lose what it has: a test fails when one that shared no byte begins to. Bytes, for which
  objects of the heap lie side by side in a line differs from run to run.

Operations that commute should not wait for each other's cache lines. Each operation below was run on two logical lanes,
one after the other, with its own names and files, and every memory access of the engine was recorded; a cell counts the
structures (source files of the engine) with a cache line that one of the two writes and the other touches. A dot:
nothing; two cores can do both at their full speed. Stacks and thread-local data are apart, as they are between cores,
and what the C library's heap writes for itself is left out. The ring is in memory (emulated), everything is cached.

";

const FILES: &str = "
## The files that an operation passes
Source files of the engine in which an instruction was carried out, in the order in which they first come.

| operation | files | in order |
| --- | ---: | --- |
";

fn columns(count: usize) -> String {
    (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join(" | ")
}

/// Names of the pairs that share no byte that one of them writes, one a line.
pub fn free_pairs(traced: &[Traced]) -> BTreeSet<String> {
    let name = |n: usize| traced.get(n).map_or("?", |one| one.name);
    let pairs = matrix(traced, Grain::Byte);
    pairs
        .iter()
        .filter(|(_, found)| found.is_empty())
        .map(|((a, b), _)| format!("{} / {}", name(*a), name(*b)))
        .collect()
}

/// Side of a cell, and room for the names, in pixels.
const CELL: usize = 26;
const NAMES: usize = 190;

/// The table as a picture: the darker, the more lines a pair shares.
pub fn svg(traced: &[Traced]) -> String {
    let pairs = matrix(traced, Grain::Line);
    let count = traced.len();
    let (width, height) = (NAMES + count * CELL + 10, 34 + count * CELL + 34);
    let lines = |a: usize, b: usize| -> usize {
        pairs.get(&(a.min(b), a.max(b))).map_or(0, |found| found.values().sum())
    };
    let color = |lines: usize| match lines {
        0 => "#e8f3ec",
        1 => "#fde3b5",
        2..=3 => "#f9bd6b",
        4..=7 => "#ef8a4a",
        8..=15 => "#d6553b",
        _ => "#a3272f",
    };
    let legend = [(0, "none"), (1, "1"), (2, "2-3"), (4, "4-7"), (8, "8-15"), (16, "16 and more")];
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}"))
            font-family="sans-serif" font-size="12" role="img" {
            title { "Cache lines that pairs of commuting operations share and one of them writes" }
            rect width=(width) height=(height) fill="#ffffff" {}
            @for (b, _) in traced.iter().enumerate() {
                text x=(NAMES + b * CELL + CELL / 2) y="26" text-anchor="middle" fill="#333333" { (b + 1) }
            }
            @for (a, one) in traced.iter().enumerate() {
                @let y = 34 + a * CELL;
                text x=(NAMES - 8) y=(y + 17) text-anchor="end" fill="#333333" { (one.name) " " (a + 1) }
                @for b in 0..count {
                    @let shared = lines(a, b);
                    rect x=(NAMES + b * CELL) y=(y) width=(CELL - 1) height=(CELL - 1) fill=(color(shared)) {}
                    @if shared > 0 {
                        text x=(NAMES + b * CELL + CELL / 2) y=(y + 17) text-anchor="middle" font-size="11"
                            fill=(if shared >= 8 { "#ffffff" } else { "#333333" }) { (shared) }
                    }
                }
            }
            text x="8" y=(height - 12) fill="#333333" { "lines shared:" }
            @for (n, (lines, name)) in legend.iter().enumerate() {
                rect x=(90 + n * 90) y=(height - 23) width="14" height="14" fill=(color(*lines)) {}
                text x=(108 + n * 90) y=(height - 12) fill="#333333" { (name) }
            }
        }
    };
    picture.into_string()
}
