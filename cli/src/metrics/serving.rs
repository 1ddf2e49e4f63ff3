//! The part of a server that answers who asks for its metrics.

use super::address::Address;
use super::http;
use crate::broker::Broker;
use crate::failure::{Failure, Status};
use crate::options::OptionList;
use narufs_fuse::mount::process::drop_capabilities;
use narufs_fuse::{EngineOperations, Server};
use rustix::thread::CapabilitySet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, Scope};

/// The name under which the listening socket is kept for the next server.
pub const METRICS: &str = "metrics";

/// A place where metrics are served.
#[derive(Debug)]
pub struct Serving {
    address: Address,
    listener: OwnedFd,
    is_new: bool,
    /// The mount has ended.
    is_over: bool,
    /// Who removes the socket's name, if not this process.
    broker: Option<Arc<Broker>>,
}

impl Serving {
    /// What the options ask for, going on with what a server before this one has `left`. That it fails ends no mount that
    /// is there already.
    pub fn wanted(
        options: &OptionList,
        left: Option<OwnedFd>,
        is_mounted: bool,
    ) -> Result<Option<Serving>, Failure> {
        let Some(address) = &options.metrics else { return Ok(None) };
        let is_new = left.is_none();
        let listening = left
            .map_or_else(|| address.listen(), Ok)
            .and_then(|listener| http::shared(listener).map_err(|e| format!("metrics={address}: {e}")));
        match listening {
            Ok(listener) => {
                let address = address.clone();
                Ok(Some(Serving { address, listener, is_new, is_over: false, broker: None }))
            }
            Err(why) if is_mounted => {
                not_served(&why);
                Ok(None)
            }
            Err(why) => Err(Failure::new(Status::MountFailed, why)),
        }
    }

    /// Has this one remove the socket's name in the end.
    pub fn act_through(&mut self, broker: &Arc<Broker>) {
        self.broker = Some(Arc::clone(broker));
    }

    /// What the next server needs.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Whether no server before this one has left it.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Serves the counters of what `server` serves until what is returned is dropped.
    pub fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        server: &Server<EngineOperations>,
    ) -> Option<UnixStream> {
        let (counters, name) = (server.counters(), super::label(server.mount().point()));
        let started = UnixStream::pair().and_then(|(stop, stopped)| {
            let answer = move || {
                // What others send is read here.
                if let Err(e) = drop_capabilities(CapabilitySet::empty()) {
                    tracing::debug!("capabilities are kept: {e}");
                }
                http::serve(&self.listener, &stopped, || {
                    let counters = counters.read().map_err(|errno| format!("no counters: {errno:?}"))?;
                    super::text(&[(name.clone(), counters)])
                });
            };
            Builder::new().name("naru-metrics".to_owned()).spawn_scoped(scope, answer)?;
            Ok(stop)
        });
        started.inspect_err(not_served).ok()
    }

    /// The mount has ended.
    pub fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that another server has left stays for the next, as long as there is a mount; so does that of a server that
        // ends by a fault.
        if (self.is_new || self.is_over) && !std::thread::panicking() {
            match &self.broker {
                Some(broker) => broker.listens_no_more(),
                None => self.address.remove(),
            }
        }
    }
}

fn not_served(why: &impl std::fmt::Display) {
    tracing::error!("metrics are not served, mount anew for them: {why}");
}
