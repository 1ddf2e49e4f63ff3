/* What the tests in C look at things with. */
#include <errno.h>
#include <fcntl.h>
#include <narufs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: errno %d, message \"%s\"\n", __FILE__, __LINE__, #what, errno,       \
                    narufs_error_message());                                                                 \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* A call that must fail with this errno, and words. */
#define FAILS(call, expected)                                                                                \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        CHECK((intptr_t)(call) == -1);                                                                       \
        CHECK(errno == (expected));                                                                          \
        CHECK(narufs_error_message()[0] != 0);                                                               \
    } while (0)

#define NO_HANDLE(call, expected)                                                                            \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        CHECK((call) == NULL);                                                                               \
        CHECK(errno == (expected));                                                                          \
    } while (0)

static inline struct narufs_dir *scratch(void)
{
    struct narufs_scratch_options options = NARUFS_SCRATCH_OPTIONS_INIT;
    options.memory = 64 << 20;
    struct narufs_dir *fs = narufs_scratch(&options);
    CHECK(fs != NULL);
    return fs;
}

static inline struct narufs_dir *image(const char *path, uint64_t bytes)
{
    struct narufs_format_options options = NARUFS_FORMAT_OPTIONS_INIT;
    options.bytes = bytes;
    options.force = 1;
    options.label = "test";
    CHECK(narufs_format(path, &options) == 0);
    struct narufs_dir *fs = narufs_mount(path, NULL);
    CHECK(fs != NULL);
    return fs;
}
