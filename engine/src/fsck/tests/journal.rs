//! The journal of an image that was not unmounted: replayed, or given up as far as it is lost.

use super::*;
use crate::format::{STATE_CLEAN, U32};
use crate::store::Store;

/// The image as a kill leaves it, with a directory that only the journal has.
fn unclean() -> Made {
    let made = made();
    // The ring is shared by all tests: this one takes its own.
    let ring = Arc::new(HeapMemory::new(made.ring.len()));
    let mut bytes = vec![0; made.ring.len()];
    made.ring.read(0, &mut bytes);
    ring.write(0, &bytes);
    let made = Made { ring, ..made };
    let mounted = mount(made.media(), &ImageOptions { background: false, ..ImageOptions::default() });
    let mounted = mounted.expect("it is sound");
    let options = crate::volume::AssembleOptions {
        data: crate::file::DataOptions::with_memory(1 << 20),
        background: false,
        ..Default::default()
    };
    let running = crate::volume::Running::start(mounted.checkpointer(), &options).expect("it is sound");
    let ctx = crate::vfs::Context::root();
    running.fs().mkdir(&ctx, ROOT_NID, b"only in the journal", 0o755).expect("room");
    drop(running);
    drop(mounted);
    made
}

/// The same, its journal gone.
fn without_journal(made: &Made) -> Made {
    Made { ring: Arc::new(HeapMemory::new(made.ring.len())), ..made.over(made.device.clone()) }
}

fn discarding() -> Options {
    Options { discard_journal: true, ..repairing() }
}

fn state(media: &Media) -> u32 {
    superblock::read(&*media.device).expect("an image").state.get()
}

#[test]
fn the_journal_of_an_unclean_image_is_replayed_or_given_up() {
    let made = unclean();
    let report = made.check();
    assert_eq!((report.status(), report.counts.directories), (0, 4), "{:#?}", report.issues);
    let without = without_journal(&made);
    let report = without.check();
    assert_eq!((report.status(), report.of(IssueKind::RingMissing).count()), (4, 1), "{:#?}", report.issues);
    assert_eq!(without.repair().status(), 4);
    let report = check(&without.media(), &discarding()).expect("an image");
    assert_eq!((report.status(), report.issues.len()), (1, 1), "{:#?}", report.issues);
    assert_eq!((without.check().issues, without.check().counts.directories), (vec![], 3));
    // With its ring a repair recovers for good.
    let report = made.repair();
    assert_eq!((report.status(), report.counts.directories), (0, 4));
    assert_eq!((made.check().status(), made.check().counts.directories), (0, 4));
}

/// What a checkpoint has half written looks like a clean image to a mount: only a check may say that it is one.
#[test]
fn an_image_whose_journal_is_given_up_is_clean_only_once_it_is_checked() {
    let unclean = unclean();
    // As where one page of a change has gone home, and the other has not.
    unclean.damage(|tool| tool.edit_inode(unclean.marked, |inode| inode.nlink.set(1)));
    let mut interruptions = 0;
    for writes in 0.. {
        let without = without_journal(&unclean);
        let failing = Arc::new(Failing::after(without.device.clone(), writes));
        let media = Media { device: failing.clone(), ..without.media() };
        let outcome = check(&media, &discarding());
        if !failing.failed() {
            assert_eq!(outcome.map(|report| report.status()), Ok(1));
            assert_eq!(state(&without.media()), STATE_CLEAN);
            break;
        }
        interruptions += 1;
        assert!(outcome.map_or(true, |report| report.status() == 4), "write {writes}");
        // The last write of all may have arrived.
        let is_clean = state(&without.media()) == STATE_CLEAN;
        assert!(!is_clean || without.check().issues.is_empty(), "write {writes}");
        let again = check(&without.media(), &discarding()).expect("an image");
        assert!(again.status() <= 1, "write {writes}: {:#?}", again.issues);
        assert_eq!(
            (without.check().issues, state(&without.media())),
            (vec![], STATE_CLEAN),
            "write {writes}"
        );
    }
    assert!(interruptions > 3);
}

#[test]
fn a_mount_that_gives_the_journal_up_is_read_only_until_a_check() {
    let without = without_journal(&unclean());
    let options = ImageOptions { background: false, discard_journal: true, ..ImageOptions::default() };
    let mounted = mount(without.media(), &options).expect("given up");
    assert!(mounted.store().failed().is_some_and(|why| why.contains("run fsck")));
    mounted.unmount().expect("memory");
    assert_eq!(state(&without.media()), STATE_DAMAGED);
    assert_eq!(without.repair().status(), 1);
    let mounted = mount(without.media(), &options).expect("clean");
    assert_eq!(mounted.store().failed(), None);
    mounted.unmount().expect("memory");
}

