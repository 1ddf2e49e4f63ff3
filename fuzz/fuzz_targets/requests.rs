//! `make fuzz`, or `cargo fuzz run --sanitizer none requests` in `fuzz/`: arbitrary requests of a mount are served.
#![no_main]

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    narufs_fuzz::requests::mutate(data, size, max_size, seed)
});
libfuzzer_sys::fuzz_target!(|input: &[u8]| narufs_fuse::fuzzing::serve(input));
