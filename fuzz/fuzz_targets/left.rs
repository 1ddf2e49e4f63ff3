//! `make fuzz`, or `cargo fuzz run --sanitizer none left` in `fuzz/`: a server takes over arbitrary memory that a killed one
//! has left.
#![no_main]

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    narufs_fuzz::mutate_memory(data, size, max_size, seed)
});
libfuzzer_sys::fuzz_target!(|input: &[u8]| narufs_engine::fuzzing::take_over(input));
