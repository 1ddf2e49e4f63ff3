/* Forks amid 16 threads that write: the children can do nothing and do no harm, parent and image stay whole. fork.c IMAGE */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { WRITERS = 16, FORKS = 20, BLOCKS = 8 };

static struct narufs_dir *fs;
static atomic_int ended, begun;
static struct narufs_file *files[WRITERS];

static void *write_on(void *arg)
{
    int writer = *(int *)arg;
    unsigned char block[4096];
    for (unsigned round = 0; !atomic_load(&ended); round++) {
        memset(block, writer + 1, sizeof block);
        CHECK(narufs_pwrite(files[writer], block, sizeof block, 4096 * (round % BLOCKS)) == sizeof block);
        if (round % 64 == 0)
            CHECK(narufs_fsync(files[writer]) == 0);
        /* What is opened and closed: its slots and locks are in somebody's hands at any moment. */
        struct narufs_file *file = narufs_open(fs, "/other", O_RDWR | O_CREAT, 0600);
        CHECK(file && narufs_append(file, "x", 1, NULL) == 1 && narufs_close(file) == 0);
        if (round == 0)
            atomic_fetch_add(&begun, 1);
    }
    return NULL;
}

static void child(struct narufs_entries *entries, struct narufs_batch *batch)
{
    struct narufs_entry entry;
    struct narufs_stat stat;
    alarm(60);
    for (int n = 0; n < WRITERS; n++) {
        FAILS(narufs_pwrite(files[n], "child", 5, 0), ECHILD);
        FAILS(narufs_write(files[n], "child", 5), ECHILD);
        FAILS(narufs_fsync(files[n]), ECHILD);
        FAILS(narufs_close(files[n]), ECHILD);
        FAILS(narufs_close(files[n]), EBADF);
    }
    CHECK(narufs_error_message()[0] != 0);
    FAILS(narufs_unlink(fs, "/other"), ECHILD);
    CHECK(narufs_error_cause() == NARUFS_CAUSE_FORKED);
    FAILS(narufs_stat(fs, "/other", &stat), ECHILD);
    FAILS(narufs_entries_next(entries, &entry), ECHILD);
    FAILS(narufs_batch_pages(batch), ECHILD);
    FAILS(narufs_batch_commit(batch, NARUFS_COMMIT_DURABLE), ECHILD);
    NO_HANDLE(narufs_open(fs, "/new", O_RDWR | O_CREAT, 0600), ECHILD);
    struct narufs_scratch_options options = NARUFS_SCRATCH_OPTIONS_INIT;
    options.memory = 64 << 20;
    NO_HANDLE(narufs_scratch(&options), ECHILD);
    struct narufs_format_options format = NARUFS_FORMAT_OPTIONS_INIT;
    format.bytes = 64 << 20;
    FAILS(narufs_format("new.img", &format), ECHILD);
    FAILS(narufs_unmount(fs), ECHILD);
    FAILS(narufs_unmount(fs), EBADF);
    /* With all that the C library does at an exit. */
    exit(0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    fs = image(argv[1], 64 << 20);
    pthread_t threads[WRITERS];
    int numbers[WRITERS];
    char path[32];
    for (int n = 0; n < WRITERS; n++) {
        snprintf(path, sizeof path, "/%d", n);
        files[n] = narufs_open(fs, path, O_RDWR | O_CREAT, 0600);
        CHECK(files[n] != NULL);
    }
    struct narufs_entries *entries = narufs_read_dir(fs, "/");
    struct narufs_batch *batch = narufs_batch_begin(fs);
    CHECK(entries && batch && narufs_batch_write(batch, files[0], "\1", 1, 0) == 0);
    for (int n = 0; n < WRITERS; n++) {
        numbers[n] = n;
        CHECK(pthread_create(&threads[n], NULL, write_on, &numbers[n]) == 0);
    }
    while (atomic_load(&begun) < WRITERS)
        sched_yield();
    for (int n = 0; n < FORKS; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(entries, batch);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&ended, 1);
    for (int n = 0; n < WRITERS; n++) {
        CHECK(pthread_join(threads[n], NULL) == 0);
        CHECK(narufs_fsync(files[n]) == 0);
    }
    CHECK(narufs_batch_commit(batch, NARUFS_COMMIT_DURABLE) == 0);
    CHECK(narufs_entries_close(entries) == 0);
    for (int n = 0; n < WRITERS; n++)
        CHECK(narufs_close(files[n]) == 0);
    CHECK(narufs_unmount(fs) == 0);

    fs = narufs_mount(argv[1], NULL);
    CHECK(fs != NULL);
    struct narufs_recovery recovery;
    CHECK(narufs_recovery(fs, &recovery) == 0 && recovery.records == 0);
    for (int n = 0; n < WRITERS; n++) {
        unsigned char *content;
        snprintf(path, sizeof path, "/%d", n);
        int64_t len = narufs_read_file(fs, path, (void **)&content);
        CHECK(len > 0 && len <= 4096 * BLOCKS);
        for (int64_t at = 0; at < len; at++)
            CHECK(content[at] == n + 1);
        narufs_free(content);
    }
    CHECK(narufs_unmount(fs) == 0);
    return 0;
}
