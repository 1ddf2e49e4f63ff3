//! Charts as SVG: lines over threads with a logarithmic scale, and bars. Text and axes have the page's colour.

use super::cells::Cell;
use maud::{Markup, html};

/// Colours that can be told apart on a light and on a dark page; narufs has the warm ones.
const OTHERS: [&str; 10] = [
    "#4c78a8", "#72b7b2", "#54a24b", "#9d755d", "#8c8c8c", "#5f9ed1", "#2f7f86", "#86b875", "#7a6fb0",
    "#a0a04a",
];
const OURS: [&str; 5] = ["#e4572e", "#f2a541", "#d1495b", "#c77dff", "#ff8fa3"];

/// The colour of a contender, by its place among all.
pub(super) fn colour(contender: &str, all: &[(String, String)]) -> &'static str {
    let ours = contender.starts_with("narufs");
    let kin = all.iter().filter(|(name, _)| name.starts_with("narufs") == ours);
    let place = kin.take_while(|(name, _)| name != contender).count();
    if ours { OURS[place % OURS.len()] } else { OTHERS[place % OTHERS.len()] }
}

/// A number in few letters.
pub(super) fn short(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.1}G", v / 1e9),
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 1e3 => format!("{:.1}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 14.0;

/// Operations a second over threads, a line for each contender.
pub(super) fn lines(cells: &[&Cell], contenders: &[(String, String)]) -> Markup {
    let mut threads: Vec<usize> = cells.iter().map(|cell| cell.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let values = || cells.iter().map(|cell| cell.ops.max(1.0).log10());
    let low = values().fold(f64::INFINITY, f64::min).floor();
    let high = values().fold(f64::NEG_INFINITY, f64::max).ceil().max(low + 1.0);
    let x = |t: usize| {
        let place = threads.iter().position(|known| *known == t).unwrap_or(0) as f64;
        LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / threads.len() as f64
    };
    let y =
        |ops: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (ops.max(1.0).log10() - low) / (high - low);
    let ticks = (low as i32..=high as i32).map(|power| 10_f64.powi(power));
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" {
            @for tick in ticks {
                line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y(tick)) y2=(y(tick)) {}
                text x=(LEFT - 6.0) y=(y(tick) + 4.0) text-anchor="end" { (short(tick)) }
            }
            @for t in &threads {
                text x=(x(*t)) y=(HEIGHT - 14.0) text-anchor="middle" { (t) }
            }
            text x=(WIDTH / 2.0) y=(HEIGHT - 1.0) text-anchor="middle" { "threads" }
            @for (name, _) in contenders {
                @let own: Vec<&&Cell> = cells.iter().filter(|cell| cell.contender == *name).collect();
                @let points: Vec<String> =
                    own.iter().map(|c| format!("{:.1},{:.1}", x(c.threads), y(c.ops))).collect();
                @let stroke = colour(name, contenders);
                @if !own.is_empty() {
                    polyline points=(points.join(" ")) fill="none" stroke=(stroke) stroke-width="2" {}
                    @for c in &own {
                        circle cx=(x(c.threads)) cy=(y(c.ops)) r="3.5" fill=(stroke) {
                            title { (name) ": " (short(c.ops)) " ops/s with " (c.threads) " threads" }
                        }
                    }
                }
            }
        }
    }
}

/// A bar for each cell.
pub(super) fn bars(rows: &[(String, f64)], unit: &str, colour: impl Fn(&str) -> &'static str) -> Markup {
    let most = rows.iter().map(|(_, value)| *value).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let (row, name, end) = (22.0, 150.0, 70.0);
    let height = row * rows.len() as f64 + 6.0;
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" {
            @for (at, (label, value)) in rows.iter().enumerate() {
                @let top = row * at as f64 + 3.0;
                @let length = (WIDTH - name - end) * value / most;
                text x=(name - 8.0) y=(top + 13.0) text-anchor="end" { (label) }
                rect x=(name) y=(top) width=(format!("{length:.1}")) height="16" rx="2" fill=(colour(label)) {}
                text x=(name + length + 6.0) y=(top + 13.0) { (short(*value)) (unit) }
            }
        }
    }
}
