//! The call that reads how long requests took: more than one answer has room for, so a page at a time.

use super::open;
use crate::sys;
use crate::transport::latency::{Latency, bound};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Bytes of a question or answer of [`LATENCIES`]: what the call's number can say.
pub const LATENCIES_SIZE: usize = (1 << 14) - 1;

/// The number of the call that reads how long requests took, as JSON: an exchange of [`LATENCIES_SIZE`] bytes, type `N`,
/// number 7. The question is the number of the first operation that is asked for, of 32 bits.
pub const LATENCIES: u32 = 0xc000_4e07 | (LATENCIES_SIZE as u32) << 16;

/// How long the requests of one kind took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Nanoseconds of all of them.
    pub sum_ns: u64,
    /// Bytes of files that were read or written.
    pub bytes: u64,
    /// A number of nanoseconds, and how many requests took less than that, but not less than the bound before it. Those
    /// that there were none of are left out; the last bound is `None` for what took longer than all others.
    pub buckets: Vec<(Option<u64>, u64)>,
}

impl From<&Latency> for Times {
    fn from(latency: &Latency) -> Times {
        let buckets = latency.buckets.iter().map(|(bucket, count)| (bound(*bucket), *count));
        Times { sum_ns: latency.sum_ns, bytes: latency.bytes, buckets: buckets.collect() }
    }
}

/// Part of an answer.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Page {
    latencies: BTreeMap<String, Times>,
    /// The operation to go on with.
    next: Option<u32>,
}

/// How long requests to the mount at `dir` took, by the kernel's names for them. None, if its server does not say: it is
/// of a version that did not measure.
pub fn latencies(dir: &Path) -> io::Result<BTreeMap<String, Times>> {
    let dir = open(dir)?;
    let (mut all, mut first) = (BTreeMap::new(), 0u32);
    loop {
        let mut call = Box::new([0; LATENCIES_SIZE]);
        call[..4].copy_from_slice(&first.to_ne_bytes());
        match sys::latencies(&dir, &mut call) {
            Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => return Ok(BTreeMap::new()),
            asked => asked?,
        }
        let end = call.iter().position(|byte| *byte == 0).unwrap_or(call.len());
        let page: Page = serde_json::from_slice(&call[..end]).map_err(io::Error::other)?;
        all.extend(page.latencies);
        match page.next {
            Some(next) if next > first => first = next,
            _ => return Ok(all),
        }
    }
}

/// The same from the server's own counts.
pub(crate) fn latencies_from(counted: &[Latency]) -> BTreeMap<String, Times> {
    counted.iter().map(|latency| (latency.opcode.name(), latency.into())).collect()
}

/// What a server answers to [`LATENCIES`]; `None`: that is no question.
pub(crate) fn page_of_latencies(question: &[u8], counted: &[Latency]) -> Option<Vec<u8>> {
    let first = u32::from_ne_bytes(*question.first_chunk()?);
    // Room for what stands around the list.
    let mut room = LATENCIES_SIZE - 64;
    let mut page = Page::default();
    for latency in counted.iter().filter(|latency| latency.opcode as u32 >= first) {
        let (name, times) = (latency.opcode.name(), Times::from(latency));
        // With quotation marks, a colon and a comma.
        let needed = serde_json::to_vec(&times).ok()?.len() + name.len() + 4;
        if needed > room {
            page.next = Some(latency.opcode as u32);
            break;
        }
        room -= needed;
        page.latencies.insert(name, times);
    }
    let mut answer = serde_json::to_vec(&page).ok()?;
    answer.resize(LATENCIES_SIZE, 0);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::latency::BUCKETS;
    use crate::wire::Opcode;

    fn all_of(counted: &[Latency]) -> (BTreeMap<String, Times>, usize) {
        let (mut all, mut first, mut pages) = (BTreeMap::new(), 0u32, 0);
        loop {
            let answer = page_of_latencies(&first.to_ne_bytes(), counted).expect("a question");
            assert_eq!(answer.len(), LATENCIES_SIZE);
            let end = answer.iter().position(|byte| *byte == 0).expect("zeros follow it");
            let page: Page = serde_json::from_slice(&answer[..end]).expect("JSON");
            assert!(!page.latencies.is_empty() || counted.is_empty(), "a page has room for a kind");
            all.extend(page.latencies);
            pages += 1;
            match page.next {
                Some(next) => first = next,
                None => return (all, pages),
            }
        }
    }

    #[test]
    fn however_much_there_is_it_comes_whole_in_pages() {
        assert_eq!(all_of(&[]), (BTreeMap::new(), 1));
        let most = |opcode: &Opcode| {
            let buckets = (0..BUCKETS).map(|bucket| (bucket, u64::MAX)).collect();
            Latency { opcode: *opcode, sum_ns: u64::MAX, bytes: u64::MAX, buckets }
        };
        let counted: Vec<Latency> = Opcode::ALL.iter().map(most).collect();
        let (all, pages) = all_of(&counted);
        assert_eq!(all, latencies_from(&counted));
        assert!(pages > 1 && all.len() == Opcode::ALL.len());
    }

    #[test]
    fn what_is_no_question_has_no_answer() {
        assert!(page_of_latencies(&[1, 2], &[]).is_none());
    }
}
