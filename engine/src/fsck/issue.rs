//! What can be wrong with an image: one kind for each sort of damage, with its stable name.

use crate::format::Nid;
use std::fmt;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Severity {
    /// Nothing is lost, nothing can be: space is wasted, or a count is wrong.
    Minor,
    /// Something does not work as it should, or soon will not.
    Major,
    /// Data or names may be lost.
    Grave,
}

/// What became of an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Outcome {
    /// A repair would mend it.
    Mendable,
    /// The repair has mended it.
    Mended,
    /// It stays; why.
    Left(String),
}

macro_rules! issues {
    ($($(#[$doc:meta])* $kind:ident $name:literal $severity:ident $mending:literal,)*) => {
        /// The sorts of damage.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum IssueKind { $($(#[$doc])* $kind,)* }

        impl IssueKind {
            /// Every kind.
            pub const ALL: &[IssueKind] = &[$(IssueKind::$kind),*];

            /// A name that stays the same in all versions.
            pub fn name(self) -> &'static str {
                match self { $(IssueKind::$kind => $name),* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(IssueKind::$kind => Severity::$severity),* }
            }

            /// What a repair does about it, or why it cannot do anything.
            pub fn mending(self) -> &'static str {
                match self { $(IssueKind::$kind => $mending),* }
            }
        }
    };
}

issues! {
    /// One of the two copies of the superblock is damaged.
    SuperblockCopy "superblock-copy" Major "written anew from the other copy",
    /// The superblock says that damage was found earlier.
    MarkedDamaged "marked-damaged" Minor "the mark is removed once nothing grave is left",
    /// Regions of the image overlap.
    Layout "layout" Grave "cannot be mended: restore a backup",
    /// The journal's header is neither blank nor valid, though the image is clean.
    RingHeader "ring-header" Minor "made blank: the next mount makes a new journal",
    /// The image is not clean, and its journal is gone, foreign, or of another age.
    RingMissing "ring-missing" Grave "with --discard-journal it is given up: what was only there is lost",
    /// The journal is damaged below what was committed.
    JournalDamaged "journal-damaged" Grave "with --discard-journal what lies beyond the damage is given up",
    /// What was synced of a file may have been in a part of the journal that is given up.
    ContentOlder "content-older" Grave "it has what the journal holds before the damage, or what lay in place",
    /// The double-write area of a clean image speaks of a round that has not been: a mount would refuse it.
    DoubleWrite "double-write-header" Minor "made blank",
    /// A block of the double-write area cannot be read.
    DoubleWriteUnreadable "double-write-unreadable" Minor "written anew, blank",
    /// A block of the NAT index does not verify.
    NatIndexBlock "nat-index-block" Grave "built anew from the NAT blocks that are found on the image",
    /// A pointer of the NAT index leads to where no NAT block can be, or where another pointer leads.
    NatPointer "nat-pointer" Grave "removed; the NAT block is looked for on the image",
    /// A NAT block does not verify or is another one.
    NatBlock "nat-block" Grave "built anew from the inodes that are found on the image",
    /// A NAT entry leads outside the groups, or nid 0 has one.
    NatEntry "nat-entry" Major "freed",
    /// A NAT entry leads to a slot with no inode or that of another nid.
    NatDangling "nat-dangling" Grave "freed; names that lead there are removed",
    /// The generations of a NAT entry and its inode differ.
    NatGeneration "nat-generation" Major "the inode's counts",
    /// An inode verifies, but its nid is free.
    InodeLost "inode-lost" Grave "the NAT entry is restored",
    /// A slot holds an inode, but the nid's inode lies elsewhere.
    InodeStray "inode-stray" Minor "the slot is freed",
    /// The checksum of an inode does not hold.
    InodeChecksum "inode-checksum" Grave "kept if all else about it holds, freed otherwise",
    /// The mode has no known type.
    InodeMode "inode-mode" Major "it becomes a regular file, readable by root",
    /// Unknown flags, or flags that its type cannot have.
    InodeFlags "inode-flags" Minor "the flags are removed",
    /// A size that its type cannot have.
    InodeSize "inode-size" Major "set to the nearest size that can be",
    /// The number of blocks is wrong.
    InodeBlocks "inode-blocks" Minor "counted anew",
    /// The number of names is wrong.
    InodeLinks "inode-links" Major "counted anew",
    /// A symbolic link without a target that could be one.
    SymlinkTarget "symlink-target" Grave "the link is removed",
    /// The root of an extent tree has an impossible height or number of entries.
    ExtentRoot "extent-root" Grave "emptied: the content is lost",
    /// A block of an extent tree is unreadable, damaged or foreign.
    ExtentNode "extent-node" Grave "removed with what it mapped: that part reads as zeros",
    /// Entries of an extent tree are out of order, overlap, or lie outside of their parent's keys.
    ExtentOrder "extent-order" Grave "the entry is removed: that part reads as zeros",
    /// An extent leads outside of what can be allocated.
    ExtentBounds "extent-bounds" Grave "the extent is removed: that part reads as zeros",
    /// Two inodes own the same blocks.
    BlockTwoOwners "block-two-owners" Grave "the later owner gets a copy of its own; a directory does without what it took for its bucket",
    /// A block of extended attributes is unreadable, damaged or foreign, or an attribute in it is.
    Xattr "xattr-block" Grave "the inode loses its attributes from there on",
    /// The root directory is missing.
    RootMissing "root-missing" Grave "made anew; what it held goes to lost+found",
    /// The number of buckets and the blocks that the directory has do not agree.
    DirBuckets "directory-buckets" Grave "buckets that are missing are looked for on the image, or made anew; or the number is set to those that are there",
    /// A bucket block is unreadable, damaged or foreign.
    Bucket "bucket-block" Grave "built anew from the entries in it that verify",
    /// The chain of overflow blocks is broken, does not end, or meets another.
    BucketChain "bucket-chain" Grave "cut off there",
    /// A bucket block counts its entries wrong.
    BucketCount "bucket-count" Minor "counted anew",
    /// An entry has an impossible length.
    DentryMalformed "dentry-malformed" Grave "it and what follows it in the block is removed",
    /// An entry has a name that cannot be one.
    DentryName "dentry-name" Major "removed; what it led to may go to lost+found",
    /// The cookie of an entry is not that of its name.
    DentryCookie "dentry-cookie" Major "set anew",
    /// Two entries of a directory have the same cookie.
    DentryCookieTwice "dentry-cookie-twice" Major "the second gets another",
    /// An entry lies in another bucket than its name belongs to: it cannot be found.
    DentryBucket "dentry-bucket" Major "moved to its bucket",
    /// Two entries of a directory have the same name.
    DentryTwice "dentry-twice" Major "the second is removed; what it led to may go to lost+found",
    /// An entry leads to a free nid.
    DentryDangling "dentry-dangling" Grave "removed",
    /// An entry says another type than its inode.
    DentryType "dentry-type" Minor "the inode's counts",
    /// A directory has two names, or the root has one.
    DirTwoParents "directory-two-parents" Major "the name that its own parent pointer does not confirm is removed",
    /// A directory's parent pointer is not where its name is.
    DirParent "directory-parent" Major "set to where its name is",
    /// Directories that contain each other, unreachable from the root.
    DirCycle "directory-cycle" Grave "one of them goes to lost+found",
    /// A directory without a name.
    DirUnreachable "directory-unreachable" Grave "goes to lost+found",
    /// Another inode without a name, and no orphan.
    InodeUnreachable "inode-unreachable" Grave "goes to lost+found",
    /// The orphan root does not verify.
    OrphanRoot "orphan-root" Major "made anew, empty",
    /// An orphan table does not verify, or its pointer leads nowhere.
    OrphanTable "orphan-table" Major "its pointer is removed",
    /// An entry of an orphan table names what is not there or what has names, or is none; or a batch that cannot be finished.
    OrphanEntry "orphan-entry" Minor "removed",
    /// An inode is flagged as an orphan and is in no table.
    OrphanFlag "orphan-flag" Minor "the flag is removed",
    /// The bitmap of a group does not verify.
    BitmapBlock "bitmap-block" Major "built anew",
    /// Blocks in use are marked free: they could be given out again.
    BlockNotMarked "block-not-marked" Grave "marked as in use",
    /// Blocks are marked as in use and belong to nothing.
    BlockLeaked "block-leaked" Minor "marked as free",
}

