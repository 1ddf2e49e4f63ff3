//! All the inodes and buckets that one operation needs, taken in lock order.

use super::{Access, BucketGuard, BucketLocks, InodeLock, InodeReadGuard, InodeWriteGuard, Rank, StripeSet};

/// One lock that an operation needs.
#[derive(Debug)]
pub enum Want<'a, T> {
    /// An inode.
    Inode(&'a InodeLock<T>, Access),
    /// Buckets of a directory.
    Buckets(&'a BucketLocks, StripeSet, Access),
}

#[derive(Debug)]
enum Got<'a, T> {
    Read(u64, InodeReadGuard<'a, T>),
    Write(u64, InodeWriteGuard<'a, T>),
    Buckets(#[expect(dead_code, reason = "unlocks when dropped")] BucketGuard<'a>),
}

/// Up to `N` locks held together.
///
/// They may be named in any order and more than once (a rename within one directory names it twice): wishes
/// for one lock are joined, and the stronger access counts.
#[derive(Debug)]
#[must_use = "the locks are released when the set is dropped"]
pub struct LockSet<'a, T, const N: usize>([Option<Got<'a, T>>; N]);

impl<T> Clone for Want<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Want<'_, T> {}

impl<'a, T> Want<'a, T> {
    fn rank(&self) -> Rank {
        match self {
            Want::Inode(inode, _) => inode.rank(),
            Want::Buckets(buckets, ..) => buckets.rank(),
        }
    }

    /// One wish for both, which have one rank.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Want::Inode(inode, a), Want::Inode(_, b)) => Want::Inode(inode, a.max(b)),
            (Want::Buckets(buckets, s, a), Want::Buckets(_, t, b)) => {
                Want::Buckets(buckets, s.union(t), a.max(b))
            }
            _ => unreachable!("an inode and its buckets rank apart"),
        }
    }

    fn wait(self) -> Got<'a, T> {
        match self {
            Want::Inode(inode, Access::Read) => Got::Read(inode.nid(), inode.read()),
            Want::Inode(inode, Access::Write) => Got::Write(inode.nid(), inode.write()),
            Want::Buckets(buckets, set, access) => Got::Buckets(buckets.lock(set, access)),
        }
    }

    fn attempt(self) -> Option<Got<'a, T>> {
        Some(match self {
            Want::Inode(inode, Access::Read) => Got::Read(inode.nid(), inode.try_read()?),
            Want::Inode(inode, Access::Write) => Got::Write(inode.nid(), inode.try_write()?),
            Want::Buckets(buckets, set, access) => Got::Buckets(buckets.try_lock(set, access)?),
        })
    }
}

impl<'a, T, const N: usize> LockSet<'a, T, N> {
    /// Waits for all, in lock order.
    pub fn acquire(wants: [Want<'a, T>; N]) -> Self {
        Self::take(wants, |want| Some(want.wait())).expect("a wait ends with the lock")
    }

    /// Takes all or none, without waiting.
    pub fn try_acquire(wants: [Want<'a, T>; N]) -> Option<Self> {
        Self::take(wants, Want::attempt)
    }

    fn take(
        mut wants: [Want<'a, T>; N],
        mut get: impl FnMut(Want<'a, T>) -> Option<Got<'a, T>>,
    ) -> Option<Self> {
        wants.sort_unstable_by_key(Want::rank);
        let mut got = [const { None }; N];
        let mut next = 0;
        for place in &mut got {
            let Some(mut want) = wants.get(next).copied() else { break };
            next += 1;
            while let Some(same) = wants.get(next).filter(|w| w.rank() == want.rank()) {
                want = want.join(*same);
                next += 1;
            }
            *place = Some(get(want)?);
        }
        Some(LockSet(got))
    }

    /// An inode of the set.
    pub fn inode(&self, nid: u64) -> Option<&T> {
        self.0.iter().flatten().find_map(|got| match got {
            Got::Read(n, inode) if *n == nid => Some(&**inode),
            Got::Write(n, inode) if *n == nid => Some(&**inode),
            _ => None,
        })
    }

    /// An inode that the set holds for writing.
    pub fn inode_mut(&mut self, nid: u64) -> Option<&mut T> {
        self.0.iter_mut().flatten().find_map(|got| match got {
            Got::Write(n, inode) if *n == nid => Some(&mut **inode),
            _ => None,
        })
    }
}
