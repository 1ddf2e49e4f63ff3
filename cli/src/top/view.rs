//! What `narufs top` shows: laid out for 80 columns and 24 lines, and more of it where there is more room.

use super::rates::{Rates, Share};
use super::{App, Watched};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Sparkline};
use std::collections::VecDeque;

/// Lines below the tables: seven classes of locks, and their heading.
const BELOW: u16 = 8;
/// From here on a screen has room for higher curves.
const HIGH: u16 = 40;
/// Columns from which half of the screen has room for more than the necessary.
const WIDE: u16 = 60;
/// Columns of the locks.
const LOCKS: u16 = 31;
/// As `narufs mkfs --size` takes them.
const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
/// A part of a limit from which it is to be seen.
const MUCH: f64 = 0.9;

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let curves = if frame.area().height >= HIGH { 6 } else { 3 };
    let [head, curves, tables, below, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(curves),
        Constraint::Fill(1),
        Constraint::Length(BELOW),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let Some(mount) = app.mounts.get(app.at) else { return };
    frame.render_widget(Paragraph::new(heading(app, mount)), head);
    draw_foot(frame, app, foot);
    let Some(rates) = &mount.rates else {
        let why = mount.gone.as_deref().unwrap_or("waiting for its first answer");
        frame.render_widget(Paragraph::new(why).wrap(ratatui::widgets::Wrap { trim: true }), tables);
        return;
    };
    draw_curves(frame, mount, curves);
    let [left, right] = halves(tables);
    frame.render_widget(Paragraph::new(operations(rates, left)), left);
    frame.render_widget(Paragraph::new(device(rates, right)), right);
    let [left, right] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Length(if below.width < 2 * WIDE { LOCKS } else { (below.width - 2) / 2 }),
    ])
    .spacing(2)
    .areas(below);
    frame.render_widget(Paragraph::new(levels(rates)), left);
    frame.render_widget(Paragraph::new(locks(rates)), right);
}

/// Two columns, and room between them.
fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(area)
}

fn title(text: String) -> Line<'static> {
    Line::from(text).bold()
}

fn heading(app: &App, mount: &Watched) -> Text<'static> {
    let mut first = vec![Span::from(mount.dir.clone()).bold()];
    if app.mounts.len() > 1 {
        first.push(format!("  mount {} of {}", app.at + 1, app.mounts.len()).into());
    }
    let warning = Style::new().fg(Color::Red).bold();
    if let Some(why) = &mount.gone {
        first.push(Span::styled(format!("  gone: {why}"), warning));
    } else if mount.is_late() {
        first.push(Span::styled(format!("  no answer for {} s", mount.heard.elapsed().as_secs()), warning));
    }
    let Some(rates) = &mount.rates else { return Text::from(Line::from(first)) };
    if let Some(why) = &rates.read_only {
        first.push(Span::styled(format!("  read-only: {why}"), warning));
    }
    let by = if rates.transport == "uring" { "io_uring" } else { "/dev/fuse" };
    let restarts = match (rates.supervisor, rates.restarts) {
        (None, _) => "no supervisor".to_owned(),
        (_, 0) => "no restarts".to_owned(),
        (_, 1) => format!("1 restart, {:.1} s", rates.longest_pause),
        (_, restarts) => format!("{restarts} restarts, <= {:.1} s", rates.longest_pause),
    };
    let durability = rates.durability.as_deref().unwrap_or("none");
    let second = format!(
        "{} of {} full  fsync {durability}  pid {} {by}  {restarts}",
        percent(rates.room.part()),
        size(rates.room.of),
        rates.server
    );
    Text::from(vec![Line::from(first), second.into()])
}

