//! Bars: operations a second within each class, and bytes of the device.

use super::cells::{CLASSES, Cell, promise};
use super::look::look;
use super::scale::short;
use maud::{Markup, html};

const WIDTH: f64 = 380.0;
/// Room for names, and for figures.
const NAME: f64 = 122.0;
const END: f64 = 62.0;
const ROW: f64 = 20.0;
const HEAD: f64 = 22.0;

/// Heights of groups, from the top down, with the room that their headings take; and of all. Cells are grouped by
/// class, or one group without a heading.
fn layout<'a>(cells: &[&'a Cell], row: f64, by_class: bool) -> (Vec<(f64, Vec<&'a Cell>)>, f64) {
    if !by_class {
        return (vec![(-HEAD, cells.to_vec())], row * cells.len() as f64 + 4.0);
    }
    let mut top = 0.0;
    let mut groups = Vec::new();
    for class in CLASSES {
        let own: Vec<&Cell> = cells.iter().filter(|c| c.class == class).copied().collect();
        if !own.is_empty() {
            let height = HEAD + row * own.len() as f64;
            groups.push((top, own));
            top += height;
        }
    }
    (groups, top + 4.0)
}

/// Operations a second. Each class has its own scale: its best fills the width.
pub(super) fn rates(cells: &[&Cell], by_class: bool) -> Markup {
    let (groups, height) = layout(cells, ROW, by_class);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" {
            @for (top, own) in groups {
                @let most = own.iter().map(|c| c.most).fold(f64::MIN_POSITIVE, f64::max);
                @let x = |ops: f64| NAME + (WIDTH - NAME - END) * ops / most;
                @if by_class { text.head x="2" y=(top + 15.0) { (own.first().map_or("", |c| promise(c.class))) } }
                @for (at, c) in own.iter().enumerate() {
                    @let y = top + HEAD + ROW * at as f64;
                    g class=(look(&c.contender).family) {
                        text.name x=(NAME - 6.0) y=(y + 12.0) text-anchor="end" { (c.contender) }
                        rect.bar x=(NAME) y=(y + 2.0) width=(format!("{:.1}", x(c.ops) - NAME)) height="13" {}
                        @if c.most > c.least {
                            path.range d=(format!("M{:.1} {}H{:.1}", x(c.least), y + 8.5, x(c.most))) {}
                        }
                        text.value x=(WIDTH - 2.0) y=(y + 12.0) text-anchor="end" { (short(c.ops)) "/s" }
                    }
                }
            }
        }
    }
}

/// Bytes written to the device (the full bar) and read from it (the pale one below), on a scale that reaches to
/// `most`.
pub(super) fn bytes(cells: &[&Cell], most: f64, by_class: bool) -> Markup {
    let row = ROW + 4.0;
    let (groups, height) = layout(cells, row, by_class);
    let length = |bytes: f64| format!("{:.1}", (WIDTH - NAME - END - 14.0) * bytes / most.max(1.0));
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" {
            @for (top, own) in groups {
                @if by_class { text.head x="2" y=(top + 15.0) { (own.first().map_or("", |c| promise(c.class))) } }
                @for (at, c) in own.iter().enumerate() {
                    @let y = top + HEAD + row * at as f64;
                    g class=(look(&c.contender).family) {
                        text.name x=(NAME - 6.0) y=(y + 14.0) text-anchor="end" { (c.contender) }
                        rect.bar x=(NAME) y=(y + 2.0) width=(length(c.written)) height="8" {}
                        rect.pale x=(NAME) y=(y + 12.0) width=(length(c.read)) height="6" {}
                        text.value x=(WIDTH - 2.0) y=(y + 14.0) text-anchor="end" {
                            (short(c.written)) " / " (short(c.read))
                        }
                    }
                }
            }
        }
    }
}
