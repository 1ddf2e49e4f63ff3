//! What the rules allow: exceptions for good, each with its reason, and baselines, which only sink.

/// How many cases a rule still finds in the tree. Lowered with each that goes; the aim is zero.
#[derive(Clone, Copy)]
pub struct Baseline(pub usize);

/// Whether a baseline above what is found fails, so that it must be lowered.
pub const STRICT: bool = true;

/// Imports that may run up: the file, the module it names, the reason.
pub const UPWARD: [(&str, &str, &str); 0] = [];

/// Imports of a module above.
pub const UPWARD_IMPORTS: Baseline = Baseline(0);

/// Imports that close circles of files across modules.
pub const CIRCLE_EDGES: Baseline = Baseline(0);

/// Inherent methods on a type of another module.
pub const FOREIGN_METHODS: Baseline = Baseline(0);

/// Files of Rust that are too long.
pub const LONG_FILES: Baseline = Baseline(0);

/// Public items without a word.
pub const WITHOUT_DOCS: Baseline = Baseline(0);

/// Links of documents to nothing.
pub const BROKEN_LINKS: Baseline = Baseline(0);

/// Names of files in documents and comments that are not there.
pub const MISSING_FILES: Baseline = Baseline(0);

/// What looks like a file of ours and is not, with the reason.
pub const NOT_OURS: [(&str, &str); 0] = [];

/// Names of tests in documents and comments that are not there.
pub const MISSING_TESTS: Baseline = Baseline(0);

/// Rows of docs/POSIX.md that name no test.
pub const UNTESTED_OPERATIONS: Baseline = Baseline(0);

/// Rows of docs/CONSISTENCY.md that name no test.
pub const UNTESTED_SENTENCES: Baseline = Baseline(0);

/// Tests that return early.
pub const EARLY_ENDS: Baseline = Baseline(0);

/// Tests that are none: processes that other tests start, with a variable of the environment.
pub const CHILDREN: [(&str, &str); 4] = [
    ("objects_in_a_process_of_its_own", "a store of objects that a test kills"),
    ("serve_in_a_process_of_its_own", "a server that tests kill"),
    ("load", "a process whose memory is looked at"),
    ("commit_until_killed", "a process that is killed in the midst of commits"),
];

/// Lines of prose that are too long.
pub const LONG_LINES: Baseline = Baseline(0);

/// Files that hold a name that was renamed away.
pub const OLD_NAMES_LEFT: Baseline = Baseline(0);

/// Names that were renamed away, as files whose path contains this may not have them, and what took their place. In
/// snake case they are meant as part of longer names too; with a capital, they are the whole name.
pub const OLD_NAMES: [(&str, &str, &str); 30] = [
    ("reached", "engine/src/vfs/", "at"),
    ("by_name", "engine/src/vfs/", "by_nid"),
    ("glance", "", "optimistic read"),
    ("is_as_seen", "", "validate"),
    ("relief", "", "flusher"),
    ("press", "engine/src/file/", "pressure"),
    ("pace", "engine/src/file/", "throttle"),
    ("together", "engine/src/file/", "batch"),
    ("pieces", "engine/src/file/", "extents or submit"),
    ("growth", "engine/src/file/", "speculative preallocation"),
    ("in_hands", "", "under write-back"),
    ("doomed", "", "truncate pending"),
    ("rewritings", "", "truncate generation"),
    ("stick", "", "poison"),
    ("stash", "", "frame reservation"),
    ("staging", "engine/src/file/", "bounce buffers"),
    ("ledger", "", "readahead budget"),
    ("flight", "engine/src/file/", "request"),
    ("landing", "engine/src/file/", "hand-off"),
    ("departing", "", "pending eviction"),
    ("closings", "", "permission generation"),
    ("unborn", "", "new"),
    ("bring_forth", "", "publish"),
    ("ranged", "engine/src/", "RCU table"),
    ("crew", "", "scoped threads"),
    ("loan", "", "lease"),
    ("wary", "", "back-off"),
    ("horizon", "", "durability"),
    ("Wanted", "engine/src/", "durability"),
    ("Home", "engine/src/", "file metadata"),
];

/// Files with unsafe code. Each gives its reason beside its `allow(unsafe_code)`.
pub const UNSAFE: [&str; 68] = [
    "bench/src/memory.rs",
    "cli/src/harden/install.rs",
    "cli/src/heap.rs",
    "doors/c/src/args.rs",
    "doors/c/src/batch.rs",
    "doors/c/src/dir.rs",
    "doors/c/src/entries.rs",
    "doors/c/src/fail.rs",
    "doors/c/src/file.rs",
    "doors/c/src/hazard.rs",
    "doors/c/src/io.rs",
    "doors/c/src/later.rs",
    "doors/c/src/locks.rs",
    "doors/c/src/names.rs",
    "doors/c/src/ranges.rs",
    "doors/c/src/system.rs",
    "doors/c/src/table.rs",
    "doors/c/src/table/loom_models.rs",
    "doors/c/src/types.rs",
    "doors/c/src/xattrs.rs",
    "doors/sqlite/preload/src/lib.rs",
    "doors/sqlite/src/ffi.rs",
    "doors/sqlite/src/methods.rs",
    "doors/sqlite/src/vfs.rs",
    "engine/src/cache/copy.rs",
    "engine/src/cache/frame_table.rs",
    "engine/src/cache/free.rs",
    "engine/src/cache/guards.rs",
    "engine/src/cache/loom_models.rs",
    "engine/src/cache/memory.rs",
    "engine/src/cache/pool.rs",
    "engine/src/device/buffer.rs",
    "engine/src/device/chunk.rs",
    "engine/src/device/uring/ring.rs",
    "engine/src/fork.rs",
    "engine/src/journal/tests/memory.rs",
    "engine/src/pmem/flush.rs",
    "engine/src/pmem/heap.rs",
    "engine/src/pmem/mapped.rs",
    "engine/src/pmem/words.rs",
    "engine/src/rcu_table/leaf.rs",
    "engine/src/rcu_table/loom_models.rs",
    "engine/src/rcu_table/mod.rs",
    "engine/src/rcu_table/own.rs",
    "engine/src/rcu_table/shard.rs",
    "engine/src/rcu_table/tests.rs",
    "engine/src/sync/loom_readers.rs",
    "engine/src/takeover/homes.rs",
    "engine/src/takeover/inodes.rs",
    "engine/src/takeover/memory.rs",
    "engine/src/takeover/requests/mod.rs",
    "fuse/src/sys.rs",
    "fuse/src/transport/uring/deep.rs",
    "fuse/src/transport/uring/memory.rs",
    "fuse/src/transport/uring/ring.rs",
    "fuse/tests/engine/mapped.rs",
    "fuse/tests/engine/names.rs",
    "fuse/tests/engine/recall.rs",
    "fuse/tests/engine/support.rs",
    "narufs/src/fork.rs",
    "narufs/tests/fork.rs",
    "narufs/tests/fork_locks.rs",
    "research/src/journal/lanes/clock.rs",
    "research/src/locks/list.rs",
    "testing/src/outlive/sys.rs",
    "testing/src/sharing/ptrace.rs",
    "testing/tests/killed_at/aio.rs",
    "testing/tests/lock_memory.rs",
];
