//! Lists: all below a prefix, one level of it, or a page.

use crate::run::blocking;
use crate::store::NarufsStore;
use crate::walk::{Found, Walk, Wanted};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path;
use object_store::{Error, ListResult, ObjectMeta, Result};
use std::collections::BTreeSet;

/// Objects that are looked up in one go.
const AT_ONCE: usize = 1024;

/// Objects of a page, if nobody says how many.
const PAGE: usize = 1000;

impl NarufsStore {
    fn walk(&self, prefix: &Path, wanted: Wanted) -> Result<Walk> {
        Walk::from(self.mount.clone(), &self.root, prefix, wanted)
    }

    /// All objects below a prefix, as a stream that looks them up as they are asked for.
    pub(crate) fn objects(
        &self,
        prefix: Option<&Path>,
        behind: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        let behind = behind.map(Path::to_string);
        let begin = async move {
            blocking(move || store.walk(&prefix, Wanted { behind, ..Wanted::default() })).await.map(Some)
        };
        let next = |walk: Option<Walk>| async move {
            let Some(mut walk) = walk else { return Ok(None) };
            let (objects, walk) = blocking(move || {
                let objects = some(&mut walk)?;
                Ok((objects, walk))
            })
            .await?;
            let is_last = objects.len() < AT_ONCE;
            Ok(Some((stream::iter(objects.into_iter().map(Ok)), (!is_last).then_some(walk))))
        };
        let flat = |part: Result<_>| match part {
            Ok(objects) => StreamExt::left_stream(objects),
            Err(e) => stream::iter([Err(e)]).right_stream(),
        };
        stream::once(begin)
            .flat_map(move |walk| match walk {
                Ok(walk) => stream::try_unfold(walk, next).flat_map(flat).left_stream(),
                Err(e) => stream::iter([Err(e)]).right_stream(),
            })
            .boxed()
    }

    /// What lies right below a prefix.
    ///
    /// # Errors
    /// As [`object_store::ObjectStore::list_with_delimiter`].
    pub(crate) fn level(&self, prefix: &Path) -> Result<ListResult> {
        let mut walk = self.walk(prefix, Wanted { one_level: true, ..Wanted::default() })?;
        let (mut objects, mut prefixes) = (Vec::new(), BTreeSet::new());
        while let Some(found) = walk.next()? {
            match found {
                Found::Object(object) => objects.push(object),
                Found::Prefix(prefix) => drop(prefixes.insert(prefix)),
            }
        }
        objects.sort_unstable_by(|one, other| one.location.cmp(&other.location));
        let common_prefixes = prefixes.into_iter().collect();
        Ok(ListResult { common_prefixes, objects, extensions: Default::default() })
    }

    fn page(&self, prefix: &str, options: PaginatedListOptions) -> Result<PaginatedListResult> {
        if options.delimiter.as_ref().is_some_and(|delimiter| delimiter != "/") {
            return Err(Error::NotSupported { source: "the delimiter of keys is /".into() });
        }
        let dir = Path::parse(prefix.rsplit_once('/').map_or("", |(dir, _)| dir))?;
        let one_level = options.delimiter.is_some();
        let wanted = Wanted { begin: prefix.to_owned(), behind: options.offset, one_level };
        let mut walk = self.walk(&dir, wanted)?;
        if let Some(token) = &options.page_token {
            walk.go_on(&self.root, &dir, token)?;
        }
        let most = options.max_keys.unwrap_or(PAGE).max(1);
        let mut result =
            ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
        let mut page_token = None;
        for count in 0.. {
            if count == most {
                page_token = Some(walk.place());
            }
            match (walk.next()?, count == most) {
                (None, _) => {
                    page_token = None;
                    break;
                }
                // The next page begins with it.
                (Some(_), true) => break,
                (Some(Found::Object(object)), false) => result.objects.push(object),
                (Some(Found::Prefix(prefix)), false) => result.common_prefixes.push(prefix),
            }
        }
        Ok(PaginatedListResult { result, page_token })
    }
}

/// The next objects of a walk; fewer at its end.
fn some(walk: &mut Walk) -> Result<Vec<ObjectMeta>> {
    let mut objects = Vec::new();
    while objects.len() < AT_ONCE
        && let Some(found) = walk.next()?
    {
        if let Found::Object(object) = found {
            objects.push(object);
        }
    }
    Ok(objects)
}

#[async_trait]
impl PaginatedListStore for NarufsStore {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        opts: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        let (store, prefix) = (self.clone(), prefix.unwrap_or_default().to_owned());
        // A slash at the beginning is that of no key.
        let prefix = prefix.trim_start_matches('/').to_owned();
        blocking(move || store.page(&prefix, opts)).await
    }
}
