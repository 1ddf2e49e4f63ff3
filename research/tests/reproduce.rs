//! That every experiment of `narufs reproduce` is alive: small sizes, one round, pages and data of what came out. Nothing
//! is asked of the figures.

use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_research::reproduce::found::{Account, Kind, Results};
use narufs_research::reproduce::{Options, report, reproduce};

fn run(work: &std::path::Path, papers: &[&str]) -> narufs_bench::Result<Results> {
    let options = Options {
        papers: papers.iter().map(|name| (*name).to_owned()).collect(),
        quick: true,
        rounds: Some(1),
        work: work.to_owned(),
        command: "narufs reproduce --quick".to_owned(),
    };
    reproduce(&options, &Stop::default(), Progress::none())
}

/// What this build lacks is told; what it has is measured and has not failed.
fn is_alive(account: &Account) {
    let paper = account.paper;
    let lacks =
        |absent: &&narufs_research::reproduce::found::Absent| absent.reason.contains("without baselines");
    let others: Vec<_> = account.absent.iter().filter(|absent| !lacks(absent)).collect();
    let expected = |what: &str| what == "the kernel's tmpfs with swap";
    assert!(others.iter().all(|absent| expected(&absent.what)), "{paper}: {others:?}");
    assert!(!account.figures.is_empty() && !account.goals.is_empty(), "{paper}");
    for figure in account.figures.iter().filter(|figure| !figure.title.ends_with(": gains")) {
        let ours = figure.series.iter().find(|line| line.name == "ours" && line.kind == Kind::Measured);
        let points = ours.map_or(0, |line| line.points.len());
        assert!(points > 0, "{paper}: {}: ours was not measured", figure.title);
    }
    let with_baselines =
        account.figures.iter().flat_map(|figure| &figure.series).any(|line| line.name != "ours");
    let missing = account.absent.iter().filter(lacks).count();
    assert!(with_baselines || missing > 0, "{paper}: a baseline is neither there nor missing");
}

#[test]
fn every_experiment_is_alive() {
    let work = tempfile::tempdir().expect("room for images");
    let results = run(work.path(), &[]).expect("it runs");
    let papers: Vec<&str> = results.papers.iter().map(|account| account.paper).collect();
    assert_eq!(papers, ["journaling", "checkpoint", "range-lock", "nat", "spill"]);
    results.papers.iter().for_each(is_alive);
    for account in &results.papers {
        let page = report::page(&results, account);
        assert!(page.contains("<svg") && !page.contains("NaN"), "{}", account.paper);
    }
    assert!(report::lines(&results).len() > 50 && report::index(&results).contains("spill.html"));
    let json = serde_json::to_value(&results).expect("data");
    assert_eq!(json["papers"].as_array().map(Vec::len), Some(5));
    let left = std::fs::read_dir(work.path()).expect("it is there").count();
    assert_eq!(left, 0, "images are left behind");
}

#[test]
fn what_cannot_be_is_said() {
    let work = tempfile::tempdir().expect("room");
    let said = |papers: &[&str]| run(work.path(), papers).expect_err("refused").to_string();
    assert!(said(&["range-locks"]).contains("there are journaling, checkpoint, range-lock, nat, spill"));
    let missing = work.path().join("missing");
    assert!(run(&missing, &["nat"]).expect_err("refused").to_string().contains("missing"));
}
