//! The narufs command, also under the names that mount(8), mkfs(8) and fsck(8) look for.

mod args;
mod options;
mod size;

fn main() {}
