//! The model beside what was measured: lines that go on to the papers' core counts, and a table of every point that they
//! publish, hit or missed.

use super::found::{Account, Cells, Figure, Kind, Point, Series, Table};
use super::run::Run;
use crate::journal::word;
use crate::manycore::fit::Fitted;
use crate::manycore::machine::{self, Costs, Machine};
use crate::manycore::pair;
use crate::manycore::published::{Of, POINTS, Point as Published};
use narufs_bench::stats::median;
use std::time::Duration;

const POINTS_TITLE: &str = "The model beside what is published";
const FITS_TITLE: &str = "What one and two threads of this machine tell";
const RATE: &str = "ops/s";
/// How far the model may be off a published ratio.
const NEAR: f64 = 0.25;
/// The most of an operation, in ns, that is looked at as going one after the other.
const LONGEST: f64 = 1e8;

/// What a line costs on this machine, by adds to a word of one thread and of two.
pub fn costs() -> Costs {
    let time = Duration::from_millis(30);
    let adds = |threads: usize| [(); 5].map(|()| word::measure(threads, time));
    // The least of one thread, and the most of two: where they had a core by turns, none of their lines moved.
    let (alone, shared) =
        (adds(1).into_iter().fold(f64::MAX, f64::min), adds(2).into_iter().fold(0.0, f64::max));
    // Two threads take turns: of their processor time an add has half.
    Costs::fitted(alone, shared / 2.0)
}

/// Times as much as one thread two do that share nothing: the median of some turns.
pub fn pair() -> f64 {
    let time = Duration::from_millis(30);
    let turns = [(); 7].map(|()| pair::measure(time));
    median(&turns).unwrap_or(2.0)
}

/// Techniques as the figures of one workload tell them, on the machine of a paper.
pub struct Model {
    machine: Machine,
    costs: Costs,
    fits: Vec<(String, Fitted)>,
}

impl Model {
    /// Of the rates of one and two threads. Nothing where a paper's machine is not known.
    pub fn of(run: &Run, account: &Account, cells: &Cells) -> Option<Model> {
        let machine = machine::of(account.paper)?;
        let fit = |name: &str| {
            let (one, two) = (cells.median(name, 1, RATE)?, cells.median(name, 2, RATE)?);
            // What two threads that share nothing would lose too, as far as one is on its core and does not wait.
            let busy = cells.median(name, 1, "cpu us").map_or(1.0, |us| (us * 1e-6 * one).min(1.0));
            let two = two * (1.0 + busy * (2.0 / run.pair - 1.0));
            Some((name.to_owned(), Fitted::new(one, two, run.costs)?))
        };
        let fits = cells.variants(RATE).into_iter().filter_map(fit).collect();
        Some(Model { machine, costs: run.costs, fits })
    }

    fn fit(&self, variant: &str) -> Option<Fitted> {
        self.fits.iter().find(|(name, _)| name == variant).map(|(_, fit)| *fit)
    }

    /// Operations a second.
    pub fn rate(&self, variant: &str, threads: usize) -> Option<f64> {
        Some(self.fit(variant)?.rate(self.machine, self.costs, threads))
    }

    /// Of one technique over another, with as many threads as the paper's machine has cores.
    pub fn ratio(&self, of: &str, to: &str) -> Option<f64> {
        Some(self.rate(of, self.machine.cores)? / self.rate(to, self.machine.cores)?)
    }

    /// Numbers of threads to ask it for.
    fn counts(&self) -> Vec<usize> {
        let doubled = std::iter::successors(Some(1_usize), |threads| Some(threads * 2));
        let mut counts: Vec<usize> = doubled.take_while(|threads| *threads < self.machine.cores).collect();
        counts.push(self.machine.cores);
        counts
    }

    fn series(&self) -> Vec<Series> {
        let counts = self.counts();
        let line = |(name, _): &(String, Fitted)| Series {
            name: name.clone(),
            kind: Kind::Modelled,
            points: counts
                .iter()
                .filter_map(|threads| Some(Point::at(*threads as f64, self.rate(name, *threads)?)))
                .collect(),
        };
        self.fits.iter().map(line).collect()
    }
}

fn table<'a>(account: &'a mut Account, title: &str, head: &[&str]) -> &'a mut Table {
    let at = account.tables.iter().position(|table| table.title == title).unwrap_or_else(|| {
        let head = head.iter().map(|word| (*word).to_owned()).collect();
        account.tables.push(Table { title: title.to_owned(), head, rows: Vec::new() });
        account.tables.len() - 1
    });
    &mut account.tables[at]
}

