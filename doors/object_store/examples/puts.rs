//! Puts and gets a second, of this store or of `LocalFileSystem` with its fsync on: what scripts/bench-objects.sh runs.
//!
//! `puts local DIRECTORY [STAT]` or `puts narufs IMAGE [STAT]`. STAT is the device's file in /sys/block, for its flushes. A
//! line for each measurement: what, bytes of an object, tasks, operations a second, flushes for each.

use futures_util::future::join_all;
use narufs_object_store::NarufsStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SIZES: [usize; 3] = [128, 4 << 10, 64 << 10];
const TASKS: [u64; 2] = [1, 16];
const TIME: Duration = Duration::from_secs(2);

/// The device's count of flushes.
fn flushes(stat: Option<&str>) -> u64 {
    let text = stat.and_then(|stat| std::fs::read_to_string(stat).ok()).unwrap_or_default();
    text.split_whitespace().nth(15).and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn key(size: usize, tasks: u64, task: u64, n: u64) -> Path {
    Path::from(format!("{size}-{tasks}/{task}/{n}"))
}

/// Has each task do something as often as there is time; how often that was, each, and in what time.
async fn timed<F: Future<Output = Result<()>> + Send>(
    tasks: u64,
    work: impl Fn(u64, u64) -> F + Clone + Send + Sync + 'static,
) -> (Vec<u64>, Duration) {
    let begin = Instant::now();
    let running = (0..tasks).map(|task| {
        let work = work.clone();
        tokio::spawn(async move {
            let mut n = 0;
            while begin.elapsed() < TIME {
                work(task, n).await.expect("the store works");
                n += 1;
            }
            n
        })
    });
    let counts = join_all(running).await.into_iter().map(|done| done.expect("no task panics")).collect();
    (counts, begin.elapsed())
}

async fn measure(store: Arc<dyn ObjectStore>, stat: Option<&str>) {
    for size in SIZES {
        let content = bytes::Bytes::from(vec![0x5a; size]);
        for tasks in TASKS {
            let before = flushes(stat);
            let (to, bytes) = (Arc::clone(&store), content.clone());
            let (counts, time) = timed(tasks, move |task, n| {
                let (store, bytes) = (Arc::clone(&to), bytes.clone());
                async move { store.put(&key(size, tasks, task, n), bytes.into()).await.map(drop) }
            })
            .await;
            let all: u64 = counts.iter().sum();
            let flushed = (flushes(stat) - before) as f64 / all as f64;
            println!("put {size} {tasks} {:.0} {flushed:.2}", all as f64 / time.as_secs_f64());
            let (from, read) = (Arc::clone(&store), Arc::new(AtomicU64::new(0)));
            let sum = Arc::clone(&read);
            let (counts, time) = timed(tasks, move |task, n| {
                let (store, read) = (Arc::clone(&from), Arc::clone(&sum));
                // Those that were written last.
                let at = key(size, tasks, task, counts[task as usize].saturating_sub(1 + n % 64));
                async move {
                    let bytes = store.get(&at).await?.bytes().await?;
                    // Relaxed: a sum.
                    read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    Ok(())
                }
            })
            .await;
            let all: u64 = counts.iter().sum();
            assert_eq!(read.load(Ordering::Relaxed), all * size as u64, "all was read");
            println!("get {size} {tasks} {:.0} 0", all as f64 / time.as_secs_f64());
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let stat = words.get(2).map(String::as_str);
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["local", directory, ..] => {
            measure(Arc::new(LocalFileSystem::new_with_prefix(directory)?.with_fsync(true)), stat).await;
        }
        ["narufs", image, ..] => {
            let store = NarufsStore::open(image)?;
            measure(Arc::new(store.clone()), stat).await;
            store.close()?;
        }
        _ => eprintln!("puts local DIRECTORY [STAT], or puts narufs IMAGE [STAT]"),
    }
    Ok(())
}
