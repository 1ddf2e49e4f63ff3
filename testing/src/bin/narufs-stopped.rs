//! A process with a thread that stands between the reservation of its slots and their filling, until it is killed:
//! `narufs-stopped IMAGE RING BUG`. Says `stopped` when all is done that can be done then, and `synced` if an
//! fsync returns that must not; with BUG `commit-before-seal` it does.

use narufs_testing::lab::Ring;
use narufs_testing::lib_target::LibTarget;
use narufs_testing::op::{Durable, Op};
use narufs_testing::served::{Memory, assemble};
use narufs_testing::target::Target;
use std::io::Write;
use std::sync::mpsc::channel;

fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().expect("somebody listens");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, image, ring, bug] = &args[..] else { panic!("IMAGE RING BUG") };
    let ring = Ring::ALL.into_iter().find(|r| format!("{r:?}") == *ring).expect("a kind of ring");
    let breaks = bug == "commit-before-seal";
    let (_mounted, running) = assemble(image.as_ref(), ring, Memory::default()).expect("the image");
    let fs = running.fs();
    let apply = |op: Op| drop(LibTarget::new(fs).apply(&op).expect("there is room"));
    let create = |path: &str| Op::Create { path: path.into(), exclusive: true };
    let write = |path: &str, durable| Op::Write { path: path.into(), offset: 0, len: 5000, fill: 7, durable };

    apply(Op::Mkdir { path: "/a".into() });
    apply(Op::Mkdir { path: "/b".into() });
    apply(create("/b/before"));
    apply(write("/b/before", Durable::Fsync));
    apply(create("/b/returned"));
    let (stopped, stands) = channel();
    let (sleeps, asleep) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            narufs_engine::journal::stop_next_record(move |_| {
                stopped.send(()).expect("the test waits");
                loop {
                    std::thread::park();
                }
            });
            apply(create("/a/hole"));
        });
        stands.recv().expect("the thread comes there");
        apply(create("/b/after"));
        scope.spawn(|| {
            #[cfg(feature = "planted-bugs")]
            narufs_engine::planted::plant(breaks.then_some(narufs_engine::planted::Bug::CommitBeforeSeal));
            #[cfg(not(feature = "planted-bugs"))]
            assert!(!breaks, "built without planted bugs");
            narufs_engine::blocking::set_hook(Some(Box::new(move || {
                let _ = sleeps.send(());
            })));
            apply(write("/b/after", Durable::Fsync));
            say("synced");
        });
        // The fsync that does not sleep ends, and with it its end of the channel.
        if asleep.recv().is_ok() {
            say("stopped");
        }
    });
}
