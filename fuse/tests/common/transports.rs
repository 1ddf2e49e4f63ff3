//! Tests that hold however the kernel's requests reach the server.

use narufs_fuse::mount::Transport;
use narufs_fuse::transport::uring::can_be_had;
use std::cell::Cell;
use std::path::Path;

thread_local! {
    static TRANSPORT: Cell<Transport> = const { Cell::new(Transport::Device) };
}

/// What the test of this thread is about.
pub fn transport() -> Transport {
    TRANSPORT.get()
}

/// Says what is missing where nothing can be mounted: only who asks for ignored tests comes here.
pub fn require_mounts() {
    assert!(rustix::process::geteuid().is_root(), "missing: root, to mount");
    assert!(Path::new("/dev/fuse").exists(), "missing: /dev/fuse, to mount");
}

/// Runs a test for a way of requests. Root turns io_uring on by asking for it.
pub fn by(transport: Transport, test: fn()) {
    require_mounts();
    assert!(
        transport != Transport::Uring || can_be_had(),
        "missing: FUSE over io_uring (Linux 6.14), and leave to turn it on"
    );
    TRANSPORT.set(transport);
    test();
}

/// Makes tests of functions, for each way. They are ignored unless they are asked for, and what they need is there
/// then.
macro_rules! on_each_transport {
    ($($test:ident,)*) => {
        mod by_dev {
            $(#[test] #[ignore = "needs root and /dev/fuse"] fn $test() {
                crate::transports::by(narufs_fuse::mount::Transport::Device, super::$test);
            })*
        }
        mod by_uring {
            $(#[test] #[ignore = "needs root and FUSE over io_uring (Linux 6.14)"] fn $test() {
                crate::transports::by(narufs_fuse::mount::Transport::Uring, super::$test);
            })*
        }
    };
}
