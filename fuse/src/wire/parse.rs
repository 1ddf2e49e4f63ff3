//! From a request's bytes to one typed operation.
//!
//! A request comes in one piece (`/dev/fuse`) or in three: the header, the operation's first structure,
//! everything else (io_uring). [`RequestParts`] describes both, so that the parse is the same.

use super::extension::Extensions;
use super::opcode::Opcode;
use super::structs::*;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Where the parts of one request lie.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    /// The header, at least [`InHeader`] long.
    pub header: &'a [u8],
    /// The operation's first structure where the transport delivers it apart from the body; it may be longer
    /// than the structure.
    pub first: Option<&'a [u8]>,
    /// Everything else, extensions included.
    pub body: &'a [u8],
}

impl<'a> RequestParts<'a> {
    /// A request that lies in one piece. `None` if it is shorter than a header or says another length than it has.
    pub fn whole(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = bytes.split_at_checked(size_of::<InHeader>())?;
        let parts = RequestParts { header, first: None, body };
        (parts.header()?.len as usize == bytes.len()).then_some(parts)
    }

    /// The request's header.
    pub fn header(&self) -> Option<InHeader> {
        InHeader::read_from_prefix(self.header).ok().map(|(header, _)| header)
    }
}

/// Why a request is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Its number is not known.
    #[error("operation {0} is not known")]
    Unknown(u32),
    /// It ends before its last field.
    #[error("the request ends early")]
    Short,
    /// A name has no end, is empty, or has a slash.
    #[error("a name is not one")]
    Name,
    /// Its extensions do not add up.
    #[error("the extensions do not add up")]
    Extension,
}

impl Malformed {
    /// The errno to answer with.
    pub fn errno(self) -> i32 {
        match self {
            Malformed::Unknown(_) => libc::ENOSYS,
            _ => libc::EINVAL,
        }
    }
}

/// A rename's second half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenameTo<'a> {
    /// The directory moved to.
    pub parent: u64,
    /// The name there.
    pub name: &'a [u8],
    /// RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT.
    pub flags: u32,
}

