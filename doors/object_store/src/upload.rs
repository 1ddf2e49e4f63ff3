//! Uploads in parts. Until it is complete an upload is files without names, so that nothing of it outlives the process or
//! the upload.

use crate::copy::append;
use crate::error::generic;
use crate::mount::locked;
use crate::run::{blocking, durable};
use crate::store::NarufsStore;
use crate::write::When;
use async_trait::async_trait;
use futures_util::FutureExt;
use narufs::File;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attributes, Error, MultipartId, MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// An upload whose parts follow one another: they are written where they belong, in any order.
#[derive(Debug)]
pub(crate) struct Upload {
    /// None once it is complete or given up. It goes before the image.
    file: Option<Arc<File>>,
    store: NarufsStore,
    location: Path,
    /// Where the next part begins.
    end: u64,
    /// Parts that were begun, and those that are written.
    begun: u64,
    written: Arc<AtomicU64>,
}

fn has_ended() -> Error {
    generic("the upload is complete or was aborted")
}

fn write(file: &File, payload: &PutPayload, mut offset: u64) -> Result<()> {
    for part in payload {
        file.write_all_at(part, offset).map_err(generic)?;
        offset += part.len() as u64;
    }
    Ok(())
}

impl NarufsStore {
    pub(crate) fn begin_upload(&self, location: &Path, attributes: &Attributes) -> Result<Upload> {
        self.object(location)?;
        let file = Some(Arc::new(self.nameless(attributes)?));
        let (store, location) = (self.clone(), location.clone());
        Ok(Upload { store, location, file, end: 0, begun: 0, written: Arc::default() })
    }

    async fn complete(self, location: Path, file: Arc<File>) -> Result<PutResult> {
        durable(move || {
            let path = self.object(&location)?;
            // The futures of the parts have ended, and the last that has the file is this.
            let file = Arc::into_inner(file)
                .ok_or_else(|| generic("a part of the upload is still being written"))?;
            self.publish(self.ordered(file)?, &location, &path, &When::Always)
        })
        .await
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(file) = self.file.clone() else {
            return futures_util::future::ready(Err(has_ended())).boxed();
        };
        let offset = self.end;
        self.end += data.content_length() as u64;
        self.begun += 1;
        let (written, store) = (Arc::clone(&self.written), self.store.clone());
        blocking(move || {
            let done = write(&file, &data, offset);
            drop(file);
            // The image goes after what is open in it.
            drop(store);
            done?;
            // Release: who sees the number has the file to itself.
            written.fetch_add(1, Ordering::Release);
            Ok(())
        })
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let missing = self.begun - self.written.load(Ordering::Acquire);
        if missing > 0 {
            return Err(generic(format!(
                "{missing} parts of the upload are not written: wait for them, or abort it"
            )));
        }
        let file = self.file.take().ok_or_else(has_ended)?;
        self.store.clone().complete(self.location.clone(), file).await
    }

    async fn abort(&mut self) -> Result<()> {
        let file = self.file.take().ok_or_else(has_ended)?;
        blocking(move || {
            drop(file);
            Ok(())
        })
        .await
    }
}

/// Uploads that are known by a number, for as long as the image is open.
#[derive(Default)]
pub(crate) struct Uploads {
    next: AtomicU64,
    open: Mutex<HashMap<MultipartId, Arc<Numbered>>>,
}

struct Numbered {
    path: String,
    attributes: Attributes,
    /// Each part, by its name, is a file.
    parts: Mutex<HashMap<String, File>>,
}

impl Uploads {
    fn number(&self) -> u64 {
        // Relaxed: nothing but the number.
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl NarufsStore {
    fn upload_of(&self, location: &Path, id: &MultipartId) -> Result<Arc<Numbered>> {
        let path = self.object(location)?;
        let upload = locked(&self.mount.uploads.open).get(id).cloned();
        upload.filter(|upload| upload.path == path).ok_or_else(|| Error::NotFound {
            path: location.to_string(),
            source: format!("no upload {id}").into(),
        })
    }

    fn put_numbered(&self, upload: &Numbered, number: usize, data: &PutPayload) -> Result<PartId> {
        let file = self.nameless(&Attributes::new())?;
        write(&file, data, 0)?;
        let content_id = format!("{number}-{}", self.mount.uploads.number());
        locked(&upload.parts).insert(content_id.clone(), file);
        Ok(PartId { content_id })
    }

    /// Its files go with it.
    async fn forget_upload(&self, id: &MultipartId) -> Result<()> {
        let upload = locked(&self.mount.uploads.open).remove(id);
        blocking(move || {
            drop(upload);
            Ok(())
        })
        .await
    }

    fn joined(&self, upload: &Numbered, parts: &[PartId]) -> Result<File> {
        let files = locked(&upload.parts);
        let file = self.nameless(&upload.attributes)?;
        let mut end = 0;
        for PartId { content_id } in parts {
            let part = files.get(content_id).ok_or_else(|| generic(format!("no part {content_id}")))?;
            end = append(part, &file, end).map_err(generic)?;
        }
        Ok(file)
    }
}

#[async_trait]
impl MultipartStore for NarufsStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.create_multipart_opts(path, PutMultipartOptions::default()).await
    }

    async fn create_multipart_opts(&self, path: &Path, opts: PutMultipartOptions) -> Result<MultipartId> {
        let uploads = &self.mount.uploads;
        // No other has it, of any process: who goes on after a crash is to find nothing.
        let id = uuid::Uuid::new_v4().simple().to_string();
        let upload =
            Numbered { path: self.object(path)?, attributes: opts.attributes, parts: Mutex::default() };
        locked(&uploads.open).insert(id.clone(), Arc::new(upload));
        Ok(id)
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        part_idx: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let upload = self.upload_of(path, id)?;
        let store = self.clone();
        blocking(move || store.put_numbered(&upload, part_idx, &data)).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let upload = self.upload_of(path, id)?;
        let store = self.clone();
        let file = blocking(move || store.joined(&upload, &parts)).await?;
        let done = self.clone().complete(path.clone(), Arc::new(file)).await?;
        self.forget_upload(id).await?;
        Ok(done)
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.upload_of(path, id)?;
        self.forget_upload(id).await
    }
}
