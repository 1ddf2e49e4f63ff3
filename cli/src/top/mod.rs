//! `narufs top`: mounts at work, live.
//!
//! [`rates`] makes what is shown of two readings of the counters, [`view`] lays it out. Each mount is asked by a thread of
//! its own: one whose server is being followed by another answers late, and keeps nobody from the others.
//!
//! Promised: a mount that goes away is said, and shown again when it is back; the program ends with an error when all of
//! them are gone. The terminal is as it was afterwards.

mod rates;
mod view;

use crate::args::Top;
use crate::failure::{Failure, Status};
use crate::output::say;
use crate::{metrics, output, snapshot};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rates::Rates;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use signal_hook::consts::SIGTERM;
use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Readings that curves go back for: the columns of the widest terminal.
const HISTORY: usize = 512;
/// A key is answered after so long at the latest.
const TICK: Duration = Duration::from_millis(200);
/// A mount is late when it is so much later than it should be.
const LATE: Duration = Duration::from_secs(3);

/// What is shown.
struct App {
    mounts: Vec<Watched>,
    /// The one that is looked at.
    at: usize,
    paused: bool,
    interval: Duration,
}

/// A mount as far as it is known.
struct Watched {
    dir: String,
    rates: Option<Rates>,
    /// Why it does not answer.
    gone: Option<String>,
    history: History,
    /// When it was heard of last.
    heard: Instant,
    interval: Duration,
}

/// What curves are drawn from.
#[derive(Default)]
struct History {
    operations: VecDeque<u64>,
    device: VecDeque<u64>,
    slowest: VecDeque<u64>,
}

impl Watched {
    fn new(dir: String, interval: Duration) -> Watched {
        let (rates, gone, history, heard) = (None, None, History::default(), Instant::now());
        Watched { dir, rates, gone, history, heard, interval }
    }

    fn take(&mut self, read: Result<Rates, String>) {
        self.heard = Instant::now();
        match read {
            Err(why) => self.gone = Some(why),
            Ok(rates) => {
                let device = rates.device_all.read_bytes + rates.device_all.written_bytes;
                let History { operations, device: moved, slowest } = &mut self.history;
                for (history, value) in
                    [(operations, rates.all.rate as u64), (moved, device as u64), (slowest, rates.all.p99)]
                {
                    if history.len() == HISTORY {
                        history.pop_front();
                    }
                    history.push_back(value);
                }
                (self.rates, self.gone) = (Some(rates), None);
            }
        }
    }

    /// Whether it should have answered by now.
    fn is_late(&self) -> bool {
        self.heard.elapsed() > self.interval + LATE
    }
}

/// Shows them.
pub fn run(args: &Top) -> Result<(), Failure> {
    let interval = args.interval.0;
    if args.once || args.json {
        return print(args, interval);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let why = "this is no terminal: say --once for one look, or --json";
        return Err(Failure::new(Status::Usage, why));
    }
    let app = App {
        mounts: args.dirs.iter().map(|dir| Watched::new(metrics::name_of(dir), interval)).collect(),
        at: 0,
        paused: false,
        interval,
    };
    let heard = ask_all(&args.dirs, interval);
    let end = Arc::new(AtomicBool::new(false));
    let failed = |e: io::Error| Failure::new(Status::Failed, format!("the terminal: {e}"));
    // Not the end of the terminal: of that there is nothing to put back.
    signal_hook::flag::register(SIGTERM, Arc::clone(&end)).map_err(failed)?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let outcome = app.go_on(&mut terminal, &heard, &end);
    ratatui::restore();
    match outcome.map_err(failed)? {
        None => Ok(()),
        Some(why) => Err(Failure::new(Status::Failed, why)),
    }
}

/// Asks each mount again and again; by its place in the list.
fn ask_all(dirs: &[PathBuf], interval: Duration) -> mpsc::Receiver<(usize, Result<Rates, String>)> {
    let (say, heard) = mpsc::channel();
    for (at, dir) in dirs.iter().cloned().enumerate() {
        let say = say.clone();
        // It ends with this process: a mount that never answers keeps it.
        std::thread::spawn(move || {
            let mut before: Option<(Value, Instant)> = None;
            loop {
                let read = match snapshot::of(&dir) {
                    Err(failure) => {
                        before = None;
                        Some(Err(failure.message))
                    }
                    Ok(now) => {
                        let when = Instant::now();
                        let rates = before.as_ref().map(|(before, then)| {
                            Ok(rates::between(before, &now, when.duration_since(*then)))
                        });
                        before = Some((now, when));
                        rates
                    }
                };
                if read.is_some_and(|read| say.send((at, read)).is_err()) {
                    return;
                }
                std::thread::sleep(interval);
            }
        });
    }
    heard
}

