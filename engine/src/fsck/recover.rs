//! What comes before the check: the journal of an image that was not unmounted, and the areas of one that was.

use super::image::Image;
use super::issue::{IssueKind, Location, Outcome};
use super::repair::REPAIR_ROUND;
use super::state::Findings;
use crate::checkpoint::{Checkpointer, RoundId};
use crate::device::{BLOCK_SIZE, BlockDevice, IoBuf, Overlay};
use crate::format::{DoubleWriteHeader, JournalKind, STATE_DAMAGED, Superblock, checksum_seed};
use crate::journal::{any_device_header, newer_device_version};
use crate::recovery::{self, Onto};
use crate::store::{Log, Store, StoreOptions};
use crate::sync::Arc;
use crate::volume::{Absence, ImageOptions, Media, Ring, foreign, lost, mount};
use crate::{Error, Result};

/// Recovers by a mount and an unmount, which leave an image whose journal is given up marked as damaged. False: it stays as
/// it is, and there is nothing to check.
pub(super) fn carry_out(media: &Media, discard: bool, findings: &mut Findings) -> Result<bool> {
    let mut options = ImageOptions { background: false, trust_journal: true, ..ImageOptions::default() };
    let (kind, why) = match mount(media.clone(), &options) {
        Ok(mounted) => match mounted.recovery().damage.clone() {
            None => {
                let detail = not_needed(mounted.store().superblock());
                add_unreadable(&mounted.recovery().unreadable, detail, findings, &Outcome::Mended);
                return mounted.unmount().map(|()| true);
            }
            Some(damage) => (IssueKind::JournalDamaged, damage),
        },
        Err(Error::Refused(why)) => (IssueKind::RingMissing, why),
        // The journal's header, it may be.
        Err(e @ Error::Device { .. }) if discard => (IssueKind::RingMissing, e.to_string()),
        Err(e) => return Err(e),
    };
    if !discard {
        findings.add(kind, Location::default(), why, Outcome::Left(kind.mending().into()));
        return Ok(false);
    }
    options.discard_journal = true;
    match mount(media.clone(), &options) {
        Ok(mounted) => match mounted.recovery().damage.clone() {
            None => {
                findings.add(kind, Location::default(), why, Outcome::Mended);
                let detail = "it cannot be read; what it held is given up with the journal";
                add_unreadable(&mounted.recovery().unreadable, detail, findings, &Outcome::Mended);
                for nid in &mounted.recovery().older {
                    let detail =
                        "it may be older than what was synced, for a part of the journal is given up";
                    findings.add(
                        IssueKind::ContentOlder,
                        Location::nid(*nid),
                        detail.into(),
                        Outcome::Mended,
                    );
                }
                mounted.unmount().map(|()| true)
            }
            // Read-only: its unmount would change nothing.
            Some(damage) => {
                findings.add(kind, Location::default(), why, Outcome::Left(damage));
                Ok(false)
            }
        },
        Err(Error::Refused(why)) => {
            findings.add(kind, Location::default(), why.clone(), Outcome::Left(why));
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

fn add_unreadable(blocks: &[u64], detail: &str, findings: &mut Findings, outcome: &Outcome) {
    for block in blocks {
        let kind = IssueKind::DoubleWriteUnreadable;
        findings.add(kind, Location::block(*block), detail.into(), outcome.clone());
    }
}

/// What is known of blocks that recovery has done without.
fn not_needed(sb: &Superblock) -> &'static str {
    if sb.journal_kind.get() == JournalKind::Ssd as u32 {
        "it cannot be read; what it held is not needed"
    } else {
        "it cannot be read; what it held is not needed if the journal is the last that the image had"
    }
}

/// Writes blocks of the double-write area anew that cannot be read; false, with nothing mended, if one cannot be
/// written either. It comes before any other write: a repair that began would stop there, on an image marked as
/// damaged.
pub(super) fn make_area_whole(device: &dyn BlockDevice, findings: &mut Findings) -> bool {
    let mut whole = true;
    let unreadable =
        findings.issues.iter_mut().filter(|issue| issue.kind == IssueKind::DoubleWriteUnreadable);
    for issue in unreadable.filter(|issue| issue.outcome == Outcome::Mendable) {
        let block: Vec<u64> = issue.place.block.into_iter().collect();
        issue.outcome = match recovery::make_blank(device, &block) {
            Ok(()) => Outcome::Mended,
            Err(e) => {
                whole = false;
                Outcome::Left(format!("nor can it be written anew: {e}"))
            }
        };
    }
    if !whole {
        findings
            .leave("a block of the double-write area, by way of which it would be mended, cannot be written");
    }
    whole
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
        findings.add(kind, Location::default(), why, Outcome::Left(kind.mending().into()));
        Ok(false)
    };
    let header = match media.ring.find(sb, &device) {
        Ok(Ring::Ours(header)) => header,
        Ok(Ring::None(why)) => return left(IssueKind::RingMissing, lost(&why)),
        Err(Error::Refused(why)) => return left(IssueKind::RingMissing, why),
        Err(e) => return Err(e),
    };
    let scan = media.ring.scan(sb, &device, &header)?;
    // As a mount does before it writes anything home.
    if scan.damage.is_none()
        && let Err(e) = media.ring.can_carry(&scan)
    {
        return if let Error::Refused(why) = e { left(IssueKind::RingMissing, why) } else { Err(e) };
    }
    let store = Arc::new(Store::new(device, *sb, Log::durable(), &StoreOptions::default()));
    let round = RoundId { epoch: header.epoch.get(), number: header.round.get() + 1 };
    match recovery::recover(&Checkpointer::new(store), &scan, round, &[], Onto::Memory) {
        Ok(recovery::Outcome { damage: None, unreadable, .. }) => {
            add_unreadable(&unreadable, not_needed(sb), findings, &Outcome::Mendable);
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
    let is_inside = sb.journal_kind.get() == JournalKind::Ssd as u32 && blocks >= 2;
    let header = if is_inside { any_device_header(&*image.device, start, blocks) } else { Ok(None) };
    if is_inside && !matches!(header, Ok(Some(_))) {
        if header.is_ok()
            && let Some(version) = newer_device_version(&*image.device, start)?
        {
            return Err(Error::Refused(foreign(&Absence::OtherVersionInside(version))));
        }
        let used = [start, start + 1]
            .map(|block| image.read(block).map_or(true, |bytes| bytes.iter().any(|b| *b != 0)));
        if used != [false, false] {
            let detail = "neither copy of the journal's header is valid, nor are they blank".into();
            findings.add(IssueKind::RingHeader, Location::block(start), detail, Outcome::Mendable);
            for block in [start, start + 1] {
                image.put_raw(block, IoBuf::zeroed(BLOCK_SIZE))?;
            }
        }
    }
    let seed = checksum_seed(&sb.uuid);
    let (start, blocks) = (sb.dw_start.get(), sb.dw_blocks.get());
    let unreadable = if sb.state.get() == STATE_DAMAGED {
        "it cannot be read; of a repair that was interrupted it may have held what is torn at home, and is then lost"
    } else {
        "it cannot be read; what it held is not needed"
    };
    // Any block of the double-write area may be a segment's header.
    for at in start..start + blocks {
        let Ok(bytes) = image.read(at) else {
            add_unreadable(&[at], unreadable, findings, &Outcome::Mendable);
            image.put_raw(at, IoBuf::zeroed(BLOCK_SIZE))?;
            continue;
        };
        let Some((header, _)) = DoubleWriteHeader::find(seed, at, &bytes) else { continue };
        let (epoch, round) = (header.epoch.get(), header.round.get());
        let own = round == REPAIR_ROUND && sb.state.get() == STATE_DAMAGED;
        if !own && (round == REPAIR_ROUND || epoch > sb.epoch.get()) {
            let detail =
                format!("it holds images of round {round} of mount {epoch}; the last was {}", sb.epoch);
            findings.add(IssueKind::DoubleWrite, Location::block(at), detail, Outcome::Mendable);
            image.put_raw(at, IoBuf::zeroed(BLOCK_SIZE))?;
        }
    }
    Ok(())
}
