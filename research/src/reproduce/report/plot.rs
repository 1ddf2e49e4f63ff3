//! A plot with logarithmic axes: what was measured in whole lines with the rounds' range, what the model says in dashes,
//! what the paper says in hollow marks.

use crate::reproduce::found::{Figure, Kind, Series};
use crate::reproduce::run::OURS;
use maud::{Markup, html};
use narufs_bench::compare::report::apart;
use narufs_bench::compare::report::scale::{Log, tick};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 44.0;
/// Room for the names at the ends of lines.
const RIGHT: f64 = 176.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 34.0;

/// Hues of the style, for the baselines in their order.
const HUES: [&str; 6] = ["ext4", "xfs", "lib", "btrfs", "tmpfs", "ntfs"];

/// The hue of a variant, the same whatever its line is from.
fn hue(name: &str, baselines: &[&str]) -> &'static str {
    match baselines.iter().position(|known| *known == name) {
        _ if name == OURS => "naru",
        Some(at) => HUES[at % HUES.len()],
        None => "other",
    }
}

/// A variant's name where there is little room: without its family, which the page is about, and without what the
/// baselines of a family have in common. Of a ratio both.
fn short(name: &str) -> String {
    let own = |name: &str| {
        let family = ["journal-", "checkpoint-", "lock-", "ids-", "spill-"];
        family.iter().find_map(|family| name.strip_prefix(family)).unwrap_or(name).to_owned()
    };
    let parts = |name: &str| {
        let is_alone = !name.contains('+');
        let parts = name.split('+').filter(|part| is_alone || *part != "data-ordered").map(own);
        let parts: Vec<_> = parts.collect();
        if parts.len() > 2 { "all of them".to_owned() } else { parts.join("+") }
    };
    name.split(" / ").map(parts).collect::<Vec<_>>().join(" / ")
}

/// The plot.
pub fn plot(figure: &Figure) -> Markup {
    let all = || figure.series.iter().flat_map(|line| &line.points);
    let (across, up) = (Log::over(all().map(|p| p.x)), Log::over(all().flat_map(|p| [p.y, p.least, p.most])));
    let bottom = HEIGHT - BOTTOM;
    let x = |at: f64| LEFT + (WIDTH - LEFT - RIGHT) * across.at(at);
    let y = |at: f64| bottom - (bottom - TOP) * up.at(at);
    let mut baselines: Vec<&str> = Vec::new();
    for line in &figure.series {
        if line.name != OURS && !baselines.contains(&line.name.as_str()) {
            baselines.push(&line.name);
        }
    }
    let mut lines: Vec<&Series> = figure.series.iter().filter(|line| !line.points.is_empty()).collect();
    let end = |line: &Series| line.points.last().map_or(bottom, |p| y(p.y));
    lines.sort_by(|a, b| end(a).total_cmp(&end(b)));
    let wanted: Vec<f64> = lines.iter().map(|line| end(line)).collect();
    let places = apart(&wanted, TOP + 2.0, bottom);
    let mut marks: Vec<f64> = all().map(|p| p.x).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    // Where there are many, those that round figures name.
    let marks = if marks.len() > 8 { across.ticks() } else { marks };
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" {
            title { (figure.title) }
            @for mark in up.ticks() {
                path.grid d=(format!("M{LEFT} {:.1}H{}", y(mark), WIDTH - RIGHT)) {}
                text.tick x=(LEFT - 5.0) y=(format!("{:.1}", y(mark) + 4.0)) text-anchor="end" { (tick(mark)) }
            }
            @for mark in marks {
                text.tick x=(format!("{:.1}", x(mark))) y=(bottom + 16.0) text-anchor="middle" { (tick(mark)) }
            }
            text.tick x=((LEFT + WIDTH - RIGHT) / 2.0) y=(HEIGHT - 4.0) text-anchor="middle" { (figure.x) }
            @for (line, place) in lines.iter().zip(places) {
                (drawn(line, hue(&line.name, &baselines), &x, &y, place))
            }
        }
    }
}

fn drawn(line: &Series, hue: &str, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64, place: f64) -> Markup {
    let points: Vec<(f64, f64)> = line.points.iter().map(|p| (x(p.x), y(p.y))).collect();
    let way: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let circle =
        |(x, y): &(f64, f64)| format!("M{:.1} {y:.1}a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z", x - 3.4);
    let square = |(x, y): &(f64, f64)| format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5);
    let spans = line.points.iter().filter(|p| p.most > p.least && p.least > 0.0);
    let spans: String = spans.map(|p| format!("M{:.1} {:.1}V{:.1}", x(p.x), y(p.least), y(p.most))).collect();
    let (last_x, last_y) = points.last().copied().unwrap_or_default();
    let label = WIDTH - RIGHT + 10.0;
    let (dash, word) = match line.kind {
        Kind::Measured => (None, ""),
        Kind::Modelled => (Some("6 4"), ", model"),
        // Single points, of which nothing is known between.
        Kind::Published => (None, ", paper"),
    };
    html! {
        g class=(hue) {
            title { (line.name) (word) }
            @if points.len() > 1 && line.kind != Kind::Published {
                path.line d=(format!("M{}", way.join("L"))) stroke-dasharray=[dash] {}
            }
            @if !spans.is_empty() { path.range d=(spans) {} }
            @match line.kind {
                Kind::Measured => path.mark d=(points.iter().map(circle).collect::<String>()) {},
                Kind::Modelled => {},
                Kind::Published => path.hollow d=(points.iter().map(square).collect::<String>()) {},
            }
            path.lead d=(format!("M{:.1} {last_y:.1}L{:.1} {place:.1}", last_x + 5.0, label - 2.0)) {}
            text.name x=(label) y=(format!("{:.1}", place + 4.0)) { (short(&line.name)) (word) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn short_names_tell_variants_apart() {
        assert_eq!(short("ours"), "ours");
        assert_eq!(short("data-ordered"), "data-ordered");
        assert_eq!(short("journal-jbd2+data-ordered"), "jbd2");
        assert_eq!(short("journal-paper+data-ordered / journal-fine+data-ordered"), "paper / fine");
        assert_eq!(short("spill-a+spill-b+spill-c"), "all of them");
        assert_eq!(short("spill-clean-lost+spill-blind-readahead"), "clean-lost+blind-readahead");
    }
}
