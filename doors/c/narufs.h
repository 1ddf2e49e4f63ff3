/* narufs, a crash-consistent file system in user space: the library for C and C++.
 *
 * Functions give -1, NULL or 0 where they fail, as each says, set errno as a system call would, and keep words for the
 * thread: narufs_error_message(). Beside what a function lists, each can fail with
 *   EBADF    a handle was never given out, is closed, or is of another kind (never a crash, whatever the number);
 *   EINVAL   a pointer is NULL where something is to be, or a number is none of those that it may be;
 *   EIO      the device has failed, or what was read is damaged; or narufs has a fault;
 *   EROFS    nothing may be changed; narufs_damage() says why;
 *   ECHILD   this process was forked from one that had a file system open.
 *
 * Handles look like pointers and are never followed. All functions may be called by many threads at once, with the same
 * handles too; none by a signal's handler, and a thread must not be cancelled in one. Paths begin at a directory's handle,
 * with a slash or without. Offsets, lengths and sizes are bytes. narufs(3) has more.
 */

#ifndef NARUFS_H
#define NARUFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/** The version that this header is of; narufs_version() is that of the library that runs. */
#define NARUFS_VERSION "0.1.0"
#define NARUFS_VERSION_MAJOR 0
#define NARUFS_VERSION_MINOR 1
#define NARUFS_VERSION_PATCH 0

/** An open directory, at which paths begin. That of the root stands for the whole file system. */
typedef struct narufs_dir narufs_dir;
/** An open file. */
typedef struct narufs_file narufs_file;
/** A directory that is being listed. */
typedef struct narufs_entries narufs_entries;
/** Writes that are staged. */
typedef struct narufs_batch narufs_batch;

#define NARUFS_FORMAT_OPTIONS_INIT { sizeof(struct narufs_format_options), 0, 0, 0, 0, 0, NULL, NULL, 0 }
#define NARUFS_MOUNT_OPTIONS_INIT { sizeof(struct narufs_mount_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL }
#define NARUFS_SCRATCH_OPTIONS_INIT { sizeof(struct narufs_scratch_options), 0, 0, 0, NULL, 0, 0 }


/**
 * Only visible; a crash leaves all of it or none, and all of it after a later sync, of any file.
 */
#define NARUFS_COMMIT_ORDERED 0

/**
 * As after narufs_fsync().
 */
#define NARUFS_COMMIT_DURABLE 1

/**
 * It survives a loss of power, whatever the mount's durability says.
 */
#define NARUFS_COMMIT_POWER 2

/**
 * No call of this thread has failed.
 */
#define NARUFS_CAUSE_NONE 0

/**
 * errno says it all.
 */
#define NARUFS_CAUSE_ERRNO 1

/**
 * The device has failed a request.
 */
#define NARUFS_CAUSE_DEVICE 2

/**
 * Something that was read does not verify; the message says what, and where it lies.
 */
#define NARUFS_CAUSE_DAMAGED 3

/**
 * Nothing may be changed any more; the message says why.
 */
#define NARUFS_CAUSE_READ_ONLY 4

/**
 * Another has opened the image, or its journal; the message says what to do.
 */
#define NARUFS_CAUSE_IN_USE 5

/**
 * The image, its journal or the options are of no use; the message says why, and what to do.
 */
#define NARUFS_CAUSE_REFUSED 6

/**
 * This process was forked from one that had a file system open.
 */
#define NARUFS_CAUSE_FORKED 7

/**
 * A fault of narufs.
 */
#define NARUFS_CAUSE_PANIC 8

/**
 * Beside others that are shared.
 */
#define NARUFS_LOCK_SHARED 0

/**
 * Beside no other.
 */
#define NARUFS_LOCK_EXCLUSIVE 1

/**
 * What has the new name is replaced.
 */
#define NARUFS_RENAME_REPLACE 0

/**
 * What has the new name stays: EEXIST.
 */
#define NARUFS_RENAME_NOREPLACE 1

/**
 * The two names are exchanged; both must be there.
 */
#define NARUFS_RENAME_EXCHANGE 2

/**
 * In a ring on the image.
 */
#define NARUFS_JOURNAL_IMAGE 0

