//! What redb writes between two syncs lies here, and goes into the file as one atomic batch.
//!
//! Promised: reads see what was written last. A crash leaves what some sync has left, or what a later one would have, or
//! what was written past this layer since: never a part of what one sync has put there by a batch. A sync that is the
//! first of a commit of two phases ([`Header::is_first_phase_after`]) is answered at once: what it was to make durable
//! becomes so together with the second, in one batch, which a crash leaves whole or not at all. No other sync is.
//!
//! Nothing is kept back while another handle could look into the file: only who is [`alone`](Layer::set_alone) has a layer.
//! What is more than a batch takes at once is written past it, and then a sync is a sync of the file. Nothing is written past
//! it while a sync is under way: redb writes while it syncs, where a database gets longer amid a transaction.
//!
//! Locks: the turn, then the state. The state is held for no longer than it takes to copy pages, but where the layer is
//! full.

use crate::header::Header;
use crate::medium::{Medium, Part};
use crate::pages::{PAGE, Page, Pages};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::sync::Arc;

/// Pages that wait for a sync, at the most: what a batch of narufs has in one record.
pub(crate) const MOST: usize = 1024;

/// The layer over one file.
#[derive(Debug)]
pub(crate) struct Layer<M> {
    medium: M,
    most: usize,
    state: RwLock<State>,
    /// Held by who syncs the file or changes its length.
    turn: Mutex<Turn>,
}

impl State {
    fn wrote(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(header) = Header::of_write(offset, bytes) {
            self.header = Some(header);
        }
    }
}

/// The header as it was synced last.
type Turn = Option<Header>;

#[derive(Debug, Default)]
struct State {
    /// Nobody else has the file.
    alone: bool,
    staged: Pages,
    /// What a sync is putting into the file right now.
    committing: Option<Arc<Pages>>,
    /// Something was written past the layer since the last sync.
    past: bool,
    /// The length was changed since.
    resized: bool,
    /// A sync was answered whose pages are staged.
    held_back: bool,
    /// As written last.
    header: Option<Header>,
    /// The last sync has failed.
    failed: bool,
}

/// Whether the first phase of a commit may be left to the second.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phases {
    Joined,
    Apart,
}

impl<M: Medium> Layer<M> {
    pub(crate) fn new(medium: M, most: usize) -> Layer<M> {
        Layer { medium, most, state: RwLock::default(), turn: Mutex::default() }
    }

    pub(crate) fn medium(&self) -> &M {
        &self.medium
    }

    /// Says whether nobody else can have the file open. Who is alone no more has nothing staged.
    pub(crate) fn set_alone(&self, alone: bool) -> io::Result<()> {
        if self.state.read().alone == alone {
            return Ok(());
        }
        let mut turn = self.turn.lock();
        let mut state = self.state.write();
        state.alone = alone;
        if alone {
            // Others may have left what they have not synced: the first sync is the file's.
            (state.past, *turn) = (true, None);
            return Ok(());
        }
        self.put(&mut state)
    }

    /// Puts what is staged into the file, as anything that was written and not synced: a crash may still take it.
    fn put(&self, state: &mut State) -> io::Result<()> {
        let staged = std::mem::take(&mut state.staged);
        state.held_back = false;
        state.past |= !staged.is_empty();
        // Of a sync that has failed nobody knows whether the file has it already.
        if staged.is_empty() || state.failed {
            return Ok(());
        }
        self.commit(&staged, false)
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        // Taken before the file is read: what is staged no more by then is in the file.
        let (older, newer) = {
            let state = self.state.read();
            let committing = state.committing.as_ref().map(|pages| pages.part(offset, into.len()));
            (committing.unwrap_or_default(), state.staged.part(offset, into.len()))
        };
        self.medium.read(offset, into)?;
        older.read_over(offset, into);
        newer.read_over(offset, into);
        Ok(())
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        loop {
            let mut state = self.state.write();
            let fits = state.staged.len() + state.staged.missing(offset, bytes.len()) <= self.most;
            if state.alone && fits && !state.past {
                state.wrote(offset, bytes);
                return self.stage(&mut state, offset, bytes);
            }
            // Beside a sync it would be undone by what that is putting into the file, or hidden behind it.
            if state.committing.is_some() {
                drop(state);
                drop(self.turn.lock());
                continue;
            }
            if !state.held_back {
                state.wrote(offset, bytes);
                if !state.staged.is_empty() {
                    self.write_all(&state.staged)?;
                    state.staged = Pages::default();
                }
                state.past = true;
                return self.medium.write(offset, bytes);
            }
            // What a sync was answered for goes before what comes now.
            drop(state);
            self.sync_by(Phases::Apart)?;
        }
    }

    fn stage(&self, state: &mut State, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        let len = self.medium.len()?;
        let State { staged, committing, resized, .. } = state;
        if end > len {
            self.medium.set_len(end)?;
            *resized = true;
        }
        staged.write(offset, bytes, |number| {
            if let Some(page) = committing.as_ref().and_then(|pages| pages.get(number)) {
                return Ok(page.clone());
            }
            let mut page: Page = Box::new([0; PAGE]);
            let begin = number * PAGE as u64;
            let there = len.saturating_sub(begin).min(PAGE as u64) as usize;
            if there > 0 {
                self.medium.read(begin, &mut page[..there])?;
            }
            Ok(page)
        })
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        let mut turn = self.turn.lock();
        if self.state.read().held_back {
            self.sync_in(&mut turn, Phases::Apart)?;
        }
        let mut state = self.state.write();
        state.staged.cut(len);
        state.resized = true;
        self.medium.set_len(len)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.sync_by(Phases::Joined)
    }

