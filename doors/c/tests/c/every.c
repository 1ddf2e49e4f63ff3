/* Every function of narufs.h, in scratch space and on an image: every.c IMAGE. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static void whole(struct narufs_dir *fs, int is_scratch)
{
    struct narufs_space space;
    struct narufs_recovery recovery;
    char words[100] = "x";
    CHECK(narufs_sync(fs) == 0);
    CHECK(narufs_sync_power(fs) == 0);
    CHECK(narufs_space(fs, &space) == 0);
    CHECK(space.total > 0 && space.free <= space.total && space.files_free <= space.files);
    CHECK(narufs_recovery(fs, &recovery) == 0);
    CHECK(recovery.records == 0 && recovery.data_pages == 0);
    CHECK(narufs_damage(fs, words, sizeof words) == 0 && words[0] == 0);
    CHECK(narufs_damage(fs, NULL, 0) == 0);
    if (!is_scratch) {
        CHECK(narufs_resize(fs, 96 << 20) >= 90 << 20);
        CHECK(narufs_trim(fs, 1 << 20) >= 0 || errno == EOPNOTSUPP || errno == EIO);
    }

    struct narufs_dir *user = narufs_as_user(fs, 1000, 1000, (uint32_t[]){ 7, 8 }, 2);
    CHECK(user != NULL);
    CHECK(narufs_mkdir(fs, "/private", 0700) == 0);
    NO_HANDLE(narufs_open_dir(user, "/private/x"), EACCES);
    FAILS(narufs_access(user, "/private", R_OK), EACCES);
    CHECK(strstr(narufs_error_message(), "/private") != NULL);
    CHECK(narufs_error_cause() == NARUFS_CAUSE_ERRNO);
    FAILS(narufs_resize(user, 128 << 20), EPERM);
    FAILS(narufs_trim(user, 0), EPERM);
    CHECK(narufs_dir_close(user) == 0);
    CHECK(narufs_rmdir(fs, "/private") == 0);
}

static void names(struct narufs_dir *fs)
{
    struct narufs_stat stat;
    char text[100];
    CHECK(narufs_mkdir_all(fs, "/a/b/c") == 0);
    struct narufs_dir *b = narufs_open_dir(fs, "/a/b");
    CHECK(b != NULL);
    CHECK(narufs_write_file(b, "f", "content", 7) == 0);
    CHECK(narufs_dir_sync(b) == 0 && narufs_dir_sync(fs) == 0);
    void *content;
    CHECK(narufs_read_file(fs, "a/b/f", &content) == 7);
    CHECK(strcmp(content, "content") == 0);
    narufs_free(content);
    CHECK(narufs_write_file(b, "empty", "", 0) == 0 && narufs_read_file(b, "empty", &content) == 0);
    CHECK(*(char *)content == 0 && narufs_unlink(b, "empty") == 0);
    narufs_free(content);
    narufs_free(NULL);
    /* Longer than any memory: an error, and no end of the program. */
    struct narufs_file *holes = narufs_open(b, "holes", O_WRONLY | O_CREAT, 0600);
    CHECK(holes && narufs_ftruncate(holes, (uint64_t)1 << 43) == 0 && narufs_close(holes) == 0);
    FAILS(narufs_read_file(b, "holes", &content), ENOMEM);
    CHECK(content == NULL && narufs_unlink(b, "holes") == 0);
    FAILS(narufs_read_file(b, "c", &content), EISDIR);
    CHECK(content == NULL);
    FAILS(narufs_copy(b, "f", "f"), EINVAL);
    CHECK(narufs_copy(b, "f", "g") == 7);
    CHECK(narufs_stat(b, "g", &stat) == 0);
    CHECK(stat.size == 7 && S_ISREG(stat.mode) && stat.nlink == 1 && stat.ino > 0);
    CHECK(narufs_chmod(b, "g", 0640) == 0);
    CHECK(narufs_chown(b, "g", 5, (uint32_t)-1) == 0);
    struct timespec times[2] = { { -3, 7 }, { 0, UTIME_OMIT } };
    CHECK(narufs_utimens(b, "g", times) == 0);
    struct timespec before = stat.mtime;
    CHECK(narufs_stat(b, "g", &stat) == 0);
    CHECK((stat.mode & 07777) == 0640 && stat.uid == 5 && stat.gid == 0);
    CHECK(stat.atime.tv_sec == -3 && stat.atime.tv_nsec == 7);
    CHECK(stat.mtime.tv_sec == before.tv_sec && stat.mtime.tv_nsec == before.tv_nsec);
    CHECK(narufs_utimens(b, "g", NULL) == 0);
    times[1].tv_nsec = 1000000000;
    FAILS(narufs_utimens(b, "g", times), EINVAL);

    CHECK(narufs_symlink("g", b, "s") == 0);
    CHECK(narufs_lstat(b, "s", &stat) == 0 && S_ISLNK(stat.mode));
    CHECK(narufs_readlink(b, "s", text, sizeof text) == 1 && text[0] == 'g');
    CHECK(narufs_lchown(b, "s", 9, 9) == 0);
    times[1].tv_nsec = UTIME_NOW;
    CHECK(narufs_lutimens(b, "s", times) == 0);
    CHECK(narufs_lstat(b, "s", &stat) == 0 && stat.uid == 9 && stat.atime.tv_sec == -3);

    CHECK(narufs_access(b, "f", R_OK | W_OK) == 0);
    FAILS(narufs_access(b, "f", 8), EINVAL);
    CHECK(narufs_exists(b, "f") == 1 && narufs_exists(b, "none") == 0);
    FAILS(narufs_stat(b, "none", &stat), ENOENT);
    FAILS(narufs_mkdir(b, "f", 0755), EEXIST);

    CHECK(narufs_link(b, "f", fs, "/hard") == 0);
    CHECK(narufs_stat(fs, "hard", &stat) == 0 && stat.nlink == 2);
    FAILS(narufs_rename(b, "f", fs, "/hard", NARUFS_RENAME_NOREPLACE), EEXIST);
    FAILS(narufs_rename(b, "f", fs, "/hard", 77), EINVAL);
    CHECK(narufs_rename(b, "g", fs, "/hard", NARUFS_RENAME_EXCHANGE) == 0);
    CHECK(narufs_rename(b, "g", fs, "/other", NARUFS_RENAME_REPLACE) == 0);
    CHECK(narufs_unlink(fs, "/other") == 0 && narufs_unlink(fs, "/hard") == 0);
    FAILS(narufs_rmdir(fs, "/a"), ENOTEMPTY);
    FAILS(narufs_unlink(fs, "/a"), EISDIR);

    struct narufs_entries *entries = narufs_read_dir(fs, "/a/b");
    CHECK(entries != NULL);
    struct narufs_entry entry, again;
    FAILS(narufs_entries_stat(entries, &stat), EINVAL);
    uint64_t start, position;
    CHECK(narufs_entries_tell(entries, &start) == 0);
    CHECK(narufs_entries_next(entries, &entry) == 1);
    CHECK(narufs_entries_tell(entries, &position) == 0 && position == entry.position);
    CHECK(narufs_entries_stat(entries, &stat) == 0 && stat.ino == entry.ino);
    CHECK(narufs_entries_next(entries, &entry) == 1);
    CHECK(strlen(entry.name) == entry.name_len);
    CHECK(narufs_entries_next(entries, &again) == 1 && narufs_entries_next(entries, &again) == 0);
    CHECK(narufs_entries_seek(entries, position) == 0);
    CHECK(narufs_entries_next(entries, &again) == 1 && strcmp(again.name, entry.name) == 0);
    int kinds = 0;
    CHECK(narufs_entries_seek(entries, 0) == 0);
    while (narufs_entries_next(entries, &entry) == 1)
        kinds += entry.kind == DT_DIR ? 1 : entry.kind == DT_LNK ? 10 : entry.kind == DT_REG ? 100 : 1000;
    CHECK(kinds == 111);
    CHECK(narufs_entries_close(entries) == 0);

    CHECK(narufs_setxattr(b, "f", "user.a", "value", 5, XATTR_CREATE) == 0);
    FAILS(narufs_setxattr(b, "f", "user.a", "value", 5, XATTR_CREATE), EEXIST);
    FAILS(narufs_setxattr(b, "f", "user.a", "value", 5, 99), EINVAL);
    CHECK(narufs_getxattr(b, "f", "user.a", NULL, 0) == 5);
    FAILS(narufs_getxattr(b, "f", "user.a", text, 4), ERANGE);
    CHECK(narufs_getxattr(b, "f", "user.a", text, 5) == 5 && memcmp(text, "value", 5) == 0);
    CHECK(narufs_listxattr(b, "f", text, sizeof text) == 7 && strcmp(text, "user.a") == 0);
    CHECK(narufs_removexattr(b, "f", "user.a") == 0);
    FAILS(narufs_getxattr(b, "f", "user.a", text, 5), ENODATA);

    CHECK(narufs_dir_close(b) == 0);
    CHECK(narufs_remove_all(fs, "/a") == 0 && narufs_exists(fs, "/a") == 0);
}

