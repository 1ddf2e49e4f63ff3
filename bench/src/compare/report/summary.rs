//! Who wins where, in words: each narufs against the best other of its class, losses as plainly as wins.

use super::cells::{CLASSES, Cell, promise, threads, titles};
use super::scale::ratio;
use crate::target::Survives;

/// Ratios closer to one than this are a draw.
const DRAW: f64 = 0.05;

/// The journals in RAM that emulated NVM is set beside: a journal alone, and all of the file system.
pub(super) const IN_RAM: [(&str, &str); 2] =
    [("ext4-journal-ram", "ext4, journal on RAM"), ("ext4-ram", "ext4 wholly on RAM")];

/// How a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// narufs does more.
    Ahead,
    /// The same, or rounds of the one lie among rounds of the other.
    Even,
    /// narufs does less.
    Behind,
}

/// One workload: narufs against the best other of its class.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// The workload with its phase.
    pub title: String,
    /// Threads.
    pub threads: usize,
    /// The best other.
    pub other: String,
    /// Operations of narufs for one of the other.
    pub ratio: f64,
    /// The same of the worst round of narufs and the best of the other.
    pub least: f64,
    /// The same the other way around.
    pub most: f64,
    /// Whether narufs went around its journal too seldom.
    pub unlapped: bool,
    /// For emulated NVM: the ratio to each of [`IN_RAM`] that ran.
    pub(super) beside: [Option<f64>; 2],
}

/// All workloads of one narufs.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Which.
    pub contender: String,
    /// What a synced file lives through.
    pub class: Survives,
    /// Its matches, in the order of the run.
    pub matches: Vec<Match>,
}

/// Which numbers of threads to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    /// The most of each workload.
    Most,
    /// The fewest, of workloads that ran with several.
    Fewest,
}

/// One verdict for each narufs that ran with another of its class: mounts before libraries, which make no system
/// calls, and the strongest promise first.
pub fn verdicts(cells: &[Cell], crowd: Crowd) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for library in [false, true] {
        for class in CLASSES {
            let mut ours: Vec<&str> = Vec::new();
            let of_class = cells.iter().filter(|c| c.is_ours() && c.class == class);
            for cell in of_class.filter(|c| is_library(&c.contender) == library) {
                if !ours.contains(&cell.contender.as_str()) {
                    ours.push(&cell.contender);
                }
            }
            ours.sort_unstable();
            verdicts.extend(ours.into_iter().map(|contender| verdict(cells, contender, class, crowd)));
        }
    }
    verdicts.retain(|verdict| !verdict.matches.is_empty());
    verdicts
}

/// Whether a contender is a library.
pub(super) fn is_library(contender: &str) -> bool {
    contender.starts_with("narufs-lib")
}

fn verdict(cells: &[Cell], contender: &str, class: Survives, crowd: Crowd) -> Verdict {
    let is_own = |c: &Cell| c.contender == contender && c.class == class;
    let matches = titles(cells, is_own).into_iter().filter_map(|title| {
        let own = || cells.iter().filter(|c| is_own(c) && c.title == title);
        let (most, fewest) = (own().map(|c| c.threads).max()?, own().map(|c| c.threads).min()?);
        let count = match crowd {
            Crowd::Most => most,
            Crowd::Fewest if fewest < most => fewest,
            Crowd::Fewest => return None,
        };
        let here: Vec<&Cell> = cells
            .iter()
            .filter(|c| c.title == title && c.threads == count && c.class == class && c.least > 0.0)
            .collect();
        let ours = here.iter().find(|c| c.contender == contender)?;
        let other = here.iter().filter(|c| !c.is_ours()).max_by(|a, b| a.ops.total_cmp(&b.ops))?;
        let beside = IN_RAM.map(|(name, _)| {
            let found = here.iter().find(|c| c.contender == name && contender.ends_with("-nvm"))?;
            Some(ours.ops / found.ops)
        });
        Some(Match {
            title: title.to_owned(),
            threads: count,
            other: other.contender.clone(),
            ratio: ours.ops / other.ops,
            least: ours.least / other.most,
            most: ours.most / other.least,
            unlapped: ours.unlapped,
            beside,
        })
    });
    Verdict { contender: contender.to_owned(), class, matches: matches.collect() }
}

