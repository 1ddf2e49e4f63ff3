//! What a killed server has left in memory, where the image, or its journal, is another by the time that the next one comes.

use super::crash::{begin, begin_with, idle, media, read_of};
use super::*;
use crate::format::JournalKind;
use crate::takeover::testing::killed;
use crate::takeover::{NewerHome, Takeover};
use crate::volume::{ImageOptions, mount};
use std::mem::forget;

const KINDS: [JournalKind; 2] = [JournalKind::Pmem, JournalKind::Ssd];

/// A killed server's lock goes with it: before the next one has it, somebody else may mount the image.
#[test]
fn what_another_mount_has_synced_meanwhile_is_not_written_over() {
    for (kind, is_unmounted) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let sim = media(kind, 8192);
        let memory = Takeover::create(256).expect("memory");
        let first = begin_with(kind, &sim, Some(&memory));
        let handle =
            first.fs().create(&root(), ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("room").1;
        first.fs().write(&root(), &handle, 0, &[1; 100], WriteFlags::empty()).expect("room");
        forget((handle, first));
        let other = begin(kind, &sim);
        let nid = other.fs().lookup(&root(), ROOT_NID, b"f").expect("there").nid;
        let handle = other.fs().open(&root(), nid, OpenFlags::READ_WRITE).expect("there");
        other.fs().write(&root(), &handle, 0, &[2; 9000], WriteFlags::empty()).expect("room");
        other.fs().fsync(&handle, false).expect("memory");
        if is_unmounted {
            other.fs().release(handle, None);
            other.end();
        } else {
            forget((handle, other));
        }
        let takeover = Some(killed(&memory));
        let options = ImageOptions { background: false, lanes: 1, takeover, ..ImageOptions::default() };
        let refused = mount(idle(kind, &sim), &options).map(drop);
        let Err(Error::Refused(why)) = refused else { panic!("{kind:?}: {refused:?}") };
        assert!(why.contains("elsewhere"), "{why}");
        let last = begin(kind, &sim);
        assert!(read_of(last.fs(), "f").expect("there") == [2; 9000], "{kind:?}, {is_unmounted}");
    }
}

#[test]
fn what_was_newer_in_place_than_a_lost_part_of_the_journal_hides_nothing_of_the_rest() {
    let kind = JournalKind::Ssd;
    let sim = media(kind, 8192);
    let first = begin(kind, &sim);
    let (entry, handle, _) =
        first.fs().create(&root(), ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("room");
    first.fs().write(&root(), &handle, 0, &[1; 300], WriteFlags::empty()).expect("room");
    first.fs().fsync(&handle, false).expect("memory");
    let journal = first.fs().meta().store().journal().expect("mounted");
    let memory = Takeover::create(256).expect("memory");
    let home =
        NewerHome { upto: journal.head() + 800, nid: entry.nid, generation: entry.generation, page: 0 };
    assert!(memory.homes().note(home, journal.epoch(), journal.head()));
    forget((handle, first));
    let second = begin_with(kind, &sim, Some(&killed(&memory)));
    assert!(read_of(second.fs(), "f").expect("there") == [1; 300]);
}