#[cfg(feature = "serde")]
impl serde::Serialize for IssueKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// Where it is, as far as that can be said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Location {
    /// The inode concerned.
    pub nid: Option<Nid>,
    /// The block concerned.
    pub block: Option<u64>,
}

impl Location {
    /// An inode.
    pub fn nid(nid: Nid) -> Location {
        Location { nid: Some(nid), block: None }
    }

    /// A block.
    pub fn block(block: u64) -> Location {
        Location { nid: None, block: Some(block) }
    }

    /// A block of an inode.
    pub fn both(nid: Nid, block: u64) -> Location {
        Location { nid: Some(nid), block: Some(block) }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Issue {
    /// Its kind.
    pub kind: IssueKind,
    /// Where.
    pub place: Location,
    /// What exactly.
    pub detail: String,
    /// What became of it.
    pub outcome: Outcome,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        match (self.place.nid, self.place.block) {
            (Some(nid), Some(block)) => write!(f, " (inode {nid}, block {block})")?,
            (Some(nid), None) => write!(f, " (inode {nid})")?,
            (None, Some(block)) => write!(f, " (block {block})")?,
            (None, None) => {}
        }
        write!(f, ": {}", self.detail)?;
        match &self.outcome {
            Outcome::Mendable => write!(f, "; a repair would mend it: {}", self.kind.mending()),
            Outcome::Mended => write!(f, "; mended: {}", self.kind.mending()),
            Outcome::Left(why) => write!(f, "; left: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_in_kebab_case() {
        let names: HashSet<_> = IssueKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), IssueKind::ALL.len());
        assert!(names.iter().all(|name| name.bytes().all(|c| c.is_ascii_lowercase() || c == b'-')));
        assert!(IssueKind::ALL.len() >= 25);
    }
}
