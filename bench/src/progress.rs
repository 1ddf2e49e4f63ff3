//! What is shown while it runs: a bar on a terminal, plain lines elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use narufs_cli::output;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// What a bar would show.
#[derive(Debug, Clone, Copy)]
pub enum Shown<'a> {
    /// See [`Progress::doing`].
    Doing(&'a str, &'a str),
    /// See [`Progress::running`].
    Running(Duration, Option<Duration>),
}

/// Where progress is shown: standard error.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// Who is told instead: another process that has the terminal.
    told: Option<fn(Shown)>,
    quiet: bool,
}

impl Progress {
    /// A bar if standard error is a terminal.
    pub fn new() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{prefix:<28} {bar:24} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress { bar, told: None, quiet: false }
    }

    /// Nothing is shown.
    pub fn none() -> Progress {
        Progress { bar: None, told: None, quiet: true }
    }

    /// Nothing is shown here; `tell` gets what a bar would show.
    pub fn told(tell: fn(Shown)) -> Progress {
        Progress { bar: None, told: Some(tell), quiet: true }
    }

    /// Whether there is a bar.
    pub fn is_watched(&self) -> bool {
        self.bar.is_some()
    }

    /// What is being done, before or after the time.
    pub fn doing(&self, title: &str, what: &str) {
        if let Some(tell) = self.told {
            tell(Shown::Doing(title, what));
        }
        if let Some(bar) = &self.bar {
            bar.set_prefix(title.to_owned());
            bar.set_position(0);
            bar.set_message(what.to_owned());
        }
    }

    /// How far the time has gone. Without a limit there is only the time that has passed.
    pub fn running(&self, passed: Duration, limit: Option<Duration>) {
        if let Some(tell) = self.told {
            tell(Shown::Running(passed, limit));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(limit.map_or(1, |l| l.as_millis() as u64));
            bar.set_position(limit.map_or(0, |l| passed.min(l).as_millis() as u64));
            bar.set_message(format!("{:.1} s", passed.as_secs_f64()));
        }
    }

    /// A line that stays, on standard error.
    pub fn line(&self, words: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.suspend(|| eprintln!("{words}")),
            // Where nobody listens there is nobody to tell.
            None => drop(writeln!(std::io::stderr(), "{words}")),
        }
    }

    /// A line of results, on standard output.
    pub fn result(&self, words: &str) {
        let say = || output::line(format_args!("{words}"));
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    /// Nothing is left of a bar.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}
