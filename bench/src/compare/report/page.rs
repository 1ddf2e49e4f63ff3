//! The page: one file, nothing from elsewhere, readable light and dark, wide and narrow. First who wins where, then
//! the curves, then figures to look up, then what ran and how.

use super::cells::{Cell, cells, threads, titles};
use super::summary::{Crowd, Outcome, UNLAPPED, Verdict, is_library, verdicts};
use super::{Results, absences, bars, curves, daily, look, ratios, spill, tables};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The page.
pub fn page(results: &Results) -> String {
    let cells = cells(results);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "File systems compared" }
                style { (PreEscaped(super::STYLE)) }
            }
            body {
                h1 { "File systems compared" }
                p.soft {
                    "One load generator, the same device, " (rounds(results.rounds)) "; medians. After each run "
                    "everything was synced, brought back from its media (narufs after a kill) and compared."
                }
                @if !cells.is_empty() || results.records.is_empty() { (who_wins(&cells)) }
                (daily::section(&results.records))
                (over_threads(&cells))
                (programs(&cells))
                (phases(&cells))
                (spill::section(results.spilled.as_ref()))
                @if !cells.is_empty() {
                    h2 { "Figures" }
                    p.soft {
                        "Of best: of the best that promises the same. Spread: the range of the rounds over their median."
                    }
                    (tables::all(&cells))
                }
                (about(results))
            }
        }
    };
    page.into_string()
}

fn rounds(count: u32) -> String {
    if count == 1 { "one round".into() } else { format!("{count} interleaved rounds") }
}

fn who_wins(cells: &[Cell]) -> Markup {
    let (most, fewest) = (verdicts(cells, Crowd::Most), verdicts(cells, Crowd::Fewest));
    let scale = ratios::scale(most.iter().chain(&fewest));
    let unlapped = cells.iter().any(|c| c.unlapped);
    html! {
        h2 { "Who wins where" }
        @if most.is_empty() {
            p { "No narufs ran with another file system of the same promise." }
        } @else {
            p.soft {
                "Each narufs against the best of the others that promise the same, with the most threads measured. "
                "A ratio across promises would say little: what survives a loss of power waits for the device."
            }
            ul.lede { @for v in &most {
                li class=(look::look(&v.contender).family) { b { (v.contender) } " (" (v.kind()) "): " (v.headline()) "." }
            } }
            div.charts { @for v in &most { (card(v, &most, scale)) } }
            p.soft {
                "Bars reach from 1.0 to the ratio, on one logarithmic scale: to the right narufs does more, to the left "
                "the other does, in the colour of who wins; grey is even, or within the spread of the rounds (thin line)."
                @if unlapped {
                    br;
                    (UNLAPPED) " went around the journal less than three times: does not yet show what checkpoints cost "
                    "in the long run."
                }
            }
            @if let Some(beside) = tables::nvm(cells) { (beside) }
            @if !fewest.is_empty() {
                details {
                    summary { "The same with " (threads(fewest.iter().map(Verdict::threads).min().unwrap_or(1))) }
                    div.charts { @for v in &fewest { (card(v, &fewest, scale)) } }
                }
            }
            details {
                summary { "All of it in words" }
                ul.words { @for v in most.iter().chain(&fewest) { li { (v.words()) } } }
            }
        }
    }
}

fn card(verdict: &Verdict, all: &[Verdict], scale: super::scale::Log) -> Markup {
    let count = |outcome| verdict.of(outcome).len();
    let has = |at: usize| verdict.matches.iter().any(|m| m.beside[at].is_some());
    html! {
        figure {
            h3 { (verdict.contender) }
            p.soft { (verdict.kind()) "; " (threads(verdict.threads())) }
            p {
                b { "ahead in " (count(Outcome::Ahead)) ", even in " (count(Outcome::Even)) ", behind in "
                    (count(Outcome::Behind)) " of " (verdict.matches.len()) }
            }
            (ratios::chart(verdict, scale))
            @if has(0) || has(1) {
                p.soft {
                    @if has(0) { svg.key viewBox="0 0 12 12" { circle.beside cx="6" cy="6" r="3.6" {} } " to ext4, journal on RAM " }
                    @if has(1) { svg.key viewBox="0 0 12 12" { path.beside d=(look::diamond(6.0, 6.0)) {} } " to ext4 wholly on RAM" }
                }
            }
            @if is_library(&verdict.contender) && all.iter().any(|v| !is_library(&v.contender)) {
                p.soft { "The others answer system calls; a library makes none." }
            }
        }
    }
}

