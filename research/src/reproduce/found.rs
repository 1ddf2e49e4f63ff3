//! What experiments have found: figures, tables and goals, as pages and programs get them.

use narufs_bench::stats::{median, range};
use serde::Serialize;

/// Everything that one call has found.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// Where it ran.
    pub machine: Vec<(String, String)>,
    /// How it was called.
    pub command: String,
    /// How often each was run.
    pub rounds: u32,
    /// Whether sizes were small: then figures say that all of it works, and no more.
    pub quick: bool,
    /// The papers.
    pub papers: Vec<Account>,
}

/// What one paper's experiment has found.
#[derive(Debug, Clone, Serialize)]
pub struct Account {
    /// Its name on the command line.
    pub paper: &'static str,
    /// What the page is called.
    pub title: &'static str,
    /// The publication.
    pub source: &'static str,
    /// What is asked.
    pub question: &'static str,
    /// How it is answered, sentence by sentence.
    pub method: Vec<String>,
    /// What differs from the paper, and why.
    pub differs: Vec<String>,
    /// What is asked of the figures.
    pub goals: Vec<Goal>,
    /// Plots.
    pub figures: Vec<Figure>,
    /// Tables.
    pub tables: Vec<Table>,
    /// What did not run.
    pub absent: Vec<Absent>,
}

impl Account {
    /// A paper of which nothing is found yet: its name, the page's title, the publication, the question.
    pub fn new([paper, title, source, question]: [&'static str; 4]) -> Account {
        Account {
            paper,
            title,
            source,
            question,
            method: Vec::new(),
            differs: Vec::new(),
            goals: Vec::new(),
            figures: Vec::new(),
            tables: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// Adds a plot and a table of the same figures: the first column is what is plotted.
    pub fn show(
        &mut self,
        title: &str,
        [x, y]: [&'static str; 2],
        cells: &Cells,
        columns: &[(&str, &str, usize)],
    ) {
        let first = columns.first().map_or("", |(what, _, _)| what);
        self.figures.push(Figure { title: title.to_owned(), x, y, series: cells.series(first) });
        self.tables.push(cells.table(title, x, columns));
    }
}

/// Something that did not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// What.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// A plot.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// The axis to the right.
    pub x: &'static str,
    /// The axis upwards.
    pub y: &'static str,
    /// Lines.
    pub series: Vec<Series>,
}

/// Where figures are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Measured, here.
    Measured,
    /// Computed by the model.
    Modelled,
    /// Published.
    Published,
}

/// A line of a plot.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    /// Which variant.
    pub name: String,
    /// Where it is from.
    pub kind: Kind,
    /// In the order of `x`.
    pub points: Vec<Point>,
}

/// A point of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Threads, or a size.
    pub x: f64,
    /// The median of the rounds.
    pub y: f64,
    /// The least of any round.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

impl Point {
    /// A point without a spread.
    pub fn at(x: f64, y: f64) -> Point {
        Point { x, y, least: y, most: y }
    }
}

/// Cells of words.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Heads of columns.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// What a figure is to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// Between these.
    Within(f64, f64),
}

/// Something that is asked for.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    /// Of what.
    pub what: String,
    /// How much.
    pub wanted: Wanted,
    /// What the paper has for it.
    pub published: Option<f64>,
    /// What was measured.
    pub measured: Option<f64>,
    /// What the model says of the paper's machine.
    pub modelled: Option<f64>,
    /// Whether the measured figure is as it is wanted.
    pub met: Option<bool>,
}

impl Wanted {
    /// Whether a figure is so.
    pub fn holds(self, figure: f64) -> bool {
        match self {
            Wanted::AtLeast(least) => figure >= least,
            Wanted::AtMost(most) => figure <= most,
            Wanted::Within(least, most) => (least..=most).contains(&figure),
        }
    }
}

impl Goal {
    /// A goal, and what was measured for it.
    pub fn new(what: impl Into<String>, wanted: Wanted, measured: Option<f64>) -> Goal {
        let met = measured.map(|figure| wanted.holds(figure));
        Goal { what: what.into(), wanted, published: None, measured, modelled: None, met }
    }

    /// With the paper's own figure.
    pub fn published(self, figure: f64) -> Goal {
        Goal { published: Some(figure), ..self }
    }
}

/// The figures of all rounds, by variant, place on the axis, and what they are of.
#[derive(Debug, Clone, Default)]
pub struct Cells(Vec<Cell>);

#[derive(Debug, Clone)]
struct Cell {
    variant: String,
    x: u64,
    what: &'static str,
    values: Vec<f64>,
}

impl Cells {
    /// Adds what a round has found.
    pub fn add(&mut self, variant: &str, x: u64, what: &'static str, value: f64) {
        let known = |cell: &&mut Cell| cell.variant == variant && cell.x == x && cell.what == what;
        match self.0.iter_mut().find(known) {
            Some(cell) => cell.values.push(value),
            None => self.0.push(Cell { variant: variant.to_owned(), x, what, values: vec![value] }),
        }
    }

