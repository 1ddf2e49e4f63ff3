/* Wrong handles, pointers and numbers: errors, and no crash. hostile.c */
#define _GNU_SOURCE
#include "check.h"
#include <sys/file.h>
#include <sys/xattr.h>

static void never(void *arg, int error)
{
    (void)arg;
    (void)error;
    CHECK(!"told of what was never asked for");
}

/* Every function that takes a handle, with one that is not open. */
static void wrong(void *handle)
{
    struct narufs_dir *dir = handle;
    struct narufs_file *file = handle;
    struct narufs_entries *entries = handle;
    struct narufs_batch *batch = handle;
    struct narufs_space space;
    struct narufs_recovery recovery;
    struct narufs_stat stat;
    struct narufs_entry entry;
    struct narufs_lock lock;
    struct iovec part = { "x", 1 };
    uint64_t number;
    void *content;
    char text[8];
    FAILS(narufs_unmount(dir), EBADF);
    FAILS(narufs_dir_close(dir), EBADF);
    FAILS(narufs_dir_sync(dir), EBADF);
    NO_HANDLE(narufs_as_user(dir, 1, 1, NULL, 0), EBADF);
    FAILS(narufs_sync(dir), EBADF);
    FAILS(narufs_sync_power(dir), EBADF);
    FAILS(narufs_space(dir, &space), EBADF);
    FAILS(narufs_resize(dir, 0), EBADF);
    FAILS(narufs_trim(dir, 0), EBADF);
    FAILS(narufs_recovery(dir, &recovery), EBADF);
    FAILS(narufs_damage(dir, text, 8), EBADF);
    NO_HANDLE(narufs_open(dir, "f", O_RDONLY, 0), EBADF);
    NO_HANDLE(narufs_open_dir(dir, "f"), EBADF);
    NO_HANDLE(narufs_read_dir(dir, "f"), EBADF);
    NO_HANDLE(narufs_batch_begin(dir), EBADF);
    FAILS(narufs_stat(dir, "f", &stat), EBADF);
    FAILS(narufs_lstat(dir, "f", &stat), EBADF);
    FAILS(narufs_exists(dir, "f"), EBADF);
    FAILS(narufs_access(dir, "f", 0), EBADF);
    FAILS(narufs_chmod(dir, "f", 0), EBADF);
    FAILS(narufs_chown(dir, "f", 0, 0), EBADF);
    FAILS(narufs_lchown(dir, "f", 0, 0), EBADF);
    FAILS(narufs_utimens(dir, "f", NULL), EBADF);
    FAILS(narufs_lutimens(dir, "f", NULL), EBADF);
    FAILS(narufs_mkdir(dir, "f", 0), EBADF);
    FAILS(narufs_mkdir_all(dir, "f"), EBADF);
    FAILS(narufs_unlink(dir, "f"), EBADF);
    FAILS(narufs_rmdir(dir, "f"), EBADF);
    FAILS(narufs_remove_all(dir, "f"), EBADF);
    FAILS(narufs_rename(dir, "f", dir, "g", 0), EBADF);
    FAILS(narufs_link(dir, "f", dir, "g"), EBADF);
    FAILS(narufs_link_file(dir, file, "g"), EBADF);
    FAILS(narufs_symlink("f", dir, "g"), EBADF);
    FAILS(narufs_readlink(dir, "f", text, 8), EBADF);
    FAILS(narufs_copy(dir, "f", "g"), EBADF);
    FAILS(narufs_read_file(dir, "f", &content), EBADF);
    FAILS(narufs_write_file(dir, "f", "x", 1), EBADF);
    FAILS(narufs_getxattr(dir, "f", "user.a", text, 8), EBADF);
    FAILS(narufs_setxattr(dir, "f", "user.a", "x", 1, 0), EBADF);
    FAILS(narufs_removexattr(dir, "f", "user.a"), EBADF);
    FAILS(narufs_listxattr(dir, "f", text, 8), EBADF);
    FAILS(narufs_close(file), EBADF);
    FAILS(narufs_fsync(file), EBADF);
    FAILS(narufs_fdatasync(file), EBADF);
    FAILS(narufs_fsync_then(file, 0, never, NULL), EBADF);
    FAILS(narufs_fstat(file, &stat), EBADF);
    FAILS(narufs_ftruncate(file, 0), EBADF);
    FAILS(narufs_fchmod(file, 0), EBADF);
    FAILS(narufs_fchown(file, 0, 0), EBADF);
    FAILS(narufs_futimens(file, NULL), EBADF);
    FAILS(narufs_pread(file, text, 8, 0), EBADF);
    FAILS(narufs_pwrite(file, text, 8, 0), EBADF);
    FAILS(narufs_preadv(file, &part, 0, 0), EBADF);
    FAILS(narufs_pwritev(file, &part, 1, 0), EBADF);
    FAILS(narufs_read(file, text, 8), EBADF);
    FAILS(narufs_write(file, text, 8), EBADF);
    FAILS(narufs_readv(file, &part, 0), EBADF);
    FAILS(narufs_writev(file, &part, 1), EBADF);
    FAILS(narufs_lseek(file, 0, SEEK_SET), EBADF);
    FAILS(narufs_append(file, text, 8, &number), EBADF);
    FAILS(narufs_appendv(file, &part, 1, &number), EBADF);
    FAILS(narufs_fallocate(file, 0, 0, 1), EBADF);
    FAILS(narufs_copy_range(file, 0, file, 0, 1), EBADF);
    FAILS(narufs_flock(file, LOCK_EX), EBADF);
    FAILS(narufs_lock_range(file, 0, 0, 0, 0), EBADF);
    FAILS(narufs_try_lock_range(file, 0, 0, 0, 0), EBADF);
    FAILS(narufs_unlock_range(file, 0, 0, 0), EBADF);
    FAILS(narufs_test_lock_range(file, 0, 0, 0, 0, &lock), EBADF);
    FAILS(narufs_fgetxattr(file, "user.a", text, 8), EBADF);
    FAILS(narufs_fsetxattr(file, "user.a", "x", 1, 0), EBADF);
    FAILS(narufs_fremovexattr(file, "user.a"), EBADF);
    FAILS(narufs_flistxattr(file, text, 8), EBADF);
    FAILS(narufs_entries_next(entries, &entry), EBADF);
    FAILS(narufs_entries_stat(entries, &stat), EBADF);
    FAILS(narufs_entries_seek(entries, 0), EBADF);
    FAILS(narufs_entries_tell(entries, &number), EBADF);
    FAILS(narufs_entries_close(entries), EBADF);
    FAILS(narufs_batch_write(batch, file, "x", 1, 0), EBADF);
    FAILS(narufs_batch_pages(batch), EBADF);
    FAILS(narufs_batch_commit(batch, 0), EBADF);
    FAILS(narufs_batch_commit_then(batch, 0, never, NULL), EBADF);
    FAILS(narufs_batch_drop(batch), EBADF);
}

