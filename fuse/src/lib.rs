//! The mount of narufs: the FUSE protocol of the kernel, spoken directly.
//!
//! A request's way: [`transport`] receives it on the core that it came from and gives it to the [`session`], which
//! reads it by [`wire`], calls one of the [`operations`], and replies. [`mount`] makes and ends mounts; [`server`] puts
//! the parts together, and [`binding`] puts the engine under them; [`supervision`] is what one server of a mount leaves to
//! the next; [`control`] is for other processes that ask a mount about itself.

pub mod binding;
pub mod control;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod mount;
pub mod operations;
pub mod server;
pub mod session;
pub mod supervision;
mod sys;
pub mod transport;
pub mod types;
pub mod wire;

pub use binding::{Caching, EngineOperations, serve};
pub use operations::Operations;
pub use server::{Notifier, Server, ServerConfig};
