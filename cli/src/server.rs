//! The process behind a mount: opens the image, serves it, and writes everything down at the end.
//!
//! Where the mount outlives it, it is a supervisor's (`supervisor`): the first one mounts, each other
//! goes on where the one before was ended.

mod opened;
mod settings;

pub use opened::source;
pub use settings::{
    assemble_options, emulation_costs, fit_heap, image_options, kernel_options, scratch_options,
};

use crate::args::Mount;
use crate::broker::Broker;
use crate::broker::mounter::Mounter;
use crate::failure::{Failure, Status};
use crate::metrics::serving::{METRICS, Serving};
use crate::options::OptionList;
use crate::pause;
use crate::supervised::{Heard, IMAGE, Link, Start, not_supervised};
use crate::supervisor::channel::{ToServer, ToSupervisor};
use narufs_engine::takeover::{Takeover, now};
use narufs_engine::vfs::Vfs;
use narufs_fuse::binding::{EngineOperations, Process};
use narufs_fuse::mount::IfBusy;
use narufs_fuse::server::Server;
use narufs_fuse::supervision::{Keeper, MEMORY, Supervision};
use opened::{Opened, failed, refused};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::Builder;

/// Serves until the unmount. `ready` is called once, when the mount works, with what the user should know. `arguments` are
/// what other processes of this mount are told.
pub fn serve(
    args: &Mount,
    options: &OptionList,
    arguments: &[OsString],
    ready: impl FnOnce(&[String]),
) -> Result<(), Failure> {
    let broker = start_broker(args, options, arguments)?;
    let mut metrics = Serving::wanted(options, None, false)?;
    act_through(&mut metrics, broker.as_ref());
    let opened = Opened::new(args, options, None, None, broker.as_ref())?;
    let begun = signals(&opened.about)
        .and_then(|signals| Ok((signals, opened.serve(args, options, Process::default())?)));
    let (mut signals, server) = match begun {
        Ok(begun) => begun,
        Err(failure) => return Err(opened.unused(failure)),
    };
    let handle = signals.handle();
    let entry = opened.enter(server.mount().point());
    let started = std::thread::scope(|scope| {
        let unmount = || unmount_each(&server, signals.forever().map(|_| ()));
        Builder::new().spawn_scoped(scope, unmount)?;
        ready(&opened.warnings);
        let _watched = metrics.as_ref().and_then(|metrics| metrics.start(scope, &server));
        server.wait();
        handle.close();
        Ok(())
    });
    metrics.into_iter().for_each(Serving::end);
    drop(entry);
    drop(server);
    match started {
        Ok(()) => opened.finish(),
        Err(e) => Err(opened.unused(failed(args.dir(), e))),
    }
}

/// What asks this process to end, from now on.
fn signals(about: &Path) -> Result<Signals, Failure> {
    Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|e| failed(about, e))
}

/// The same for a supervisor: a mount that outlives this process, or the one of a server that is gone.
pub fn serve_supervised(args: &Mount, options: &OptionList, arguments: Vec<OsString>) -> Result<(), Failure> {
    let (link, start) = Link::open(arguments.clone()).map_err(not_supervised)?;
    let outcome = start_broker(args, options, &arguments)
        .and_then(|broker| serve_for(args, options, &link, start, broker.as_ref()));
    match outcome {
        // What could not be written down was said, and the mount has ended; the rest the supervisor says.
        Err(failure) if failure.status != Status::Failed && link.fail(&failure) => {
            Err(Failure::new(failure.status, ""))
        }
        outcome => outcome,
    }
}

/// Starts who acts for this process, if it is to give that up or may not do it.
fn start_broker(
    args: &Mount,
    options: &OptionList,
    arguments: &[OsString],
) -> Result<Option<Arc<Broker>>, Failure> {
    let is_needed = options.harden || Mounter::own().is_some();
    let started = is_needed.then(|| Broker::start(arguments)).transpose();
    started.map_err(|e| {
        let why = format!("no broker can be started: {e}; -o harden=no serves without one");
        Failure::about(Status::MountFailed, args.dir(), why)
    })
}

