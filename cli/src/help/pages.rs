//! What the help of each command says below its arguments.

use super::Part::{self, Table, Text};

/// The page of a command, or of the program itself.
pub fn below(command: &str) -> &'static [Part] {
    match command {
        "narufs" => NARUFS,
        "mkfs" => MKFS,
        "mount" => MOUNT,
        "umount" => UMOUNT,
        "sync" => SYNC,
        "resize" => RESIZE,
        "trim" => TRIM,
        "fsck" => FSCK,
        "stats" => STATS,
        "top" => TOP,
        "metrics" => METRICS,
        "doctor" => DOCTOR,
        "upgrade" => UPGRADE,
        "bench" => BENCH,
        "reproduce" => REPRODUCE,
        "compare" => COMPARE,
        _ => &[],
    }
}

const NARUFS: &[Part] = &[
    Table(
        "First steps:",
        &[
            ("narufs mkfs disk.img --size 8G", "make a file system in a file"),
            ("narufs mount disk.img /mnt/naru", "mount it"),
            ("narufs stats /mnt/naru", "see what it does"),
            ("narufs doctor /mnt/naru", "see what would suit it better"),
            ("narufs umount /mnt/naru", "unmount it and wait until everything is down"),
            (
                "narufs mount --scratch --memory 4G --spill /var/tmp /mnt/fast",
                "files in memory that overflow to disk; kept until the unmount",
            ),
            ("narufs bench varmail --target DIR", "measure a file system, this or another"),
        ],
    ),
    Table(
        "Environment:",
        &[
            ("NARUFS_LOG", "what is logged to standard error: error, warn (default), info, debug, trace"),
            ("NARUFS_MOUNTER", "the socket of who mounts for a service that may not: narufs-mount@.socket"),
        ],
    ),
    Text("`narufs COMMAND --help` explains a command, its options and its exit status."),
];

const MKFS: &[Part] = &[
    Table(
        "Examples:",
        &[
            ("narufs mkfs disk.img --size 8G", ""),
            ("narufs mkfs /dev/nvme0n1p3 --label scratch --force", ""),
            ("narufs mkfs disk.img --size 8G --journal-emulated /dev/shm/naru.ring", ""),
        ],
    ),
    Text(
        "The image's space is reserved at once unless --sparse is given, so that a full host file system cannot \
         fail a write later. Sizes take K, M, G, T (powers of 1024).",
    ),
    Text("Exit status: 0 made, 1 failed, 2 wrong usage."),
];

