//! What the benchmark counts of a mount that has had more than one server.

use crate::support::Mounted;
use narufs_bench::meter::cpu_of;
use narufs_bench::target::{Directory, Target};
use rustix::process::Signal;

/// Processor seconds that are charged to the mount.
fn charged(target: &Directory) -> f64 {
    target.counters().expect("a server answers").server_cpu_s
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn the_processor_time_of_each_server_is_counted() {
    let mounted = Mounted::new("noatime");
    let target = Directory::new(&mounted.place.point(), None).expect("it is mounted");
    let time = || cpu_of(mounted.server().as_raw_nonzero().get() as u32).expect("it lives");
    // Some ticks of the kernel's clock, so that the supervisor's own time does not stand for them.
    let works = |seconds: f64| {
        let upto = time() + seconds;
        while time() < upto {
            std::fs::write(mounted.at("file"), vec![1; 1 << 20]).expect("room");
            std::fs::remove_file(mounted.at("file")).expect("it is there");
        }
        time()
    };
    let first = works(0.1);
    assert!(charged(&target) >= first);
    mounted.follow(Signal::KILL);
    assert!(charged(&target) >= first, "the one that was killed counts");
    let second = works(0.1);
    let both = charged(&target);
    // Less than a tick is the sum's own error.
    assert!(both + 0.001 >= first + second, "{both} of {first} and {second}");
    mounted.unmount();
}