impl App {
    /// Until it is told to end, or why it ends by itself.
    fn go_on(
        mut self,
        terminal: &mut ratatui::DefaultTerminal,
        heard: &mpsc::Receiver<(usize, Result<Rates, String>)>,
        end: &AtomicBool,
    ) -> io::Result<Option<String>> {
        while !end.load(Ordering::Relaxed) {
            for (at, read) in heard.try_iter() {
                // A pause is one of what is shown: that a mount is gone is said all the same.
                if !self.paused || read.is_err() {
                    self.mounts[at].take(read);
                } else {
                    self.mounts[at].heard = Instant::now();
                }
            }
            if let [one, others @ ..] = self.mounts.as_slice()
                && let Some(why) = &one.gone
                && others.iter().all(|other| other.gone.is_some())
            {
                let more = if others.is_empty() { "" } else { "; none of the others answers either" };
                return Ok(Some(format!("{why}{more}")));
            }
            terminal.draw(|frame| view::draw(frame, &self))?;
            if !self.hear()? {
                break;
            }
        }
        Ok(None)
    }

    /// Waits for a key, for a tick. False: it is to end, or the terminal is gone, which crossterm would read from for
    /// ever.
    fn hear(&mut self) -> io::Result<bool> {
        let tick = Timespec::try_from(TICK.min(self.interval)).map_err(io::Error::other)?;
        let stdin = rustix::stdio::stdin();
        let mut events = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut events, Some(&tick)) {
            Ok(_) => {}
            // A window that changes its size, say.
            Err(Errno::INTR) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
        if events[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(false);
        }
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !self.press(key)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// False: it is to end.
    fn press(&mut self, key: KeyEvent) -> bool {
        let count = self.mounts.len();
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Right | KeyCode::Down | KeyCode::Tab => self.at = (self.at + 1) % count,
            KeyCode::Left | KeyCode::Up | KeyCode::BackTab => self.at = (self.at + count - 1) % count,
            _ => {}
        }
        true
    }
}

/// Without a terminal: one look after the other for as long as they are read, or one.
fn print(args: &Top, interval: Duration) -> Result<(), Failure> {
    let read = || args.dirs.iter().map(|dir| (Instant::now(), snapshot::of(dir))).collect::<Vec<_>>();
    let mut before = read();
    loop {
        std::thread::sleep(interval);
        let now = read();
        let mut failures = Vec::new();
        let mut mounts = Vec::new();
        for ((dir, (then, before)), (when, now)) in args.dirs.iter().zip(&before).zip(&now) {
            let mut mount = Watched::new(metrics::name_of(dir), interval);
            mount.take(match (before, now) {
                (Ok(before), Ok(now)) => Ok(rates::between(before, now, when.duration_since(*then))),
                (Err(failure), _) | (_, Err(failure)) => {
                    failures.push(failure.message.clone());
                    Err(failure.message.clone())
                }
            });
            mounts.push(mount);
        }
        let is_over = failures.len() == mounts.len();
        if args.json {
            let one = |mount: &Watched| json!({"mount": mount.dir, "gone": mount.gone, "rates": mount.rates});
            let all = json!({"mounts": mounts.iter().map(one).collect::<Vec<_>>()});
            if args.once { say!("{all:#}") } else { say!("{all}") }
        } else {
            let mut app = App { mounts, at: 0, paused: false, interval };
            for at in 0..app.mounts.len() {
                app.at = at;
                say!("{}", picture(&app).trim_end());
            }
        }
        if args.once || is_over || output::is_over() {
            return match failures.into_iter().next() {
                None => Ok(()),
                Some(why) => Err(Failure::new(Status::Failed, why)),
            };
        }
        before = now;
    }
}

/// The screen as text, without the line of keys.
fn picture(app: &App) -> String {
    let (width, height) =
        terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0, height.0));
    // Nothing is read from such a terminal, and it cannot fail.
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width.max(80), height.max(24)));
    let Ok(_) = terminal.draw(|frame| view::draw(frame, app));
    let buffer = terminal.backend().buffer();
    let line = |y: u16| {
        let cells: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        cells.trim_end().to_owned() + "\n"
    };
    (0..buffer.area.height - 1).map(line).collect()
}
