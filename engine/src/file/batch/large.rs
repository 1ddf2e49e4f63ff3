//! The commit of a batch that no record has room for: staged in a file of its own, and moved from there.

use super::staged::{Spilled, StagedPage};
use super::{StagedFile, manifest};
use crate::alloc::Reservation;
use crate::device::BLOCK_SIZE;
use crate::file::SyncKind;
use crate::file::data_path::DataPath;
use crate::file::write::reservation::Steps;
use crate::file::write::{At, Fit};
use crate::file::writeback::{Order, key_of};
use crate::format::{BatchRun, MAX_BATCH_RUNS, Nid, OrphanEntry, Position};
use crate::inode::InodeObj;
use crate::journal::Durability;
use crate::lock::BytesGuard;
use crate::pages::{PAGE, PAGES_END, page_of};
use crate::planted::{self, Bug};
use crate::sync::Arc;
use crate::{Error, Result};

/// Bytes of one write to the staging file.
const WRITE_BYTES: usize = 1 << 20;

/// Where a large batch is staged: a file without a name, which nobody else has.
#[derive(Debug)]
pub struct SpillFile {
    inode: Arc<InodeObj>,
    /// Its first page that is free.
    next: u64,
}

/// Neighbouring pages on their way into the staging file.
#[derive(Default)]
struct Gathered {
    offset: u64,
    bytes: Vec<u8>,
}

impl SpillFile {
    /// In this file, which is new.
    pub fn in_file(inode: &Arc<InodeObj>) -> SpillFile {
        // Nobody reads what is there before a commit, which flushes all of it.
        inode.data().needs_no_order();
        SpillFile { inode: Arc::clone(inode), next: 0 }
    }

