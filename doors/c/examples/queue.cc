// The queue of queue.c, in C++: handles close themselves, failures are exceptions.
//
//     c++ queue.cc $(pkg-config --cflags --libs narufs) -o queue && ./queue queue.img
#include <cerrno>
#include <fcntl.h>
#include <iostream>
#include <memory>
#include <narufs.h>
#include <string>
#include <system_error>

template <typename T, int (*Close)(T *)> struct Closer {
    void operator()(T *handle) const { Close(handle); }
};
using Dir = std::unique_ptr<narufs_dir, Closer<narufs_dir, narufs_dir_close>>;
using File = std::unique_ptr<narufs_file, Closer<narufs_file, narufs_close>>;

template <typename T> static T check(T result, bool failed)
{
    if (failed)
        throw std::system_error(errno, std::generic_category(), narufs_error_message());
    return result;
}
static File open(const Dir &dir, const char *path, int flags)
{
    narufs_file *file = narufs_open(dir.get(), path, flags, 0644);
    return File(check(file, !file));
}
static long done(long result) { return check(result, result < 0); }

int main(int argc, char **argv)
try {
    const char *image = argc > 1 ? argv[1] : "queue.img";
    narufs_format_options format = NARUFS_FORMAT_OPTIONS_INIT;
    format.bytes = 16 << 20;
    if (narufs_format(image, &format) && narufs_error_cause() != NARUFS_CAUSE_REFUSED)
        done(-1);

    narufs_dir *mounted = narufs_mount(image, nullptr);
    Dir fs(check(mounted, !mounted));
    done(narufs_mkdir_all(fs.get(), "/queue"));
    const std::string message = "hello from C++";
    {
        // All or nothing, and durable when it returns.
        File file = open(fs, "/queue/message", O_RDWR | O_CREAT | O_TRUNC);
        narufs_batch *begun = narufs_batch_begin(fs.get());
        check(begun, !begun);
        done(narufs_batch_write(begun, file.get(), message.data(), message.size(), 0));
        done(narufs_batch_commit(begun, NARUFS_COMMIT_DURABLE));
    }
    std::string text(64, '\0');
    File file = open(fs, "/queue/message", O_RDONLY);
    text.resize(done(narufs_pread(file.get(), &text[0], text.size(), 0)));
    std::cout << text << std::endl;

    file.reset();
    done(narufs_unmount(fs.release()));
    return 0;
} catch (const std::exception &e) {
    std::cerr << e.what() << std::endl;
    return 1;
}
