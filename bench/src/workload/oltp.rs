//! oltp: what a database does to its files, after TPC-C: random reads and writes of pages of one file by all
//! threads, and a log that each commit appends to and syncs.
//!
//! Two threads may write the same page: what is found must be the last write of one of them, whole. The log must
//! have each transaction of each thread once, and a thread's in their order.

use super::*;
use crate::content::{Stamp, generator};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Bytes of a page.
const UNIT: usize = 8192;
/// Mebibytes of pages.
const TABLE_MIB: u64 = 256;
/// Which accesses of a transaction write.
const WRITES: [bool; 10] = [false, false, true, false, false, true, false, false, true, true];
/// Log records are a number of these, up to the most.
const LOG_UNIT: usize = 512;
const LOG_MOST: usize = 8;
/// Room for the log where the number of transactions is not known.
const LOG_ROOM: u64 = 64 << 20;
const TABLE: (&str, u64) = ("table", 0);
const LOG: (&str, u64) = ("log", 1);

/// See the module.
#[derive(Debug)]
pub struct Oltp {
    env: Env,
    pages: u64,
}

impl Oltp {
    pub(super) fn new(env: Env) -> Oltp {
        Oltp { pages: env.params.size_or(TABLE_MIB, UNIT as u64) / UNIT as u64, env }
    }

    fn check_table<S: Session>(&self, left: &[Done], session: &mut S) -> Result<()> {
        pages::read_units(session, TABLE.0, &self.env.content, TABLE.1, UNIT, 0..self.pages, |stamp| {
            let last = |t: &Done| t.last.get(stamp.page as usize).copied().unwrap_or(0);
            let right = match (stamp.writer as usize).checked_sub(1) {
                None => left.iter().all(|t| last(t) == 0),
                Some(thread) => left.get(thread).is_some_and(|t| last(t) == stamp.version),
            };
            if right {
                return Ok(());
            }
            Err(Error::Wrong(format!("page {} is an older write than the last", stamp.page)))
        })
    }

    /// Reads the log from one end to the other; returns its records and bytes.
    fn check_log<S: Session>(&self, left: &[Done], session: &mut S) -> Result<u64> {
        let file = session.open(LOG.0, How::Read)?;
        let mut next = vec![0; left.len()];
        let mut record = vec![0; LOG_UNIT * LOG_MOST];
        let mut at = 0;
        let mut read = |session: &mut S| {
            loop {
                let got = session.read_at(&file, at, &mut record)?;
                if got == 0 {
                    return Ok(());
                }
                let wrong = |what: &str| Error::Wrong(format!("log: at byte {at}: {what}"));
                let claimed = Content::claims(&record[..got]);
                let (len, number) = claimed.filter(|c| c.0 <= got).ok_or_else(|| wrong("no whole record"))?;
                let stamp = self.env.content.read_stamp(LOG.1, number, &record[..len]);
                let stamp = stamp.map_err(|e| wrong(&e.to_string()))?;
                let expected =
                    next.get_mut(stamp.writer as usize).ok_or_else(|| wrong("an unknown thread's"))?;
                if *expected != number {
                    return Err(wrong(&format!("transaction {number} of a thread where {expected} is due")));
                }
                *expected += 1;
                at += len as u64;
            }
        };
        let done = read(session);
        session.close(file)?;
        done?;
        match left.iter().zip(&next).position(|(t, found)| t.committed != *found) {
            Some(t) => {
                let (found, wanted) = (next[t], left[t].committed);
                Err(Error::Wrong(format!("log: {found} of the {wanted} transactions of thread {t}")))
            }
            None => Ok(at),
        }
    }
}

impl<S: Session> Workload<S> for Oltp {
    type Worker = OltpWorker<S::File>;
    type Left = Done;

    fn needs(&self) -> Needs {
        let most = (LOG_UNIT * LOG_MOST) as u64 * self.env.threads as u64;
        let log = self.env.params.ops.map_or(LOG_ROOM, |ops| ops * most);
        Needs { bytes: self.pages * UNIT as u64 + log, files: 2 }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        let file = session.create(TABLE.0, How::Write)?;
        let stamps = (0..self.pages).map(|page| Stamp { page, writer: 0, version: 0 });
        let made = pages::make_units(session, &file, &self.env, TABLE.1, UNIT, stamps);
        session.close(file)?;
        made?;
        let log = session.create(LOG.0, How::Append)?;
        session.close(log)
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<Self::Worker> {
        let table = session.open(TABLE.0, How::Write)?;
        let log = session.open(LOG.0, How::Append)?;
        let mut unit = vec![0; UNIT];
        let stamp = Stamp { page: 0, writer: 1 + thread as u32, version: 0 };
        self.env.content.fill(TABLE.1, stamp, &mut unit);
        Ok(OltpWorker {
            files: Some((table, log)),
            content: self.env.content.clone(),
            random: generator(self.env.params.seed, thread as u64),
            thread: thread as u32,
            committed: 0,
            writes: 0,
            last: vec![0; self.pages as usize],
            unit,
            read: vec![0; UNIT],
            record: Vec::with_capacity(LOG_UNIT * LOG_MOST),
        })
    }

    fn check(&self, left: &[Done], session: &mut S) -> Result<Seen> {
        self.check_table(left, session)?;
        let log = self.check_log(left, session)?;
        Ok(Seen { files: 2, bytes: self.pages * UNIT as u64 + log })
    }
}

/// What a thread has done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    /// Transactions.
    committed: u64,
    /// See [`OltpWorker`].
    last: Vec<u32>,
}

/// One thread of it.
#[derive(Debug)]
pub struct OltpWorker<F> {
    /// The table and the log.
    files: Option<(F, F)>,
    content: Content,
    random: ChaCha8Rng,
    thread: u32,
    /// Transactions.
    committed: u64,
    /// Pages written.
    writes: u32,
    /// The last write of this thread to each page, by number from 1; 0: none.
    last: Vec<u32>,
    unit: Vec<u8>,
    read: Vec<u8>,
    record: Vec<u8>,
}

impl<S: Session> Worker<S> for OltpWorker<S::File> {
    type Left = Done;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        let (table, log) = self.files.as_ref().expect("open until the end");
        for write in WRITES {
            let page = self.random.random_range(0..self.last.len() as u64);
            let offset = page * UNIT as u64;
            if !write {
                if session.read_at(table, offset, &mut self.read)? < UNIT {
                    return Err(Error::Wrong(format!("page {page} is not there")));
                }
                continue;
            }
            self.writes += 1;
            self.last[page as usize] = self.writes;
            let stamp = Stamp { page, writer: 1 + self.thread, version: self.writes };
            self.content.stamp(TABLE.1, stamp, &mut self.unit);
            session.write_at(table, offset, &self.unit)?;
        }
        let units = self.random.random_range(1..=LOG_MOST);
        self.record.resize(units * LOG_UNIT, 0);
        let stamp = Stamp { page: self.committed, writer: self.thread, version: units as u32 };
        self.content.fill(LOG.1, stamp, &mut self.record);
        session.append(log, &self.record)?;
        session.fdatasync(log)?;
        self.committed += 1;
        Ok(Step::Done((WRITES.len() * UNIT + self.record.len()) as u64))
    }

    fn end(&mut self, session: &mut S) -> Result<()> {
        let Some((table, log)) = self.files.take() else { return Ok(()) };
        let closed = session.close(table);
        session.close(log).and(closed)
    }

    fn left(self) -> Done {
        Done { committed: self.committed, last: self.last }
    }
}
