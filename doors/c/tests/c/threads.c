/* Threads that write, read, list and commit, and close files under each other: threads.c IMAGE */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, ROUNDS = 300 };

static struct narufs_dir *fs;
/* A file that all use and each closes and opens anew. */
static _Atomic(struct narufs_file *) shared;
static atomic_int told;

static void tell(void *arg, int error)
{
    CHECK(error == 0);
    /* What was written before the call is seen by who is told; of an atomic, for the sanitiser does not see how. */
    CHECK(atomic_load_explicit((atomic_int *)arg, memory_order_acquire) == 42);
    free(arg);
    atomic_fetch_add(&told, 1);
}

static void *work(void *arg)
{
    int thread = *(int *)arg;
    char path[32], block[4096];
    memset(block, thread, sizeof block);
    snprintf(path, sizeof path, "/own-%d", thread);
    struct narufs_file *own = narufs_open(fs, path, O_RDWR | O_CREAT, 0600);
    CHECK(own != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(narufs_pwrite(own, block, sizeof block, 4096 * (round % 16)) == sizeof block);
        CHECK(narufs_pread(own, block, sizeof block, 4096 * (round % 16)) == sizeof block);
        CHECK(block[0] == thread && block[4095] == thread);

        struct narufs_file *file = atomic_load(&shared);
        ssize_t written = narufs_pwrite(file, block, sizeof block, 0);
        CHECK(written == sizeof block || (written == -1 && errno == EBADF));
        if (round % 8 == thread) {
            struct narufs_file *new = narufs_open(fs, "/shared", O_RDWR | O_CREAT, 0600);
            CHECK(new != NULL);
            file = atomic_exchange(&shared, new);
            CHECK(narufs_close(file) == 0);
            FAILS(narufs_close(file), EBADF);
        }
        if (round % 50 == 0) {
            atomic_int *arg = malloc(sizeof *arg);
            atomic_store_explicit(arg, 42, memory_order_release);
            CHECK(narufs_fsync_then(own, 1, tell, arg) == 0);
        }
        if (round % 60 == 1) {
            struct narufs_batch *batch = narufs_batch_begin(fs);
            CHECK(batch && narufs_batch_write(batch, own, block, sizeof block, 0) == 0);
            CHECK(narufs_batch_commit(batch, NARUFS_COMMIT_DURABLE) == 0);
        }
        FAILS(narufs_unlink(fs, "/none"), ENOENT);
        CHECK(strstr(narufs_error_message(), "/none") != NULL);
    }
    CHECK(narufs_close(own) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    fs = image(argv[1], 64 << 20);
    atomic_store(&shared, narufs_open(fs, "/shared", O_RDWR | O_CREAT, 0600));
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int n = 0; n < THREADS; n++) {
        numbers[n] = n;
        CHECK(pthread_create(&threads[n], NULL, work, &numbers[n]) == 0);
    }
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    CHECK(narufs_close(atomic_load(&shared)) == 0);
    /* Who has something in hand is told before the file system is closed. */
    CHECK(narufs_unmount(fs) == 0);
    CHECK(atomic_load(&told) == THREADS * (ROUNDS / 50));
    return 0;
}
