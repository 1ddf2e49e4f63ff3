//! The lock that guards the bytes of the files of a volume: the range lock, and nothing else unless the build has what
//! narufs is measured against.

#[cfg(not(feature = "baselines"))]
mod sole {
    /// The lock of a file's bytes.
    pub type BytesLock = crate::lock::RangeLock;
    /// A held range of them.
    pub type BytesGuard<'a> = crate::lock::RangeGuard<'a>;
}

#[cfg(not(feature = "baselines"))]
pub use sole::{BytesGuard, BytesLock};

#[cfg(feature = "baselines")]
mod any {
    use crate::baseline::LockBaseline;
    use crate::lock::{FileLock, RangeGuard, RangeLock, TreeGuard, TreeLock, WholeFileGuard, WholeFileLock};
    use std::ops::Range;

    /// The lock of a file's bytes.
    #[derive(Debug)]
    pub enum BytesLock {
        /// The engine's own.
        Ours(RangeLock),
        /// One for the whole file.
        Inode(WholeFileLock),
        /// The published one.
        Tree(TreeLock),
    }

    /// A held range of them.
    #[derive(Debug)]
    #[must_use = "the range is released when the guard is dropped"]
    pub enum BytesGuard<'a> {
        /// Of the engine's own lock.
        Ours(RangeGuard<'a>),
        /// Of the one for the whole file.
        Inode(WholeFileGuard<'a>),
        /// Of the published one.
        Tree(TreeGuard<'a>),
    }

    impl BytesLock {
        /// The chosen lock of the file `nid`, held by nobody.
        pub fn chosen(nid: u64, by: LockBaseline) -> BytesLock {
            match by {
                LockBaseline::Ours => BytesLock::Ours(RangeLock::for_file(nid)),
                LockBaseline::Inode => BytesLock::Inode(WholeFileLock::for_file(nid)),
                LockBaseline::Tree => BytesLock::Tree(TreeLock::for_file(nid)),
            }
        }
    }

    impl FileLock for BytesLock {
        type Guard<'a> = BytesGuard<'a>;

        fn for_file(nid: u64) -> Self {
            BytesLock::chosen(nid, LockBaseline::Ours)
        }

        #[inline]
        fn read(&self, range: Range<u64>) -> BytesGuard<'_> {
            match self {
                BytesLock::Ours(lock) => BytesGuard::Ours(lock.read(range)),
                BytesLock::Inode(lock) => BytesGuard::Inode(lock.read(range)),
                BytesLock::Tree(lock) => BytesGuard::Tree(lock.read(range)),
            }
        }

        #[inline]
        fn write(&self, range: Range<u64>) -> BytesGuard<'_> {
            match self {
                BytesLock::Ours(lock) => BytesGuard::Ours(lock.write(range)),
                BytesLock::Inode(lock) => BytesGuard::Inode(lock.write(range)),
                BytesLock::Tree(lock) => BytesGuard::Tree(lock.write(range)),
            }
        }

        fn try_read(&self, range: Range<u64>) -> Option<BytesGuard<'_>> {
            match self {
                BytesLock::Ours(lock) => lock.try_read(range).map(BytesGuard::Ours),
                BytesLock::Inode(lock) => lock.try_read(range).map(BytesGuard::Inode),
                BytesLock::Tree(lock) => lock.try_read(range).map(BytesGuard::Tree),
            }
        }

        fn try_write(&self, range: Range<u64>) -> Option<BytesGuard<'_>> {
            match self {
                BytesLock::Ours(lock) => lock.try_write(range).map(BytesGuard::Ours),
                BytesLock::Inode(lock) => lock.try_write(range).map(BytesGuard::Inode),
                BytesLock::Tree(lock) => lock.try_write(range).map(BytesGuard::Tree),
            }
        }

        #[inline]
        fn is_written(&self, range: Range<u64>) -> bool {
            match self {
                BytesLock::Ours(lock) => lock.is_written(range),
                BytesLock::Inode(lock) => lock.is_written(range),
                BytesLock::Tree(lock) => lock.is_written(range),
            }
        }
    }
}

#[cfg(feature = "baselines")]
pub use any::{BytesGuard, BytesLock};
