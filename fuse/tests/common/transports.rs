//! Tests that hold however the kernel's requests reach the server.

use narufs_fuse::mount::Transport;
use narufs_fuse::transport::uring::can_be_had;
use std::cell::Cell;

thread_local! {
    static TRANSPORT: Cell<Transport> = const { Cell::new(Transport::Device) };
}

/// What the test of this thread is about.
pub fn transport() -> Transport {
    TRANSPORT.get()
}

/// Runs a test for a way of requests, if the kernel has it. Root turns io_uring on by asking for it.
pub fn by(transport: Transport, test: fn()) {
    if transport == Transport::Uring && !can_be_had() {
        eprintln!(
            "skipped: this test needs FUSE over io_uring (Linux 6.14), and to be allowed to turn it on"
        );
        return;
    }
    TRANSPORT.set(transport);
    test();
}

/// Makes tests of functions, for each way.
macro_rules! on_each_transport {
    ($($test:ident,)*) => {
        mod by_dev {
            $(#[test] fn $test() {
                crate::transports::by(narufs_fuse::mount::Transport::Device, super::$test);
            })*
        }
        mod by_uring {
            $(#[test] fn $test() {
                crate::transports::by(narufs_fuse::mount::Transport::Uring, super::$test);
            })*
        }
    };
}