const MOUNT: &[Part] = &[
    Table(
        "Options (-o a,b=c):",
        &[
            (
                "ro | rw",
                "read only: shows everything that recovery would bring back, and writes nothing (so there is no \
                 norecovery) | read and write (default)",
            ),
            (
                "durability=power",
                "fsync waits until the device has flushed (default). Below a consensus log, or a database with a \
                 synchronous standby, never less: a member that comes back older breaks its promise",
            ),
            (
                "durability=window=100ms",
                "fsync returns at once while no answer is older that a loss of power would take back, else waits; \
                 what such a loss leaves is a state not older than that (1ms to 60s)",
            ),
            (
                "durability=process",
                "fsync waits until the data survive the end of the server, not of the machine",
            ),
            ("commit=SECONDS", "commit what nobody synced after this time (default 5)"),
            ("sync", "every write is synchronous, as with O_SYNC (async: as usual)"),
            (
                "relatime",
                "reading updates an access time that is older than the modification, or than a day (default)",
            ),
            ("noatime", "reading updates no access times"),
            (
                "strictatime",
                "reading always updates the access time: files pass the kernel's cache by, as with io=direct \
                 (before Linux 6.6 the first read after each open does). Not with io=cached",
            ),
            (
                "lazytime",
                "access times stay in memory until something else writes the inode (nolazytime: they do not)",
            ),
            (
                "io=auto",
                "the kernel caches what is read; each write is a request; O_DIRECT passes the kernel's cache by \
                 (default)",
            ),
            ("io=direct", "all files pass the kernel's cache by: for many threads on one file"),
            (
                "io=cached",
                "the kernel caches what is written, too: rewriting costs no request until fsync or close; a \
                 server that is killed and has no successor loses what was not synced; implies permissions=kernel. \
                 For large files written in small pieces; small files that are made and closed get slower. Before Linux 6.2 not within \
                 a control group's memory limit: the kernel ends processes there",
            ),
            (
                "noxattr",
                "no extended attributes through the mount: the kernel then does not ask for one before each \
                 append; the server still heeds access lists. Implies permissions=server",
            ),
            (
                "transport=auto",
                "the kernel hands requests over through /dev/fuse where the mount is to survive its server; else \
                 through io_uring where it has that (Linux 6.14) and the parameter enable_uring of its module fuse \
                 says Y (default)",
            ),
            (
                "transport=uring",
                "through io_uring, turning it on if need be, or not at all: the mount ends with its server",
            ),
            ("transport=dev", "through /dev/fuse"),
            (
                "supervise=yes",
                "the mount survives its server, killed, crashed or upgraded: another process keeps it and starts the \
                 next server, and programs notice a pause; killed itself, it is replaced by the server. Open files, \
                 unlinked ones too, working directories, locks, maps, calls that wait and what was written and not \
                 synced all go on. The default, but before Linux 6.9, of scratch space, and with transport=uring: there \
                 the mount ends with its server, and this is refused. Killed both at once the mount ends, unless it is a service whose \
                 descriptors systemd keeps: docs/systemd has a unit",
            ),
            ("supervise=no", "the mount ends with its server"),
            (
                "harden=yes",
                "the server gives up what it does not need before it reads the image: capabilities, other files \
                 (Landlock), system calls (seccomp), the start of programs; another process mounts and unmounts for it. \
                 As far as the kernel can: narufs stats shows what is in force (default)",
            ),
            ("harden=no", "it keeps all that who mounts may do"),
            (
                "awake | noawake",
                "idle cores stay awake while requests come, until none has for 30 ms: in a virtual machine waking one \
                 takes longer than a request; and one client alone may be served from another core than its own | \
                 neither (default: as awake, in virtual machines with the kernel's idle driver haltpoll and at most 8 \
                 cores)",
            ),
            (
                "journal=PATH",
                "where a journal outside of the image lies, in place of the path that the image names. A clean image gets \
                 a new one there if nothing lies there but zeros or a journal of its own; at a path that the image alone \
                 names only in /dev/shm",
            ),
            (
                "copied | moved",
                "of an image that was not unmounted, where /dev/shm has the newest of the journal of another file or device \
                 with the same UUID: this image is a copy of that, and is recovered by itself, as after a loss of power | \
                 it is that image, at another place, and takes what lies there. Without either it is refused",
            ),
            (
                "metrics=PORT",
                "serve the counters to Prometheus by HTTP at /metrics, to this machine alone (default: not served). \
                 metrics=ADDRESS:PORT says to whom, metrics=unix:PATH a socket. Who can reach it sees how much the mount \
                 does, and nothing of what is in it: docs/OPERATE",
            ),
            (
                "memory=SIZE",
                "page cache (default: a quarter of memory or of the control group's limit, at most 4G)",
            ),
            (
                "metadata_memory=SIZE",
                "metadata pages and inodes (default: a sixteenth of memory or of the control group's limit, 64M \
                 to 1G)",
            ),
            (
                "scratch",
                "files in memory, without an image; nothing is left of them after the unmount, fsync does \
                 nothing. memory=SIZE is for files and metadata together",
            ),
            (
                "spill=PATH",
                "where scratch puts what memory has no room for: a block device, a file, or a directory for a \
                 nameless file; what it holds is lost. Without it: no space (ENOSPC)",
            ),
            (
                "spill_size=SIZE",
                "bytes of it to use (default: all; of a new file 8 times the memory if there is room)",
            ),
            ("force", "spill to PATH even if it holds data"),
            ("nvm_delay=NS", "for measurements with an emulated journal: each fence takes so much longer"),
            ("nvm_bandwidth=SIZE", "likewise: write-backs reach so many bytes per second"),
            #[cfg(feature = "baselines")]
            (
                "baseline=NAME[+NAME...]",
                "do this the way of the systems that narufs is measured against: journal-jbd2, journal-fine, \
                 journal-paper; data-ordered; checkpoint-one, checkpoint-64; lock-inode, lock-tree; ids-global, \
                 ids-scan; and, of scratch space, spill-clean-lost, spill-read-before-overwrite, spill-blind-readahead",
            ),
            ("allow_other", "other users may enter the mount (default for root)"),
            (
                "permissions=kernel",
                "the kernel checks permissions and access lists, and trusts what it has been told for as long as \
                 nothing changes: looking at names, attributes, links and listings again, opening and closing cost \
                 no request (default; default_permissions says the same)",
            ),
            (
                "permissions=server",
                "the server checks them, at each look-up and open: one request less for a name made in a \
                 directory that everyone may search, many more everywhere else; implies nodev, and modes of FIFOs \
                 and sockets protect nothing",
            ),
            ("remount", "change ro, rw and the flags below of what is mounted; the rest takes a new mount"),
            (
                "suid, dev, exec",
                "and nosuid, nodev, noexec (default nosuid,nodev; of root through mount(8) suid,dev, as that is \
                 used to)",
            ),
        ],
    ),
    Table(
        "Examples:",
        &[
            ("narufs mount disk.img /mnt/naru", ""),
            ("narufs mount --scratch --memory 4G --spill /dev/nvme0n1p4 /mnt/fast", ""),
            ("mount -t narufs -o scratch,memory=4G,spill=/var/tmp none /mnt/fast", ""),
        ],
    ),
    Text(
        "An image from a stranger: check it first (narufs fsck IMAGE), and leave suid and dev off, which is the default \
         here, not of root's mount(8) and fstab: say nosuid,nodev there. docs/OPERATE says more.",
    ),
    Text(
        "Exit status, as mount(8): 0 mounted, 1 wrong usage or no permission, 2 system error, 32 mount failed.",
    ),
];