static void files(struct narufs_dir *fs, int is_scratch)
{
    struct narufs_stat stat;
    char text[100];
    uint64_t offset;
    struct narufs_file *file = narufs_open(fs, "/f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(file != NULL);
    NO_HANDLE(narufs_open(fs, "/f", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    NO_HANDLE(narufs_open(fs, "/f", O_RDONLY | O_CREAT, 0600), EINVAL);
    NO_HANDLE(narufs_open(fs, "/f", O_ACCMODE, 0600), EINVAL);
    NO_HANDLE(narufs_open(fs, "/f", O_RDONLY | O_DIRECTORY, 0), EINVAL);
    CHECK(narufs_pwrite(file, "0123456789", 10, 0) == 10);
    CHECK(narufs_pread(file, text, sizeof text, 3) == 7 && memcmp(text, "3456789", 7) == 0);
    CHECK(narufs_pread(file, text, sizeof text, 10) == 0);
    CHECK(narufs_pread(file, NULL, 0, 0) == 0);

    struct iovec parts[3] = { { "ab", 2 }, { NULL, 0 }, { "cd", 2 } };
    CHECK(narufs_pwritev(file, parts, 3, 10) == 4);
    char left[3], right[5];
    struct iovec into[2] = { { left, 3 }, { right, 5 } };
    CHECK(narufs_preadv(file, into, 2, 8) == 6);
    CHECK(memcmp(left, "89a", 3) == 0 && memcmp(right, "bcd", 3) == 0);
    FAILS(narufs_preadv(file, into, -1, 0), EINVAL);
    FAILS(narufs_pwritev(file, parts, 1025, 0), EINVAL);

    CHECK(narufs_lseek(file, 2, SEEK_SET) == 2);
    CHECK(narufs_read(file, text, 2) == 2 && memcmp(text, "23", 2) == 0);
    CHECK(narufs_readv(file, into, 2) == 8 && memcmp(left, "456", 3) == 0);
    CHECK(narufs_lseek(file, 0, SEEK_CUR) == 12);
    CHECK(narufs_lseek(file, -1, SEEK_END) == 13);
    CHECK(narufs_write(file, "xy", 2) == 2 && narufs_writev(file, parts, 3) == 4);
    FAILS(narufs_lseek(file, -1, SEEK_SET), EINVAL);
    FAILS(narufs_lseek(file, 0, 99), EINVAL);
    CHECK(narufs_append(file, "end", 3, &offset) == 3 && offset == 19);
    CHECK(narufs_appendv(file, parts, 3, NULL) == 4);
    CHECK(narufs_fstat(file, &stat) == 0 && stat.size == 26);
    CHECK(narufs_fsync(file) == 0 && narufs_fdatasync(file) == 0);
    CHECK(narufs_ftruncate(file, 5) == 0);
    FAILS(narufs_ftruncate(file, UINT64_MAX), EINVAL);
    CHECK(narufs_fchmod(file, 0644) == 0 && narufs_fchown(file, 3, 4) == 0);
    struct timespec times[2] = { { 11, 0 }, { 12, 0 } };
    CHECK(narufs_futimens(file, times) == 0);
    CHECK(narufs_fstat(file, &stat) == 0 && stat.size == 5 && stat.uid == 3 && stat.mtime.tv_sec == 12);

    CHECK(narufs_fallocate(file, 0, 0, 1 << 20) == 0);
    CHECK(narufs_fallocate(file, FALLOC_FL_KEEP_SIZE, 0, 2 << 20) == 0);
    CHECK(narufs_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
    CHECK(narufs_fallocate(file, FALLOC_FL_ZERO_RANGE, 0, 4096) == 0);
    FAILS(narufs_fallocate(file, 0x4000, 0, 4096), EOPNOTSUPP);
    int moved = is_scratch ? EOPNOTSUPP : 0;
    CHECK(narufs_fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096) == 0 || errno == moved);
    CHECK(narufs_fallocate(file, FALLOC_FL_INSERT_RANGE, 0, 4096) == 0 || errno == moved);
    CHECK(narufs_pwrite(file, "data", 4, 4 << 20) == 4);
    CHECK(narufs_lseek(file, 3 << 20, SEEK_DATA) == 4 << 20);
    CHECK(narufs_lseek(file, 3 << 20, SEEK_HOLE) == 3 << 20);
    FAILS(narufs_lseek(file, 5 << 20, SEEK_DATA), ENXIO);
    struct narufs_file *other = narufs_open(fs, "/o", O_RDWR | O_CREAT | O_APPEND, 0600);
    CHECK(other != NULL);
    CHECK(narufs_copy_range(file, 4 << 20, file, 8 << 20, 100) == 4);
    FAILS(narufs_copy_range(file, 4 << 20, other, 0, 4), EBADF);

    CHECK(narufs_fsetxattr(file, "user.b", "v", 1, 0) == 0);
    CHECK(narufs_fgetxattr(file, "user.b", text, sizeof text) == 1);
    CHECK(narufs_flistxattr(file, NULL, 0) == 7);
    CHECK(narufs_fremovexattr(file, "user.b") == 0);
    FAILS(narufs_fremovexattr(file, "user.b"), ENODATA);

    struct narufs_file *temporary = narufs_open(fs, "/", O_WRONLY | O_TMPFILE, 0600);
    CHECK(temporary != NULL);
    CHECK(narufs_link_file(fs, temporary, "/named") == 0);
    CHECK(narufs_close(temporary) == 0 && narufs_close(other) == 0 && narufs_close(file) == 0);
    CHECK(narufs_unlink(fs, "/o") == 0 && narufs_unlink(fs, "/f") == 0 && narufs_unlink(fs, "/named") == 0);
}

static void locks(struct narufs_dir *fs)
{
    struct narufs_file *one = narufs_open(fs, "/l", O_RDWR | O_CREAT, 0600);
    struct narufs_file *two = narufs_open(fs, "/l", O_RDWR, 0);
    CHECK(one && two);
    CHECK(narufs_flock(one, LOCK_EX) == 0);
    FAILS(narufs_flock(two, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    FAILS(narufs_flock(two, 77), EINVAL);
    CHECK(narufs_flock(one, LOCK_UN) == 0);
    CHECK(narufs_flock(one, LOCK_SH) == 0 && narufs_flock(two, LOCK_SH | LOCK_NB) == 0);

    struct narufs_lock lock;
    uint64_t owner = narufs_lock_owner();
    CHECK(owner != 0 && owner != narufs_lock_owner());
    CHECK(narufs_lock_range(one, 0, NARUFS_LOCK_EXCLUSIVE, 10, 5) == 0);
    FAILS(narufs_try_lock_range(one, owner, NARUFS_LOCK_SHARED, 0, 11), EWOULDBLOCK);
    FAILS(narufs_try_lock_range(one, owner, 7, 0, 11), EINVAL);
    CHECK(narufs_test_lock_range(two, owner, NARUFS_LOCK_SHARED, 0, 0, &lock) == 1);
    CHECK(lock.start == 10 && lock.len == 5 && lock.kind == NARUFS_LOCK_EXCLUSIVE);
    CHECK(narufs_unlock_range(one, 0, 0, 0) == 0);
    CHECK(narufs_test_lock_range(two, owner, NARUFS_LOCK_SHARED, 0, 0, &lock) == 0);
    CHECK(narufs_try_lock_range(one, owner, NARUFS_LOCK_SHARED, 0, 0) == 0);
    CHECK(narufs_close(one) == 0 && narufs_close(two) == 0);
    CHECK(narufs_unlink(fs, "/l") == 0);
}

struct told {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int times, error;
};

static void tell(void *arg, int error)
{
    struct told *told = arg;
    pthread_mutex_lock(&told->lock);
    told->times++;
    told->error |= error;
    pthread_cond_signal(&told->changed);
    pthread_mutex_unlock(&told->lock);
}

static void later(struct narufs_dir *fs)
{
    struct told told = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0 };
    struct narufs_file *file = narufs_open(fs, "/b", O_RDWR | O_CREAT, 0600);
    CHECK(file != NULL);
    struct narufs_batch *batch = narufs_batch_begin(fs);
    CHECK(batch != NULL);
    CHECK(narufs_batch_write(batch, file, "all", 3, 0) == 0);
    CHECK(narufs_batch_write(batch, file, "or none", 7, 4096) == 0);
    CHECK(narufs_batch_pages(batch) == 2);
    char byte;
    CHECK(narufs_pread(file, &byte, 1, 0) == 0);
    FAILS(narufs_batch_commit(batch, 77), EINVAL);
    CHECK(narufs_batch_commit(batch, NARUFS_COMMIT_DURABLE) == 0);
    FAILS(narufs_batch_commit(batch, NARUFS_COMMIT_DURABLE), EBADF);
    CHECK(narufs_pread(file, &byte, 1, 0) == 1 && byte == 'a');
    batch = narufs_batch_begin(fs);
    CHECK(narufs_batch_write(batch, file, "nothing", 7, 0) == 0 && narufs_batch_drop(batch) == 0);
    FAILS(narufs_batch_drop(batch), EBADF);
    batch = narufs_batch_begin(fs);
    CHECK(narufs_batch_write(batch, file, "A", 1, 0) == 0);
    FAILS(narufs_batch_commit_then(batch, NARUFS_COMMIT_POWER, NULL, NULL), EINVAL);
    CHECK(narufs_batch_commit_then(batch, NARUFS_COMMIT_POWER, tell, &told) == 0);
    CHECK(narufs_pread(file, &byte, 1, 0) == 1 && byte == 'A');

    FAILS(narufs_fsync_then(file, 0, NULL, NULL), EINVAL);
    CHECK(narufs_fsync_then(file, 0, tell, &told) == 0);
    CHECK(narufs_fsync_then(file, 1, tell, &told) == 0);
    pthread_mutex_lock(&told.lock);
    while (told.times < 3)
        pthread_cond_wait(&told.changed, &told.lock);
    CHECK(told.error == 0);
    pthread_mutex_unlock(&told.lock);
    CHECK(narufs_close(file) == 0 && narufs_unlink(fs, "/b") == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(strcmp(narufs_version(), NARUFS_VERSION) == 0);
    CHECK(narufs_error_cause() == NARUFS_CAUSE_NONE && narufs_error_message()[0] == 0);

    FAILS(narufs_format("/nowhere/at/all", NULL), ENOENT);
    NO_HANDLE(narufs_mount("/nowhere/at/all", NULL), ENOENT);
    for (int is_scratch = 0; is_scratch < 2; is_scratch++) {
        struct narufs_dir *fs = is_scratch ? scratch() : image(argv[1], 64 << 20);
        whole(fs, is_scratch);
        names(fs);
        files(fs, is_scratch);
        locks(fs);
        later(fs);
        struct narufs_dir *busy = narufs_open_dir(fs, "/");
        CHECK(busy != NULL);
        FAILS(narufs_unmount(busy), EINVAL);
        CHECK(narufs_write_file(fs, "/last", "here", 4) == 0);
        FAILS(narufs_unmount(fs), EBUSY);
        FAILS(narufs_sync(fs), EBADF);
        CHECK(narufs_exists(busy, "last") == 1);
        CHECK(narufs_dir_close(busy) == 0);
    }

    /* What was closed with its last directory is whole. */
    struct narufs_mount_options options = NARUFS_MOUNT_OPTIONS_INIT;
    options.read_only = 1;
    options.memory = 32 << 20;
    options.metadata_memory = 32 << 20;
    options.access_times = NARUFS_ATIME_NEVER;
    options.origin = NARUFS_ORIGIN_MOVED;
    struct narufs_dir *fs = narufs_mount(argv[1], &options);
    CHECK(fs != NULL);
    NO_HANDLE(narufs_mount(argv[1], NULL), EBUSY);
    CHECK(narufs_error_cause() == NARUFS_CAUSE_IN_USE);
    CHECK(narufs_exists(fs, "/last") == 1);
    FAILS(narufs_unlink(fs, "/last"), EROFS);
    CHECK(narufs_unmount(fs) == 0);
    FAILS(narufs_format(argv[1], NULL), EINVAL);
    CHECK(narufs_error_cause() == NARUFS_CAUSE_REFUSED);
    return 0;
}
