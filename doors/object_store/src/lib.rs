//! The trait [`object_store::ObjectStore`] on narufs, in the process: no server, no mount, no system call for what memory
//! holds.
//!
//! [`NarufsStore`] keeps objects as files of an image. What is acknowledged is durable, and a put takes one flush of the
//! device, which puts that come at the same time share; nobody ever sees a part of an object, and after a crash, wherever it
//! comes, there is none. Puts can be conditional ([`PutMode`](object_store::PutMode)), copies and renames move no bytes, and
//! keys may be prefixes of others. docs/doors/OBJECTS.md has the rest.
//!
//! # Threads
//! Within a runtime of tokio calls run on its threads for what may block, small puts and gets on the thread that asks as long
//! as they have been a matter of memory; without a runtime all do. While an acknowledgement is waited for nobody has a thread.
//!
//! # Errors
//! Those of the trait. [`object_store::Error::Generic`] has the [`narufs::Error`] as its source.

mod attributes;
mod copy;
mod error;
mod list;
mod mount;
mod names;
mod read;
mod remove;
mod run;
mod store;
mod upload;
mod walk;
mod write;

pub use store::{NarufsStore, NarufsStoreBuilder};
