# What guest.sh runs on each kernel.
#
# A test of what a kernel lacks fails there, and says what is missing; those are left out by name below, with the version
# that has it. What such a kernel does instead is tried by others: basics.sh, options.sh, and the posix tests, which ask
# for a refusal where docs/POSIX.md says so.
check 120 doctor bash -c "$NARUFS doctor; (( \$? <= 1 ))"
cat /run/doctor.log
check 600 basics testing/machines/basics.sh
check 1200 options testing/machines/options.sh

without=()
lacking() { # VERSION TEST...: what takes that version
    linux "$1" || { shift; for test; do without+=(--skip "$test"); done; }
}
lacking 6.2 the_kernel_keeps_so_much_and_no_more
lacking 6.6 every_read_changes_a_strict_access_time direct_writers_of_one_file_leave_their_neighbours_alone \
    a_file_is_cut_and_grown_under_a_shared_mapping a_shared_mapping_and_reads_and_writes_see_each_other
lacking 6.14 uring
tests() { # SECONDS NAME [ARGS...]: a program of the workspace's tests, with what takes root
    check "$1" "$2" "target/debug/$2" --include-ignored --test-threads 2 "${without[@]}" "${@:3}"
}
tests 900 mount
tests 1500 engine
tests 900 mounts
tests 900 volume
tests 900 images
if linux 6.9; then tests 1800 outlive; fi
# Everything through /dev/fuse and, where the kernel has it, through io_uring, with two users.
for program in posix users cli strangers; do check 1800 "$program" "testing/programs/$program.sh"; done