/// The owner of the root directory: what records of these tests change.
fn root_owner(store: &Store) -> u32 {
    let page = store.get(store.superblock().groups_start.get() + 1, BlockKind::Node).expect("sound");
    page.read_as::<U32>(24).get()
}

/// An image on an SSD ring that was killed after commits that gave the root these owners, each in a block of its own;
/// the staging is gone.
fn killed_after(owners: &[u8]) -> Media {
    let media = blank_ssd();
    let mounted = mount(media.clone(), &ImageOptions { background: false, ..ImageOptions::default() });
    let mounted = mounted.expect("it is sound");
    let store = mounted.store().clone();
    let root = store.superblock().groups_start.get() + 1;
    for owner in owners {
        let mut h = store.begin(4).expect("writable");
        let page = h.get(root, BlockKind::Node).expect("sound");
        h.edit(&page, 24..28)[0] = *owner;
        h.commit().expect("memory");
        store.commit_upto(store.tail(), crate::journal::Durability::Power).expect("memory");
    }
    drop((store, mounted));
    let staging = Arc::new(HeapMemory::new(ring_bytes(SSD_SLOTS).expect("small")));
    Media { ring: RingMedia::Ssd(staging), ..media }
}

/// Makes a block of the ring's slots unusable.
fn smash_slots(media: &Media, block: u64) {
    let sb = superblock::read(&*media.device).expect("an image");
    let at = sb.ring_start.get() + 2 + block;
    media.device.run(vec![Request::write(at, IoBuf::from_slice(&[7; 4096]), Cause::Fsck)]).expect("memory");
}

fn owner_of_root(media: &Media) -> u32 {
    let options = ImageOptions { background: false, ..ImageOptions::default() };
    let mounted = mount(media.clone(), &options).expect("it is sound");
    assert_eq!(mounted.store().failed(), None);
    let owner = root_owner(mounted.store());
    mounted.unmount().expect("memory");
    owner
}

#[test]
fn a_journal_that_is_damaged_below_a_commit_is_named() {
    let media = killed_after(&[1, 2, 3]);
    let whole = check(&media, &Options::default()).expect("an image");
    assert_eq!(whole.status(), 0, "{:#?}", whole.issues);
    smash_slots(&media, 0);
    let report = check(&media, &Options::default()).expect("an image");
    assert_eq!(report.of(IssueKind::JournalDamaged).count(), 1, "{:#?}", report.issues);
    assert_eq!(check(&media, &repairing()).expect("an image").status(), 4);
    assert_eq!(check(&media, &discarding()).expect("an image").status(), 1);
    assert_eq!(check(&media, &Options::default()).expect("an image").issues, []);
    assert_eq!(owner_of_root(&media), 0);
}

#[test]
fn of_a_damaged_journal_what_comes_before_the_damage_is_kept() {
    let media = killed_after(&[1, 2, 3, 4]);
    smash_slots(&media, 2);
    assert_eq!(check(&media, &repairing()).expect("an image").status(), 4);
    let report = check(&media, &discarding()).expect("an image");
    assert_eq!(
        (report.status(), report.of(IssueKind::JournalDamaged).count()),
        (1, 1),
        "{:#?}",
        report.issues
    );
    assert_eq!(check(&media, &Options::default()).expect("an image").issues, []);
    assert_eq!(owner_of_root(&media), 2);
}

/// A page that cannot be read for redo takes its own changes with it, and no others'.
#[test]
fn what_the_journal_has_of_whole_pages_is_kept_beside_a_damaged_one() {
    let media = killed_after(&[1, 2]);
    let mounted = mount(media.clone(), &ImageOptions { background: false, ..ImageOptions::default() });
    let store = mounted.as_ref().expect("whole").store().clone();
    let sb = store.superblock();
    let (bitmap, root) = (sb.groups_start.get(), sb.groups_start.get() + 1);
    let mut h = store.begin(4).expect("writable");
    let page = h.get(bitmap, BlockKind::Bitmap).expect("sound");
    h.set_bits(&page, 200, 1);
    let page = h.get(root, BlockKind::Node).expect("sound");
    h.edit(&page, 24..28)[0] = 5;
    h.commit().expect("memory");
    store.commit_upto(store.tail(), crate::journal::Durability::Power).expect("memory");
    drop((store, mounted));
    let junk = Request::write(bitmap, IoBuf::from_slice(&[9; 4096]), Cause::Fsck);
    media.device.run(vec![junk]).expect("memory");
    assert_eq!(check(&media, &repairing()).expect("an image").of(IssueKind::JournalDamaged).count(), 1);
    let report = check(&media, &discarding()).expect("an image");
    assert_eq!((report.status(), report.of(IssueKind::BitmapBlock).count()), (1, 1), "{:#?}", report.issues);
    assert_eq!(check(&media, &Options::default()).expect("an image").issues, []);
    assert_eq!(owner_of_root(&media), 5);
}
