//! A successor that fails once it has begun to take over what a killed server has left: the next one finds all of it.

use super::crash::{begin, begin_with, idle, media, read_of, tried_with};
use super::*;
use crate::device::Cause;
use crate::format::JournalKind;
use crate::sim::Fault;
use crate::takeover::Takeover;
use crate::takeover::testing::killed;
use crate::volume::{AssembleOptions, ImageOptions, Running, mount};
use std::mem::forget;

/// Inodes of several blocks.
const FILES: u8 = 60;

#[test]
fn what_a_successor_could_not_take_over_stays_for_the_next() {
    // The file system starts, and takes some files over, with so many reads of metadata.
    let mut failed = 0;
    for reads in 0..12 {
        let kind = JournalKind::Ssd;
        let sim = media(kind, 8192);
        let first = begin(kind, &sim);
        let name = |n: u8| format!("f{n}");
        for n in 0..FILES {
            file(first.fs(), &root(), ROOT_NID, &name(n));
        }
        first.end();
        let memory = Takeover::create(256).expect("memory");
        let second = begin_with(kind, &sim, Some(&memory));
        for n in 0..FILES {
            let nid = second.fs().lookup(&root(), ROOT_NID, name(n).as_bytes()).expect("there").nid;
            let handle = second.fs().open(&root(), nid, OpenFlags::READ_WRITE).expect("there");
            second.fs().write(&root(), &handle, 0, &[n + 1; 4096], WriteFlags::empty()).expect("room");
            forget(handle);
        }
        forget(second);
        let memory = killed(&memory);
        let takeover = Some(Arc::clone(&memory));
        let options = ImageOptions {
            background: false,
            lanes: 1,
            takeover: takeover.clone(),
            ..ImageOptions::default()
        };
        let mounted = mount(idle(kind, &sim), &options).expect("whole");
        let mut left = reads;
        sim.set_fault(Some(Box::new(move |fault| match fault {
            Fault::Read { cause: Cause::Metadata, .. } if left == 0 => Some(libc::EIO),
            Fault::Read { cause: Cause::Metadata, .. } => {
                left -= 1;
                None
            }
            _ => None,
        })));
        let data = DataOptions::with_memory(1 << 20);
        let options =
            AssembleOptions { data, background: false, takeover, inodes: 256, ..AssembleOptions::default() };
        match Running::start(mounted.checkpointer(), &options) {
            Ok(running) => forget(running),
            Err(_) => failed += 1,
        }
        sim.set_fault(None);
        drop(mounted);
        let fourth = begin_with(kind, &sim, Some(&killed(&memory)));
        for n in 0..FILES {
            let now = read_of(fourth.fs(), &name(n)).expect("there");
            assert!(now == [n + 1; 4096], "{reads} reads, file {n}: {} bytes, {:?}", now.len(), now.first());
        }
        fourth.end();
    }
    assert!(failed > 3, "{failed} have failed");
}

/// It cannot write, as where it has found damage: what it cannot take over it leaves.
#[test]
fn what_a_reader_could_not_take_over_stays_for_the_next() {
    let kind = JournalKind::Ssd;
    let sim = media(kind, 8192);
    let memory = Takeover::create(256).expect("memory");
    let first = begin_with(kind, &sim, Some(&memory));
    let fs = first.fs();
    let open =
        |name: &[u8]| fs.create(&root(), ROOT_NID, name, 0o644, OpenFlags::READ_WRITE).expect("room").1;
    let write = |file: &FileHandle, bytes: &[u8]| {
        fs.write(&root(), file, 0, bytes, WriteFlags::empty()).expect("room");
    };
    let (rewritten, appended) = (open(b"rewritten"), open(b"appended"));
    write(&rewritten, &[1; 9000]);
    fs.syncfs().expect("memory");
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(&root(), rewritten.nid(), Some(&rewritten), &set).expect("always");
    write(&rewritten, &[2; 5000]);
    write(&appended, &[3; 5000]);
    memory.note_lost_flush();
    forget((rewritten, appended, first));
    let memory = killed(&memory);
    let reader = tried_with(kind, &sim, true, Some(&memory)).expect("whole");
    assert!(read_of(reader.fs(), "rewritten").expect("there") == [1; 9000], "as the image has it");
    assert!(memory.is_place_in_doubt(), "nothing was put back");
    reader.fs().forget_all();
    drop(reader);
    let third = begin_with(kind, &sim, Some(&killed(&memory)));
    assert!(read_of(third.fs(), "rewritten").expect("there") == [2; 5000]);
    assert!(read_of(third.fs(), "appended").expect("there") == [3; 5000]);
    third.end();
}