    fn page_for(&mut self, file: &StagedFile, page: u64) -> u64 {
        file.spilled.get(&page).map(|spilled| spilled.source).unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

impl Gathered {
    /// Adds a page; what has to be written first, if it does not go on with it.
    fn add(&mut self, source: u64, bytes: &[u8]) -> Option<Gathered> {
        let goes_on =
            self.offset + self.bytes.len() as u64 == source * PAGE && self.bytes.len() < WRITE_BYTES;
        let before = (!goes_on)
            .then(|| std::mem::replace(self, Gathered { offset: source * PAGE, bytes: Vec::new() }));
        self.bytes.extend_from_slice(bytes);
        before.filter(|before| !before.bytes.is_empty())
    }
}

impl DataPath {
    /// Brings what these files have in memory into the staging file. If it fails, some of it is there, and the rest stays
    /// in memory.
    pub fn spill<'f>(
        &self,
        spill_file: &mut SpillFile,
        files: impl Iterator<Item = &'f mut StagedFile>,
    ) -> Result<()> {
        for file in files {
            let pages: Vec<u64> = file.pages.keys().copied().collect();
            for part in pages.chunks(WRITE_BYTES / BLOCK_SIZE) {
                let (mut gathered, mut places) = (Gathered::default(), Vec::with_capacity(part.len()));
                for page in part {
                    let Some(staged) = self.staged_page(spill_file, file, *page)? else { continue };
                    let source = spill_file.page_for(file, *page);
                    if let Some(before) = gathered.add(source, &staged.bytes[..]) {
                        self.write_staged(spill_file, &before)?;
                    }
                    let ranges = if staged.is_whole() { Vec::new() } else { staged.ranges };
                    places.push((*page, Spilled { source, ranges }));
                }
                self.write_staged(spill_file, &gathered)?;
                for (page, spilled) in places {
                    file.pages.remove(&page);
                    file.spilled.insert(page, spilled);
                }
            }
        }
        Ok(())
    }

    /// All that is staged of a page, in memory and in the staging file.
    fn staged_page(
        &self,
        spill_file: &SpillFile,
        file: &StagedFile,
        page: u64,
    ) -> Result<Option<StagedPage>> {
        let newer = file.pages.get(&page);
        let older = match file.spilled.get(&page) {
            Some(spilled) if !newer.is_some_and(StagedPage::is_whole) => {
                let size = spill_file.inode.data().size();
                let bytes = self.page_now(&spill_file.inode, spilled.source, size)?;
                Some(StagedPage::new(&bytes, &spilled.ranges))
            }
            _ => None,
        };
        Ok(match (newer, older) {
            (Some(newer), Some(older)) => Some(newer.over_staged(older)),
            (newer, older) => older.or_else(|| newer.cloned()),
        })
    }

    fn write_staged(&self, spill_file: &SpillFile, part: &Gathered) -> Result<()> {
        if part.bytes.is_empty() {
            return Ok(());
        }
        let written = self.write(&spill_file.inode, At::Offset(part.offset), &part.bytes)?;
        if written.len < part.bytes.len() { Err(Error::Errno(libc::ENOSPC)) } else { Ok(()) }
    }

    /// Makes what is staged the content of the files, in ascending order of their nids. The end of the record by which it
    /// counts, which is durable.
    pub fn commit_by_intent(&self, files: &mut [StagedFile], spill_file: &mut SpillFile) -> Result<Position> {
        let source = Arc::clone(&spill_file.inode);
        let inodes: Vec<Arc<InodeObj>> = files.iter().map(|file| Arc::clone(&file.inode)).collect();
        let ranges = loop {
            for inode in &inodes {
                self.settle(inode)?;
            }
            if let Some(ranges) = self.all_ranges(files, &inodes, &source)? {
                break ranges;
            }
        };
        for file in files.iter_mut() {
            self.settle_size(&file.inode, file.end)?;
            self.complete(file, spill_file)?;
        }
        let runs = manifest::runs_of(files);
        if runs.len() > MAX_BATCH_RUNS {
            // With the pages of old ends, which nobody has staged.
            return Err(Error::Errno(libc::E2BIG));
        }
        let bytes = manifest::encode(&runs);
        let place = [spill_file.next * PAGE, bytes.len() as u64];
        self.write_held(&source, place[0], &bytes, &mut self.steps(Fit::Part))?;
        self.write_back.write_pages(&source, 0..PAGES_END, Order::HOME)?;
        self.record_rest(&source, SyncKind::Data)?;
        if source.data().logged_size() != place[0] + place[1] {
            return Err(Error::Errno(libc::EIO));
        }
        let find = |nid: Nid, _| {
            Ok(inodes.binary_search_by_key(&nid, |inode| inode.nid()).ok().map(|at| Arc::clone(&inodes[at])))
        };
        // From the commit on there is no way back: what the moves need is set aside before.
        let nodes = self.meta.nodes_of_moves(&source, &runs, find)?;
        let mut promised = self.meta.promise_nodes(nodes)?;
        self.meta.order_after(source.data().last_write())?;
        let mut early = 0;
        if planted::is(Bug::BatchPageHomeEarly) {
            self.move_runs(&source, (&runs[..1], 0), find, InodeObj::touch_content, None)?;
            early = runs[0].pages.get().into();
        }
        let end = self.meta.log_batch(&source, place)?;
        // What the journal has of the pages that are replaced is forgotten below: this is to be what counts by then.
        let durable = self.meta.store().commit_upto(end, Durability::Power);
        let moved = durable.and_then(|()| {
            self.move_runs(&source, (&runs, early), find, InodeObj::touch_content, Some(&mut promised))
        });
        let moved = moved.and_then(|()| self.meta.end_batch(&source));
        if let Err(e) = &moved {
            tracing::error!("the files of a batch cannot be used until the next mount: {e}");
            inodes.iter().chain([&source]).for_each(|inode| inode.poison());
        }
        for file in files.iter() {
            self.show_moved(&file.inode, file.end);
            self.keep(&file.inode);
        }
        drop(ranges);
        moved.map(|()| end)
    }

    /// A file has got this long by what was moved.
    fn show_moved(&self, inode: &InodeObj, size: u64) {
        let data = inode.data();
        if size > data.size() {
            let _guard = data.write_back.lock();
            data.set_size(size);
            data.set_logged_size(size);
        }
    }

    /// The ranges of all files, that of the staging file among them; none if others have changed one meanwhile.
    fn all_ranges<'a>(
        &self,
        files: &[StagedFile],
        inodes: &'a [Arc<InodeObj>],
        spill_file: &'a Arc<InodeObj>,
    ) -> Result<Option<Vec<BytesGuard<'a>>>> {
        let mut ranges = Vec::with_capacity(inodes.len() + 1);
        let mut is_spill_file_due = true;
        for (file, inode) in files.iter().zip(inodes) {
            if is_spill_file_due && spill_file.nid() < inode.nid() {
                ranges.push(spill_file.data().write_range(0..u64::MAX));
                is_spill_file_due = false;
            }
            let range = self.range_of(inode, file.span().0, file.end)?;
            let Some(range) = range.filter(|_| !inode.data().pages.is_truncate_pending()) else {
                return Ok(None);
            };
            ranges.push(range);
        }
        if is_spill_file_due {
            ranges.push(spill_file.data().write_range(0..u64::MAX));
        }
        Ok(Some(ranges))
    }

    /// Completes the pages that are staged in part from what the file has, and brings all into the staging file, by one
    /// who has both ranges.
    fn complete(&self, file: &mut StagedFile, spill_file: &mut SpillFile) -> Result<()> {
        let size = file.inode.data().size();
        let tail = page_of(size);
        if file.end > size && !size.is_multiple_of(PAGE) && !file.has(tail) {
            // Beyond the old end lies whatever was there before: zeros come with the size.
            file.stage_nothing(tail);
        }
        let (mut steps, mut gathered) = (self.steps(Fit::Part), Gathered::default());
        let mut pages: Vec<u64> = file.pages.keys().copied().chain(file.partly_spilled()).collect();
        pages.sort_unstable();
        for page in pages {
            let Some(staged) = self.staged_page(spill_file, file, page)? else { continue };
            let source = spill_file.page_for(file, page);
            let bytes = match staged.is_whole() {
                true => staged.bytes,
                false => staged.over(&self.page_now(&file.inode, page, size)?),
            };
            if let Some(part) = gathered.add(source, &bytes[..]) {
                self.write_held(&spill_file.inode, part.offset, &part.bytes, &mut steps)?;
            }
            file.pages.remove(&page);
            file.spilled.insert(page, Spilled { source, ranges: Vec::new() });
        }
        self.write_held(&spill_file.inode, gathered.offset, &gathered.bytes, &mut steps)
    }

    /// Writes by one who has the range.
    fn write_held<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        offset: u64,
        bytes: &[u8],
        steps: &mut Steps<'p>,
    ) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write_further(inode, offset + done as u64, &bytes[done..], steps)?;
        }
        Ok(())
    }

    /// Moves runs into their files, `done` pages of which are moved; `find` knows the files, or that one is gone, `touch`
    /// gives them their times. The caller has the ranges of all, or nobody else is there yet.
    fn move_runs(
        &self,
        spill_file: &Arc<InodeObj>,
        (runs, done): (&[BatchRun], u64),
        find: impl Fn(Nid, u32) -> Result<Option<Arc<InodeObj>>>,
        touch: impl Fn(&InodeObj),
        mut promised: Option<&mut Reservation>,
    ) -> Result<()> {
        let mut before = 0;
        for run in runs {
            let pages = u64::from(run.pages.get());
            let moved = done.saturating_sub(before).min(pages);
            if moved < pages
                && let Some(target) = find(run.nid.get(), run.generation.get())?
            {
                let (data, at) = (target.data(), run.target.get()..run.target.get() + pages);
                let key = {
                    // Nobody brings any of it back: the range keeps readers and writers from it.
                    let _guard = data.write_back.lock();
                    let has_records = data.pages.has_records(at.clone());
                    self.drop_pages(data, at.clone());
                    data.pages.forget_records(&at);
                    has_records.then(|| key_of(&target, at.start * PAGE, pages * PAGE))
                };
                touch(&target);
                let promised = promised.as_deref_mut();
                self.meta.move_run(spill_file, &target, run, (before, moved), key, promised)?;
            }
            before += pages;
        }
        Ok(())
    }

    /// What a committed batch has to move, or has moved, as its staging file says.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if that does not verify: it was durable before the commit.
    pub fn batch_runs(&self, spill_file: &Arc<InodeObj>, entry: &OrphanEntry) -> Result<Vec<BatchRun>> {
        let (place, len) = (entry.arg0.get(), entry.arg1.get());
        let corrupt = |detail: &str| Error::Corrupt {
            what: "batch",
            place: format!("nid {}", spill_file.nid()),
            detail: detail.into(),
        };
        if len > manifest::MOST_MANIFEST_BYTES
            || place.checked_add(len).is_none_or(|end| end > spill_file.size())
        {
            return Err(corrupt("its manifest lies outside of the file"));
        }
        let mut bytes = vec![0; len as usize];
        self.read(spill_file, place, &mut bytes)?;
        let runs = manifest::manifest_runs(&bytes, place / PAGE, spill_file.nid());
        runs.ok_or_else(|| corrupt("its manifest does not verify"))
    }

    /// Goes on with a batch that a crash has cut short behind its commit.
    pub fn resume_batch(
        &self,
        spill_file: &Arc<InodeObj>,
        entry: &OrphanEntry,
        find: impl Fn(Nid, u32) -> Result<Option<Arc<InodeObj>>>,
    ) -> Result<()> {
        let runs = self.batch_runs(spill_file, entry)?;
        // A crash in the midst of this leads here again: the times are then to be the same, and so they are those of what
        // was staged, not the present.
        let [_, staged_at, _] = spill_file.times();
        let touch = |target: &InodeObj| {
            let [_, mtime, ctime] = target.times();
            target.bring_times(mtime.max(staged_at), ctime.max(staged_at));
        };
        let moved = self.move_runs(spill_file, (&runs, entry.progress.get()), &find, touch, None);
        let moved = moved.and_then(|()| self.meta.end_batch(spill_file));
        for run in &runs {
            let Some(target) = find(run.nid.get(), run.generation.get())? else { continue };
            if moved.is_err() {
                target.poison();
            } else {
                self.show_moved(&target, run.size.get());
            }
        }
        if moved.is_err() {
            spill_file.poison();
        }
        moved
    }
}
