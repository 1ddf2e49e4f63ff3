/* What is done when a program ends, and in one that began without standard descriptors. end.c IMAGE */
#include "check.h"
#include <pthread.h>
#include <sys/stat.h>

static struct narufs_dir *fs;
static struct narufs_file *file;
static pthread_key_t key;

/* Variables of the thread are gone by now. */
static void at_thread_end(void *value)
{
    CHECK(narufs_pwrite(file, value, 4, 4096) == 4);
    CHECK(narufs_fsync(file) == 0);
}

static void *thread(void *arg)
{
    CHECK(narufs_fsync(file) == 0);
    CHECK(pthread_setspecific(key, arg) == 0);
    return NULL;
}

static void at_end(void)
{
    CHECK(narufs_pwrite(file, "last", 4, 0) == 4);
    CHECK(narufs_fsync(file) == 0);
    CHECK(narufs_close(file) == 0);
    CHECK(narufs_unmount(fs) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    int error = dup(2);
    CHECK(error > 2 && close(0) == 0 && close(1) == 0 && close(2) == 0);
    struct narufs_format_options options = NARUFS_FORMAT_OPTIONS_INIT;
    options.bytes = 64 << 20;
    options.force = 1;
    CHECK(narufs_format(argv[1], &options) == 0);
    fs = narufs_mount(argv[1], NULL);
    CHECK(fs != NULL);
    struct stat st;
    for (int standard = 0; standard < 3; standard++)
        CHECK(fstat(standard, &st) == -1 || !S_ISREG(st.st_mode));
    CHECK(dup2(error, 2) == 2);
    file = narufs_open(fs, "/file", O_RDWR | O_CREAT, 0600);
    CHECK(file != NULL);
    CHECK(pthread_key_create(&key, at_thread_end) == 0);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, "word") == 0 && pthread_join(other, NULL) == 0);
    char word[4];
    CHECK(narufs_pread(file, word, 4, 4096) == 4 && memcmp(word, "word", 4) == 0);
    CHECK(narufs_fsync(file) == 0);
    CHECK(atexit(at_end) == 0);
    return 0;
}
