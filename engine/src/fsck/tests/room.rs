//! Repairs for which there is too little room, and more findings than are kept.

use super::*;

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
