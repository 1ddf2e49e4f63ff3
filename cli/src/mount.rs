//! `narufs mount`: serves an image at a directory, in the background unless asked otherwise.
//!
//! The background server is this program again, started with a pipe on which it says whether it is ready: the
//! command returns when the mount works, or with the server's own words when it does not.

use crate::args::Mount;
use crate::broker::{self, mounter};
use crate::failure::{Failure, Status};
use crate::holder;
use crate::options::{Durability, OptionList};
use crate::readiness::Readiness;
use crate::supervisor::store::{self, Stored};
use crate::{log, server, supervised, supervisor};
use narufs_fuse::mount::process::keep_descriptors;
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the background server says when it is ready; anything else is why it is not.
const READY: &str = "ready\n";

/// Mounts; with `--foreground` returns after the unmount.
pub fn run(args: &Mount) -> Result<(), Failure> {
    if args.check_takeover {
        return supervised::check(options(args));
    }
    if let Some(program) = &args.examine {
        return supervisor::candidate::become_it(program, &arguments(args, &args.places));
    }
    let options = options(args).map_err(|e| Failure::new(Status::MountUsage, e))?;
    if let Some(namespace) = &args.namespace {
        let why = format!(
            "-N: a server belongs where its mount is: nsenter --mount={} narufs mount ...",
            namespace.display()
        );
        return Err(Failure::new(Status::MountUsage, why));
    }
    if args.is_dry_run() {
        return Ok(());
    }
    if options.durability == Durability::Process && options.sync {
        tracing::warn!("durability=process: synchronous writes survive the server's end, not the machine's");
    }
    if args.supervise_apart {
        return supervisor::adopted::start_apart(&arguments(args, &args.places));
    }
    if args.supervised || args.supervise_on || args.broker {
        // Else it is known by the number that its program was opened under.
        let _ = rustix::thread::set_name(c"narufs");
    }
    if args.mounter {
        return mounter::run(args, &options);
    }
    if args.broker {
        return broker::process::run(args, &options, arguments(args, &args.places));
    }
    if args.supervised {
        return server::serve_supervised(args, &options, arguments(args, &args.places));
    }
    if args.supervise_on {
        return supervisor::go_on(args.dir(), arguments(args, &args.places));
    }
    // A service is what stays in the foreground. Its mount, if it is there, answers nobody yet: it is not looked at.
    let stored = if args.foreground { store::handed_over(args.dir()) } else { None };
    if stored.is_none() {
        check_place(args.dir()).map_err(|why| Failure::about(Status::MountFailed, args.dir(), why))?;
        if !args.announce {
            wait_for_media(args, &options)?;
        }
    }
    if args.announce {
        serve_announced(args, &options)
    } else if args.foreground {
        // A supervisor tells the service manager itself, and what it is to keep.
        let is_told = options.is_supervised() || stored.is_some();
        let manager = (!is_told).then(Readiness::own);
        let say = |warnings: &[String]| {
            warnings.iter().for_each(|w| eprintln!("narufs mount: {w}"));
            manager.into_iter().for_each(Readiness::tell);
        };
        serve(args, &options, stored, say)
    } else {
        start_background(args)
    }
}

/// Says what is wrong with a place to mount at. What is dead there is taken away.
fn check_place(dir: &Path) -> Result<(), String> {
    match dir.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        _ if narufs_fuse::mount::is_dead(dir) => Ok(()),
        Ok(_) => Err("not a directory, which it takes to mount at".into()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err(format!("no such directory: make it first (mkdir {})", dir.display()))
        }
        Err(e) => Err(e.to_string()),
    }
}

/// Waits for the server of an earlier mount that has not ended yet.
fn wait_for_media(args: &Mount, options: &OptionList) -> Result<(), Failure> {
    let image = args.image(options.scratch).map_err(|e| Failure::new(Status::MountUsage, e))?;
    match image.or(options.spill.as_deref()) {
        // A file is made in it.
        Some(directory) if directory.is_dir() => Ok(()),
        Some(image) => holder::wait_for(image),
        None => Ok(()),
    }
}

/// What was asked for by `-o` and by name.
fn options(args: &Mount) -> Result<OptionList, String> {
    let mut options = OptionList::parse(&args.options)?;
    // One unit mounts for services of both kinds.
    options.scratch |= args.scratch || (args.mounter && mounter::is_none(&args.places));
    options.memory = args.memory.map(|size| size.0).or(options.memory);
    options.spill = args.spill.clone().or(options.spill);
    options.spill_size = args.spill_size.map(|size| size.0).or(options.spill_size);
    options.force |= args.force;
    options.check()?;
    args.image(options.scratch)?;
    Ok(options)
}

