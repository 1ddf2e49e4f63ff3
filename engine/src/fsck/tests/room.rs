//! Repairs for which there is too little room, and more findings than are kept.

use super::*;
use crate::format::Nid;
use crate::inode::FileType;
use state::Move;

fn state_of(made: &Made) -> u32 {
    superblock::read(&*made.device).expect("an image").state.get()
}

/// Damages a file so that another has its blocks, and leaves no free block for a copy.
fn contested_without_room(made: &Made) {
    made.damage(|tool| {
        let other = tool.root(made.marked)[0].block;
        tool.edit_run(made.plain, |run| run.block = other);
        let bitmap = tool.image.sb.groups_start.get();
        tool.edit(bitmap, BlockKind::Bitmap, |bytes| bytes[BLOCK_HEADER_SIZE..].fill(0xff));
    });
}

#[test]
fn what_has_no_room_to_be_mended_stops_no_other_mend() {
    let made = made();
    contested_without_room(&made);
    made.damage(|tool| tool.edit_inode(made.marked, |inode| inode.nlink.set(1)));
    // Everything that is not marked belongs to a file, so that no mend of the bitmap makes room.
    let report = made.repair();
    assert_eq!(report.status(), 4, "{:#?}", report.issues);
    let outcomes = |kind| report.of(kind).map(|issue| issue.outcome.clone()).collect::<Vec<_>>();
    assert_eq!(outcomes(IssueKind::InodeLinks), [Outcome::Mended], "{:#?}", report.issues);
    let left = |outcome: &Outcome| matches!(outcome, Outcome::Left(why) if why.contains("no free row"));
    assert!(outcomes(IssueKind::BlockTwoOwners).iter().all(left), "{:#?}", report.issues);
    assert_eq!(state_of(&made), STATE_DAMAGED);
    // What both own is still marked: nobody else gets it.
    let again = made.repair();
    assert_eq!(again.of(IssueKind::BlockTwoOwners).count(), 1, "{:#?}", again.issues);
}

#[test]
fn what_is_left_marks_the_image_though_nothing_is_mended() {
    let media = blank_ssd();
    let mut sb = superblock::read(&*media.device).expect("an image");
    sb.orphan_root = sb.nat_index_start;
    superblock::write(&*media.device, &mut sb).expect("memory");
    let report = check(&media, &repairing()).expect("an image");
    assert_eq!((report.status(), report.of(IssueKind::Layout).count()), (4, 1));
    assert_eq!(superblock::read(&*media.device).expect("an image").state.get(), STATE_DAMAGED);
}

/// One round by its parts, up to where entries can be put into directories.
fn ready<'a>(image: &'a mut Image, findings: &'a mut Findings, progress: &'a mut Progress) -> State<'a> {
    let mut state = State::new(image, findings, progress);
    assert!(nat::claim_regions(&mut state));
    nat::check(&mut state).expect("memory");
    inodes::check(&mut state).expect("memory");
    dirs::check(&mut state).expect("memory");
    links::check_orphans(&mut state).expect("memory");
    data::check(&mut state).expect("memory");
    state
}

/// Fills a directory of one bucket, first with names as long as can be.
fn fill(made: &Made, dir: Nid) -> u64 {
    let sb = superblock::read(&*made.device).expect("an image");
    let mut image = Image::new(Arc::new(Overlay::new(made.device.clone(), 512)), sb);
    let (mut findings, mut progress) = (Findings::default(), Progress::new(&Options::default()));
    let mut state = ready(&mut image, &mut findings, &mut progress);
    let file_type = FileType::Regular;
    let mut put = 0;
    for len in [255, 5] {
        let insert = |n: &u64| {
            let name = format!("{n:0>len$}").into_bytes();
            dirs::insert(&mut state, &Move { dir, name, nid: made.plain, file_type }).expect("memory")
        };
        put += (0..).take_while(insert).count() as u64;
    }
    for block in image.device.blocks_written() {
        let buf = image.device.content(block).expect("it was written").expect("memory");
        made.device.run(vec![Request::write(block, buf, Cause::Fsck)]).expect("memory");
    }
    put
}

