//! What the device fails to read is not damage: nothing is made of it, and nothing is written.

use super::*;
use crate::device::{BlockDevice, Completion, Op, Ticket, forwarded};
use tool::Tool;

/// A device that fails to read one block.
struct Unreadable {
    inner: Arc<dyn BlockDevice>,
    block: u64,
}

impl BlockDevice for Unreadable {
    forwarded!(inner);

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let fails = |request: &Request| {
            let blocks = request.block..request.block + (request.buf.len() / 4096) as u64;
            request.op == Op::Read && blocks.contains(&self.block)
        };
        let through = batch.into_iter().map(|request| match fails(&request) {
            // A request that the device below refuses.
            true => Request::read(u64::MAX, request.buf, request.cause),
            false => request,
        });
        self.inner.submit(through.collect())
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.inner.wait(ticket)
    }
}

/// Repairs an image of which one block cannot be read, with some damage elsewhere: nothing may be written.
#[track_caller]
fn nothing_is_made_of(which: impl Fn(&Tool<'_>) -> u64) {
    for damaged in [false, true] {
        let made = made();
        let mut block = 0;
        made.damage(|tool| {
            block = which(tool);
            if damaged {
                tool.edit_inode(made.marked, |inode| inode.nlink.set(1));
            }
        });
        let device = Arc::new(Unreadable { inner: made.device.clone(), block });
        let writes = made.device.writes_completed();
        let media = Media { device, ..made.media() };
        let found = check(&media, &Options::default()).expect("an image");
        let report = check(&media, &repairing()).expect("an image");
        assert_eq!((report.status(), found.status()), (4, 4), "{:#?}", report.issues);
        assert_eq!(report.issues, found.issues);
        let left =
            |issue: &Issue| matches!(&issue.outcome, Outcome::Left(why) if why.contains("sound device"));
        assert!(report.issues.iter().all(left), "{:#?}", report.issues);
        assert!(report.issues.iter().any(|issue| issue.place.block == Some(block)), "{:#?}", report.issues);
        assert_eq!(made.device.writes_completed(), writes, "{:#?}", report.issues);
        assert_eq!(made.repair().status(), u8::from(damaged));
        assert_eq!(made.check().issues, []);
    }
}

#[test]
fn what_cannot_be_read_is_not_mended_like_damage() {
    nothing_is_made_of(|tool| tool.image.sb.nat_index_start.get());
    nothing_is_made_of(|tool| tool.nat(tool.made.dir).0);
    nothing_is_made_of(|tool| tool.place(tool.made.plain).0);
    nothing_is_made_of(|tool| tool.root(tool.made.scattered)[0].block);
    nothing_is_made_of(|tool| tool.inode(tool.made.marked).xattr_block.get());
    nothing_is_made_of(|tool| tool.buckets(tool.made.dir)[0]);
    nothing_is_made_of(|tool| tool.image.sb.orphan_root.get());
    nothing_is_made_of(|tool| tool.image.sb.groups_start.get());
}
