//! Proof of narufs: reference model, crash enumeration, stress and real programs.

pub mod dir_target;
pub mod file_lock;
pub mod lib_target;
pub mod model;
pub mod op;
pub mod oracle;
pub mod target;
