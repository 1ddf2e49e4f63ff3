//! Arbitrary requests for fuzzers, as a hostile kernel or client could send them: bytes become requests, which are served
//! as a mount's are, by a file system in memory. None may panic, hang or be answered twice, and what is there afterwards
//! must be whole.
//!
//! An input is a byte of options, then requests: the operation's number, the inode, flags, the length of the body, and the
//! body, as it comes behind a request's header. Flags say also who asks, and how long the extensions at the end of the body
//! are, or the part at its beginning that comes apart from the rest, as through io_uring. If the first request is an INIT it
//! says what the kernel offers. Inodes and handles are small numbers for the most part, so that some are right. Locks are
//! waited for, and answered by the end of the conversation or never, as by a server that ends.

use crate::binding::{Caching, EngineOperations};
use crate::mount::{FuseOptions, Io, Permissions};
use crate::session::{Config, Negotiated, Session, negotiate};
use crate::transport::{Channel, Reply, Service};
use crate::wire::{InHeader, InitFlags, InitIn, MAJOR, MINOR, Opcode, RequestParts};
use narufs_engine::format::ROOT_NID;
use narufs_engine::vfs::{Context, OpenFlags};
use narufs_engine::volume::{AssembleOptions, ScratchOptions, Volume, scratch};
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use zerocopy::{FromBytes, IntoBytes};

const MEMORY: u64 = 2 << 20;
/// The largest READ that is agreed on.
const MAX_WRITE: u32 = 16 << 10;
/// Requests that are served of one input.
const MOST: usize = 64;

/// Bytes of a request's first part where it comes apart.
const FIRST: usize = 128;

/// Answers go nowhere; each request may have one.
struct Nowhere {
    answered: Mutex<HashSet<u64>>,
    /// Callers of requests with such numbers are gone.
    refuses: u64,
}

impl Channel for Nowhere {
    fn send(&self, unique: u64, error: i32, _parts: &[&[u8]]) -> io::Result<()> {
        let is_first = self.answered.lock().unwrap_or_else(PoisonError::into_inner).insert(unique);
        assert!(unique == 0 || is_first, "request {unique} was answered twice");
        assert!(unique == 0 || (-4095..=0).contains(&error), "request {unique}: answer {error}");
        match self.refuses != 0 && unique.is_multiple_of(self.refuses) {
            true => Err(io::Error::from_raw_os_error(libc::ENOENT)),
            false => Ok(()),
        }
    }
}

/// Serves what the bytes ask for.
pub fn serve(input: &[u8]) {
    let (choice, mut rest) = input.split_first().map_or((0, input), |(first, rest)| (*first, rest));
    let Ok(volume) = volume() else { return };
    let mut options = FuseOptions::new("fuzzed");
    options.permissions = Some(if choice & 1 == 0 { Permissions::Server } else { Permissions::Kernel });
    if choice & 2 != 0 && choice & 1 != 0 {
        options.io = Io::Cached;
    }
    let operations = EngineOperations::new(Arc::clone(volume.fs()), Caching::Exclusive, &options, None);
    let config = Config {
        max_write: MAX_WRITE,
        locks: true,
        export: true,
        security_context: true,
        posix_acl: choice & 1 != 0,
        writeback_cache: options.io == Io::Cached,
        ..Config::default()
    };
    let mut offered = InitFlags::all();
    offered.set(InitFlags::SETXATTR_EXT, choice & 4 == 0);
    offered.set(InitFlags::NO_OPEN_SUPPORT | InitFlags::NO_OPENDIR_SUPPORT, choice & 8 == 0);
    let (args, flags2) = offer(&mut rest, offered);
    let Negotiated::Agreed(features, _) = negotiate(&config, &args, flags2) else { return };
    let session = Session::new(Arc::new(operations), features);
    let channel = Arc::new(Nowhere { answered: Mutex::default(), refuses: u64::from(choice >> 4) });
    let mut buffer = vec![0; MAX_WRITE as usize];
    for number in 1..=MOST as u64 {
        let Some(Asked { head, first, body }) = next(&mut rest, 2 * number) else { break };
        let parts =
            RequestParts { header: head.as_bytes(), first: first.as_ref().map(|first| &first[..]), body };
        session.serve(parts, Reply::new(head.unique, Arc::clone(&channel) as Arc<dyn Channel>, &mut buffer));
    }
    session.destroy();
    drop(session);
    look(&volume);
    // An error is said by whoever unmounts.
    let _ = volume.unmount();
}

/// A file system in memory, without threads, so that an input does the same each time. Defaults ask the system for its memory:
/// once is enough.
fn volume() -> narufs_engine::Result<Volume> {
    static OPTIONS: OnceLock<ScratchOptions> = OnceLock::new();
    let options = OPTIONS.get_or_init(|| ScratchOptions {
        files: AssembleOptions { background: false, ..AssembleOptions::default() },
        ..ScratchOptions::with_memory(MEMORY)
    });
    let (mounted, files) = scratch::make_on(options, None)?;
    Volume::over(mounted, &files)
}

