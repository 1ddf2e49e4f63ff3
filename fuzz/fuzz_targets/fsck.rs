//! `cargo +nightly fuzz run fsck`: arbitrary images are checked, repaired and checked again.
#![no_main]

libfuzzer_sys::fuzz_target!(|changes: &[u8]| narufs::fuzzing::check_and_repair(changes));