    fn sync_by(&self, phases: Phases) -> io::Result<()> {
        self.sync_in(&mut self.turn.lock(), phases)
    }

    fn sync_in(&self, turn: &mut Turn, phases: Phases) -> io::Result<()> {
        let mut state = self.state.write();
        let header = state.header.clone();
        let is_first =
            header.as_ref().zip(turn.as_ref()).is_some_and(|(now, old)| now.is_first_phase_after(old));
        let is_all_staged = !state.past && !state.resized && !state.staged.is_empty();
        if phases == Phases::Joined && is_first && is_all_staged && !state.held_back {
            state.held_back = true;
            return Ok(());
        }
        // What is written from now on is for the next sync.
        let (past, resized) = (std::mem::take(&mut state.past), std::mem::take(&mut state.resized));
        let held_back = std::mem::take(&mut state.held_back);
        let pages = Arc::new(std::mem::take(&mut state.staged));
        state.committing = Some(Arc::clone(&pages));
        drop(state);

        // A new length, and what was written past the layer, are durable with a sync of the file alone.
        let by_file = past || resized || pages.is_empty();
        let put = if pages.is_empty() { Ok(()) } else { self.commit(&pages, !by_file) };
        let synced = put.and_then(|()| if by_file { self.medium.sync() } else { Ok(()) });

        let mut state = self.state.write();
        state.committing = None;
        state.failed = synced.is_err();
        if synced.is_ok() {
            *turn = header;
        } else {
            state.staged.put_under(&pages);
            state.past |= past;
            state.resized |= resized;
            state.held_back |= held_back;
        }
        synced
    }

    /// Puts pages into the file, all or none of them where that can be.
    fn commit(&self, pages: &Pages, durable: bool) -> io::Result<()> {
        let len = self.medium.len()?;
        if self.medium.commit(pages.parts(len), durable)? {
            return Ok(());
        }
        // The file system has no room for such a batch: as redb would have done it without this layer, the pages first
        // and then the header that names them.
        let (header, rest): (Vec<Part<'_>>, Vec<Part<'_>>) =
            pages.parts(len).partition(|(offset, _)| *offset == 0);
        for parts in [rest, header] {
            for (offset, bytes) in &parts {
                self.medium.write(*offset, bytes)?;
            }
            if !parts.is_empty() {
                self.medium.sync()?;
            }
        }
        Ok(())
    }

    fn write_all(&self, pages: &Pages) -> io::Result<()> {
        let len = self.medium.len()?;
        pages.parts(len).try_for_each(|(offset, bytes)| self.medium.write(offset, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// Says when it is about to sync, and goes on when it is told to.
    #[derive(Debug)]
    struct Stopping {
        model: Model,
        syncs: SyncSender<()>,
        goes_on: Mutex<Receiver<()>>,
    }

    impl Medium for Stopping {
        fn len(&self) -> io::Result<u64> {
            self.model.len()
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            self.model.read(offset, into)
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.model.write(offset, bytes)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.model.set_len(len)
        }

        fn sync(&self) -> io::Result<()> {
            self.model.sync()
        }

        fn commit<'a>(&self, parts: impl Iterator<Item = Part<'a>>, durable: bool) -> io::Result<bool> {
            let parts: Vec<Part<'a>> = parts.collect();
            let _ = self.syncs.send(());
            let _ = self.goes_on.lock().recv();
            self.model.commit(parts.into_iter(), durable)
        }
    }

    /// redb writes beside a sync, where a database gets longer amid a transaction: more than the layer takes, too.
    #[test]
    fn what_is_written_past_the_layer_beside_a_sync_is_not_undone_by_it() {
        let (syncs, begun) = sync_channel(1);
        let (go_on, goes_on) = sync_channel(1);
        let layer = Layer::new(Stopping { model: Model::new(), syncs, goes_on: Mutex::new(goes_on) }, 2);
        layer.set_len(8 * PAGE as u64).expect("room");
        layer.sync().expect("nothing is staged");
        layer.set_alone(true).expect("nothing is staged");
        layer.sync().expect("the file's");
        layer.write(PAGE as u64, &[1; PAGE]).expect("it fits");
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| layer.sync());
            begun.recv().expect("it syncs");
            let writing = scope.spawn(|| {
                // Two pages fit; the third does not.
                (1..4).try_for_each(|n| layer.write(n * PAGE as u64, &[2; PAGE]))
            });
            // It waits for the sync; one that does not is done in no time.
            for _ in 0..10_000 {
                std::thread::yield_now();
                if writing.is_finished() {
                    break;
                }
            }
            go_on.send(()).expect("it waits");
            assert!(syncing.join().expect("no panic").is_ok() && writing.join().expect("no panic").is_ok());
        });
        let mut page = [0; PAGE];
        for n in 1..4 {
            layer.read(n * PAGE as u64, &mut page).expect("it is there");
            assert_eq!(page, [2; PAGE], "page {n}");
        }
    }
}
