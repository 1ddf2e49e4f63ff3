//! Which image a ring outside of it is of, where a copy of that image has the same UUIDs.
//!
//! A copy that was made while its original was mounted names the original's ring, which has what the copy has not: redone
//! over the copy it would be younger records over older blocks, and what is the original's would be gone from it. So
//! such a ring says whose it is, from the first mount that writes it, and is kept from all others that could need
//! or void it, until whoever mounts says that the image was moved ([`Origin`](super::Origin)).
//!
//! Unlike staging such a ring may outlive the machine's restart, after which an image must go on by itself: so a file is known
//! by when it was made, and by its inode where no time is told; a device by its number, until the restart.
//!
//! A ring that does not say it, an older build's, is the image's that its UUIDs name.

use super::staging::{self, DEVICE, FILE};
use crate::device::Identity;
use crate::format::StagingOwner;

/// How a ring says that it is of an image with this identity.
pub(super) fn owner(of: &Identity) -> StagingOwner {
    staging::owner(&match of.is_device {
        true => Identity { number: boot(), ..*of },
        false => *of,
    })
}

/// Whether a ring that begins so says that it is of another image than this owner's.
pub(super) fn is_anothers(start: &[u8], ours: &StagingOwner) -> bool {
    let Some(found) = staging::owner_in(start) else { return false };
    match (found.kind.get(), ours.kind.get()) {
        (FILE, FILE) if found.born.get() != 0 && ours.born.get() != 0 => found.born != ours.born,
        (FILE, FILE) => found.number != ours.number,
        (DEVICE, DEVICE) => found.number == ours.number && found.device != ours.device,
        _ => true,
    }
}

/// Whether a ring that begins so says that it is this owner's.
pub(super) fn is_ours(start: &[u8], ours: &StagingOwner) -> bool {
    staging::owner_in(start).is_some() && !is_anothers(start, ours)
}

/// A number of the time since the machine was started; 0: unknown.
fn boot() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    uuid::Uuid::parse_str(id.trim()).map_or(0, |id| id.as_u64_pair().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{RING_HEADER_SPACE, STAGING_OWNER};
    use zerocopy::IntoBytes;

    fn start(of: &StagingOwner) -> Vec<u8> {
        let mut start = vec![0; RING_HEADER_SPACE];
        start[STAGING_OWNER..][..size_of::<StagingOwner>()].copy_from_slice(of.as_bytes());
        start
    }

    #[test]
    fn a_ring_is_of_one_image_alone() {
        let file = Identity { is_device: false, device: 5, number: 7, born: 9 };
        let is_anothers =
            |found: Identity, ours: Identity| is_anothers(&start(&owner(&found)), &owner(&ours));
        assert!(!is_anothers(file, file));
        // Its file system was attached anew, or has other numbers after a restart.
        assert!(!is_anothers(file, Identity { device: 6, number: 8, ..file }));
        assert!(is_anothers(file, Identity { born: 10, ..file }));
        let untold = Identity { born: 0, ..file };
        assert!(!is_anothers(file, untold) && !is_anothers(untold, file));
        assert!(is_anothers(untold, Identity { number: 8, ..untold }));
        let device = Identity { is_device: true, born: 0, ..file };
        assert!(!is_anothers(device, Identity { number: 8, ..device }));
        assert!(is_anothers(device, Identity { device: 6, ..device }));
        assert!(is_anothers(device, file) && is_anothers(file, device));
    }

    #[test]
    fn a_device_goes_on_after_a_restart_whatever_its_number_is() {
        let of = |boot, device| staging::owner(&Identity { is_device: true, device, number: boot, born: 0 });
        assert!(!is_anothers(&start(&of(1, 5)), &of(2, 6)));
        assert!(is_anothers(&start(&of(1, 5)), &of(1, 6)));
        // What an older build has written, and what is torn.
        assert!(!is_anothers(&vec![0; RING_HEADER_SPACE], &of(1, 6)));
        let mut torn = start(&of(1, 5));
        torn[STAGING_OWNER + 20] ^= 1;
        assert!(!is_anothers(&torn, &of(1, 6)));
    }
}