const UMOUNT: &[Part] = &[
    Text(
        "The command returns when the server has written everything and ended: the image can be copied or mounted \
         anew at once. It does not wait where the file system goes on: detached by --lazy, mounted elsewhere as \
         well, or served by a program that has it open for itself. umount(8) calls it where narufs is installed, and does the same.",
    ),
    Text(
        "Exit status, as umount(8): 0 unmounted, 1 wrong usage, 32 failed, or not all could be written down.",
    ),
];

const SYNC: &[Part] = &[
    Text(
        "sync(1) and syncfs(2) do not reach a file system in user space; this command does. Of what io=cached, or a \
         program by a shared map, has the kernel keep, the kernel is told to send it first; newer ones do not wait for \
         that: fsync(2) and msync(2) do.",
    ),
    Text("Exit status: 0 everything is down, 1 it is not."),
];

const RESIZE: &[Part] = &[
    Table(
        "Examples:",
        &[
            ("narufs resize /mnt/naru 16G", "while it is used; the image file grows, too"),
            ("narufs resize disk.img +4G", "one that is not mounted"),
            ("narufs resize /mnt/naru", "as large as its device, after lvextend(8) for instance"),
        ],
    ),
    Text(
        "A file system can grow, not shrink. A crash meanwhile leaves it with the old size or the new one. The \
         space of a longer image file is reserved unless --sparse is given. The journal keeps its size, and the \
         number of files stays bounded by 16 for each 4 KiB of the size that it was made with.",
    ),
    Text("Exit status: 0 it has the size, 1 it has not, 2 wrong usage."),
];

const TRIM: &[Part] = &[
    Text(
        "fstrim(8) does the same. An SSD writes faster when it knows what is free; of an image file the host file \
         system gets the space back (and no longer reserves it for the image: mkfs and resize do that). Only root \
         and the user who mounted may trim.",
    ),
    Text("Exit status: 0 done, 1 failed, 2 wrong usage."),
];

const FSCK: &[Part] = &[
    Text(
        "Without --repair nothing is written. An image that was not unmounted cleanly is checked as recovery \
         would leave it.",
    ),
    Text(
        "Exit status, as fsck(8): 0 clean, 1 problems mended, 4 problems left, 8 the check failed, 16 wrong usage.",
    ),
];

const STATS: &[Part] = &[Text(
    "Counters start at the mount. Reads and writes of the device are shown under their cause, waits under the \
     class of lock that was waited for. Requests are the kernel's, by its names for them; nobody waits for some, or \
     the kernel itself asked, as when it writes its cache back.",
)];

const TOP: &[Part] = &[
    Table("Keys:", &[("q", "quit"), ("p", "pause, and go on"), ("arrows, tab", "the other mounts")]),
    Table(
        "Examples:",
        &[
            ("narufs top /mnt/naru", ""),
            ("narufs top /mnt/a /mnt/b --interval 5", "two mounts, a look each 5 seconds"),
            ("narufs top /mnt/naru --once --json", "what was done in one second, for a program"),
        ],
    ),
    Text(
        "Times are from the receipt of a request by the server to its answer. Device bytes stand under their cause; \
         commits with how many callers each has served; the ring's laps are how often the journal goes around. `held` is \
         writes that waited because too much is dirty. What is at nine tenths of its limit is red.",
    ),
    Text("Exit status: 0 shown, 1 no mount answers any more, 2 wrong usage."),
];

const METRICS: &[Part] = &[
    Table(
        "Examples:",
        &[
            ("narufs metrics /mnt/naru", "once"),
            ("narufs mount disk.img /mnt/naru -o metrics=9101", "served, for as long as it is mounted"),
        ],
    ),
    Text(
        "Counters begin again with each server of a mount: narufs_incarnation says which it is, and \
         narufs_start_time_seconds since when it counts. docs/monitoring has a dashboard and rules for alerts.",
    ),
    Text("Exit status: 0 shown, 1 a mount has not answered, 2 wrong usage."),
];