/// Adds the model's lines to the plot of a workload, its points to the table of those published, and what it was fitted
/// to; gives the model for what else is asked of it.
pub fn extend(run: &Run, account: &mut Account, title: &str, cells: &Cells) -> Option<Model> {
    let model = Model::of(run, account, cells)?;
    if let Some(figure) = account.figures.iter_mut().find(|figure| figure.title == title) {
        figure.series.extend(model.series());
    }
    let fits = table(
        account,
        FITS_TITLE,
        &["workload", "variant", "side by side, ns", "in turn, ns", "handover, ns"],
    );
    for (name, fit) in &model.fits {
        let ns = [fit.apart, fit.together, fit.handover].map(|ns| format!("{ns:.0}"));
        fits.rows.push([title.to_owned(), name.clone()].into_iter().chain(ns).collect());
    }
    account.figures.extend(ratios(account.paper, title, cells, &model));
    let paper = account.paper;
    let points = table(
        account,
        POINTS_TITLE,
        &["published point", "cores", "paper", "model", "off by", "it would be met if"],
    );
    for point in POINTS.iter().filter(|point| point.paper == paper && point.figure == title) {
        points.rows.push(row(point, &model));
    }
    Some(model)
}

/// Gains of techniques over baselines, for the pairs of which something is published: measured, modelled, published.
fn ratios(paper: &str, title: &str, cells: &Cells, model: &Model) -> Option<Figure> {
    let own = || POINTS.iter().filter(|point| point.paper == paper && point.figure == title);
    let mut series: Vec<Series> = Vec::new();
    for point in own() {
        let Of::Rates(of, to) = point.of else { continue };
        let name = format!("{of} / {to}");
        if !series.iter().any(|line| line.name == name) {
            let measured = cells
                .places(RATE)
                .into_iter()
                .filter_map(|threads| Some(Point::at(threads as f64, cells.ratio(of, to, threads, RATE)?)));
            let modelled = model.counts().into_iter().filter_map(|threads| {
                Some(Point::at(threads as f64, model.rate(of, threads)? / model.rate(to, threads)?))
            });
            let line = |kind, points| Series { name: name.clone(), kind, points };
            let lines = [line(Kind::Measured, measured.collect()), line(Kind::Modelled, modelled.collect())];
            series.extend(lines);
            series.push(line(Kind::Published, Vec::new()));
        }
        let published = series.iter_mut().find(|line| line.name == name && line.kind == Kind::Published);
        let at = point.threads.last().copied().unwrap_or(1) as f64;
        published.into_iter().for_each(|line| line.points.push(Point::at(at, point.value)));
    }
    let title = format!("{title}: gains");
    (!series.is_empty()).then_some(Figure {
        title,
        x: "threads",
        y: "times as many operations a second",
        series,
    })
}

/// What would have to be different for the model to meet a point that it misses: how much of an operation goes one after
/// the other in the slower of two techniques, where the paper's ratio is larger; in the faster one, where it is smaller.
fn met_if(point: &Published, model: &Model) -> String {
    let with = |variant: &str, ns: Option<f64>| {
        point.by(|name, threads| {
            let fit = model.fit(name)?;
            let fit = if name == variant { ns.map_or(fit, |ns| fit.in_turn(ns)) } else { fit };
            Some(fit.rate(model.machine, model.costs, threads))
        })
    };
    let Some(said) = with("", None) else { return String::new() };
    // More in turn in the one lowers the ratio, in the other it raises it.
    let variant = match point.of {
        Of::Rates(of, to) => {
            if said > point.value {
                of
            } else {
                to
            }
        }
        Of::Times(of, to) => {
            if said > point.value {
                to
            } else {
                of
            }
        }
        Of::Itself(of) => of,
    };
    let Some(fit) = model.fit(variant) else { return String::new() };
    let is_beyond =
        |ns: f64| with(variant, Some(ns)).is_some_and(|now| (now > point.value) != (said > point.value));
    let (mut low, mut high) = (fit.turn().max(1.0), LONGEST);
    if !is_beyond(high) {
        return "less went in turn".to_owned();
    }
    while high / low > 1.03 {
        let middle = (low * high).sqrt();
        if is_beyond(middle) { high = middle } else { low = middle }
    }
    format!("{variant} did {} of each in turn, not {}", time(high), time(fit.turn()))
}

/// A time in words.
fn time(ns: f64) -> String {
    if ns < 1e4 { format!("{ns:.0} ns") } else { format!("{:.0} us", ns / 1e3) }
}

fn row(point: &Published, model: &Model) -> Vec<String> {
    let said = point.by(|name, threads| model.rate(name, threads));
    let off = said.map(|said| format!("{:+.0} %", (said / point.value - 1.0) * 100.0));
    let is_far = said.is_some_and(|said| (said / point.value - 1.0).abs() > NEAR);
    let missing = || "not measured".to_owned();
    vec![
        point.words(),
        model.machine.cores.to_string(),
        format!("{:.2}", point.value),
        said.map_or_else(missing, |said| format!("{said:.2}")),
        off.unwrap_or_default(),
        if is_far { met_if(point, model) } else { String::new() },
    ]
}
