//! The locks over the buckets of one directory: one word while nobody meets, then 64 stripes.
//!
//! A bucket belongs to a stripe by its number or hash, modulo 64. While the directory is used by one thread
//! at a time its lock is the [`OneWord`], which stands for all stripes; the first conflict makes the stripes.
//! A thread takes what it needs of one directory in one request (a [`StripeSet`]), since a second request
//! might wait for the first.

use super::one_word::{OneWord, Way};
use super::{Access, Held, LockClass, Rank, RankedMutex};
use crate::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

const STRIPES: usize = 64;

/// A set of stripes of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StripeSet(u64);

impl StripeSet {
    /// Every bucket, as rmdir needs.
    pub const ALL: StripeSet = StripeSet(u64::MAX);

    /// The stripe of one bucket.
    pub const fn of(bucket: u64) -> Self {
        StripeSet(1 << (bucket % STRIPES as u64))
    }

    /// This set and the stripe of another bucket.
    #[must_use]
    pub const fn and(self, bucket: u64) -> Self {
        self.union(Self::of(bucket))
    }

    /// Both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        StripeSet(self.0 | other.0)
    }

    fn members(self) -> impl Iterator<Item = usize> {
        (0..STRIPES).filter(move |i| self.0 & (1 << i) != 0)
    }
}

/// One stripe on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(RwLock<()>);

/// The locks over the buckets of one directory.
#[derive(Debug)]
pub struct BucketLocks {
    directory: u64,
    word: OneWord,
    stripes: OnceLock<Box<[Stripe]>>,
    growth: RankedMutex<()>,
}

#[derive(Debug)]
enum StripeGuard<'a> {
    Read(#[expect(dead_code, reason = "unlocks when dropped")] RwLockReadGuard<'a, ()>),
    Write(#[expect(dead_code, reason = "unlocks when dropped")] RwLockWriteGuard<'a, ()>),
}

/// Held buckets.
#[derive(Debug)]
#[must_use = "the buckets are unlocked when the guard is dropped"]
pub struct BucketGuard<'a> {
    /// Set while the word is held, with how.
    word: Option<(&'a OneWord, Access)>,
    /// One or two stripes are the usual case and need no memory.
    _few: [Option<StripeGuard<'a>>; 2],
    _more: Vec<StripeGuard<'a>>,
    _held: Held,
}

impl BucketLocks {
    /// The locks of the directory `nid`, held by nobody.
    pub fn new(nid: u64) -> Self {
        let growth = RankedMutex::new(Rank::new(LockClass::Growth, nid), ());
        BucketLocks { directory: nid, word: OneWord::default(), stripes: OnceLock::new(), growth }
    }

    /// A thread that gives the directory room holds this, from before it takes credits: they are many, and one set is
    /// enough.
    pub fn growth(&self) -> &RankedMutex<()> {
        &self.growth
    }

    pub(super) fn rank(&self) -> Rank {
        Rank::buckets(self.directory)
    }

    /// Waits for buckets.
    pub fn lock(&self, set: StripeSet, access: Access) -> BucketGuard<'_> {
        let held = self.rank().waiting();
        let way = self.word.try_enter(access, || self.make_stripes());
        if way == Some(Way::Word) {
            return self.by_word(access, held);
        }
        if way.is_none() {
            LockClass::Inode.wait(|| self.word.wait_until_left());
        }
        self.by_stripes(set, |stripe| Some(stripe.lock(access)), held)
            .expect("a wait for a stripe ends with the stripe")
    }

    /// Takes buckets without waiting. It may fail while other buckets of the directory are held.
    pub fn try_lock(&self, set: StripeSet, access: Access) -> Option<BucketGuard<'_>> {
        match self.word.try_enter(access, || self.make_stripes())? {
            Way::Word => Some(self.by_word(access, self.rank().tried())),
            Way::Table => self.by_stripes(set, |stripe| stripe.try_lock(access), self.rank().tried()),
        }
    }

    fn make_stripes(&self) {
        self.stripes.get_or_init(|| (0..STRIPES).map(|_| Stripe::default()).collect());
    }

    fn by_word(&self, access: Access, held: Held) -> BucketGuard<'_> {
        BucketGuard { word: Some((&self.word, access)), _few: [None, None], _more: Vec::new(), _held: held }
    }

    /// Takes the stripes of a set in ascending order, all or none.
    fn by_stripes<'a>(
        &'a self,
        set: StripeSet,
        mut take: impl FnMut(&'a Stripe) -> Option<StripeGuard<'a>>,
        held: Held,
    ) -> Option<BucketGuard<'a>> {
        let stripes = self.stripes.get().expect("the stripes are made before the word is opened");
        let mut few = [None, None];
        let mut more = Vec::new();
        for (n, i) in set.members().enumerate() {
            let guard = take(&stripes[i])?;
            match few.get_mut(n) {
                Some(place) => *place = Some(guard),
                None => more.push(guard),
            }
        }
        Some(BucketGuard { word: None, _few: few, _more: more, _held: held })
    }
}

impl Stripe {
    fn try_lock(&self, access: Access) -> Option<StripeGuard<'_>> {
        match access {
            Access::Read => self.0.try_read().map(StripeGuard::Read),
            Access::Write => self.0.try_write().map(StripeGuard::Write),
        }
    }

    fn lock(&self, access: Access) -> StripeGuard<'_> {
        self.try_lock(access).unwrap_or_else(|| {
            LockClass::Inode.wait(|| match access {
                Access::Read => StripeGuard::Read(self.0.read()),
                Access::Write => StripeGuard::Write(self.0.write()),
            })
        })
    }
}

impl Drop for BucketGuard<'_> {
    fn drop(&mut self) {
        if let Some((word, access)) = self.word {
            word.leave(access);
        }
    }
}