/// What the kernel offers: what the first request says, if that is an INIT.
fn offer(rest: &mut &[u8], usual: InitFlags) -> (InitIn, u32) {
    let mut behind = *rest;
    if let Some(Asked { head, body, .. }) = next(&mut behind, 0)
        && head.opcode == Opcode::Init as u32
        && let Ok((args, more)) = InitIn::read_from_prefix(body)
    {
        *rest = behind;
        return (args, u32::read_from_prefix(more).map_or(0, |(flags2, _)| flags2));
    }
    let (flags, flags2) = (usual.bits() as u32, (usual.bits() >> 32) as u32);
    (InitIn { major: MAJOR, minor: MINOR, max_readahead: 1 << 20, flags }, flags2)
}

/// A request of an input.
struct Asked<'i> {
    head: InHeader,
    /// The structure of the operation, where it comes apart from the rest.
    first: Option<[u8; FIRST]>,
    body: &'i [u8],
}

/// The next request of an input.
fn next<'i>(rest: &mut &'i [u8], unique: u64) -> Option<Asked<'i>> {
    let (&[opcode, node, flags, len], behind) = rest.split_first_chunk()?;
    let (body, behind) = behind.split_at(usize::from(len).min(behind.len()));
    *rest = behind;
    // Numbers that nobody has, and such as overflow.
    let nodeid = match node {
        0..0xf0 => u64::from(node),
        _ => u64::MAX << ((node & 0xf) * 4),
    };
    let words = usize::from(flags >> 3);
    let head = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode: if opcode == u8::MAX { u32::MAX } else { u32::from(opcode) },
        unique,
        nodeid,
        uid: if flags & 1 == 0 { 0 } else { 1000 },
        gid: if flags & 2 == 0 { 0 } else { 1000 },
        // Nobody's: /proc is not to be asked.
        pid: 0,
        total_extlen: if flags & 4 == 0 { 0 } else { words as u16 },
        padding: 0,
    };
    if flags & 4 != 0 || words == 0 {
        return Some(Asked { head, first: None, body });
    }
    let (structure, body) = body.split_at((words * 8).min(FIRST).min(body.len()));
    let mut first = [0; FIRST];
    first[..structure.len()].copy_from_slice(structure);
    Some(Asked { head, first: Some(first), body })
}

/// A file system that answers, whatever was asked of it before.
fn look(volume: &Volume) {
    let (fs, ctx) = (volume.fs(), Context::root());
    let mut names = Vec::new();
    let root = fs.opendir(&ctx, ROOT_NID).expect("the root is there");
    fs.readdir(&root, 0, &mut |entry| {
        names.push((entry.nid, entry.name.to_vec()));
        true
    })
    .expect("the root can be listed");
    fs.releasedir(root);
    for (nid, name) in names.iter().filter(|(_, name)| !matches!(name.as_slice(), b"." | b"..")) {
        let entry = fs.lookup(&ctx, ROOT_NID, name).expect("a name that is listed is there");
        assert_eq!(entry.nid, *nid);
        if let Ok(handle) = fs.open(&ctx, *nid, OpenFlags::empty()) {
            match fs.read(&handle, 0, &mut [0; 8192]) {
                Ok(read) => assert!(read as u64 <= entry.attr.size),
                Err(e) => assert_eq!(e.errno(), libc::EISDIR, "memory can be read"),
            }
            fs.release(handle, None);
        }
        fs.forget(*nid, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Requests that are mostly of the right form: right operations, small numbers.
    fn requests() -> impl Strategy<Value = Vec<u8>> {
        let opcode = (0..Opcode::ALL.len()).prop_map(|nth| Opcode::ALL[nth] as u8);
        let body = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            prop::collection::vec(prop_oneof![Just(0_u8), 0..4_u8], 0..100),
            "[a-c]{1,2}\u{0}([a-c]\u{0})?".prop_map(String::into_bytes),
        ];
        let request = (opcode, prop_oneof![1..12_u8, any::<u8>()], any::<u8>(), body).prop_map(
            |(opcode, node, flags, body)| {
                let flags = if flags & 4 == 0 { flags & 3 } else { flags & !4 };
                let head = [opcode, node, flags, body.len() as u8];
                [head.to_vec(), body].concat()
            },
        );
        (any::<u8>(), prop::collection::vec(request, 0..40))
            .prop_map(|(choice, requests)| [vec![choice], requests.concat()].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn whatever_is_asked_is_answered_once_and_leaves_all_whole(input in requests()) {
            serve(&input);
        }
    }
}
