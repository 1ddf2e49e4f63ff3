//! The narufs command.
fn main() {}
