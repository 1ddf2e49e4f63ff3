//! Makes files and directories durable, and answers when they are.

use super::engine::EngineOperations;
use crate::session::{DoneReply, RequestContext};
use crate::types::{Errno, Result};
use narufs_engine::format::Nid;

/// Has an outcome of the engine answered.
fn answers(reply: DoneReply) -> Box<dyn FnOnce(narufs_engine::Result<()>) + Send> {
    Box::new(move |outcome| reply.done(outcome.map_err(Errno::from)))
}

impl EngineOperations {
    /// Returns when a file is durable.
    pub(super) fn sync_file(
        &self,
        ctx: &RequestContext<'_>,
        nid: Nid,
        fh: u64,
        data_only: bool,
    ) -> Result<()> {
        let (file, report) = self.to_sync(ctx, nid, fh)?;
        let outcome = self.fs.fsync(&file, data_only);
        if let Some(report) = report {
            report.end(&outcome);
        }
        Ok(outcome?)
    }

    /// Answers when a file is durable.
    pub(super) fn sync_file_then(
        &self,
        ctx: &RequestContext<'_>,
        nid: Nid,
        fh: u64,
        data_only: bool,
        reply: DoneReply,
    ) {
        match self.to_sync(ctx, nid, fh) {
            Ok((file, None)) => self.fs.fsync_then(file, data_only, answers(reply)),
            Ok((file, Some(report))) => {
                let answer = answers(reply);
                let answered = move |outcome: narufs_engine::Result<()>| {
                    report.end(&outcome);
                    answer(outcome);
                };
                self.fs.fsync_then(file, data_only, Box::new(answered));
            }
            Err(e) => reply.done(Err(e)),
        }
    }

    /// Answers when a directory is durable.
    pub(super) fn sync_directory_then(&self, nid: Nid, fh: u64, data_only: bool, reply: DoneReply) {
        match self.directory(nid, fh) {
            Ok(open) => self.fs.fsync_then(open, data_only, answers(reply)),
            Err(e) => reply.done(Err(e)),
        }
    }
}
