//! `make fuzz`, or `cargo fuzz run --sanitizer none mount` in `fuzz/`: arbitrary images are mounted, read and
//! written.
#![no_main]

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    narufs_fuzz::mutate(data, size, max_size, seed)
});
libfuzzer_sys::fuzz_target!(|input: &[u8]| narufs_engine::fuzzing::mount_and_use(input));
