//! Ratios as a chart: a row for each workload, a bar from 1.0 to the right where narufs does more, to the left where
//! it does less, in the colour of who wins.

use super::look::{diamond, look};
use super::scale::{Log, ratio, tick};
use super::summary::{Match, Outcome, UNLAPPED, Verdict};
use maud::{Markup, html};

const WIDTH: f64 = 380.0;
const SIDE: f64 = 10.0;
const ROW: f64 = 33.0;
const TOP: f64 = 18.0;

/// One scale for all verdicts, so that their charts can be compared.
pub(super) fn scale<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Log {
    let of = |m: &'a Match| [m.least, m.most, m.ratio].into_iter().chain(m.beside.into_iter().flatten());
    Log::over(verdicts.flat_map(|v| v.matches.iter().flat_map(of)).chain([0.5, 1.0, 2.0]))
}

/// The chart of one narufs.
pub(super) fn chart(verdict: &Verdict, scale: Log) -> Markup {
    let height = TOP + ROW * verdict.matches.len() as f64 + 4.0;
    let x = |r: f64| SIDE + (WIDTH - 2.0 * SIDE) * scale.at(r);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(verdict.headline()) {
            @for mark in scale.ticks() {
                line.grid x1=(place(x(mark))) x2=(place(x(mark))) y1=(TOP - 4.0) y2=(height) {}
                text.tick x=(place(x(mark))) y="11" text-anchor="middle" { (tick(mark)) }
            }
            line.one x1=(place(x(1.0))) x2=(place(x(1.0))) y1=(TOP - 4.0) y2=(height) {}
            @for (at, m) in verdict.matches.iter().enumerate() {
                (row(verdict, m, TOP + ROW * at as f64, x))
            }
        }
    }
}

fn place(x: f64) -> String {
    format!("{x:.1}")
}

fn row(verdict: &Verdict, m: &Match, top: f64, x: impl Fn(f64) -> f64) -> Markup {
    let winner = match m.outcome() {
        Outcome::Ahead => look(&verdict.contender).family,
        Outcome::Behind => look(&m.other).family,
        Outcome::Even => "even",
    };
    let (from, to) = (x(m.ratio.min(1.0)), x(m.ratio.max(1.0)));
    let (text, bar) = (top + 12.0, top + 18.0);
    let count = if m.threads == verdict.threads() {
        String::new()
    } else {
        format!(", {}", super::cells::threads(m.threads))
    };
    html! {
        g class=(winner) {
            title {
                (m.title) ": " (ratio(m.ratio)) " of " (m.other) ", rounds from " (ratio(m.least)) " to " (ratio(m.most))
            }
            text.name x="2" y=(text) { (m.title) tspan.soft { (count) @if m.unlapped { " " (UNLAPPED) } } }
            text.value x=(WIDTH - 2.0) y=(text) text-anchor="end" { (m.words()) }
            rect.bar x=(place(from)) y=(bar) width=(place((to - from).max(1.5))) height="8" {}
            @if m.most > m.least {
                path.range d=(format!("M{:.1} {}H{:.1}", x(m.least), bar + 4.0, x(m.most))) {}
            }
            @if let Some(r) = m.beside[0] {
                circle.beside cx=(place(x(r))) cy=(bar + 4.0) r="3.6" { title { (ratio(r)) " of ext4, journal on RAM" } }
            }
            @if let Some(r) = m.beside[1] {
                path.beside d=(diamond(x(r), bar + 4.0)) { title { (ratio(r)) " of ext4 wholly on RAM" } }
            }
        }
    }
}
