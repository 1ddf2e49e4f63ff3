//! Gets: an object is opened once, and what was opened stays as it is, whatever becomes of its name.

use crate::attributes;
use crate::error::{generic, not_found, of_object};
use crate::mount::Mount;
use crate::run::{blocking, here};
use crate::store::NarufsStore;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use narufs::{File, OpenOptions};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, GetResultPayload, Result};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are read in one go; of what is more a stream has so many at a time.
const AT_ONCE: u64 = 1 << 20;

/// Bytes that are copied from memory by the thread that asks.
const MOST_HERE: u64 = 128 << 10;

/// An object that is read. The file goes before the image.
struct Reader {
    file: File,
    _mount: Arc<Mount>,
}

impl Reader {
    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let len = usize::try_from(range.end - range.start).map_err(generic)?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, range.start).map_err(generic)?;
        Ok(bytes.into())
    }

    /// What memory has, if it has all of it and it is not too much for a thread that has other things to do.
    fn in_memory(&self, range: &Range<u64>) -> Result<Option<Bytes>> {
        if range.end - range.start > MOST_HERE {
            return Ok(None);
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let is_read = self.file.read_cached_at(&mut bytes, range.start).map_err(generic)?;
        Ok(is_read.then(|| bytes.into()))
    }

    async fn content(self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        if range.end - range.start > AT_ONCE {
            return Ok(pieces(Arc::new(self), range));
        }
        let bytes = match self.in_memory(&range)? {
            Some(bytes) => bytes,
            None => blocking(move || self.read(range)).await?,
        };
        Ok(stream::iter([Ok(bytes)]).boxed())
    }
}

/// The rest of an object, a piece after the other.
fn pieces(reader: Arc<Reader>, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
    let next = |(reader, range): (Arc<Reader>, Range<u64>)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let end = range.end.min(range.start + AT_ONCE);
        let piece = blocking({
            let reader = Arc::clone(&reader);
            move || reader.read(range.start..end)
        });
        Ok(Some((piece.await?, (reader, end..range.end))))
    };
    stream::try_unfold((reader, range), next).boxed()
}

fn bounded(range: &GetRange, size: u64) -> Result<Range<u64>> {
    range.as_range(size).map_err(generic)
}

impl NarufsStore {
    fn open_object(&self, location: &Path) -> Result<Reader> {
        let path = self.object(location)?;
        let mut options = OpenOptions::new();
        options.read(true).no_follow(true);
        let fs = &self.mount.fs;
        let file = match fs.open_with(&path, options.clone().no_access_time(true)) {
            // Another's.
            Err(e) if e.errno() == libc::EPERM => fs.open_with(&path, &options),
            opened => opened,
        };
        let file = match file {
            // What is no file is no object: neither a link nor, below, a directory.
            Err(e) if e.errno() == libc::ELOOP => return Err(not_found(location)),
            opened => opened.map_err(|e| of_object(location, e))?,
        };
        let is_object = file.metadata().map_err(generic)?.is_file();
        if is_object {
            Ok(Reader { file, _mount: Arc::clone(&self.mount) })
        } else {
            Err(not_found(location))
        }
    }

    /// Opens an object: all but the content, and what there is to read of that.
    fn begin(&self, location: &Path, options: &GetOptions) -> Result<(GetResult, Option<Reader>)> {
        if options.version.is_some() {
            return Err(Error::NotSupported {
                source: "there are no versions of objects but the last".into(),
            });
        }
        let reader = self.open_object(location)?;
        let meta = attributes::meta(location.clone(), &reader.file.metadata().map_err(generic)?);
        options.check_preconditions(&meta)?;
        let range = options.range.as_ref().map_or(Ok(0..meta.size), |range| bounded(range, meta.size))?;
        let attributes = attributes::of(&reader.file).map_err(generic)?;
        let reader = (!options.head && !range.is_empty()).then_some(reader);
        let payload = GetResultPayload::Stream(stream::empty().boxed());
        Ok((GetResult { payload, meta, range, attributes, extensions: Default::default() }, reader))
    }

    /// Reads an object: on this thread as long as that has been a matter of memory.
    ///
    /// # Errors
    /// As [`object_store::ObjectStore::get_opts`].
    pub(crate) async fn read(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (mut result, reader) = if self.mount.memory.is_enough() {
            tokio::task::coop::consume_budget().await;
            here(&self.mount, |mount| &mount.memory, || self.begin(location, &options))?
        } else {
            let (store, location) = (self.clone(), location.clone());
            blocking(move || store.begin(&location, &options)).await?
        };
        if let Some(reader) = reader {
            result.payload = GetResultPayload::Stream(reader.content(result.range.clone()).await?);
        }
        Ok(result)
    }

    /// Reads several ranges of one object, all of the same content.
    ///
    /// # Errors
    /// As [`object_store::ObjectStore::get_ranges`].
    pub(crate) fn read_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let reader = self.open_object(location)?;
        let size = reader.file.metadata().map_err(generic)?.len();
        let one = |range: &Range<u64>| reader.read(bounded(&GetRange::Bounded(range.clone()), size)?);
        ranges.iter().map(one).collect()
    }
}
