//! `cargo +nightly fuzz run mount`: arbitrary images are mounted and read.
#![no_main]

libfuzzer_sys::fuzz_target!(|changes: &[u8]| narufs::fuzzing::mount_and_read(changes));