const DOCTOR: &[Part] = &[
    Text(
        "Each line says of one thing that it is good, could be better, and by which option or command, or stops narufs. \
         With a place it tells of what lies below as well: the device's cache and how long a write and a flush take, \
         measured for a second at the most with a file without a name beside the image. Nothing is changed. Of a block \
         device reads are timed, writes only with --write.",
    ),
    Table(
        "Examples:",
        &[
            ("narufs doctor", "this machine"),
            ("narufs doctor /var/lib/disk.img", "and an image, with what it lies on"),
            ("narufs doctor /mnt/naru --json", "and a mount, for programs"),
        ],
    ),
    Text("Exit status: 0 nothing stops narufs, 1 something does, 2 wrong usage."),
];

const UPGRADE: &[Part] = &[
    Text(
        "The program that this command is of takes the place of the one that serves: of the server, and of the \
         supervisor that has started it. Programs that use the mount notice a pause. If the new one does not understand \
         the options, or what the old one leaves, it is refused, and the old one goes on; so it does if the new one ends \
         before it serves. SIGHUP of the supervisor (narufs stats shows its process) does the same with the program that \
         now has the name of the old one.",
    ),
    Text("Exit status: 0 it serves, 1 it does not, 2 wrong usage."),
];

const BENCH: &[Part] = &[
    Table(
        "Examples:",
        &[
            ("narufs bench --list", "what there is, and what one operation is"),
            ("narufs bench varmail --target /mnt/naru --threads 1,2,16", ""),
            ("narufs bench DWOM MWCL --target lib:disk.img --json out.json", "the engine without a mount"),
            ("narufs bench tokubench --paper --target /mnt/ext4", "3,000,000 files"),
            ("narufs bench iozone --memory 512M --ratio 1.25 --target /mnt/naru", ""),
            ("narufs bench daily --target /mnt/naru", "everyday work by real programs"),
        ],
    ),
    Text(
        "Files are made in a new directory below the target, and removed. An image is mounted in a process of its \
         own. After the time everything is synced, that process is killed and the image is mounted anew, and what \
         was written is compared; what a directory holds is compared as it is. Device I/O of a kernel file system \
         is that of its whole device; of narufs, what its engine counts by cause.",
    ),
    Text(
        "A row of narufs that goes around its journal less than three times says `unlapped`: give it more time or \
         a smaller journal before comparing.",
    ),
    Text(
        "Exit status: 0 measured, 1 failed, 2 wrong usage, 127 narufs-bench is not installed, 130 interrupted.",
    ),
];

const COMPARE: &[Part] = &[
    Table(
        "Examples:",
        &[
            ("narufs compare --quick --report out", "some minutes; out/report.html, out/results.json"),
            ("narufs compare --report out --rounds 5", "everything, hours"),
            ("narufs compare --quick --contenders ext4,narufs-ssd --workloads DWSL,varmail", ""),
            ("narufs compare --workloads spill", "more data than memory: iozone under a memory limit"),
            ("narufs compare --workloads daily", "everyday work by real programs"),
            ("narufs compare --device /dev/nvme1n1", "on a real device; everything on it is lost"),
        ],
    ),
    Text(
        "All contenders lie on the same device: a loop device with direct I/O over a file that was written \
         beforehand, made in --work; for those in RAM, loop devices over shared memory. File systems are made anew \
         for each run; contenders take turns (A B C, A B C, ...). Devices, files and mounts are removed whatever \
         happens. For data beyond memory, generator, server and caches share the memory limit of a control group, \
         and tmpfs swaps to the device of all. What cannot run here is listed with the reason.",
    ),
    Text(
        "Exit status: 0 compared, 1 failed, 2 wrong usage, 127 narufs-bench is not installed, 130 interrupted.",
    ),
];

const REPRODUCE: &[Part] = &[
    Table(
        "Examples:",
        &[
            ("narufs reproduce --quick", "some minutes: that all of it works"),
            ("narufs reproduce --report out", "five rounds, and a page for each paper: hours"),
            ("narufs reproduce range-lock nat", "two of the papers"),
            ("narufs reproduce journaling --json", "results for a program"),
        ],
    ),
    Text(
        "Each paper's baseline and its technique run in this engine, without a mount, on the same device, in turn. Beside \
         them stand the paper's own figures, and what a model with figures of this machine says of the papers' machines. \
         Images are made in --work, on the device that is to be measured, and removed.",
    ),
    Text(
        "The baselines are in narufs-reproduce alone, which `make reproduce` builds. One that a build does not have is \
         named, and left out.",
    ),
    Text(
        "Exit status: 0 measured, 1 failed, 2 wrong usage, 127 narufs-reproduce is not built, 130 interrupted.",
    ),
];