/**
 * In persistent memory: a file on a DAX file system, or a DAX device.
 */
#define NARUFS_JOURNAL_PMEM 1

/**
 * In a file in shared memory that stands for persistent memory: it survives the process, not the machine.
 */
#define NARUFS_JOURNAL_EMULATED 2

/**
 * What was synced survives the machine's loss of power.
 */
#define NARUFS_DURABILITY_POWER 0

/**
 * What was synced survives the end of the process, and a loss of power but for the last window_ms.
 */
#define NARUFS_DURABILITY_WINDOW 1

/**
 * What was synced survives the end of the process.
 */
#define NARUFS_DURABILITY_PROCESS 2

/**
 * If it is not later than the last change, or a day old.
 */
#define NARUFS_ATIME_RELATIVE 0

/**
 * Always.
 */
#define NARUFS_ATIME_STRICT 1

/**
 * Never.
 */
#define NARUFS_ATIME_NEVER 2

/**
 * Not known.
 */
#define NARUFS_ORIGIN_UNKNOWN 0

/**
 * That image, at another place.
 */
#define NARUFS_ORIGIN_MOVED 1

/**
 * A copy.
 */
#define NARUFS_ORIGIN_COPIED 2

/**
 * Told once how something ended: with 0, or with an errno, of which narufs_error_message() has the words. It is called by
 * the thread that has asked or by another, and must neither wait nor use the file system, nor throw.
 */
typedef void (*narufs_done)(void *arg, int error);

/**
 * An entry of a directory.
 */
struct narufs_entry {
    uint64_t ino;
    /**
     * Behind this entry, for narufs_entries_seek().
     */
    uint64_t position;
    /**
     * DT_REG, DT_DIR and so on, of <dirent.h>.
     */
    uint32_t kind;
    uint32_t name_len;
    /**
     * Ends with a zero byte.
     */
    char name[256];
};

/**
 * Attributes of a file.
 */
struct narufs_stat {
    uint64_t ino;
    uint64_t size;
    /**
     * Units of 512 bytes.
     */
    uint64_t blocks;
    uint64_t nlink;
    uint64_t rdev;
    /**
     * Type and permissions, as st_mode.
     */
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    /**
     * With ino unique for ever.
     */
    uint32_t generation;
    struct timespec atime;
    struct timespec mtime;
    struct timespec ctime;
    /**
     * When it was made.
     */
    struct timespec btime;
    uint64_t reserved[4];
};

/**
 * A lock that is in the way of another.
 */
struct narufs_lock {
    uint64_t start;
    /**
     * 0 is up to the end of the file, wherever that is.
     */
    uint64_t len;
    /**
     * NARUFS_LOCK_SHARED or NARUFS_LOCK_EXCLUSIVE.
     */
    int kind;
    uint32_t reserved[3];
};

/**
 * How a file system is made. Begin with NARUFS_FORMAT_OPTIONS_INIT.
 */
struct narufs_format_options {
    /**
     * sizeof of this struct.
     */
    size_t size;
    /**
     * Bytes of the file system; 0 is all of the device. With it an image that is a file is made if it is not there.
     */
    uint64_t bytes;
    /**
     * Where the journal lies: NARUFS_JOURNAL_....
     */
    int journal;
    /**
     * Of what root owns: owner and group of the root directory.
     */
    uint32_t uid;
    uint32_t gid;
    /**
     * Not 0: even where there is a file system already, which is lost.
     */
    int force;
    /**
     * Of a journal outside of the image.
     */
    const char *journal_path;
    /**
     * The name of the file system, 32 bytes at the most; or NULL.
     */
    const char *label;
    /**
     * Not 0: no space is reserved for an image that is a file, which takes it as it is written.
     */
    int sparse;
};

/**
 * How a file system is mounted. Begin with NARUFS_MOUNT_OPTIONS_INIT; what is 0 is as usual.
 */