    /// The figures that have these names, under others.
    pub fn renamed(&self, names: &[(&'static str, &'static str)]) -> Cells {
        let named = |cell: &Cell| {
            let (_, what) = names.iter().find(|(old, _)| *old == cell.what)?;
            Some(Cell { what, ..cell.clone() })
        };
        Cells(self.0.iter().filter_map(named).collect())
    }

    fn values(&self, variant: &str, x: u64, what: &str) -> &[f64] {
        let known = |cell: &&Cell| cell.variant == variant && cell.x == x && cell.what == what;
        self.0.iter().find(known).map_or(&[], |cell| &cell.values)
    }

    /// The median of the rounds.
    pub fn median(&self, variant: &str, x: u64, what: &str) -> Option<f64> {
        median(self.values(variant, x, what))
    }

    /// The median of the rounds' ratios, for both of a round meet the machine in about the same state.
    pub fn ratio(&self, of: &str, to: &str, x: u64, what: &str) -> Option<f64> {
        let (of, to) = (self.values(of, x, what), self.values(to, x, what));
        if of.len() != to.len() {
            return median(of).zip(median(to)).filter(|(_, to)| *to > 0.0).map(|(of, to)| of / to);
        }
        let ratios: Vec<f64> =
            of.iter().zip(to).filter(|(_, to)| **to > 0.0).map(|(of, to)| of / to).collect();
        median(&ratios)
    }

    /// The variants that have such figures, in the order of their first.
    pub fn variants(&self, what: &str) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for cell in self.0.iter().filter(|cell| cell.what == what) {
            if !names.contains(&cell.variant.as_str()) {
                names.push(&cell.variant);
            }
        }
        names
    }

    /// The places on the axis, in order.
    pub fn places(&self, what: &str) -> Vec<u64> {
        let mut places: Vec<u64> =
            self.0.iter().filter(|cell| cell.what == what).map(|cell| cell.x).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// A line for each variant.
    pub fn series(&self, what: &str) -> Vec<Series> {
        let line = |name: &str| {
            let point = |x: u64| {
                let values = self.values(name, x, what);
                let ((least, most), y) = range(values).zip(median(values))?;
                Some(Point { x: x as f64, y, least, most })
            };
            let points = self.places(what).into_iter().filter_map(point).collect();
            Series { name: name.to_owned(), kind: Kind::Measured, points }
        };
        self.variants(what).into_iter().map(line).collect()
    }

    /// A row for each variant and place, with a column for each of `columns`: what it is of, its head, and digits.
    pub fn table(&self, title: &str, x: &str, columns: &[(&str, &str, usize)]) -> Table {
        let mut head = vec![x.to_owned(), "variant".to_owned()];
        head.extend(columns.iter().map(|(_, head, _)| (*head).to_owned()));
        head.push("spread".to_owned());
        let first = columns.first().map_or("", |(what, _, _)| what);
        let mut rows = Vec::new();
        for place in self.places(first) {
            for variant in self.variants(first) {
                let values = self.values(variant, place, first);
                if values.is_empty() {
                    continue;
                }
                let mut row = vec![place.to_string(), variant.to_owned()];
                row.extend(columns.iter().map(|(what, _, digits)| {
                    self.median(variant, place, what).map_or(String::new(), |v| format!("{v:.digits$}"))
                }));
                let spread = narufs_bench::stats::spread(values).unwrap_or(0.0);
                row.push(format!("{:.0} %", spread * 100.0));
                rows.push(row);
            }
        }
        Table { title: title.to_owned(), head, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut cells = Cells::default();
        for (ours, theirs) in [(10.0, 5.0), (30.0, 10.0), (8.0, 2.0)] {
            cells.add("ours", 4, "ops", ours);
            cells.add("theirs", 4, "ops", theirs);
        }
        assert_eq!(cells.ratio("ours", "theirs", 4, "ops"), Some(3.0));
        assert_eq!(cells.median("ours", 4, "ops"), Some(10.0));
        assert_eq!((cells.ratio("ours", "nobody", 4, "ops"), cells.median("ours", 8, "ops")), (None, None));
        assert_eq!(cells.renamed(&[("ops", "rate"), ("ns", "x")]).median("ours", 4, "rate"), Some(10.0));
        let series = cells.series("ops");
        assert_eq!(series.len(), 2);
        assert_eq!(series[0].points, [Point { x: 4.0, y: 10.0, least: 8.0, most: 30.0 }]);
        let table = cells.table("t", "threads", &[("ops", "ops/s", 1)]);
        assert_eq!(table.rows[1], ["4", "theirs", "5.0", "160 %"]);
    }

    #[test]
    fn a_goal_without_a_figure_is_neither_met_nor_missed() {
        let met = |wanted, measured| Goal::new("x", wanted, measured).met;
        assert_eq!(met(Wanted::AtLeast(2.0), None), None);
        assert_eq!(met(Wanted::AtLeast(2.0), Some(2.0)), Some(true));
        assert_eq!(met(Wanted::AtMost(0.0), Some(4096.0)), Some(false));
        assert_eq!(met(Wanted::Within(0.97, 1.03), Some(1.1)), Some(false));
    }
}