/// Has a name lead nowhere.
fn unname(made: &Made, name: &[u8]) {
    made.damage(|tool| {
        let (block, at) = tool.dentry(made.dir, name);
        tool.edit(block, BlockKind::Bucket, |bytes| {
            bytes[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        });
    });
}

#[test]
fn a_full_lost_and_found_stays_whole_and_another_takes_what_comes() {
    let made = made();
    // What lost its name makes one with a single bucket.
    unname(&made, b"a file with a longer name 7");
    assert_eq!(made.repair().status(), 1);
    let mut found = 0;
    made.damage(|tool| found = tool.named(ROOT_NID, b"lost+found"));
    let put = fill(&made, found);
    assert!((800..2000).contains(&put), "{put}");
    let settled = made.repair();
    assert_eq!(settled.status(), 1, "{:#?}", settled.issues);
    assert_eq!(tool::names(&made, found).len() as u64, put + 1);
    unname(&made, b"a file with a longer name 8");
    let report = made.repair();
    assert_eq!(report.status(), 1, "{:#?}", report.issues);
    assert_eq!(made.check().issues, []);
    assert_eq!(tool::names(&made, found).len() as u64, put + 1);
    made.damage(|tool| {
        let second = tool.named(ROOT_NID, b"lost+found-2");
        assert_eq!(tool::names(&made, second).len(), 1);
    });
}

#[test]
fn what_is_left_counts_beyond_the_findings_that_are_kept() {
    let mut findings = Findings::default();
    let mut add = |number: u64, kind, outcome| {
        findings.add(kind, Location::block(number), String::new(), outcome);
    };
    for number in 0..100_000 {
        add(number, IssueKind::BlockLeaked, Outcome::Mended);
    }
    add(100_000, IssueKind::BlockLeaked, Outcome::Mended);
    assert!(!findings.is_damage_left());
    let mut add = |number: u64, kind, outcome| {
        findings.add(kind, Location::block(number), String::new(), outcome);
    };
    add(100_001, IssueKind::InodeUnreachable, Outcome::Left("no room".into()));
    assert!(findings.is_damage_left());
    let report = finish(findings, Counts::default());
    assert_eq!((report.more, report.more_left, report.status()), (2, 1, 4));
}

/// The next in want of it finds all of it.
#[test]
fn a_tree_for_which_there_is_too_little_room_takes_none() {
    use crate::extent::Run;
    let made = made();
    let mut free = 0;
    made.damage(|tool| {
        free = tool.first_two_free();
        tool.leave_free(&[free]);
    });
    let sb = superblock::read(&*made.device).expect("an image");
    let mut image = Image::new(Arc::new(Overlay::new(made.device.clone(), 512)), sb);
    let (mut findings, mut progress) = (Findings::default(), Progress::new(&Options::default()));
    let mut state = ready(&mut image, &mut findings, &mut progress);
    let mut inode = state.inode(made.plain).expect("sound");
    // More than one leaf takes.
    let runs = (0..300).map(|n| Run { logical: 2 * n, len: 1, block: free, unwritten: false }).collect();
    let written = state.image.device.blocks_written();
    assert!(!extents::build(&mut state, &mut inode, runs).expect("memory"));
    assert_eq!(state.image.device.blocks_written(), written);
    assert!(!state.metadata.has(free) && state.image.fresh.is_empty());
    assert_eq!(state.allocate(1, true).expect("memory"), Some(free));
}

/// There is room for the directory, and none for its name.
#[test]
fn a_lost_and_found_that_the_root_cannot_name_has_no_blocks() {
    let made = made();
    made.damage(|tool| tool.leave_free(&[]));
    assert!(fill(&made, ROOT_NID) > 0);
    assert_eq!(made.repair().status(), 1);
    unname(&made, b"a file with a longer name 7");
    made.damage(|tool| {
        let free = tool.first_two_free();
        tool.leave_free(&[free, free + 1]);
    });
    for report in [made.check(), made.repair()] {
        let left = report.issues.iter().filter(|issue| matches!(issue.outcome, Outcome::Left(_)));
        let left: Vec<_> = left.map(|issue| issue.kind).collect();
        assert_eq!(left, [IssueKind::InodeUnreachable], "{:#?}", report.issues);
        assert_eq!(report.of(IssueKind::BlockNotMarked).count(), 0, "{:#?}", report.issues);
    }
    let report = made.check();
    assert_eq!(report.of(IssueKind::BlockLeaked).count(), 0, "{:#?}", report.issues);
    assert_eq!(made.repair().status(), 1);
    assert_eq!(made.check().issues, []);
}

/// However many ask: a crafted image has as many directories that say so as fit.
#[test]
fn more_blocks_than_there_are_cost_one_look_at_each() {
    let made = made();
    let free: Vec<u64> = (2800..2900).step_by(2).collect();
    made.damage(|tool| tool.leave_free(&free));
    let sb = superblock::read(&*made.device).expect("an image");
    let mut image = Image::new(Arc::new(Overlay::new(made.device.clone(), 512)), sb);
    let (mut findings, mut progress) = (Findings::default(), Progress::new(&Options::default()));
    let mut state = ready(&mut image, &mut findings, &mut progress);
    PROBED.set(0);
    for count in [free.len() + 1, 1 << 20, free.len() + 1] {
        assert_eq!(state.allocate_each(count).expect("memory"), None);
    }
    assert!(PROBED.get() <= sb.blocks.get(), "{}", PROBED.get());
    // What there is can be had, and is given back for others.
    for _ in 0..2 {
        let taken = state.allocate_each(free.len()).expect("memory").expect("there are as many");
        assert_eq!(taken, free);
        assert_eq!(state.allocate_each(1).expect("memory"), None);
        state.give_back(&taken[10..]);
        assert_eq!(state.allocate_each(free.len() - 9).expect("memory"), None);
        assert_eq!(state.allocate_each(free.len() - 10).expect("memory").as_deref(), Some(&free[10..]));
        state.give_back(&taken);
    }
    assert!(PROBED.get() <= 2 * sb.blocks.get(), "{}", PROBED.get());
}

#[test]
fn a_row_that_begins_before_what_is_given_back_is_found() {
    let made = made();
    let free: Vec<u64> = (2800..2820).collect();
    made.damage(|tool| tool.leave_free(&free));
    let sb = superblock::read(&*made.device).expect("an image");
    let mut image = Image::new(Arc::new(Overlay::new(made.device.clone(), 512)), sb);
    let (mut findings, mut progress) = (Findings::default(), Progress::new(&Options::default()));
    let mut state = ready(&mut image, &mut findings, &mut progress);
    assert_eq!(state.allocate_each(10).expect("memory").as_deref(), Some(&free[..10]));
    state.give_back(&free[..5]);
    assert_eq!(state.allocate(20, true).expect("memory"), None);
    state.give_back(&free[5..10]);
    assert_eq!(state.allocate(21, true).expect("memory"), None);
    assert_eq!(state.allocate(20, true).expect("memory"), Some(free[0]));
    assert_eq!(state.allocate(1, true).expect("memory"), None);
}