struct narufs_mount_options {
    /**
     * sizeof of this struct.
     */
    size_t size;
    /**
     * Bytes of memory for the content of files; 0 is by default.
     */
    uint64_t memory;
    /**
     * Bytes of memory for metadata; 0 is by default.
     */
    uint64_t metadata_memory;
    /**
     * What a sync waits for: NARUFS_DURABILITY_....
     */
    int durability;
    /**
     * With NARUFS_DURABILITY_WINDOW: 1 to 60000.
     */
    uint32_t window_ms;
    /**
     * When reading changes access times: NARUFS_ATIME_....
     */
    int access_times;
    /**
     * What an image is that was not unmounted: NARUFS_ORIGIN_....
     */
    int origin;
    /**
     * Not 0: change nothing.
     */
    int read_only;
    /**
     * Not 0: write changed times only with something else.
     */
    int lazy_times;
    /**
     * Not 0: every change is durable when it returns.
     */
    int sync;
    /**
     * Not 0: give up what of the journal is lost; where something is, the image can be read only until a repair by fsck.
     */
    int discard_journal;
    /**
     * The path of the journal, if it is not the one that the image names; or NULL.
     */
    const char *journal;
};

/**
 * How a scratch file system is made. Begin with NARUFS_SCRATCH_OPTIONS_INIT, and set memory.
 */
struct narufs_scratch_options {
    /**
     * sizeof of this struct.
     */
    size_t size;
    /**
     * Bytes of memory, for files and metadata together.
     */
    uint64_t memory;
    /**
     * Bytes of it for metadata, where there is spill space; 0 is an eighth.
     */
    uint64_t metadata_memory;
    /**
     * Bytes of spill space to use; 0 is all, or what is reasonable in a directory.
     */
    uint64_t spill_bytes;
    /**
     * A device, a file or a directory for what memory has no room for; or NULL.
     */
    const char *spill;
    /**
     * When reading changes access times: NARUFS_ATIME_....
     */
    int access_times;
    /**
     * Not 0: use the spill space even if it holds data, which are lost.
     */
    int force;
};

/**
 * Room and use of a file system.
 */
struct narufs_space {
    /**
     * Bytes that files and metadata can have.
     */
    uint64_t total;
    /**
     * Bytes of them that are free.
     */
    uint64_t free;
    /**
     * Inodes in use and still possible.
     */
    uint64_t files;
    /**
     * Inodes still possible.
     */
    uint64_t files_free;
    uint64_t reserved[4];
};

/**
 * What was brought back when a file system was mounted.
 */
