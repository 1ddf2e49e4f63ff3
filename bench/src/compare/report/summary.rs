//! Who wins where, in words: the best narufs against the best other of each class, losses as plainly as wins.

use super::cells::Cell;
use crate::target::Survives;

/// Ratios closer to one than this are a draw.
const DRAW: f64 = 0.05;

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    /// narufs against the best other.
    pub ratio: f64,
    /// In words.
    pub words: String,
}

fn class_words(class: Survives) -> &'static str {
    match class {
        Survives::Nothing => "where nothing survives",
        Survives::Process => "where the process's end is survived",
        Survives::Power => "where a loss of power is survived",
    }
}

/// One sentence for each workload, class and kind of access where narufs and another both ran, with as many
/// threads as there were at the most. A library is not compared with mounts in one breath: it makes no system calls.
pub fn sentences(cells: &[Cell]) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut titles: Vec<&str> = Vec::new();
    for cell in cells {
        if !titles.contains(&cell.title.as_str()) {
            titles.push(&cell.title);
        }
    }
    for title in titles {
        let of_title = || cells.iter().filter(|cell| cell.title == title);
        let Some(threads) = of_title().map(|cell| cell.threads).max() else { continue };
        for class in [Survives::Power, Survives::Process, Survives::Nothing] {
            for library in [false, true] {
                let here = || of_title().filter(|cell| cell.threads == threads && cell.class == class);
                let best = |ours: bool| {
                    let side = here().filter(|c| c.is_ours() == ours && (!ours || is_library(c) == library));
                    side.max_by(|a, b| a.ops.total_cmp(&b.ops))
                };
                if let (Some(ours), Some(other)) = (best(true), best(false)) {
                    sentences.push(sentence(ours, other, class));
                }
            }
        }
    }
    sentences
}

fn is_library(cell: &Cell) -> bool {
    cell.contender.contains("-lib-")
}

fn sentence(ours: &Cell, other: &Cell, class: Survives) -> Sentence {
    let ratio = ours.ops / other.ops.max(f64::MIN_POSITIVE);
    let how = match ratio {
        r if r > 1.0 + DRAW => format!("{} does {r:.1} times as much as {}", ours.contender, other.contender),
        r if r < 1.0 - DRAW => {
            format!("{} does only {r:.2} of what {} does", ours.contender, other.contender)
        }
        _ => format!("{} and {} are even", ours.contender, other.contender),
    };
    let threads = match ours.threads {
        1 => "one thread".to_owned(),
        n => format!("{n} threads"),
    };
    let mut notes = String::new();
    if is_library(ours) {
        notes += " (a library, no system calls)";
    }
    if ours.unlapped {
        notes += " (unlapped: too short to show all of the journal's cost)";
    }
    Sentence { ratio, words: format!("{}, {threads}, {}: {how}{notes}.", ours.title, class_words(class)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(contender: &str, class: Survives, ops: f64) -> Cell {
        Cell {
            title: "DWSL".into(),
            workload: "DWSL".into(),
            threads: 2,
            contender: contender.into(),
            class,
            ops,
            spread: 0.0,
            p50_us: 1.0,
            p99_us: 2.0,
            cpu_us: 1.0,
            read: 0.0,
            written: 0.0,
            unlapped: false,
            rounds: 1,
        }
    }

    #[test]
    fn the_best_of_a_class_are_compared_and_losses_are_said() {
        use Survives::{Nothing, Power, Process};
        let cells = [
            cell("ext4", Power, 100.0),
            cell("xfs", Power, 200.0),
            cell("narufs-ssd", Power, 50.0),
            cell("ext4-ram", Process, 100.0),
            cell("narufs-nvm", Process, 300.0),
            cell("narufs-lib-nvm", Process, 1000.0),
            cell("tmpfs", Nothing, 9000.0),
        ];
        let said: Vec<String> = sentences(&cells).into_iter().map(|s| s.words).collect();
        assert_eq!(said.len(), 3);
        assert!(said[0].contains("narufs-ssd does only 0.25 of what xfs does"), "{}", said[0]);
        assert!(said[1].contains("narufs-nvm does 3.0 times as much as ext4-ram"), "{}", said[1]);
        assert!(said[2].contains("narufs-lib-nvm does 10.0 times") && said[2].contains("no system calls"));
        assert!(!said.iter().any(|s| s.contains("tmpfs")), "nothing of its class is narufs");
        let even = sentences(&[cell("ext4", Power, 100.0), cell("narufs-ssd", Power, 103.0)]);
        assert!(even[0].words.contains("are even"));
    }
}
