//! Deletes, many at a time, and directories that are empty after them.

use crate::error::{not_found, of_object};
use crate::run::{Promise, blocking, check_wanted, shared};
use crate::store::NarufsStore;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Deletes that wait for one flush at the most.
const MOST_AT_ONCE: usize = 1024;

/// How many such are under way.
const MOST_UNDER_WAY: usize = 4;

impl NarufsStore {
    fn remove(&self, location: &Path) -> Result<String> {
        let path = self.object(location)?;
        let held = self.mount.hold(&path);
        check_wanted()?;
        let removed = self.mount.fs.remove_file(&path);
        drop(held);
        match removed {
            Err(e) if e.errno() == libc::ENOENT => Err(not_found(location)),
            removed => removed.map(|()| path).map_err(|e| of_object(location, e)),
        }
    }

    /// Removes the directories above a path that are empty. Who puts something into one meanwhile is either there, and it
    /// stays, or finds it gone and makes it anew.
    pub(crate) fn prune(&self, path: &str) {
        let mut at = path;
        while let Some((above, _)) = at.rsplit_once('/').filter(|(above, _)| above.len() > self.root.len()) {
            // Not empty, or gone: what is above it is not empty either, or another's to remove.
            if self.mount.fs.remove_dir(above).is_err() {
                return;
            }
            at = above;
        }
    }

    fn remove_all(&self, locations: Vec<Result<Path>>) -> (Vec<Result<Path>>, Promise) {
        let mut paths = Vec::new();
        let removed: Vec<_> = locations
            .into_iter()
            .map(|location| {
                let location = location?;
                paths.push(self.remove(&location)?);
                Ok(location)
            })
            .collect();
        // One of each directory, deepest first.
        let dirs: BTreeSet<&str> =
            paths.iter().filter_map(|path| path.rsplit_once('/')).map(|(dir, _)| dir).collect();
        for dir in dirs.into_iter().rev() {
            self.prune(&format!("{dir}/"));
        }
        let promise = if paths.is_empty() { Promise::kept() } else { self.mount.promise() };
        (removed, promise)
    }

    async fn removed(self, locations: Vec<Result<Path>>) -> Vec<Result<Path>> {
        let asked = locations.len();
        let done = blocking(move || Ok(self.remove_all(locations))).await;
        let failed = |error: Error, count: usize| {
            let error = Arc::new(error);
            (0..count).map(|_| Err(shared(&error))).collect()
        };
        let (removed, promise) = match done {
            Ok(done) => done,
            Err(e) => return failed(e, asked),
        };
        match promise.wait().await {
            Ok(()) => removed,
            Err(e) => {
                let error = Arc::new(e);
                removed.into_iter().map(|one| one.and_then(|_| Err(shared(&error)))).collect()
            }
        }
    }

    /// Deletes what a stream names: what it has at hand with one flush, and the next while that is waited for.
    pub(crate) fn remove_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .ready_chunks(MOST_AT_ONCE)
            .map(move |chunk| store.clone().removed(chunk))
            .buffered(MOST_UNDER_WAY)
            .flat_map(stream::iter)
            .boxed()
    }
}