impl Match {
    /// How it ended.
    pub fn outcome(&self) -> Outcome {
        match self.ratio {
            r if r > 1.0 + DRAW && self.least > 1.0 => Outcome::Ahead,
            r if r < 1.0 - DRAW && self.most < 1.0 => Outcome::Behind,
            _ => Outcome::Even,
        }
    }

    /// "5.3 times ext4", "0.31 of xfs", "0.98 of xfs, within the spread".
    pub fn words(&self) -> String {
        let figure = ratio(self.ratio);
        match self.outcome() {
            Outcome::Ahead => format!("{figure} times {}", self.other),
            Outcome::Behind => format!("{figure} of {}", self.other),
            Outcome::Even => format!("{figure} of {}", self.other),
        }
    }
}

/// The mark of rows that went around the journal too seldom.
pub(super) const UNLAPPED: &str = "\u{2020}";

impl Verdict {
    /// Matches that ended so, the clearest first.
    pub fn of(&self, outcome: Outcome) -> Vec<&Match> {
        let mut found: Vec<&Match> = self.matches.iter().filter(|m| m.outcome() == outcome).collect();
        found.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
        found
    }

    /// Threads of most of its matches.
    pub fn threads(&self) -> usize {
        self.matches.iter().map(|m| m.threads).max().unwrap_or(1)
    }

    /// What kind of narufs, and what it promises.
    pub fn kind(&self) -> String {
        let door = if is_library(&self.contender) { "library, no system calls" } else { "mounted" };
        format!("{door}; {}", promise(self.class))
    }

    /// The whole in a sentence: how often ahead and behind, and by how much at the most.
    pub fn headline(&self) -> String {
        let all = self.matches.len();
        let part = |outcome, word: &str, far: &str| {
            let found = self.of(outcome);
            let Some(first) = found.first() else { return format!("{word} in none") };
            let counted =
                if found.len() == all { "all".to_owned() } else { format!("{} of {all}", found.len()) };
            let (title, words) = (&first.title, first.words());
            format!("{word} in {counted} ({far}{words}, {title})")
        };
        let (most, least) = if all == 1 { ("", "") } else { ("at best ", "at worst ") };
        let mut said = vec![part(Outcome::Ahead, "ahead", most), part(Outcome::Behind, "behind", least)];
        match self.of(Outcome::Even).len() {
            0 => {}
            n => said.push(format!("even in {n}")),
        }
        said.join(", ")
    }

