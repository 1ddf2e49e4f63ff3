//! One list, and its form in an extended attribute.

use crate::error::{Error, Result};

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// The subject of an entry; the discriminants are those of the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub(crate) enum Tag {
    /// The owner.
    UserObj = 1,
    /// A named user.
    User = 2,
    /// The owning group.
    GroupObj = 4,
    /// A named group.
    Group = 8,
    /// The most that named users and all groups get.
    Mask = 16,
    /// Everyone else.
    Other = 32,
}

impl Tag {
    fn from_u16(n: u16) -> Option<Tag> {
        use Tag::*;
        [UserObj, User, GroupObj, Group, Mask, Other].into_iter().find(|t| *t as u16 == n)
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AclEntry {
    /// Its subject.
    pub tag: Tag,
    /// `rwx`, 0 to 7.
    pub perm: u16,
    /// Uid or gid of a named user or group.
    pub id: u32,
}

/// A well-formed list: entries in the order of their tags; one each for owner, owning group and others; a mask
/// if anyone is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    pub(super) entries: Vec<AclEntry>,
}

impl Acl {
    /// The list in an attribute's value.
    ///
    /// # Errors
    /// EINVAL if it is not well formed, EOPNOTSUPP for another version.
    pub fn parse(value: &[u8]) -> Result<Acl> {
        let invalid = Error::Errno(libc::EINVAL);
        let (version, rest) = value.split_first_chunk::<4>().ok_or(invalid.clone())?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::Errno(libc::EOPNOTSUPP));
        }
        let (chunks, []) = rest.as_chunks::<8>() else { return Err(invalid) };
        let mut entries = Vec::with_capacity(chunks.len());
        for &[t0, t1, p0, p1, i0, i1, i2, i3] in chunks {
            let tag = Tag::from_u16(u16::from_le_bytes([t0, t1])).ok_or(invalid.clone())?;
            let named = matches!(tag, Tag::User | Tag::Group);
            let id = u32::from_le_bytes([i0, i1, i2, i3]);
            let perm = u16::from_le_bytes([p0, p1]);
            if perm > 7 || named && id == NO_ID {
                return Err(invalid);
            }
            entries.push(AclEntry { tag, perm, id: if named { id } else { NO_ID } });
        }
        let acl = Acl { entries };
        if acl.is_well_formed() { Ok(acl) } else { Err(invalid) }
    }

    fn is_well_formed(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|e| e.tag == tag).count();
        let named = count(Tag::User) + count(Tag::Group) > 0;
        self.entries.is_sorted_by_key(|e| e.tag)
            && [Tag::UserObj, Tag::GroupObj, Tag::Other].into_iter().all(|t| count(t) == 1)
            && count(Tag::Mask) <= 1
            && (!named || count(Tag::Mask) == 1)
    }

    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            value.extend_from_slice(&(e.tag as u16).to_le_bytes());
            value.extend_from_slice(&e.perm.to_le_bytes());
            value.extend_from_slice(&e.id.to_le_bytes());
        }
        value
    }

    fn perm(&mut self, tag: Tag) -> Option<&mut u16> {
        self.entries.iter_mut().find(|e| e.tag == tag).map(|e| &mut e.perm)
    }

    /// The permission bits that show this list in a mode: the group's bits are the mask, if there is one.
    pub fn mode(&self) -> u32 {
        let of = |tag| self.entries.iter().find(|e| e.tag == tag).map(|e| u32::from(e.perm));
        let group = of(Tag::Mask).or(of(Tag::GroupObj)).unwrap_or(0);
        of(Tag::UserObj).unwrap_or(0) << 6 | group << 3 | of(Tag::Other).unwrap_or(0)
    }

    /// Whether the mode alone says the same.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Follows a chmod.
    pub fn set_mode(&mut self, mode: u32) {
        let bits = |shift: u32| (mode >> shift & 7) as u16;
        let group = if self.perm(Tag::Mask).is_some() { Tag::Mask } else { Tag::GroupObj };
        for (tag, perm) in [(Tag::UserObj, bits(6)), (group, bits(3)), (Tag::Other, bits(0))] {
            if let Some(p) = self.perm(tag) {
                *p = perm;
            }
        }
    }

    /// Makes a default list the access list of what is created with `mode`, and gives the mode it really gets:
    /// each bit needs both.
    pub fn inherit(&mut self, mode: u32) -> u32 {
        let both = self.mode() & mode;
        self.set_mode(both);
        mode & !0o777 | both
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn acl(entries: &[(Tag, u16, u32)]) -> Acl {
        let list =
            Acl { entries: entries.iter().map(|&(tag, perm, id)| AclEntry { tag, perm, id }).collect() };
        Acl::parse(&list.encode()).expect("well formed")
    }

    #[test]
    fn lists_survive_encoding_and_malformed_ones_are_refused() {
        let list = acl(&[
            (Tag::UserObj, 7, 0),
            (Tag::User, 5, 1000),
            (Tag::GroupObj, 4, 0),
            (Tag::Mask, 6, 0),
            (Tag::Other, 0, 0),
        ]);
        assert_eq!(Acl::parse(&list.encode()), Ok(list.clone()));
        assert_eq!(list.mode(), 0o760);
        let errno = |value: &[u8]| Acl::parse(value).map_err(|e| e.errno());
        assert_eq!(errno(b""), Err(libc::EINVAL));
        assert_eq!(errno(&[1, 0, 0, 0]), Err(libc::EOPNOTSUPP));
        assert_eq!(errno(&[2, 0, 0, 0]), Err(libc::EINVAL));
        let encoded = list.encode();
        assert_eq!(errno(&encoded[..encoded.len() - 1]), Err(libc::EINVAL));
        let without_mask =
            Acl { entries: list.entries.iter().copied().filter(|e| e.tag != Tag::Mask).collect() };
        assert_eq!(errno(&without_mask.encode()), Err(libc::EINVAL));
        let mut unsorted = list.clone();
        unsorted.entries.reverse();
        assert_eq!(errno(&unsorted.encode()), Err(libc::EINVAL));
        let mut greedy = list;
        greedy.entries[0].perm = 8;
        assert_eq!(errno(&greedy.encode()), Err(libc::EINVAL));
    }

    #[test]
    fn chmod_moves_the_mask_and_leaves_the_owning_group() {
        let mut list = acl(&[
            (Tag::UserObj, 7, 0),
            (Tag::GroupObj, 4, 0),
            (Tag::Group, 7, 50),
            (Tag::Mask, 7, 0),
            (Tag::Other, 0, 0),
        ]);
        list.set_mode(0o615);
        assert_eq!(list.mode(), 0o615);
        assert_eq!(list.perm(Tag::GroupObj), Some(&mut 4));
        let mut minimal = acl(&[(Tag::UserObj, 7, 0), (Tag::GroupObj, 4, 0), (Tag::Other, 0, 0)]);
        assert!(minimal.is_minimal());
        minimal.set_mode(0o421);
        assert_eq!(minimal.mode(), 0o421);
    }

    #[test]
    fn inheritance_gives_what_both_give() {
        let mut list = acl(&[(Tag::UserObj, 7, 0), (Tag::GroupObj, 5, 0), (Tag::Other, 4, 0)]);
        assert_eq!(list.inherit(0o2666), 0o2644);
        assert_eq!(list.mode(), 0o644);
    }

    proptest! {
        #[test]
        fn any_value_is_parsed_without_harm(mut value in proptest::collection::vec(any::<u8>(), 0..80)) {
            value.splice(0..value.len().min(4), [2, 0, 0, 0]);
            if let Ok(list) = Acl::parse(&value) {
                prop_assert_eq!(Acl::parse(&list.encode()), Ok(list));
            }
        }
    }
}