fn draw_curves(frame: &mut Frame<'_>, mount: &Watched, area: Rect) {
    let Some(rates) = &mount.rates else { return };
    let lag = rates.all.p99;
    let curves = [
        (format!("operations {}/s", short(rates.all.rate)), &mount.history.operations, Color::Green),
        (
            format!("device {}/s", bytes(rates.device_all.read_bytes + rates.device_all.written_bytes)),
            &mount.history.device,
            Color::Blue,
        ),
        (format!("p99 {}", time(lag)), &mount.history.slowest, Color::Yellow),
    ];
    let places: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3]).spacing(2).areas(area);
    for ((name, history, color), place) in curves.into_iter().zip(places) {
        let [head, curve] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(place);
        frame.render_widget(Paragraph::new(title(name)), head);
        // The newest at the right edge.
        let last = newest(history, curve.width.into());
        let lacking = usize::from(curve.width).saturating_sub(last.len());
        let data = std::iter::repeat_n(0, lacking).chain(last);
        frame.render_widget(Sparkline::default().data(data.collect::<Vec<u64>>()).style(color), curve);
    }
}

fn newest(history: &VecDeque<u64>, most: usize) -> Vec<u64> {
    history.iter().skip(history.len().saturating_sub(most)).copied().collect()
}

fn operations(rates: &Rates, area: Rect) -> Text<'static> {
    let wide = area.width >= WIDE;
    let row = |name: &str, cells: [String; 5]| {
        let [rate, p50, p90, p99, max] = cells;
        match wide {
            true => format!("{name:<20.20} {rate:>8} {p50:>8} {p90:>8} {p99:>8} {max:>8}"),
            false => format!("{name:<14.14} {rate:>7} {p50:>7} {p99:>7}"),
        }
    };
    let mut lines = vec![title(row("operation", ["/s", "p50", "p90", "p99", "max"].map(str::to_owned)))];
    for operation in fitting(&rates.operations, area).chain([&rates.all]) {
        let times = [operation.p50, operation.p90, operation.p99, operation.max];
        let [p50, p90, p99, max] = times.map(time);
        lines.push(row(&operation.name, [short(operation.rate), p50, p90, p99, max]).into());
    }
    lines.into()
}

fn device(rates: &Rates, area: Rect) -> Text<'static> {
    let wide = area.width >= WIDE;
    let row = |name: &str, cells: [String; 4]| {
        let [reads, read, writes, written] = cells;
        match wide {
            true => format!("{name:<20.20} {reads:>8} {read:>9} {writes:>8} {written:>9}"),
            false => format!("{name:<17.17} {read:>9} {written:>9}"),
        }
    };
    let heads = ["reads/s", "read/s", "writes/s", "written/s"].map(str::to_owned);
    let mut lines = vec![title(row("device by cause", heads))];
    for cause in fitting(&rates.device, area).chain([&rates.device_all]) {
        let cells =
            [short(cause.reads), bytes(cause.read_bytes), short(cause.writes), bytes(cause.written_bytes)];
        lines.push(row(&cause.name, cells).into());
    }
    lines.into()
}

/// Those of a list that there is room for between a heading and a sum.
fn fitting<T>(list: &[T], area: Rect) -> impl Iterator<Item = &T> {
    list.iter().take(usize::from(area.height).saturating_sub(2))
}

