/* A queue of messages that a loss of power neither loses nor tears: each is there, whole, once it was said to be.
 *
 *     cc queue.c $(pkg-config --cflags --libs narufs) -o queue && ./queue queue.img
 */
#include <errno.h>
#include <fcntl.h>
#include <narufs.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, narufs_error_message());
    return 1;
}

int main(int argc, char **argv)
{
    const char *image = argc > 1 ? argv[1] : "queue.img";
    struct narufs_format_options format = NARUFS_FORMAT_OPTIONS_INIT;
    format.bytes = 16 << 20;
    /* EINVAL: there is a file system already. */
    if (narufs_format(image, &format) && narufs_error_cause() != NARUFS_CAUSE_REFUSED)
        return failed("format");

    struct narufs_dir *fs = narufs_mount(image, NULL);
    if (!fs || narufs_mkdir_all(fs, "/queue"))
        return failed("mount");

    /* Under another name until it is durable: nobody finds half a message. */
    const char message[] = "hello";
    struct narufs_file *file = narufs_open(fs, "/queue/.new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!file || narufs_pwrite(file, message, strlen(message), 0) < 0 || narufs_fsync(file) ||
        narufs_close(file) ||
        narufs_rename(fs, "/queue/.new", fs, "/queue/message", NARUFS_RENAME_REPLACE) ||
        narufs_sync(fs))
        return failed("write");

    char text[64] = "";
    file = narufs_open(fs, "/queue/message", O_RDONLY, 0);
    if (!file || narufs_pread(file, text, sizeof text - 1, 0) < 0)
        return failed("read");
    printf("%s\n", text);

    if (narufs_close(file) || narufs_unmount(fs))
        return failed("unmount");
    return 0;
}
