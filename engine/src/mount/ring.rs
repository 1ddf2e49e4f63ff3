//! Which ring is at hand, and whether it is the image's.

use crate::device::BlockDevice;
use crate::format::{JournalKind, RingHeader, Superblock};
use crate::journal::{self, Scan, read_device_header, read_mapped_header, scan_device, scan_mapped};
use crate::pmem::PersistentMemory;
use crate::sync::Arc;
use crate::{Error, Result};

/// Where the journal is.
#[derive(Clone)]
pub enum RingMedia {
    /// In persistent memory, or in what stands for it.
    Mapped(Arc<dyn PersistentMemory>),
    /// In the image, staged in memory that survives the process; new staging is zeros.
    Ssd(Arc<dyn PersistentMemory>),
}

/// What was found there.
pub(crate) enum Ring {
    /// The image's own ring.
    Ours(RingHeader),
    /// Not the image's ring, and why.
    None(String),
}

/// The refusal of an image that needs a ring that is not there.
pub(crate) fn lost(why: &str) -> String {
    format!(
        "the image was not unmounted cleanly, and its journal cannot be used: {why}. Operations and absorbed \
         data that were not yet checkpointed may be lost without it. Bring the right journal back, or give \
         them up with fsck --repair --discard-journal"
    )
}

impl RingMedia {
    /// Looks for the image's ring.
    pub(crate) fn find(&self, sb: &Superblock, device: &Arc<dyn BlockDevice>) -> Result<Ring> {
        let in_image = sb.journal_kind.get() == JournalKind::Ssd as u32;
        let header = match self {
            RingMedia::Ssd(_) if in_image => {
                read_device_header(device.as_ref(), sb.ring_start.get(), sb.ring_blocks.get())?
            }
            RingMedia::Mapped(memory) if !in_image => read_mapped_header(memory.as_ref()),
            _ => {
                return Err(Error::Refused(
                    "the image's journal is of another kind than the one given; mount it with the journal \
                     it was made for"
                        .into(),
                ));
            }
        };
        let Some(header) = header else {
            return Ok(Ring::None("there is no valid ring header".into()));
        };
        let (ring_epoch, epoch) = (header.epoch.get(), sb.epoch.get());
        let mismatch = if header.image_uuid != sb.uuid {
            Some("it belongs to another image".to_string())
        } else if header.ring_uuid != sb.ring_uuid {
            Some("it is another ring than the image's last".to_string())
        } else if header.slots.get() != sb.ring_slots.get() {
            Some(format!("it has {} slots, the image's has {}", header.slots, sb.ring_slots))
        } else if ring_epoch > epoch || ring_epoch + 1 < epoch {
            Some(format!("it is of mount {ring_epoch}, the image of mount {epoch}"))
        } else {
            None
        };
        Ok(mismatch.map_or(Ring::Ours(header), Ring::None))
    }

    /// Reads what the ring of an unclean image holds: from the staging, if it is of the same time, for it
    /// may be ahead of the image.
    pub(crate) fn scan(
        &self,
        sb: &Superblock,
        device: &Arc<dyn BlockDevice>,
        header: &RingHeader,
    ) -> Result<Scan> {
        match self {
            RingMedia::Mapped(memory) => scan_mapped(Arc::clone(memory)),
            RingMedia::Ssd(staging) => {
                let staged = read_mapped_header(staging.as_ref()).filter(|staged| {
                    staged.image_uuid == header.image_uuid
                        && staged.ring_uuid == header.ring_uuid
                        && staged.epoch == header.epoch
                        && staged.slots == header.slots
                        && staged.round.get().abs_diff(header.round.get()) <= 1
                });
                match staged {
                    Some(_) => scan_mapped(Arc::clone(staging)),
                    None => scan_device(Arc::clone(device), sb.ring_start.get(), sb.ring_blocks.get()),
                }
            }
        }
    }

    /// Before anything is written home: what only the staging holds goes to the device's ring.
    pub(super) fn carry(&self, sb: &Superblock, device: &Arc<dyn BlockDevice>, scan: &Scan) -> Result<()> {
        match self {
            RingMedia::Ssd(_) if scan.damage.is_none() => scan.carry(device.as_ref(), sb.ring_start.get()),
            _ => Ok(()),
        }
    }

    /// The ring as the journal takes it.
    pub(super) fn media(&self, sb: &Superblock, device: &Arc<dyn BlockDevice>) -> journal::Media {
        match self {
            RingMedia::Mapped(memory) => journal::Media::Mapped(Arc::clone(memory)),
            RingMedia::Ssd(staging) => journal::Media::Ssd {
                staging: Arc::clone(staging),
                device: Arc::clone(device),
                start: sb.ring_start.get(),
            },
        }
    }
}