/// What is asked for; the inode is in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the operation of the same name; see Opcode and the structures")]
pub enum Op<'a> {
    Lookup { name: &'a [u8] },
    Forget(ForgetIn),
    Getattr(GetattrIn),
    Setattr(SetattrIn),
    Readlink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    Mknod { args: MknodIn, name: &'a [u8] },
    Mkdir { args: MkdirIn, name: &'a [u8] },
    Unlink { name: &'a [u8] },
    Rmdir { name: &'a [u8] },
    Rename { name: &'a [u8], to: RenameTo<'a> },
    Link { args: LinkIn, name: &'a [u8] },
    Open(OpenIn),
    Read(ReadIn),
    Write { args: WriteIn, data: &'a [u8] },
    Statfs,
    Release(ReleaseIn),
    Fsync(FsyncIn),
    Setxattr { args: SetxattrIn, name: &'a [u8], value: &'a [u8] },
    Getxattr { args: GetxattrIn, name: &'a [u8] },
    Listxattr(GetxattrIn),
    Removexattr { name: &'a [u8] },
    Flush(FlushIn),
    Init { args: InitIn, flags2: u32 },
    Opendir(OpenIn),
    Readdir(ReadIn),
    Releasedir(ReleaseIn),
    Fsyncdir(FsyncIn),
    Getlk(LkIn),
    Setlk(LkIn),
    Setlkw(LkIn),
    Access(AccessIn),
    Create { args: CreateIn, name: &'a [u8] },
    Interrupt(InterruptIn),
    Bmap(BmapIn),
    Destroy,
    Ioctl { args: IoctlIn, data: &'a [u8] },
    Poll(PollIn),
    NotifyReply,
    BatchForget(Forgets<'a>),
    Fallocate(FallocateIn),
    Readdirplus(ReadIn),
    Lseek(LseekIn),
    CopyFileRange(CopyFileRangeIn),
    CopyFileRange64(CopyFileRangeIn),
    Setupmapping,
    Removemapping,
    Syncfs,
    Tmpfile(CreateIn),
    Statx(StatxIn),
}

/// The list of a BATCH_FORGET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgets<'a> {
    bytes: &'a [u8],
}

impl Iterator for Forgets<'_> {
    type Item = ForgetOne;
    fn next(&mut self) -> Option<ForgetOne> {
        let (one, rest) = ForgetOne::read_from_prefix(self.bytes).ok()?;
        self.bytes = rest;
        Some(one)
    }
}

/// Reads a request piece by piece.
struct Cursor<'a> {
    first: Option<&'a [u8]>,
    body: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn structure<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Malformed> {
        if let Some(first) = self.first.take() {
            return T::read_from_prefix(first).map(|(value, _)| value).map_err(|_| Malformed::Short);
        }
        let (value, rest) = T::read_from_prefix(self.body).map_err(|_| Malformed::Short)?;
        self.body = rest;
        Ok(value)
    }

    /// A string that ends in a zero; it may be empty.
    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.body.iter().position(|&byte| byte == 0).ok_or(Malformed::Name)?;
        let (text, rest) = self.body.split_at(end);
        self.body = &rest[1..];
        Ok(text)
    }

    /// A name as a directory holds it.
    fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.string()?;
        if name.is_empty() || name.contains(&b'/') { Err(Malformed::Name) } else { Ok(name) }
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.body.split_at_checked(len).ok_or(Malformed::Short)?;
        self.body = rest;
        Ok(bytes)
    }
}

/// Parses a request. `setxattr_ext`: whether the longer form of SETXATTR was agreed on.
pub fn parse<'a>(
    parts: RequestParts<'a>,
    setxattr_ext: bool,
) -> Result<(InHeader, Op<'a>, Extensions<'a>), Malformed> {
    let header = parts.header().ok_or(Malformed::Short)?;
    let opcode = Opcode::from_number(header.opcode).ok_or(Malformed::Unknown(header.opcode))?;
    let extended = usize::from(header.total_extlen) * 8;
    let split = parts.body.len().checked_sub(extended).ok_or(Malformed::Extension)?;
    let (body, extension) = parts.body.split_at(split);
    let extensions = Extensions::parse(extension)?;
    let mut at = Cursor { first: parts.first, body };
    let op = match opcode {
        Opcode::Lookup => Op::Lookup { name: at.name()? },
        Opcode::Forget => Op::Forget(at.structure()?),
        Opcode::Getattr => Op::Getattr(at.structure()?),
        Opcode::Setattr => Op::Setattr(at.structure()?),
        Opcode::Readlink => Op::Readlink,
        Opcode::Symlink => Op::Symlink { name: at.name()?, target: at.string()? },
        Opcode::Mknod => Op::Mknod { args: at.structure()?, name: at.name()? },
        Opcode::Mkdir => Op::Mkdir { args: at.structure()?, name: at.name()? },
        Opcode::Unlink => Op::Unlink { name: at.name()? },
        Opcode::Rmdir => Op::Rmdir { name: at.name()? },
        Opcode::Rename => {
            let args: RenameIn = at.structure()?;
            Op::Rename { name: at.name()?, to: RenameTo { parent: args.newdir, name: at.name()?, flags: 0 } }
        }
        Opcode::Rename2 => {
            let args: Rename2In = at.structure()?;
            let name = at.name()?;
            Op::Rename { name, to: RenameTo { parent: args.newdir, name: at.name()?, flags: args.flags } }
        }
        Opcode::Link => Op::Link { args: at.structure()?, name: at.name()? },
        Opcode::Open => Op::Open(at.structure()?),
        Opcode::Read => Op::Read(at.structure()?),
        Opcode::Write => {
            let args: WriteIn = at.structure()?;
            Op::Write { args, data: at.bytes(args.size as usize)? }
        }
        Opcode::Statfs => Op::Statfs,
        Opcode::Release => Op::Release(at.structure()?),
        Opcode::Fsync => Op::Fsync(at.structure()?),
        Opcode::Setxattr => {
            let args = if setxattr_ext {
                at.structure()?
            } else {
                let SetxattrCompatIn { size, flags } = at.structure()?;
                SetxattrIn { size, flags, setxattr_flags: 0, padding: 0 }
            };
            Op::Setxattr { args, name: at.string()?, value: at.bytes(args.size as usize)? }
        }
        Opcode::Getxattr => Op::Getxattr { args: at.structure()?, name: at.string()? },
        Opcode::Listxattr => Op::Listxattr(at.structure()?),
        Opcode::Removexattr => Op::Removexattr { name: at.string()? },
        Opcode::Flush => Op::Flush(at.structure()?),
        Opcode::Init => {
            let args: InitIn = at.structure()?;
            let flags2 = at.structure::<InitExtIn>().map_or(0, |ext| ext.flags2);
            Op::Init { args, flags2 }
        }
        Opcode::Opendir => Op::Opendir(at.structure()?),
        Opcode::Readdir => Op::Readdir(at.structure()?),
        Opcode::Releasedir => Op::Releasedir(at.structure()?),
        Opcode::Fsyncdir => Op::Fsyncdir(at.structure()?),
        Opcode::Getlk => Op::Getlk(at.structure()?),
        Opcode::Setlk => Op::Setlk(at.structure()?),
        Opcode::Setlkw => Op::Setlkw(at.structure()?),
        Opcode::Access => Op::Access(at.structure()?),
        Opcode::Create => Op::Create { args: at.structure()?, name: at.name()? },
        Opcode::Interrupt => Op::Interrupt(at.structure()?),
        Opcode::Bmap => Op::Bmap(at.structure()?),
        Opcode::Destroy => Op::Destroy,
        Opcode::Ioctl => {
            let args: IoctlIn = at.structure()?;
            Op::Ioctl { args, data: at.bytes(args.in_size as usize)? }
        }
        Opcode::Poll => Op::Poll(at.structure()?),
        Opcode::NotifyReply => Op::NotifyReply,
        Opcode::BatchForget => {
            let args: BatchForgetIn = at.structure()?;
            let len = (args.count as usize).checked_mul(size_of::<ForgetOne>()).ok_or(Malformed::Short)?;
            Op::BatchForget(Forgets { bytes: at.bytes(len)? })
        }
        Opcode::Fallocate => Op::Fallocate(at.structure()?),
        Opcode::Readdirplus => Op::Readdirplus(at.structure()?),
        Opcode::Lseek => Op::Lseek(at.structure()?),
        Opcode::CopyFileRange => Op::CopyFileRange(at.structure()?),
        Opcode::CopyFileRange64 => Op::CopyFileRange64(at.structure()?),
        Opcode::Setupmapping => Op::Setupmapping,
        Opcode::Removemapping => Op::Removemapping,
        Opcode::Syncfs => Op::Syncfs,
        Opcode::Tmpfile => Op::Tmpfile(at.structure()?),
        Opcode::Statx => Op::Statx(at.structure()?),
    };
    Ok((header, op, extensions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn request(opcode: u32, extended: u16, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode,
            unique: 2,
            nodeid: 1,
            uid: 0,
            gid: 0,
            pid: 1,
            total_extlen: extended,
            padding: 0,
        };
        [header.as_bytes(), body].concat()
    }

    fn op(bytes: &[u8]) -> Result<Op<'_>, Malformed> {
        parse(RequestParts::whole(bytes).ok_or(Malformed::Short)?, true).map(|(_, op, _)| op)
    }

    #[test]
    fn names_end_in_a_zero_and_hold_no_slash() {
        assert_eq!(op(&request(1, 0, b"etc\0")), Ok(Op::Lookup { name: b"etc" }));
        for bad in [&b"etc"[..], b"\0", b"a/b\0", b""] {
            assert_eq!(op(&request(1, 0, bad)), Err(Malformed::Name));
        }
        let slashed = request(6, 0, b"link\0../a/b\0");
        assert_eq!(op(&slashed), Ok(Op::Symlink { name: b"link", target: b"../a/b" }));
    }

    #[test]
    fn data_shorter_than_said_is_refused() {
        let args = WriteIn { fh: 7, offset: 0, size: 5, write_flags: 0, lock_owner: 0, flags: 0, padding: 0 };
        let whole = request(16, 0, &[args.as_bytes(), b"hello"].concat());
        assert_eq!(op(&whole), Ok(Op::Write { args, data: b"hello" }));
        let short = request(16, 0, &[args.as_bytes(), b"hell"].concat());
        assert_eq!(op(&short), Err(Malformed::Short));
        assert!(RequestParts::whole(&whole[..whole.len() - 1]).is_none());
    }

    #[test]
    fn a_request_in_three_parts_reads_as_one_in_a_single_piece() {
        let args = Rename2In { newdir: 9, flags: 1, padding: 0 };
        let names = b"old\0new\0";
        let whole = request(45, 0, &[args.as_bytes(), names].concat());
        let mut first = [0; 128];
        first[..16].copy_from_slice(args.as_bytes());
        let parts = RequestParts { header: &whole[..40], first: Some(&first), body: names };
        assert_eq!(parse(parts, true).map(|(_, op, _)| op), op(&whole));
    }

    #[test]
    fn both_forms_of_setxattr_are_read() {
        let short =
            request(21, 0, &[SetxattrCompatIn { size: 1, flags: 2 }.as_bytes(), b"user.a\0v"].concat());
        let parts = RequestParts::whole(&short).expect("a whole request");
        let (_, op, _) = parse(parts, false).expect("the short form");
        let args = SetxattrIn { size: 1, flags: 2, setxattr_flags: 0, padding: 0 };
        assert_eq!(op, Op::Setxattr { args, name: b"user.a", value: b"v" });
    }

    #[test]
    fn a_list_of_forgets_is_as_long_as_it_says_or_refused() {
        let one = ForgetOne { nodeid: 3, nlookup: 4 };
        let list = |count: u32| {
            request(42, 0, &[BatchForgetIn { count, dummy: 0 }.as_bytes(), one.as_bytes()].concat())
        };
        let bytes = list(1);
        let Ok(Op::BatchForget(forgets)) = op(&bytes) else { panic!("not a list") };
        assert_eq!(forgets.collect::<Vec<_>>(), [one]);
        for count in [2, u32::MAX] {
            assert_eq!(op(&list(count)), Err(Malformed::Short));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_parse_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), ext: bool) {
            if let Some(parts) = RequestParts::whole(&bytes) {
                let _ = parse(parts, ext);
            }
            let parts = RequestParts { header: &bytes, first: None, body: &bytes };
            let _ = parse(parts, ext);
        }

        #[test]
        fn no_body_of_a_known_operation_makes_a_parse_panic(
            opcode in 0u32..56,
            extended in prop_oneof![Just(0u16), 0u16..8, any::<u16>()],
            body in proptest::collection::vec(prop_oneof![Just(0u8), Just(8), Just(32), any::<u8>()], 0..200),
            ext: bool,
        ) {
            let bytes = request(opcode, extended, &body);
            if let Ok((_, op, extensions)) = parse(RequestParts::whole(&bytes).expect("a whole request"), ext) {
                if let Op::BatchForget(forgets) = op {
                    prop_assert!(forgets.count() <= body.len());
                }
                prop_assert!(extensions.security().count() <= body.len());
                prop_assert!(extensions.groups().count() <= body.len());
            }
        }
    }
}
