//! The kernel's FUSE protocol, version 7, as bytes and as types.
//!
//! [`opcode`], [`flags`], [`structs`] and [`replies`] say what the kernel's `fuse.h` says, up to minor version 45;
//! [`mod@parse`] turns a request into one [`parse::Op`]; [`extension`] reads what may follow a creating request; [`dirent`]
//! builds directory replies; [`notify`] builds the messages that the server starts.
//!
//! What it leaves to others: where the bytes come from (`transport`), what the features agreed on are
//! (`session`), what an operation does.
//!
//! Invariants: numbers are in the machine's own byte order, as the protocol wants; every access to bytes of
//! the kernel is checked; no input whatever makes a parse panic.

pub mod dirent;
pub mod extension;
pub mod flags;
pub mod notify;
pub mod opcode;
pub mod parse;
pub mod replies;
pub mod structs;

pub use flags::*;
pub use opcode::Opcode;
pub use parse::{Malformed, Op, RequestParts, parse};
pub use replies::*;
pub use structs::*;

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The newest minor version that this crate knows.
pub const MINOR: u32 = 45;
/// The oldest minor version that is served (Linux 5.4); Debian 12's kernel has 37.
pub const MINOR_LEAST: u32 = 31;
/// The node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// The bit that turns a request's id into the id of its INTERRUPT.
pub const UNIQUE_INTERRUPT: u64 = 1;
/// The bit in a request's id that says that the kernel sends it a second time.
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// The longest name that the kernel passes, in bytes.
pub const NAME_MAX: usize = 1024;
