//! Operations a second over threads: a panel for each class, a line for each contender with its name at the end.

use super::cells::{CLASSES, Cell, promise, threads};
use super::look::look;
use super::scale::{Log, short, tick};
use maud::{Markup, html};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 206.0;
const LEFT: f64 = 38.0;
/// Room for the names at the ends of lines.
const RIGHT: f64 = 146.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 32.0;
/// From one name to the next.
const LINE: f64 = 14.0;

/// The panels of one workload, all with the same axes. What survives nothing is drawn with what survives the process.
pub(super) fn panels(cells: &[&Cell]) -> Markup {
    let scale = Log::over(cells.iter().map(|c| c.ops));
    let mut counts: Vec<usize> = cells.iter().map(|c| c.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    let [power, process, nothing] = CLASSES;
    html! {
        @for (class, with) in [(power, None), (process, Some(nothing))] {
            @let own: Vec<&Cell> =
                cells.iter().filter(|c| c.class == class || Some(c.class) == with).copied().collect();
            @if !own.is_empty() {
                p.panel { (promise(class)) @if own.iter().any(|c| c.class == nothing) { " (tmpfs: nothing)" } }
                (panel(&own, scale, &counts))
            }
        }
    }
}

fn panel(cells: &[&Cell], scale: Log, counts: &[usize]) -> Markup {
    let bottom = HEIGHT - BOTTOM;
    let x = |t: usize| {
        let place = counts.iter().position(|known| *known == t).unwrap_or(0) as f64;
        let step = (WIDTH - LEFT - RIGHT - 16.0) / (counts.len().max(2) - 1) as f64;
        LEFT + 8.0 + step * place
    };
    let y = |ops: f64| bottom - (bottom - TOP) * scale.at(ops);
    let mut names: Vec<&str> = cells.iter().map(|c| c.contender.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut lines: Vec<(&str, Vec<&Cell>)> = names
        .into_iter()
        .map(|name| (name, cells.iter().filter(|c| c.contender == name).copied().collect()))
        .collect();
    let end = |own: &[&Cell]| own.last().map_or(bottom, |c| y(c.ops));
    lines.sort_by(|(_, a), (_, b)| end(a).total_cmp(&end(b)));
    let wanted: Vec<f64> = lines.iter().map(|(_, own)| end(own)).collect();
    let places = apart(&wanted, TOP + 2.0, bottom);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" {
            @for mark in scale.ticks() {
                path.grid d=(format!("M{LEFT} {:.1}H{}", y(mark), WIDTH - RIGHT)) {}
                text.tick x=(LEFT - 5.0) y=(format!("{:.1}", y(mark) + 4.0)) text-anchor="end" { (tick(mark)) }
            }
            @for t in counts {
                text.tick x=(format!("{:.1}", x(*t))) y=(bottom + 16.0) text-anchor="middle" { (t) }
            }
            text.tick x=((LEFT + WIDTH - RIGHT) / 2.0) y=(HEIGHT - 3.0) text-anchor="middle" { "threads" }
            @for ((name, own), place) in lines.iter().zip(places) {
                (line(name, own, x, y, place))
            }
        }
    }
}

fn line(name: &str, own: &[&Cell], x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64, place: f64) -> Markup {
    let look = look(name);
    let points: Vec<(f64, f64)> = own.iter().map(|c| (x(c.threads), y(c.ops))).collect();
    let way: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let marks: String = points.iter().map(|(x, y)| look.mark(*x, *y)).collect();
    let spans: String = own
        .iter()
        .filter(|c| c.most > c.least && c.least > 0.0)
        .map(|c| format!("M{:.1} {:.1}V{:.1}", x(c.threads), y(c.least), y(c.most)))
        .collect();
    let said: Vec<String> =
        own.iter().map(|c| format!("{} ops/s with {}", short(c.ops), threads(c.threads))).collect();
    let (last_x, last_y) = points.last().copied().unwrap_or_default();
    let label = WIDTH - RIGHT + 10.0;
    html! {
        g class=(look.family) {
            title { (name) ": " (said.join(", ")) }
            @if points.len() > 1 {
                path.line d=(format!("M{}", way.join("L"))) stroke-dasharray=[Some(look.dash).filter(|d| !d.is_empty())] {}
            }
            @if !spans.is_empty() { path.range d=(spans) {} }
            path.mark d=(marks) {}
            path.lead d=(format!("M{:.1} {last_y:.1}L{:.1} {place:.1}", last_x + 5.0, label - 2.0)) {}
            text.name x=(label) y=(format!("{:.1}", place + 4.0)) { (name) }
        }
    }
}

/// Moves heights, which are in order, as little as needed for names to have room: down from each other, and up from
/// the floor.
pub fn apart(wanted: &[f64], ceiling: f64, floor: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    let mut least = ceiling;
    for place in &mut places {
        *place = place.max(least);
        least = *place + LINE;
    }
    let mut most = floor;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - LINE;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lie_on_each_other() {
        assert_eq!(apart(&[20.0, 60.0, 100.0], 8.0, 170.0), [20.0, 60.0, 100.0], "there is room");
        for wanted in [vec![50.0; 7], vec![169.0; 4], vec![8.0, 8.0, 168.0, 170.0]] {
            let places = apart(&wanted, 8.0, 170.0);
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= LINE - 1e-9), "{places:?}");
            assert!(places.iter().all(|p| (8.0..=170.0).contains(p)), "{places:?}");
        }
        assert!(apart(&[], 8.0, 170.0).is_empty());
    }
}