fn over_threads(cells: &[Cell]) -> Markup {
    let titles = titles(cells, |c| c.workload != "iozone");
    html! {
        @if !titles.is_empty() {
            h2 { "Operations per second over threads" }
            p.soft {
                "Logarithmic, and the same axis in both panels of a workload. One hue for a family, a dash and a mark "
                "for each variant; names stand in the order of the last points, the best first."
            }
            div.charts.curves { @for title in titles {
                @let own: Vec<&Cell> = cells.iter().filter(|c| c.title == title).collect();
                figure { h3 { (title) } (curves::panels(&own)) }
            } }
        }
    }
}

fn programs(cells: &[Cell]) -> Markup {
    html! {
        @for title in titles(cells, |c| matches!(c.workload.as_str(), "varmail" | "tokubench")) {
            @let own: Vec<&Cell> = cells.iter().filter(|c| c.title == title).collect();
            h2 { (title) ", operations per second" }
            p.soft { "Each promise has a scale of its own: its best fills the width." }
            div.charts { @for here in own.chunk_by(|a, b| a.threads == b.threads) {
                figure { h3 { (threads(here.first().map_or(0, |c| c.threads))) } (bars::rates(here, true)) }
            } }
        }
    }
}

fn phases(cells: &[Cell]) -> Markup {
    let own: Vec<&Cell> = cells.iter().filter(|c| c.workload == "iozone").collect();
    let most = own.iter().map(|c| c.read.max(c.written)).fold(0.0, f64::max);
    html! {
        @if !own.is_empty() {
            h2 { "Bytes of the device by phase" }
            p.soft { "iozone. Full bars and first figures: written; pale bars and second figures: read. One scale for all." }
            div.charts { @for here in own.chunk_by(|a, b| a.title == b.title && a.threads == b.threads) {
                figure {
                    h3 { @if let Some(c) = here.first() { (c.title) @if c.threads > 1 { ", " (threads(c.threads)) } } }
                    (bars::bytes(here, most, true))
                }
            } }
        }
    }
}

fn about(results: &Results) -> Markup {
    let absent = absences(results);
    html! {
        h2 { "What ran" }
        div.scroll { table { tbody {
            @for (name, what) in &results.contenders { tr { td.word { (name) } td.word.long { (what) } } }
        } } }
        @if !absent.is_empty() {
            h2 { "What did not" }
            ul { @for said in &absent { li { (said) } } }
        }
        h2 { "Machine" }
        div.scroll { table { tbody {
            @for (name, value) in &results.machine { tr { td.word { (name) } td.word.long { (value) } } }
        } } }
        h2 { "Again" }
        p { "This comparison: " code { (results.command) } }
        p { "This page from its figures: " code { "narufs compare --from results.json --report DIR" } }
        p.soft {
            "Device bytes of kernel file systems are what the kernel counts for the device, those of narufs what its "
            "engine asked for. Processor time is without kernel threads. Emulated NVM is shared memory with every "
            "write-back and fence executed. A library makes no system calls."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn the_page_stands_on_its_own() {
        let page = page(&results());
        for foreign in ["http:", "https:", "src=", "href=", "<script", "@import", "url("] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
        for part in [
            "prefers-color-scheme: dark",
            "width=device-width",
            "<svg",
            "Who wins where",
            "even in 3,",
            "narufs compare --quick",
            "iozone rewrite",
            "f2fs: this kernel has no &lt;f2fs&gt;",
            "16 threads",
            "1 thread<",
        ] {
            assert!(page.contains(part), "the page lacks {part}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""), "a figure is none");
        assert!(!page.contains("1 threads"), "one is singular");
    }

    #[test]
    fn an_empty_comparison_is_a_page_too() {
        let page = page(&Results { records: Vec::new(), ..results() });
        assert!(page.contains("No narufs ran with another file system"));
    }

    #[test]
    fn unlapped_rows_are_marked_and_explained_once() {
        let mut results = results();
        results.records.iter_mut().filter(|r| r.target == "narufs-ssd").for_each(|r| r.unlapped = true);
        let page = page(&results);
        assert_eq!(page.matches("less than three times").count(), 1);
        assert!(page.matches('\u{2020}').count() > 5, "each row has the mark");
    }
}