struct narufs_recovery {
    /**
     * Records of the journal that were redone; 0 after a clean unmount.
     */
    uint64_t records;
    /**
     * Pages (4 KiB) of files' content that were taken from the journal.
     */
    uint64_t data_pages;
    uint64_t reserved[2];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Begins a batch of writes to files of a file system, wherever they lie.
 */
narufs_batch *narufs_batch_begin(narufs_dir *dir);

/**
 * Stages bytes for an offset of a file, all of them or, with -1, none: E2BIG if the batch has no room for them. After ENOSPC
 * or EIO, of a batch that is too large for memory, some of them may be staged: give the batch up, or stage them once more.
 */
int narufs_batch_write(narufs_batch *batch,
                       narufs_file *file,
                       const void *from,
                       size_t len,
                       uint64_t offset);

/**
 * Pages (4 KiB) that are staged, whole or in part; or -1.
 */
int64_t narufs_batch_pages(narufs_batch *batch);

/**
 * Makes all that is staged the content of the files, or with -1 nothing of it; after EIO or EROFS it may be there, whole,
 * but not be durable. how is NARUFS_COMMIT_.... The handle is closed in any case, unless it is EBADF or EINVAL.
 */
int narufs_batch_commit(narufs_batch *batch,
                        int how);

/**
 * As narufs_batch_commit(), but done is called with the outcome as soon as that is known. All of it is visible on return,
 * unless it has failed.
 *
 * 0: done is called once, maybe before this returns. -1: it is never called.
 */
int narufs_batch_commit_then(narufs_batch *batch,
                             int how,
                             narufs_done done,
                             void *arg);

/**
 * Gives a batch up: nothing of it has happened. EBADF: it is committed, or another thread is about to.
 */
int narufs_batch_drop(narufs_batch *batch);

/**
 * Opens a file as open(2) does. Of the flags these count: O_RDONLY, O_WRONLY, O_RDWR, O_APPEND, O_CREAT, O_EXCL, O_TRUNC,
 * O_NOFOLLOW, O_DIRECT, O_SYNC, O_DSYNC, O_NOATIME and O_TMPFILE, with which path is that of a directory. mode is that of
 * a file that is made; there is no umask.
 *
 * NULL with EINVAL: for O_CREAT or O_TRUNC with O_RDONLY, O_APPEND with O_TRUNC, and other flags.
 */
narufs_file *narufs_open(narufs_dir *dir,
                         const char *path,
                         int flags,
                         uint32_t mode);

/**
 * Opens a directory, for paths that begin there; whatever happens above it.
 */
narufs_dir *narufs_open_dir(narufs_dir *dir, const char *path);

/**
 * Closes a directory. That of a file system which is the last of it that is open unmounts it: narufs_unmount() would
 * tell of failures.
 */
int narufs_dir_close(narufs_dir *dir);

/**
 * Returns when the names in a directory are durable, and every change of metadata that returned before.
 */
int narufs_dir_sync(narufs_dir *dir);

/**
 * Begins to list a directory, without "." and "..".
 */
narufs_entries *narufs_read_dir(narufs_dir *dir, const char *path);

/**
 * The next entry: 1, 0 at the end, or -1.
 */
int narufs_entries_next(narufs_entries *entries, struct narufs_entry *entry);

/**
 * Attributes of what has the name by now that the last entry has told; of a symlink its own. ENOENT if it is gone.
 */
int narufs_entries_stat(narufs_entries *entries,
                        struct narufs_stat *stat);

/**
 * Goes on behind a position that an entry has told, also long ago; 0 is the beginning.
 */
int narufs_entries_seek(narufs_entries *entries, uint64_t position);

/**
 * Where it is: behind the entry that was told last.
 */
int narufs_entries_tell(narufs_entries *entries, uint64_t *position);

/**
 * Ends the listing.
 */
int narufs_entries_close(narufs_entries *entries);

/**
 * Why the last call of this thread that has failed did so, in words: what was asked for, of which path, and what is
 * wrong. Empty if none has failed. It stays until the next call of this thread that fails, or the next of this function.
 */
const char *narufs_error_message(void);

/**
 * What kind of failure the last of this thread was: one of NARUFS_CAUSE_....
 */
int narufs_error_cause(void);

/**
 * The version of the library that runs, such as "0.1.0".
 */
const char *narufs_version(void);

/**
 * Closes a file, and gives its locks back. It is not synced. Calls of other threads that are using it go on to their end,
 * and its locks are given back with the last of them: a call that waits for a lock which this file has waits for ever.
 */
int narufs_close(narufs_file *file);

/**
 * Returns when content and attributes are durable, and every change of metadata that returned before, as far as the
 * mount's durability says. It also tells of what could not be written in the background since the file was opened.
 */
int narufs_fsync(narufs_file *file);

/**
 * As narufs_fsync(), but for attributes that are not needed to read the content.
 */
int narufs_fdatasync(narufs_file *file);

/**
 * Attributes.
 */
int narufs_fstat(narufs_file *file, struct narufs_stat *stat);

/**
 * Cuts the file, or makes it longer by a hole.
 */
int narufs_ftruncate(narufs_file *file, uint64_t len);

/**
 * Sets the permissions: the twelve lowest bits of mode.
 */
int narufs_fchmod(narufs_file *file, uint32_t mode);

/**
 * Sets owner and group; (uint32_t)-1 stays.
 */
int narufs_fchown(narufs_file *file, uint32_t uid, uint32_t gid);

/**
 * Sets the times of access and change, as narufs_utimens().
 */
int narufs_futimens(narufs_file *file, const struct timespec *times);

/**
 * Reads at an offset, and leaves the cursor. Gives the number of bytes, less than asked for only at the end of the file,
 * or -1.
 */
ssize_t narufs_pread(narufs_file *file,
                     void *into,
                     size_t len,
                     uint64_t offset);

/**
 * Writes at an offset, and leaves the cursor; with O_APPEND to the end. Gives the number of bytes, less than asked for
 * only where space has run out, or -1.
 */
ssize_t narufs_pwrite(narufs_file *file,
                      const void *from,
                      size_t len,
                      uint64_t offset);

/**
 * As narufs_pread(), into several buffers one after the other: one read, as far as others are concerned.
 */
ssize_t narufs_preadv(narufs_file *file, const struct iovec *into, int count, uint64_t offset);

/**
 * As narufs_pwrite(), of several buffers one after the other: one write, as far as others are concerned.
 */
ssize_t narufs_pwritev(narufs_file *file, const struct iovec *from, int count, uint64_t offset);

/**
 * Reads at the cursor, and moves it. Threads that share a file take turns.
 */
ssize_t narufs_read(narufs_file *file, void *into, size_t len);

/**
 * Writes at the cursor, and moves it.
 */
ssize_t narufs_write(narufs_file *file, const void *from, size_t len);

/**
 * As narufs_read(), into several buffers.
 */
ssize_t narufs_readv(narufs_file *file, const struct iovec *into, int count);

/**
 * As narufs_write(), of several buffers.
 */
ssize_t narufs_writev(narufs_file *file, const struct iovec *from, int count);

/**
 * Moves the cursor, and gives where it is then, or -1. whence is SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or SEEK_HOLE.
 */
int64_t narufs_lseek(narufs_file *file,
                     int64_t offset,
                     int whence);

/**
 * Writes to the end, and tells where that was unless offset is NULL. Appends of many threads neither overlap nor leave
 * gaps. Gives the number of bytes, or -1.
 */
ssize_t narufs_append(narufs_file *file,
                      const void *from,
                      size_t len,
                      uint64_t *offset);

/**
 * As narufs_append(), of several buffers.
 */
ssize_t narufs_appendv(narufs_file *file, const struct iovec *from, int count, uint64_t *offset);

/**
 * As narufs_fsync(), or with datasync not 0 as narufs_fdatasync(), but done is called with the outcome as soon as that is
 * known: of what was written before the call. Any number can wait to be told, and none of them has a thread.
 *
 * 0: done is called once, maybe before this returns. -1: it is never called.
 */
int narufs_fsync_then(narufs_file *file,
                      int datasync,
                      narufs_done done,
                      void *arg);

/**
 * As flock(2): LOCK_SH, LOCK_EX or LOCK_UN, and LOCK_NB not to wait: EWOULDBLOCK.
 */
int narufs_flock(narufs_file *file, int operation);

/**
 * An owner of locks of ranges that differs from every other; equal owners are never in each other's way.
 */
uint64_t narufs_lock_owner(void);

/**
 * Locks bytes for an owner, 0 being this open file itself; waits until that can be. What the owner has there already is
 * replaced. A len of 0 is up to the end of the file, wherever that is. kind is NARUFS_LOCK_....
 *
 * The locks of an owner are given back by narufs_unlock_range(), or when an open file through which it has taken some is
 * closed. EDEADLK: owners would wait for each other in a circle.
 */
int narufs_lock_range(narufs_file *file,
                      uint64_t owner,
                      int kind,
                      uint64_t start,
                      uint64_t len);

/**
 * As narufs_lock_range(), without waiting: EWOULDBLOCK.
 */
int narufs_try_lock_range(narufs_file *file, uint64_t owner, int kind, uint64_t start, uint64_t len);

/**
 * Gives what an owner has of these bytes back.
 */
int narufs_unlock_range(narufs_file *file, uint64_t owner, uint64_t start, uint64_t len);

/**
 * Whether a lock would be in the way of one of these bytes: 1, and which, 0, or -1.
 */
int narufs_test_lock_range(narufs_file *file,
                           uint64_t owner,
                           int kind,
                           uint64_t start,
                           uint64_t len,
                           struct narufs_lock *conflict);

/**
 * Attributes; of a symlink those of what it leads to.
 */
int narufs_stat(narufs_dir *dir, const char *path, struct narufs_stat *stat);

/**
 * Attributes; of a symlink its own.
 */
int narufs_lstat(narufs_dir *dir, const char *path, struct narufs_stat *stat);

/**
 * Whether a path leads to something: 1, 0, or -1.
 */
int narufs_exists(narufs_dir *dir, const char *path);

/**
 * Whether the caller may: a sum of R_OK, W_OK and X_OK, or F_OK; as access(2).
 */
int narufs_access(narufs_dir *dir, const char *path, int mode);

/**
 * Sets the permissions: the twelve lowest bits of mode.
 */
int narufs_chmod(narufs_dir *dir, const char *path, uint32_t mode);

/**
 * Sets owner and group; (uint32_t)-1 stays.
 */
int narufs_chown(narufs_dir *dir, const char *path, uint32_t uid, uint32_t gid);

/**
 * As narufs_chown(), of a symlink itself.
 */
int narufs_lchown(narufs_dir *dir, const char *path, uint32_t uid, uint32_t gid);

/**
 * Sets the times of access and change, two of them, as utimensat(2): UTIME_NOW, UTIME_OMIT, and NULL for now.
 */
int narufs_utimens(narufs_dir *dir, const char *path, const struct timespec *times);

/**
 * As narufs_utimens(), of a symlink itself.
 */
int narufs_lutimens(narufs_dir *dir, const char *path, const struct timespec *times);

/**
 * Makes a directory; there is no umask.
 */
int narufs_mkdir(narufs_dir *dir, const char *path, uint32_t mode);

/**
 * Makes a directory and those above it, as far as they are missing, with mode 0755.
 */
int narufs_mkdir_all(narufs_dir *dir, const char *path);

/**
 * Removes a name of what is no directory.
 */
int narufs_unlink(narufs_dir *dir, const char *path);

/**
 * Removes an empty directory.
 */
int narufs_rmdir(narufs_dir *dir, const char *path);

/**
 * Removes a directory with all that is in it; a symlink is removed, not followed.
 */
int narufs_remove_all(narufs_dir *dir, const char *path);

/**
 * Renames, whole or not at all, also in a crash. how is one of NARUFS_RENAME_....
 */
int narufs_rename(narufs_dir *dir, const char *from, narufs_dir *to_dir, const char *to, int how);

/**
 * Gives a file another name. A symlink is not followed.
 */
int narufs_link(narufs_dir *dir, const char *from, narufs_dir *to_dir, const char *to);

/**
 * Gives an open file another name, or its first if it was opened with O_TMPFILE.
 */
int narufs_link_file(narufs_dir *dir, narufs_file *file, const char *path);

/**
 * Makes a symlink at path that leads to target.
 */
int narufs_symlink(const char *target, narufs_dir *dir, const char *path);

/**
 * What a symlink leads to, without a zero byte, as much as there is room for; gives the number of bytes, or -1.
 */
ssize_t narufs_readlink(narufs_dir *dir,
                        const char *path,
                        char *target,
                        size_t len);

/**
 * Copies the content and the permissions of a file, holes as holes; gives the number of bytes, or -1. EINVAL: both are
 * the same file.
 */
int64_t narufs_copy(narufs_dir *dir,
                    const char *from,
                    const char *to);

/**
 * The whole content of a file in memory of its own, with a zero byte behind, for narufs_free(); gives the number of bytes,
 * or -1.
 */
int64_t narufs_read_file(narufs_dir *dir,
                         const char *path,
                         void **content);

/**
 * Makes a file of this content, or replaces that of a file. A crash in between may leave less.
 */
int narufs_write_file(narufs_dir *dir, const char *path, const void *content, size_t len);

/**
 * As fallocate(2). mode is 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
 * FALLOC_FL_COLLAPSE_RANGE or FALLOC_FL_INSERT_RANGE; else EOPNOTSUPP.
 */
int narufs_fallocate(narufs_file *file,
                     int mode,
                     uint64_t offset,
                     uint64_t len);

/**
 * Copies up to len bytes to another file of the same file system, or elsewhere in this, as copy_file_range(2); gives how
 * many, less at the end of the file, or -1.
 */
int64_t narufs_copy_range(narufs_file *file,
                          uint64_t offset,
                          narufs_file *to,
                          uint64_t to_offset,
                          uint64_t len);

/**
 * Makes a file system on an image: a file, or a block device. options may be NULL.
 */
int narufs_format(const char *image, const struct narufs_format_options *options);

/**
 * Mounts the file system on an image, which is recovered after a crash, into this process, and gives its root. options
 * may be NULL. It is used as root would; see narufs_as_user().
 */
narufs_dir *narufs_mount(const char *image,
                         const struct narufs_mount_options *options);

/**
 * Makes a file system in memory that overflows to spill space, and that nothing outlives.
 */
narufs_dir *narufs_scratch(const struct narufs_scratch_options *options);

/**
 * Writes everything, and marks the image clean. The handle is closed in any case, unless it is EBADF or EINVAL.
 *
 * EBUSY: files or directories of it are open, or other threads are using it. Everything that was written is durable
 * then, and the file system is unmounted when the last of them is closed.
 */
int narufs_unmount(narufs_dir *fs);

/**
 * The same file system for another caller, whose permissions are checked at every step. It is a handle of its own, for
 * narufs_dir_close().
 */
narufs_dir *narufs_as_user(narufs_dir *fs,
                           uint32_t uid,
                           uint32_t gid,
                           const uint32_t *groups,
                           size_t count);

/**
 * Returns when everything written before is durable, as far as the mount's durability says.
 */
int narufs_sync(narufs_dir *fs);

/**
 * Returns when everything that a sync was answered for survives a loss of power, whatever the mount's durability says.
 */
int narufs_sync_power(narufs_dir *fs);

/**
 * Room and use.
 */
int narufs_space(narufs_dir *fs, struct narufs_space *space);

/**
 * Makes the file system larger while it is used: so many bytes, or with 0 as long as its device is. Gives its size, or -1;
 * EPERM for another caller than root, see narufs_as_user().
 */
int64_t narufs_resize(narufs_dir *fs,
                      uint64_t bytes);

/**
 * Tells the device what is free, in runs of at least so many bytes; gives the number of bytes, or -1; EPERM for another
 * caller than root, see narufs_as_user().
 */
int64_t narufs_trim(narufs_dir *fs,
                    uint64_t least);

/**
 * What was brought back when it was mounted.
 */
int narufs_recovery(narufs_dir *fs, struct narufs_recovery *recovery);

/**
 * Why nothing can be changed, if so: words, of which as much is put into the buffer as it has room for, with a zero byte
 * at the end. Gives the number of bytes that they have, 0 if all is well, or -1.
 */
ssize_t narufs_damage(narufs_dir *fs,
                      char *words,
                      size_t len);

/**
 * Gives back what narufs_read_file() has given. NULL is nothing.
 */
void narufs_free(void *memory);

/**
 * The value of an extended attribute, such as "user.origin"; gives its length, or -1: ERANGE if there is too little room.
 * With a len of 0 the length alone.
 */
ssize_t narufs_getxattr(narufs_dir *dir,
                        const char *path,
                        const char *name,
                        void *value,
                        size_t len);

/**
 * Sets an extended attribute; flags are 0, XATTR_CREATE or XATTR_REPLACE.
 */
int narufs_setxattr(narufs_dir *dir,
                    const char *path,
                    const char *name,
                    const void *value,
                    size_t len,
                    int flags);

/**
 * Removes an extended attribute.
 */
int narufs_removexattr(narufs_dir *dir, const char *path, const char *name);

/**
 * The names of the extended attributes, each with a zero byte behind it; gives their length, or -1, as narufs_getxattr().
 */
ssize_t narufs_listxattr(narufs_dir *dir,
                         const char *path,
                         char *names,
                         size_t len);

/**
 * As narufs_getxattr(), of an open file.
 */
ssize_t narufs_fgetxattr(narufs_file *file, const char *name, void *value, size_t len);

/**
 * As narufs_setxattr(), of an open file.
 */
int narufs_fsetxattr(narufs_file *file, const char *name, const void *value, size_t len, int flags);

/**
 * As narufs_removexattr(), of an open file.
 */
int narufs_fremovexattr(narufs_file *file, const char *name);

/**
 * As narufs_listxattr(), of an open file.
 */
ssize_t narufs_flistxattr(narufs_file *file, char *names, size_t len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NARUFS_H */
