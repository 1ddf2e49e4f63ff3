//! Pages that stand on their own, in the style of the comparison's: what is asked, how it is answered, plots, tables,
//! what differs from the paper.

use super::plot::plot;
use super::text::goals;
use super::verdict;
use crate::reproduce::found::{Account, Results, Table};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use narufs_bench::compare::report::STYLE;

/// What plots have beyond that style.
const MORE: &str = "svg .hollow { fill: var(--panel); stroke: var(--c); stroke-width: 1.6; }
.met { color: var(--xfs); font-weight: 600; } .missed { color: var(--naru); font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)); gap: 1rem; }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; white-space: normal; }";

const QUICK: &str = "Small sizes and few rounds: these figures say that all of it works, and no more.";

fn whole(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(MORE)) }
            }
            body { h1 { (title) } (body) }
        }
    };
    page.into_string()
}

/// The page of one paper.
pub fn page(results: &Results, account: &Account) -> String {
    let body = html! {
        p.soft { (account.source) }
        @if results.quick { p { b { (QUICK) } } }
        h2 { "What is asked" }
        p { (account.question) }
        h2 { "What came out" }
        (verdicts(account))
        @if !account.figures.is_empty() {
            p.soft {
                "Whole lines: measured on this machine, medians of " (results.rounds)
                (if results.rounds == 1 { " round" } else { " rounds" }) " in turn, with their range. Dashes: the model. \
                 Squares: the paper. Axes are logarithmic. Baselines go without the name of their family."
            }
            div.plots { @for figure in &account.figures {
                figure { h3 { (figure.title) } p.panel { (figure.y) } (plot(figure)) }
            } }
        }
        h2 { "How" }
        ul { @for sentence in &account.method { li { (sentence) } } }
        h2 { "What differs from the paper, and why" }
        ul { @for sentence in &account.differs { li { (sentence) } } }
        @if !account.absent.is_empty() {
            h2 { "What did not run" }
            ul { @for absent in &account.absent { li { (absent.what) ": " (absent.reason) } } }
        }
        h2 { "Figures" }
        @for found in &account.tables { details { summary { (found.title) } (table(found)) } }
        (machine(results))
    };
    whole(account.title, &body)
}

/// The page that leads to the others.
pub fn index(results: &Results) -> String {
    let body = html! {
        p.soft { "Each paper's baseline and its technique in one engine, on the same device, in one run." }
        @if results.quick { p { b { (QUICK) } } }
        @for account in &results.papers {
            h2 { a href=(format!("{}.html", account.paper)) { (account.title) } }
            p.soft { (account.source) }
            (verdicts(account))
        }
        (machine(results))
    };
    whole("The papers' experiments", &body)
}

fn verdicts(account: &Account) -> Markup {
    let found = goals(account);
    html! {
        div.scroll { table {
            thead { tr { @for head in &found.head { th { (head) } } } }
            tbody { @for (row, goal) in found.rows.iter().zip(&account.goals) { tr {
                @for cell in &row[..row.len() - 1] { td { (cell) } }
                td class=(verdict(goal.met)) { (verdict(goal.met)) }
            } } }
        } }
    }
}

fn table(found: &Table) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { @for head in &found.head { th { (head) } } } }
            tbody { @for row in &found.rows { tr { @for cell in row { td { (cell) } } } } }
        } }
    }
}

fn machine(results: &Results) -> Markup {
    html! {
        h2 { "Machine" }
        div.scroll { table { tbody {
            @for (name, value) in &results.machine { tr { td.word { (name) } td.word.long { (value) } } }
        } } }
        p { "Again: " code { (results.command) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::found::{Absent, Figure, Goal, Kind, Point, Series, Wanted};

    fn results() -> Results {
        let line = |name: &str, kind, ys: &[f64]| Series {
            name: name.into(),
            kind,
            points: ys
                .iter()
                .zip(1..)
                .map(|(y, x)| Point { x: f64::from(x), y: *y, least: y * 0.9, most: *y })
                .collect(),
        };
        let account = Account {
            paper: "range-lock",
            title: "A lock",
            source: "Somebody, <somewhere>",
            question: "What?",
            method: vec!["So.".into()],
            differs: vec!["That.".into()],
            goals: vec![
                Goal::new("as much", Wanted::AtLeast(14.8), Some(60.0)).published(14.8),
                Goal::new("as little", Wanted::AtMost(0.0), Some(1.0)),
                Goal::new("unknown", Wanted::Within(0.9, 1.1), None),
            ],
            figures: vec![Figure {
                title: "DWOM".into(),
                x: "threads",
                y: "ops/s",
                series: vec![
                    line("ours", Kind::Measured, &[1e6, 2e6, 4e6]),
                    line("ours", Kind::Modelled, &[1e6, 2e6, 4e6]),
                    line("lock-inode", Kind::Published, &[1e6, 5e5]),
                    line("empty", Kind::Measured, &[]),
                ],
            }],
            tables: vec![Table {
                title: "DWOM".into(),
                head: vec!["a".into()],
                rows: vec![vec!["1".into()]],
            }],
            absent: vec![Absent { what: "lock-tree".into(), reason: "not built".into() }],
        };
        Results {
            machine: vec![("kernel".into(), "6.x".into())],
            command: "narufs reproduce --quick".into(),
            rounds: 1,
            quick: true,
            papers: vec![account],
        }
    }

    #[test]
    fn pages_stand_on_their_own() {
        let results = results();
        let page = page(&results, &results.papers[0]);
        for foreign in ["http:", "https:", "src=", "href=", "<script", "@import", "url("] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
        for part in [
            "prefers-color-scheme: dark",
            "width=device-width",
            "&lt;somewhere&gt;",
            "at least 14.8",
            ">met<",
            ">missed<",
            ">not measured<",
            "ours, model",
            "lock-inode, paper",
            "lock-tree: not built",
            "and no more",
            "narufs reproduce --quick",
        ] {
            assert!(page.contains(part), "the page lacks {part}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""), "a figure is none");
        assert!(index(&results).contains("href=\"range-lock.html\""));
    }

    #[test]
    fn results_are_data() {
        let json = serde_json::to_value(results()).expect("plain");
        let goal = &json["papers"][0]["goals"][0];
        assert_eq!((goal["wanted"]["at-least"].as_f64(), goal["met"].as_bool()), (Some(14.8), Some(true)));
        assert_eq!(json["papers"][0]["figures"][0]["series"][1]["kind"], "modelled");
    }
}