fn act_through(metrics: &mut Option<Serving>, broker: Option<&Arc<Broker>>) {
    if let (Some(metrics), Some(broker)) = (metrics, broker) {
        metrics.act_through(broker);
    }
}

fn serve_for(
    args: &Mount,
    options: &OptionList,
    link: &Link,
    mut start: Start,
    broker: Option<&Arc<Broker>>,
) -> Result<(), Failure> {
    let dir = args.dir();
    if let Some(broker) = broker {
        link.act_through(broker);
    }
    let memory = match start.memory.take() {
        Some(left) => Takeover::adopt(left),
        None => Takeover::create(assemble_options(options, false).data.frames),
    };
    let memory = memory.map_err(|e| refused(dir, &e))?;
    if let Some((_, died_at)) = start.death {
        memory.follows_end_at(died_at);
    }
    if start.left.is_none() {
        link.keep(MEMORY, memory.descriptor()).map_err(|e| failed(dir, e))?;
    }
    let mut metrics = Serving::wanted(options, start.metrics.take(), start.left.is_some())?;
    act_through(&mut metrics, broker);
    if let Some(metrics) = metrics.as_ref().filter(|metrics| metrics.is_new()) {
        link.keep(METRICS, metrics.descriptor()).map_err(|e| failed(dir, e))?;
    }
    let mut place = start.image.take().map(Arc::new);
    if place.is_none() && !options.scratch {
        // The next server finds it there, whatever its path leads to by then.
        let found = opened::find(&source(args, options)?)?;
        link.keep(IMAGE, found.as_fd()).map_err(|e| failed(dir, e))?;
        place = Some(found);
    }
    let mut opened = Opened::new(args, options, Some(&memory), place, broker)?;
    if start.left.is_none() {
        opened.warnings.extend(pause::warning());
    }
    let supervision = link.supervision(&start, Arc::clone(&memory));
    let follows = start.left.is_some();
    let process = Process {
        supervision: Some(Arc::clone(&supervision)),
        left: start.left.take(),
        ..Process::default()
    };
    let begun = signals(dir).and_then(|signals| Ok((signals, opened.serve(args, options, process)?)));
    let (mut signals, server) = match begun {
        Ok(begun) => begun,
        Err(failure) if follows => leave(link, &failure),
        Err(failure) => return Err(opened.unused(failure)),
    };
    let survives = server.is_supervised();
    if options.supervise == Some(true) && !survives && !follows {
        drop(server);
        let why = "supervise=yes: this kernel sends no request again that a server has left unanswered: take Linux 6.9 or \
                   later, or say supervise=no";
        return Err(opened.unused(Failure::about(Status::MountFailed, dir, why)));
    }
    let handle = signals.handle();
    let entry = opened.enter(server.mount().point());
    if let Some((_, died_at)) = start.death {
        memory.note_pause(now().saturating_sub(died_at));
    }
    let (ask, asked) = mpsc::channel();
    let (by_signal, end) = (ask.clone(), ask.clone());
    let (begin, begun) = mpsc::channel();
    let started = std::thread::scope(|scope| {
        let wish = move || {
            // The kernel hangs up a stopped process whose parent has ended: that is the supervisor's end, and no wish.
            let wishes = signals.forever().filter(|signal| *signal != SIGHUP);
            wishes.map(|_| by_signal.send(Some(By::Signal))).take_while(Result::is_ok).for_each(drop);
        };
        let (hears, fs) = (link.clone(), opened.running.fs().clone());
        let supervised = Arc::clone(&supervision);
        let hear = move || {
            // Before this server serves there is nothing to say to it.
            if begun.recv().is_ok() {
                obey(&hears, &supervised, &ask, &fs);
            }
        };
        // All that may fail, before anybody is told that it serves.
        let start = || {
            Builder::new().spawn_scoped(scope, wish)?;
            Builder::new().spawn_scoped(scope, || {
                unmount_each(&server, wishes(asked.into_iter().map_while(|ask| ask)))
            })?;
            // Not waited for: it ends with the supervisor, or with this process.
            Builder::new().spawn(hear)?;
            link.ready(survives, opened.warnings.clone())
        };
        let started = start().map_err(|e| failed(dir, e));
        match &started {
            Ok(supervisor) => {
                if survives {
                    supervision.is_supervised_by(*supervisor);
                }
                // It waits for that.
                let _ = begin.send(());
                let _watched = metrics.as_ref().and_then(|metrics| metrics.start(scope, &server));
                server.wait();
            }
            Err(failure) if follows => leave(link, failure),
            Err(_) => drop(begin),
        }
        handle.close();
        // Nobody asks any more, if anybody still hears it.
        let _ = end.send(None);
        started
    });
    metrics.into_iter().for_each(Serving::end);
    drop(entry);
    drop(server);
    if let Err(failure) = started {
        return Err(opened.unused(failure));
    }
    let outcome = opened.finish();
    link.say(&ToSupervisor::Ended);
    outcome
}