int main(void)
{
    int here;
    wrong(NULL);
    struct narufs_dir *fs = scratch();
    struct narufs_file *file = narufs_open(fs, "/f", O_RDWR | O_CREAT, 0600);
    struct narufs_entries *entries = narufs_read_dir(fs, "/");
    struct narufs_batch *batch = narufs_batch_begin(fs);
    struct narufs_dir *below = narufs_open_dir(fs, "/");
    CHECK(file && entries && batch && below);

    /* Never given out: numbers around those that are, pointers to what is there, and any. */
    uintptr_t near[] = { (uintptr_t)fs, (uintptr_t)file, (uintptr_t)entries, (uintptr_t)batch, (uintptr_t)below };
    for (int n = 0; n < 5; n++)
        for (int bit = 0; bit < 64; bit++) {
            uintptr_t other = near[n] ^ (uintptr_t)1 << bit;
            int is_open = 0;
            for (int m = 0; m < 5; m++)
                is_open |= near[m] == other;
            if (!is_open)
                wrong((void *)other);
        }
    wrong(&here);
    wrong(main);
    wrong((void *)-1);
    uint64_t any = 88172645463325252ull;
    for (int n = 0; n < 1000; n++) {
        any ^= any << 13, any ^= any >> 7, any ^= any << 17;
        wrong((void *)(uintptr_t)any);
    }

    /* Of another kind. */
    FAILS(narufs_fsync((void *)fs), EBADF);
    FAILS(narufs_sync((void *)file), EBADF);
    FAILS(narufs_close((void *)entries), EBADF);
    FAILS(narufs_batch_pages((void *)entries), EBADF);
    FAILS(narufs_entries_tell((void *)batch, NULL), EBADF);
    FAILS(narufs_sync(below), EINVAL);
    FAILS(narufs_unmount(below), EINVAL);
    NO_HANDLE(narufs_as_user(below, 1, 1, NULL, 0), EINVAL);

    /* NULL where something is to be, and lengths that cannot be. */
    FAILS(narufs_format(NULL, NULL), EINVAL);
    NO_HANDLE(narufs_mount(NULL, NULL), EINVAL);
    NO_HANDLE(narufs_scratch(NULL), EINVAL);
    NO_HANDLE(narufs_open(fs, NULL, O_RDONLY, 0), EINVAL);
    FAILS(narufs_rename(fs, "/f", fs, NULL, 0), EINVAL);
    FAILS(narufs_stat(fs, "/f", NULL), EINVAL);
    FAILS(narufs_pwrite(file, NULL, 1, 0), EINVAL);
    FAILS(narufs_pread(file, &here, SIZE_MAX, 0), EINVAL);
    struct iovec parts[2] = { { &here, 1ull << 62 }, { &here, 1ull << 62 } };
    FAILS(narufs_pwritev(file, parts, 2, 0), EINVAL);
    FAILS(narufs_readv(file, NULL, 1), EINVAL);
    FAILS(narufs_setxattr(fs, "/f", NULL, "x", 1, 0), EINVAL);
    FAILS(narufs_entries_next(entries, NULL), EINVAL);
    FAILS(narufs_lock_range(file, 0, 0, UINT64_MAX, 2), EINVAL);
    FAILS(narufs_lock_range(file, 0, 0, UINT64_MAX, 0), EINVAL);
    CHECK(narufs_pwrite(file, "x", 1, UINT64_MAX) == -1 && (errno == EFBIG || errno == EINVAL));
    CHECK(narufs_pread(file, &here, 4, UINT64_MAX) <= 0);
    CHECK(narufs_fallocate(file, 0, UINT64_MAX, UINT64_MAX) == -1);
    CHECK(narufs_copy_range(file, UINT64_MAX, file, UINT64_MAX, UINT64_MAX) <= 0);
    CHECK(narufs_lseek(file, INT64_MAX, SEEK_SET) == INT64_MAX);
    CHECK(narufs_lseek(file, INT64_MAX, SEEK_CUR) == -1 && errno == EINVAL);
    CHECK(narufs_read(file, &here, 4) <= 0 && narufs_write(file, &here, 4) == -1);

    /* Options of another size: what this library does not know must be 0. */
    struct {
        struct narufs_scratch_options known;
        uint64_t unknown[4];
    } larger;
    memset(&larger, 0, sizeof larger);
    larger.known.size = sizeof larger;
    larger.known.memory = 64 << 20;
    struct narufs_dir *newer = narufs_scratch(&larger.known);
    CHECK(newer != NULL && narufs_unmount(newer) == 0);
    larger.unknown[3] = 1;
    NO_HANDLE(narufs_scratch(&larger.known), E2BIG);
    larger.known.size = 0;
    NO_HANDLE(narufs_scratch(&larger.known), EINVAL);
    larger.known.size = SIZE_MAX;
    NO_HANDLE(narufs_scratch(&larger.known), EINVAL);
    larger.known.size = 2 * sizeof(uint64_t);
    newer = narufs_scratch(&larger.known);
    CHECK(newer != NULL && narufs_unmount(newer) == 0);

    /* Closed: once more, and each function, though the slots are used again. */
    CHECK(narufs_close(file) == 0 && narufs_entries_close(entries) == 0 && narufs_batch_drop(batch) == 0);
    CHECK(narufs_dir_close(below) == 0);
    struct narufs_file *others[4];
    for (int n = 0; n < 4; n++)
        CHECK((others[n] = narufs_open(fs, "/f", O_RDONLY, 0)) != NULL);
    wrong(file), wrong(entries), wrong(batch), wrong(below);
    for (int n = 0; n < 4; n++)
        CHECK(narufs_close(others[n]) == 0);
    CHECK(narufs_unmount(fs) == 0);
    wrong(fs);
    return 0;
}
