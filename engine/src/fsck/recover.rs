//! What comes before the check: the journal of an image that was not unmounted, and the areas of one that was.

use super::image::Image;
use super::issue::{IssueKind, Outcome, Place};
use super::repair::REPAIR_ROUND;
use super::state::Findings;
use crate::checkpoint::RoundId;
use crate::device::{BLOCK_SIZE, BlockDevice, IoBuf, Overlay};
use crate::format::{DoubleWriteHeader, JournalKind, STATE_DAMAGED, Superblock, checksum_seed};
use crate::journal::read_device_header;
use crate::mount::{Media, MountOptions, Ring, lost, mount};
use crate::recovery::{self, Onto};
use crate::store::{Log, Store, StoreOptions};
use crate::sync::Arc;
use crate::{Error, Result};

/// Recovers by a mount and an unmount. False: it stays as it is, and there is nothing to check.
pub(super) fn carry_out(media: &Media, discard: bool, findings: &mut Findings) -> Result<bool> {
    let mut options = MountOptions { background: false, trust_journal: true, ..MountOptions::default() };
    let (kind, why) = match mount(media.clone(), &options) {
        Ok(mounted) => match mounted.recovery().damage.clone() {
            None => {
                add_unreadable(&mounted.recovery().unreadable, findings, &Outcome::Mended);
                return mounted.unmount().map(|()| true);
            }
            Some(damage) => (IssueKind::JournalDamaged, damage),
        },
        Err(Error::Refused(why)) => (IssueKind::RingMissing, why),
        Err(e) => return Err(e),
    };
    if !discard {
        findings.add(kind, Place::default(), why, Outcome::Left(kind.mending().into()));
        return Ok(false);
    }
    options.discard_journal = true;
    match mount(media.clone(), &options) {
        Ok(mounted) => {
            findings.add(kind, Place::default(), why, Outcome::Mended);
            add_unreadable(&mounted.recovery().unreadable, findings, &Outcome::Mended);
            mounted.unmount().map(|()| true)
        }
        Err(Error::Refused(why)) => {
            findings.add(kind, Place::default(), why.clone(), Outcome::Left(why));
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

fn add_unreadable(blocks: &[u64], findings: &mut Findings, outcome: &Outcome) {
    for block in blocks {
        let detail = "it cannot be read; what it held is not needed".into();
        let kind = IssueKind::DoubleWriteUnreadable;
        findings.add(kind, Place::block(*block), detail, outcome.clone());
    }
}

/// Recovers onto an overlay; nothing is written below it. False: it cannot be.
pub(super) fn onto(
    overlay: &Arc<Overlay>,
    media: &Media,
    sb: &Superblock,
    findings: &mut Findings,
) -> Result<bool> {
    let device = Arc::clone(overlay) as Arc<dyn BlockDevice>;
    let mut left = |kind: IssueKind, why: String| {
        findings.add(kind, Place::default(), why, Outcome::Left(kind.mending().into()));
        Ok(false)
    };
    let header = match media.ring.find(sb, &device) {
        Ok(Ring::Ours(header)) => header,
        Ok(Ring::None(why)) => return left(IssueKind::RingMissing, lost(&why)),
        Err(Error::Refused(why)) => return left(IssueKind::RingMissing, why),
        Err(e) => return Err(e),
    };
    let scan = media.ring.scan(sb, &device, &header)?;
    let store = Store::new(device, *sb, Log::durable(), &StoreOptions::default());
    let round = RoundId { epoch: header.epoch.get(), number: header.round.get() + 1 };
    match recovery::recover(&store, &scan, round, Onto::Memory) {
        Ok(recovery::Outcome { damage: None, unreadable, .. }) => {
            add_unreadable(&unreadable, findings, &Outcome::Mendable);
            Ok(true)
        }
        Ok(recovery::Outcome { damage: Some(damage), .. }) => left(IssueKind::JournalDamaged, damage),
        Err(Error::Refused(why)) => left(IssueKind::RingMissing, why),
        Err(e) => Err(e),
    }
}

/// Looks at the journal region and the double-write area of an image that is not in use.
pub(super) fn check_areas(image: &Image, findings: &mut Findings) -> Result<()> {
    let sb = &image.sb;
    let (start, blocks) = (sb.ring_start.get(), sb.ring_blocks.get());
    if sb.journal_kind.get() == JournalKind::Ssd as u32
        && blocks >= 2
        && read_device_header(&*image.device, start, blocks)?.is_none()
    {
        let used = [start, start + 1]
            .map(|block| image.read(block).is_ok_and(|bytes| bytes.iter().any(|b| *b != 0)));
        if used != [false, false] {
            let detail = "neither copy of the journal's header is valid, nor are they blank".into();
            findings.add(IssueKind::RingHeader, Place::block(start), detail, Outcome::Mendable);
            for block in [start, start + 1] {
                image.put_raw(block, IoBuf::zeroed(BLOCK_SIZE))?;
            }
        }
    }
    let seed = checksum_seed(&sb.uuid);
    let (start, blocks) = (sb.dw_start.get(), sb.dw_blocks.get());
    // Any block of the double-write area may be a segment's header.
    for at in start..start + blocks {
        let Ok(bytes) = image.read(at) else {
            add_unreadable(&[at], findings, &Outcome::Mendable);
            image.put_raw(at, IoBuf::zeroed(BLOCK_SIZE))?;
            continue;
        };
        let Some((header, _)) = DoubleWriteHeader::find(seed, at, &bytes) else { continue };
        let (epoch, round) = (header.epoch.get(), header.round.get());
        let own = round == REPAIR_ROUND && sb.state.get() == STATE_DAMAGED;
        if !own && (round == REPAIR_ROUND || epoch > sb.epoch.get()) {
            let detail =
                format!("it holds images of round {round} of mount {epoch}; the last was {}", sb.epoch);
            findings.add(IssueKind::DoubleWrite, Place::block(at), detail, Outcome::Mendable);
            image.put_raw(at, IoBuf::zeroed(BLOCK_SIZE))?;
        }
    }
    Ok(())
}