/// Ends this process, whose mount is not its own to end: as after a kill another one goes on with it, if somebody keeps it.
fn leave(link: &Link, failure: &Failure) -> ! {
    tracing::error!("{}", failure.message);
    link.fail(failure);
    std::process::exit(i32::from(failure.status.code()));
}

/// Does what the supervisor says.
fn obey(link: &Link, supervision: &Supervision, ask: &mpsc::Sender<Option<By>>, fs: &Vfs) {
    loop {
        match link.hear() {
            Heard::Said(ToServer::Unmount) => drop(ask.send(Some(By::Supervisor))),
            Heard::Said(ToServer::Stop) => {
                // The less is left to recover the shorter is the pause; nothing hangs on it.
                if let Err(e) = fs.syncfs() {
                    tracing::debug!("sync before another server: {e}");
                }
                if !link.is_over() {
                    std::process::exit(0);
                }
            }
            Heard::Said(_) => {}
            Heard::Unknown(e) => tracing::warn!("the supervisor says what nobody understands: {e}"),
            Heard::Replaced(supervisor) => supervision.is_supervised_by(supervisor),
            Heard::Alone(why) => {
                supervision.is_left_alone();
                tracing::warn!("the supervisor is gone: the mount ends with this server: {why}");
                return;
            }
        }
    }
}

/// Who passes on that the mount is to end.
#[derive(Debug, Clone, Copy)]
enum By {
    Signal,
    Supervisor,
}

/// What was wished for. One signal to all processes of a mount, as a service manager and a terminal send it, comes here twice,
/// and is one wish.
fn wishes(asked: impl Iterator<Item = By>) -> impl Iterator<Item = ()> {
    let (mut heard, mut most) = ([0; 2], 0);
    asked.filter_map(move |by| {
        let count: &mut usize = &mut heard[by as usize];
        *count += 1;
        (*count > most).then(|| most = *count)
    })
}

/// The first time the mount is detached, and its users may finish; the next time they are cut off.
fn unmount_each(server: &Server<EngineOperations>, asked: impl Iterator<Item = ()>) {
    for how in asked.zip([IfBusy::Detach, IfBusy::Abort]).map(|(_, how)| how) {
        if let Err(e) = server.unmount(how) {
            tracing::error!("unmount: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_the_server_and_its_supervisor_is_one_wish() {
        let count = |asked: &[By]| wishes(asked.iter().copied()).count();
        assert_eq!(count(&[By::Signal, By::Supervisor]), 1);
        assert_eq!(count(&[By::Supervisor, By::Signal, By::Signal, By::Supervisor]), 2);
        assert_eq!(count(&[By::Supervisor, By::Supervisor]), 2);
        assert_eq!(count(&[By::Signal, By::Signal, By::Signal]), 3);
        assert_eq!(count(&[]), 0);
    }
}
