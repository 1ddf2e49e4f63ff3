//! `make fuzz`, or `cargo fuzz run --sanitizer none requests` in `fuzz/`: arbitrary requests of a mount are served.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| narufs_fuse::fuzzing::serve(input));