    /// Every match in words: what it is ahead in, even and behind.
    pub fn words(&self) -> String {
        let usual = self.threads();
        let list = |outcome| {
            let each = self.of(outcome).into_iter().map(|m| {
                let count =
                    if m.threads == usual { String::new() } else { format!(" ({})", threads(m.threads)) };
                let mark = if m.unlapped { UNLAPPED } else { "" };
                format!("{}{mark}{count} {}", m.title, m.words())
            });
            each.collect::<Vec<_>>().join(", ")
        };
        let parts = [
            (Outcome::Ahead, "ahead: "),
            (Outcome::Even, "even, or within the spread: "),
            (Outcome::Behind, "behind: "),
        ];
        let said = parts.map(|(outcome, word)| (word, list(outcome)));
        let said: Vec<String> =
            said.iter().filter(|(_, l)| !l.is_empty()).map(|(word, l)| format!("{word}{l}")).collect();
        format!("{} ({}), {}: {}.", self.contender, self.kind(), threads(usual), said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::example;
    use super::*;
    use Survives::{Nothing, Power, Process};

    fn most(cells: &[Cell]) -> Vec<Verdict> {
        verdicts(cells, Crowd::Most)
    }

    #[test]
    fn the_best_of_a_class_are_compared_and_losses_are_said() {
        let cells = [
            example("DWSL", 2, "ext4", Power, 100.0),
            example("DWSL", 2, "xfs", Power, 200.0),
            example("DWSL", 2, "narufs-ssd", Power, 50.0),
            example("DWSL", 2, "narufs-lib-ssd", Power, 100.0),
            example("DWSL", 2, "ext4-ram", Process, 100.0),
            example("DWSL", 2, "ext4-journal-ram", Process, 50.0),
            example("DWSL", 2, "narufs-nvm", Process, 300.0),
            example("DWSL", 2, "narufs-ssd-process", Process, 40.0),
            example("DWSL", 2, "tmpfs", Nothing, 9000.0),
        ];
        let found = most(&cells);
        let names: Vec<&str> = found.iter().map(|v| v.contender.as_str()).collect();
        assert_eq!(names, ["narufs-ssd", "narufs-nvm", "narufs-ssd-process", "narufs-lib-ssd"]);
        assert_eq!(
            found[0].words(),
            "narufs-ssd (mounted; survives a loss of power), 2 threads: behind: DWSL 0.25 of xfs."
        );
        assert_eq!(found[0].headline(), "ahead in none, behind in all (0.25 of xfs, DWSL)");
        assert!(found[1].words().contains("ahead: DWSL 3.0 times ext4-ram."));
        assert_eq!(
            found[1].matches[0].beside,
            [Some(6.0), Some(3.0)],
            "emulated NVM beside both kinds of RAM"
        );
        assert_eq!(found[2].matches[0].beside, [None, None], "its journal is on the device");
        assert!(found[3].words().contains("(library, no system calls; survives a loss of power)"));
        assert!(!found.iter().any(|v| v.words().contains("tmpfs")), "nothing of its class is narufs");
    }

    #[test]
    fn what_lies_within_the_spread_is_even() {
        let mut cells =
            vec![example("DWOL", 1, "ext4", Power, 100.0), example("DWOL", 1, "narufs-ssd", Power, 104.0)];
        assert_eq!(most(&cells)[0].matches[0].outcome(), Outcome::Even, "less than a twentieth");
        cells[1].ops = 130.0;
        (cells[1].least, cells[1].most) = (110.0, 150.0);
        assert_eq!(most(&cells)[0].matches[0].outcome(), Outcome::Ahead);
        cells[0].most = 111.0;
        assert_eq!(most(&cells)[0].matches[0].outcome(), Outcome::Even, "rounds overlap");
        assert!(most(&cells)[0].words().contains("even, or within the spread: DWOL 1.30 of ext4"));
        assert!(most(&cells)[0].words().contains("1 thread:"), "singular");
    }

    #[test]
    fn numbers_of_threads_are_the_most_or_the_fewest() {
        let mut cells = Vec::new();
        for (threads, ours) in [(1, 50.0), (16, 300.0)] {
            cells.push(example("DWOM", threads, "ext4", Power, 100.0));
            cells.push(example("DWOM", threads, "narufs-ssd", Power, ours));
        }
        cells.push(example("iozone read", 1, "ext4", Power, 10.0));
        cells.push(example("iozone read", 1, "narufs-ssd", Power, 20.0));
        cells[3].unlapped = true;
        let words = most(&cells)[0].words();
        assert!(
            words.ends_with(
                "16 threads: ahead: DWOM\u{2020} 3.0 times ext4, iozone read (1 thread) 2.0 times ext4."
            ),
            "{words}"
        );
        let fewest = verdicts(&cells, Crowd::Fewest);
        assert_eq!(fewest[0].matches.len(), 1, "iozone has no other number");
        assert_eq!((fewest[0].matches[0].threads, fewest[0].matches[0].ratio), (1, 0.5));
        assert_eq!(most(&cells)[0].headline(), "ahead in all (at best 3.0 times ext4, DWOM), behind in none");
    }

    #[test]
    fn what_did_nothing_is_not_compared() {
        let cells = [example("DWOL", 1, "ext4", Power, 0.0), example("DWOL", 1, "narufs-ssd", Power, 1.0)];
        assert!(most(&cells).is_empty());
    }
}
