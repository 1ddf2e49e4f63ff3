//! What a successor does first: it finishes what its predecessor had read and not answered.
//!
//! The kernel puts those requests back before all others when it is asked to, each with a bit in its number. They are
//! served one after the other, so that, should one of them end this server too, it is known which.
//!
//! Invariant: when this returns, each request that a predecessor has noted has been answered, or is one that the kernel
//! does not wait for any more.

use super::Notifier;
use crate::session::is_replied_to;
use crate::transport::device::DevicePort;
use crate::transport::{Channel, Port, Reply, Service};
use crate::wire::notify::Notification;
use crate::wire::{InHeader, UNIQUE_RESEND};
use narufs_engine::planted::kill::{self, Kind, Serving, Step};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Serves what was in flight, up to the first request that nobody has read before, with it. The number of those in flight.
pub(super) fn drain(port: &Arc<DevicePort>, service: &dyn Service) -> io::Result<u64> {
    let channel: Arc<dyn Channel> = port.clone();
    kill::step(Step::Resending);
    if let Err(e) = (Notifier { channel: Arc::clone(&channel) }).send(&Notification::Resend) {
        // The mount is gone: the first look says so.
        tracing::debug!("nothing is sent again: {e}");
    }
    let mut slot = port.slot();
    let mut again = 0;
    while port.look(&mut slot)? == Some(true) {
        let (request, buffer) = port.open(&mut slot);
        let Some((request, header)) = request.and_then(|request| Some((request, request.header()?))) else {
            tracing::error!("a request is shorter than it says; it is dropped");
            continue;
        };
        let _serving = Serving::of(Kind::of(header.opcode));
        kill::step(Step::Redelivered);
        let reply = Reply::new(header.unique, Arc::clone(&channel), buffer).timed(&header);
        if catch_unwind(AssertUnwindSafe(|| service.serve(request, reply))).is_err() {
            tracing::error!(
                opcode = header.opcode,
                "an operation panicked and was answered with EIO: report it"
            );
        }
        kill::step(Step::Redone);
        again += u64::from(header.unique & UNIQUE_RESEND != 0);
        if is_first(&header) {
            break;
        }
    }
    Ok(again)
}

/// Whether nobody has read this one before. What has no reply comes between others.
fn is_first(header: &InHeader) -> bool {
    header.unique & UNIQUE_RESEND == 0 && is_replied_to(header)
}
