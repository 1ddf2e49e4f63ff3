//! The program that `narufs reproduce` becomes: it alone is built with the papers' baselines.

use narufs_bench::Error;
use narufs_bench::compare::spill;
use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_cli::args::{Command, Reproduce};
use narufs_cli::failure::{Failure, Status};
use narufs_cli::output::say;
use narufs_research::reproduce::found::Results;
use narufs_research::reproduce::{Options, report, reproduce};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match narufs_cli::start() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let outcome = match &cli.command {
        Command::Reproduce(args) => run(args),
        // The process within a memory limit, beside which this program measures.
        Command::SpillWorker => spill::serve(std::io::stdin(), std::io::stdout()).map_err(failure),
        _ => Err(Failure::new(Status::Usage, "this program runs the papers' experiments: say reproduce")),
    };
    narufs_cli::end(cli.command.name(), outcome)
}

fn failure(e: Error) -> Failure {
    let status = match &e {
        Error::Usage(_) => Status::Usage,
        Error::Interrupted => Status::Interrupted,
        _ => Status::Failed,
    };
    Failure::new(status, e.to_string())
}

fn run(args: &Reproduce) -> Result<(), Failure> {
    if let Some(dir) = &args.report {
        // Found out before the time, not after it.
        std::fs::create_dir_all(dir).map_err(|e| Failure::about(Status::Failed, dir, e))?;
    }
    let words = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let options = Options {
        papers: args.papers.clone(),
        quick: args.quick,
        rounds: args.rounds,
        work: args.work.clone(),
        command: format!("narufs {words}"),
    };
    let stop = Stop::on_signals().map_err(failure)?;
    let results = reproduce(&options, &stop, Progress::new()).map_err(failure)?;
    let invalid = |e: serde_json::Error| Failure::new(Status::Failed, e.to_string());
    let json = serde_json::to_string_pretty(&results).map_err(invalid)?;
    if let Some(dir) = &args.report {
        write(dir, &results, &json)?;
    }
    if args.json {
        say!("{json}");
    } else {
        report::lines(&results).iter().for_each(|line| say!("{line}"));
    }
    stop.check().map_err(failure)
}

fn write(dir: &Path, results: &Results, json: &str) -> Result<(), Failure> {
    let pages =
        results.papers.iter().map(|paper| (format!("{}.html", paper.paper), report::page(results, paper)));
    let others =
        [("index.html".to_owned(), report::index(results)), ("results.json".to_owned(), json.to_owned())];
    for (name, text) in pages.chain(others) {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::about(Status::Failed, &path, e))?;
    }
    Ok(())
}
