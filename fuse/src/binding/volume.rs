//! Control calls that change the file system as a whole. They are for root and for whoever serves the mount.

use super::engine::EngineOperations;
use crate::control::{self, Growth};
use crate::session::RequestContext;
use crate::types::{Errno, Result};

impl EngineOperations {
    fn check_master(ctx: &RequestContext<'_>) -> Result<()> {
        match ctx.uid {
            0 => Ok(()),
            uid if uid == rustix::process::geteuid().as_raw() => Ok(()),
            _ => Err(Errno(libc::EPERM)),
        }
    }

    /// Answers [`control::TRIM`].
    pub(super) fn trim(&self, ctx: &RequestContext<'_>, data: &[u8]) -> Result<Vec<u8>> {
        Self::check_master(ctx)?;
        let [start, length, least] = numbers(data)?;
        let trimmed = self.fs().trim(start..start.saturating_add(length), least)?;
        Ok([start, trimmed, least].iter().flat_map(|n| n.to_ne_bytes()).collect())
    }

    /// Answers [`control::RESIZE`].
    pub(super) fn resize(&self, ctx: &RequestContext<'_>, data: &[u8]) -> Result<Vec<u8>> {
        Self::check_master(ctx)?;
        let (growth, sparse) = control::asked(data).ok_or(Errno(libc::EINVAL))?;
        let bytes = match growth {
            Growth::ToDevice => None,
            Growth::To(bytes) => Some(bytes),
            Growth::By(more) => Some(self.fs().size().saturating_add(more)),
        };
        Ok(control::resized(self.fs().resize(bytes, sparse).map_err(|e| e.to_string())))
    }
}

/// The numbers of a question.
fn numbers<const N: usize>(data: &[u8]) -> Result<[u64; N]> {
    let (numbers, _) = data.as_chunks::<8>();
    let numbers = numbers.first_chunk::<N>().ok_or(Errno(libc::EINVAL))?;
    Ok(numbers.map(u64::from_ne_bytes))
}
