/* Overwrites 4 KiB blocks of a cached file, and prints nanoseconds a call: overwrite THREADS CALLS. Each thread has blocks of
 * its own in a file that all share. overwrite.rs is the same in Rust. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <narufs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 4096, BLOCKS = 64 };

static struct narufs_file *file;
static long calls;

static void *overwrite(void *first)
{
    static const char block[BLOCK];
    for (long n = 0; n < calls; n++)
        if (narufs_pwrite(file, block, BLOCK, (uint64_t)(size_t)first + n % BLOCKS * BLOCK) != BLOCK)
            abort();
    return NULL;
}

int main(int argc, char **argv)
{
    size_t threads = argc > 1 ? atoi(argv[1]) : 1;
    long total = argc > 2 ? atol(argv[2]) : 1000000;
    pthread_t running[64];
    struct narufs_scratch_options options = NARUFS_SCRATCH_OPTIONS_INIT;
    options.memory = 256 << 20;
    struct narufs_dir *fs = narufs_scratch(&options);
    file = narufs_open(fs, "/f", O_RDWR | O_CREAT, 0600);
    if (!fs || !file || threads > 64)
        return 1;
    /* By one thread: frames that threads take side by side share cache lines, by chance and for good. */
    calls = BLOCKS;
    for (size_t n = 0; n < threads; n++)
        overwrite((void *)(n * BLOCKS * BLOCK));
    calls = total / threads;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (size_t n = 0; n < threads; n++)
        if (pthread_create(&running[n], NULL, overwrite, (void *)(n * BLOCKS * BLOCK)))
            return 1;
    for (size_t n = 0; n < threads; n++)
        pthread_join(running[n], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
    printf("%.1f\n", ns / (calls * threads));
    return narufs_close(file) || narufs_unmount(fs);
}
