//! Why the kernel sends what is in the rows, and what would end it.

/// Kinds, and a line about them.
pub const REASONS: [(&[&str], &str); 16] = [
    (
        &["LOOKUP"],
        "a name that the kernel has not seen. Once seen, names that are there and names that are not cost \
         nothing, but for calls that must not be wrong about them: O_EXCL, mkdir, symlink and link, and \
         where a rename leads to, are looked up each time, whatever the server has answered before. Nothing \
         ends that. A listing brings the look-ups of its names along.",
    ),
    (&["CREATE", "MKDIR", "SYMLINK", "LINK", "UNLINK", "RMDIR", "RENAME"], "the change itself, one a call."),
    (
        &["GETATTR"],
        "of a directory: the kernel forgets its attributes when it has changed a name in it, and needs them \
         to check permission for the next call there. With `permissions=server` it does not, and looks names \
         up instead.\n  Of a file, or a directory that was listed, once somebody asks for its attributes: a \
         write, a read that was a request, and a changed extended attribute change times that the server \
         alone knows. The answer to SETATTR brings attributes along; the answers to WRITE and READ have no \
         room for them.",
    ),
    (&["SETATTR"], "one a call: chmod, chown, utimens and a truncation are not gathered by the kernel."),
    (
        &["GETXATTR"],
        "the kernel keeps no extended attributes, whether they are there or not; of access lists it keeps \
         what it was told until it asks for attributes or looks the name up anew, so a change in a directory \
         that is somebody else's asks for the directory's list behind its attributes.\n  By itself it asks for \
         `security.capability` before it may take that away: at each chown and truncation, at fallocate and \
         copy_file_range, and at the first write through its cache since it was last told attributes of the \
         file. ENOSYS alone ends that, for all extended attributes of the mount and for good, and access \
         lists with them: `noxattr`, where the server checks permissions.",
    ),
    (&["LISTXATTR"], "one a call: the kernel never keeps the names."),
    (
        &["SETXATTR", "REMOVEXATTR"],
        "the change itself, also where an access list says no more than the mode does.",
    ),
    (&["READ"], "bytes that are not in the kernel's cache, as much at once as it reads ahead."),
    (
        &["WRITE"],
        "one for each write(2) of up to 1 MiB to a file that was made for writing alone, which goes past the \
         kernel's cache (two, if 1 MiB of memory lies in 257 pages). Of other files the kernel's cache is \
         written through: one that begins within a page and goes on behind it is two. `io=cached` gathers \
         them.",
    ),
    (&["FSYNC"], "one a call: the server knows what is not durable yet, the kernel does not."),
    (&["FALLOCATE"], "the change itself, however long."),
    (&["COPY_FILE_RANGE_64"], "the change itself, 64 MiB at a time."),
    (&["READLINK"], "the first time; the kernel keeps the answer."),
    (
        &["READDIRPLUS"],
        "the first listing: names with their attributes, so that no LOOKUP follows. The kernel keeps it \
         until the directory changes.",
    ),
    (&["READDIR"], "the end of the first listing: the kernel takes only an empty answer for it."),
    (&["STATFS"], "one a call: the kernel never keeps the numbers."),
];