fn levels(rates: &Rates) -> Text<'static> {
    let line = |name: &str, said: String, part: f64| {
        let line = Line::from(vec![Span::from(format!("{name:<8} ")).bold(), said.into()]);
        if part >= MUCH { line.fg(Color::Red) } else { line }
    };
    let of = |share: Share| match share.of {
        0 => size(share.used),
        of => format!("{} of {}", size(share.used), size(of)),
    };
    let mut lines = Vec::new();
    match &rates.journal {
        None => lines.extend([line("journal", "none".to_owned(), 0.0), Line::default()]),
        Some(journal) => {
            let commits = format!("{} commits/s for {:.1} each", short(journal.commits), journal.served);
            lines.push(line("journal", commits, 0.0));
            let lag = match journal.power_lag {
                lag if lag > 0.0 => format!(", lag {}", time((lag * 1e9) as u64)),
                _ => String::new(),
            };
            let ring = format!("{} full, {:.3} laps/s{lag}", percent(journal.fill), journal.laps);
            lines.push(line("ring", ring, journal.fill));
        }
    }
    let rounds = format!("{}/s, {} flushes/s", short(rates.rounds), short(rates.flushes));
    lines.push(line("rounds", rounds, 0.0));
    let cache = &rates.cache;
    let hits = cache.hits.map_or("nothing read".to_owned(), |hits| format!("{} hits", percent(hits)));
    lines.push(line("cache", format!("{}, {hits}", of(cache.frames)), 0.0));
    lines.push(line("dirty", of(cache.dirty), cache.dirty.part()));
    let held = format!("{} writes/s, {:.1} s/s", short(cache.throttled), cache.throttled_seconds);
    lines.push(line("held", held, if cache.throttled > 0.0 { 1.0 } else { 0.0 }));
    let metadata = format!("{}, {} dirty", of(rates.metadata), size(rates.metadata_dirty));
    lines.push(line("metadata", metadata, 0.0));
    lines.push(line("memory", of(rates.memory), rates.memory.part()));
    lines.into()
}

fn locks(rates: &Rates) -> Text<'static> {
    let row = |class: &str, waits: &str, waited: &str| format!("{class:<15} {waits:>7} {waited:>7}");
    let mut lines = vec![title(row("waits by lock", "waits/s", "s/s"))];
    for lock in &rates.locks {
        lines.push(row(&lock.class, &short(lock.waits), &format!("{:.3}", lock.seconds)).into());
    }
    lines.into()
}

fn draw_foot(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let mut keys = vec![" q".bold(), " quit ".into(), " p".bold()];
    keys.push(if app.paused { " go on ".into() } else { " pause ".into() });
    if app.mounts.len() > 1 {
        keys.extend([" ←→".bold(), " other mounts ".into()]);
    }
    if app.paused {
        keys.push(" paused".fg(Color::Yellow).bold());
    }
    for gone in app.mounts.iter().filter(|mount| mount.gone.is_some()) {
        keys.push(format!("  {} is gone", gone.dir).fg(Color::Red));
    }
    frame.render_widget(
        Paragraph::new(Line::from(keys)).style(Style::new().add_modifier(ratatui::style::Modifier::DIM)),
        area,
    );
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// A number in six columns at the most.
fn short(number: f64) -> String {
    match number {
        n if n >= 999_500.0 => format!("{:.1}M", n / 1e6),
        n if n >= 9_999.5 => format!("{:.1}k", n / 1e3),
        n if n >= 99.5 => format!("{n:.0}"),
        n if n > 0.0 => format!("{n:.1}"),
        _ => "0".to_owned(),
    }
}

/// Bytes in five columns at the most, by powers of 1024.
fn bytes(number: f64) -> String {
    let (mut number, mut unit) = (number.round(), 0);
    // What would be said as 1024 is said as 1 of the next.
    while number >= 1023.5 && unit < UNITS.len() - 1 {
        (number, unit) = (number / 1024.0, unit + 1);
    }
    match UNITS[unit] {
        "" => format!("{number:.0}"),
        name if number < 9.95 => format!("{number:.1}{name}"),
        name => format!("{number:.0}{name}"),
    }
}

fn size(number: u64) -> String {
    bytes(number as f64)
}

/// Nanoseconds in seven columns at the most; none are a dash.
fn time(ns: u64) -> String {
    match ns as f64 {
        0.0 => "-".to_owned(),
        ns if ns < 9_950.0 => format!("{:.1}µs", ns / 1e3),
        ns if ns < 999_500.0 => format!("{:.0}µs", ns / 1e3),
        ns if ns < 9_950_000.0 => format!("{:.1}ms", ns / 1e6),
        ns if ns < 999_500_000.0 => format!("{:.0}ms", ns / 1e6),
        ns => format!("{:.1}s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests;
