//! What may follow a creating request: the caller's matching group, and security contexts.

use super::parse::Malformed;
use super::structs::{ExtHeader, Secctx};
use zerocopy::FromBytes;

/// The type number of the group list; smaller ones count security contexts.
const GROUPS: u32 = 32;
const MOST_CONTEXTS: u32 = 31;

/// The extensions of one request, verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions<'a> {
    groups: &'a [u8],
    security: &'a [u8],
    contexts: u32,
}

/// One security attribute for the new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    /// The attribute's name, without the `security.` prefix's zero.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

fn aligned(len: usize) -> usize {
    len.next_multiple_of(8)
}

impl<'a> Extensions<'a> {
    /// Reads the extensions; what lies in those of an unknown type is skipped.
    pub fn parse(mut bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut found = Extensions::default();
        while !bytes.is_empty() {
            let (header, _) = ExtHeader::read_from_prefix(bytes).map_err(|_| Malformed::Extension)?;
            let size = header.size as usize;
            if size < size_of::<ExtHeader>() || size > bytes.len() {
                return Err(Malformed::Extension);
            }
            let inside = &bytes[size_of::<ExtHeader>()..size];
            if header.kind == GROUPS {
                let (count, list) = u32::read_from_prefix(inside).map_err(|_| Malformed::Extension)?;
                let len = (count as usize).checked_mul(4).ok_or(Malformed::Extension)?;
                found.groups = list.get(..len).ok_or(Malformed::Extension)?;
            } else if header.kind <= MOST_CONTEXTS {
                found.security = inside;
                found.contexts = header.kind;
                if found.security().count() != header.kind as usize {
                    return Err(Malformed::Extension);
                }
            }
            bytes = bytes.get(aligned(size)..).unwrap_or_default();
        }
        Ok(found)
    }

    /// Groups of the caller that matter to this request (the parent directory's, if the caller is in it).
    pub fn groups(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.groups.chunks_exact(4).map(|gid| u32::from_ne_bytes([gid[0], gid[1], gid[2], gid[3]]))
    }

    /// Security attributes that the new inode is to have from its birth.
    pub fn security(&self) -> impl Iterator<Item = SecurityContext<'a>> + use<'a> {
        let mut bytes = self.security;
        (0..self.contexts).map_while(move |_| {
            let (head, rest) = Secctx::read_from_prefix(bytes).ok()?;
            let end = rest.iter().position(|&byte| byte == 0)?;
            let value_end = (end + 1).checked_add(head.size as usize)?;
            let value = rest.get(end + 1..value_end)?;
            bytes = bytes.get(aligned(size_of::<Secctx>() + value_end)..).unwrap_or_default();
            Some(SecurityContext { name: &rest[..end], value })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn groups(list: &[u32]) -> Vec<u8> {
        let size = (8 + 4 + 4 * list.len()) as u32;
        let header = ExtHeader { size, kind: GROUPS };
        padded([header.as_bytes(), (list.len() as u32).as_bytes(), list.as_bytes()].concat())
    }

    #[test]
    fn groups_and_contexts_are_found_in_any_order() {
        let context = padded([Secctx { size: 3, padding: 0 }.as_bytes(), b"selinux\0a:b"].concat());
        let header = ExtHeader { size: 8 + context.len() as u32, kind: 1 };
        let security = [header.as_bytes(), &context].concat();
        for bytes in [[groups(&[7]), security.clone()].concat(), [security, groups(&[7])].concat()] {
            let found = Extensions::parse(&bytes).expect("well-formed");
            assert_eq!(found.groups().collect::<Vec<_>>(), [7]);
            let all: Vec<_> = found.security().collect();
            assert_eq!(all, [SecurityContext { name: b"selinux", value: b"a:b" }]);
        }
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        let mut short = groups(&[7, 8]);
        short[8] = 200;
        assert_eq!(Extensions::parse(&short), Err(Malformed::Extension));
        for size in [0u32, 4, 1000] {
            let header = ExtHeader { size, kind: 1 };
            assert_eq!(Extensions::parse(header.as_bytes()), Err(Malformed::Extension));
        }
        assert_eq!(Extensions::parse(&[1, 2, 3]), Err(Malformed::Extension));
    }
}