/// Serves, by another process if the mount is to survive it.
fn serve(
    args: &Mount,
    options: &OptionList,
    stored: Option<Stored>,
    ready: impl FnOnce(&[String]),
) -> Result<(), Failure> {
    let failed = |e| Failure::about(Status::MountFailed, args.dir(), e);
    // Servers are started elsewhere, and the last of them when this place may not be looked at.
    let dir = narufs_fuse::mount::place(args.dir()).map_err(failed)?;
    let mut places = Vec::new();
    for place in &args.places {
        places.push(std::path::absolute(place).map_err(failed)?);
    }
    if let Some(last) = places.last_mut() {
        last.clone_from(&dir);
    }
    if options.scratch {
        // A word in the place of an image is no path.
        places.drain(..places.len().saturating_sub(1));
    }
    if !options.is_supervised() && stored.is_none() {
        return server::serve(args, options, &arguments(args, &places), ready);
    }
    supervisor::run(&dir, arguments(args, &places), stored, ready)
}

/// The command line of another process that is to serve what this one was asked to, at these places.
fn arguments(args: &Mount, places: &[PathBuf]) -> Vec<OsString> {
    let mut line: Vec<OsString> = places.iter().map(OsString::from).collect();
    for list in &args.options {
        line.extend(["-o".into(), list.into()]);
    }
    let words = [(args.scratch, "--scratch"), (args.force, "--force")];
    line.extend(words.iter().filter(|(given, _)| *given).map(|(_, word)| OsString::from(word)));
    for (name, size) in [("--memory", args.memory), ("--spill-size", args.spill_size)] {
        line.extend(size.into_iter().flat_map(|size| [name.into(), size.0.to_string().into()]));
    }
    line.extend(args.spill.iter().flat_map(|path| ["--spill".into(), path.into()]));
    line
}

fn start_background(args: &Mount) -> Result<(), Failure> {
    let failed = |what: &str, e: std::io::Error| Failure::new(Status::MountFailed, format!("{what}: {e}"));
    let program = std::env::current_exe().map_err(|e| failed("this program's path", e))?;
    let mut command = Command::new(program);
    command.arg0("narufs").arg("mount").arg("--announce").args(arguments(args, &args.places));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    // The journal outlives this command; a terminal or a pipe is to be let go of.
    command.stderr(if log::is_journal() { Stdio::inherit() } else { Stdio::null() });
    // This command is the service, if one, and ends.
    command.env_remove("NOTIFY_SOCKET");
    // What a shell has open, a lock for instance, is not the mount's to keep.
    if let Err(e) = keep_descriptors() {
        tracing::debug!("descriptors are left to the server: {e}");
    }
    let mut child = command.spawn().map_err(|e| failed("start the server", e))?;
    let mut words = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut words).map_err(|e| failed("the server's answer", e))?;
    }
    if let Some(warnings) = words.strip_prefix(READY) {
        warnings.lines().filter(|l| !l.is_empty()).for_each(|line| eprintln!("narufs mount: {line}"));
        if let Err(e) = open_once(args.dir()) {
            tracing::debug!("no file was opened: {e}");
        }
        return Ok(());
    }
    let code = child.wait().ok().and_then(|s| s.code());
    let status = if code == Some(1) { Status::MountUsage } else { Status::MountFailed };
    let why = words.trim_end();
    Err(Failure::new(status, if why.is_empty() { "the server ended without a word" } else { why }))
}

/// Opens a file of the mount, one without a name. The kernel learns by that, and by nothing else, whether opens and
/// closes are to be told; until then it tells of the close of each file that is made. Not where this process serves the
/// mount: killed in that call, it would keep itself from ending.
fn open_once(dir: &Path) -> rustix::io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    let made = open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR)?;
    // It is open already, but not by OPEN.
    open(holder::path_of(&made), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
}

/// The background server's side.
fn serve_announced(args: &Mount, options: &OptionList) -> Result<(), Failure> {
    // A session of its own, so that the end of a terminal does not end the mount; a leader of one has it.
    let _ = rustix::process::setsid();
    let served = serve(args, options, None, |warnings| {
        announce(&format!("{READY}{}", warnings.iter().map(|w| format!("{w}\n")).collect::<String>()));
    });
    if let Err(e) = &served {
        announce(&format!("{e}\n"));
    }
    served
}

/// Says it to whoever started the server, and lets the pipe go: its end is what they wait for.
fn announce(words: &str) {
    // They may be gone; the mount works all the same.
    let _ = std::io::stdout().write_all(words.as_bytes()).and_then(|()| std::io::stdout().flush());
    match std::fs::File::options().write(true).open("/dev/null") {
        Ok(null) => drop(rustix::stdio::dup2_stdout(&null)),
        Err(e) => tracing::warn!("/dev/null: {e}"),
    }
    let _ = std::env::set_current_dir("/");
}
