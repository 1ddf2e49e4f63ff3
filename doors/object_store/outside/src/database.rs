//! SlateDB on a store in an image, with everything that it does in days done in seconds: small tables, compactions, and
//! what collects objects that nothing names any more.

use crate::rule::{Change, Origin, Rows};
use anyhow::{Context, Result, bail, ensure};
use narufs::{AccessTimes, MountOptions};
use narufs_object_store::NarufsStore;
use slatedb::config::{
    CloseOptions, CompactionWorkerOptions, CompactorOptions, FlushOptions, FlushType,
    GarbageCollectorDirectoryOptions, GarbageCollectorOptions, ScanOptions, Settings,
};
use slatedb::instrumented_object_store_stats::REQUEST_COUNT;
use slatedb::{Db, IsolationLevel, IterationOrder, WriteBatch};
use slatedb_common::metrics::{DefaultMetricsRecorder, MetricValue};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a flush to sorted tables has at the least, and what the tables of a compaction have at the most: more than SlateDB
/// puts at once, so that it uploads them in parts.
const FLUSHED: usize = 512 << 10;
const COMPACTED: usize = 12 << 20;

/// So often it looks for work.
const OFTEN: Duration = Duration::from_millis(50);

/// An object is collected that nothing has named for so long, and a table that a compaction has replaced stays for whoever
/// still reads it.
const UNUSED: Duration = Duration::from_secs(4);
const READ: Duration = Duration::from_secs(8);

/// The kinds of work that are counted, in the order of [`Counts`].
pub const COUNTED: [&str; 4] = ["put", "uploaded in parts", "deleted", "compactions"];

/// What SlateDB has done since it was opened: objects put, uploaded in parts and deleted, and compactions that were seen to
/// have replaced tables.
pub type Counts = [u64; 4];

/// A database that is open.
pub struct Database {
    db: Db,
    metrics: Arc<DefaultMetricsRecorder>,
    seen: Mutex<Seen>,
}

/// The tables that compactions had made when it was last looked, and how often there were others.
#[derive(Default)]
struct Seen {
    tables: Vec<u128>,
    compactions: u64,
}

/// Nothing is tried again: what the store fails in, SlateDB is to fail in.
fn settings() -> Settings {
    let once = Some(0);
    let collects =
        Some(GarbageCollectorDirectoryOptions { interval: Some(OFTEN * 4), min_age: UNUSED, dry_run: false });
    let worker = CompactionWorkerOptions {
        compactions_poll_interval: OFTEN,
        heartbeat_interval: OFTEN * 4,
        max_sst_size: COMPACTED,
        object_store_max_retries: once,
        ..CompactionWorkerOptions::default()
    };
    Settings {
        flush_interval: Some(Duration::from_millis(2)),
        manifest_poll_interval: OFTEN,
        l0_sst_size_bytes: FLUSHED,
        max_unflushed_bytes: 16 * FLUSHED,
        compactor_options: Some(CompactorOptions {
            poll_interval: OFTEN,
            commit_compacted_interval: OFTEN,
            checkpoint_lifetime: READ,
            // That of a killed process is taken over soon.
            worker_heartbeat_timeout: OFTEN * 20,
            worker: Some(worker),
            object_store_max_retries: once,
            ..CompactorOptions::default()
        }),
        garbage_collector_options: Some(GarbageCollectorOptions {
            manifest_options: collects,
            wal_options: collects,
            compacted_options: collects,
            compactions_options: collects,
            object_store_max_retries: once,
            ..GarbageCollectorOptions::default()
        }),
        object_store_max_retries: once,
        ..Settings::default()
    }
}

/// Opens the database in an image, works with it, and closes both.
///
/// # Errors
/// What SlateDB and narufs say, and what the work does.
pub fn within<T>(
    image: &Path,
    flush: Option<FlushType>,
    work: impl AsyncFnOnce(&Database) -> Result<T>,
) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let options = MountOptions::new().memory(64 << 20).access_times(AccessTimes::Never);
    let store = NarufsStore::builder(image).mount_options(options).build().context("open the store")?;
    let outcome = runtime.block_on(async {
        let database = Database::open(&store).await.context("open the database")?;
        let done = work(&database).await?;
        let options = CloseOptions::default().with_flush_type(flush);
        database.db.close_with_options(options).await.context("close the database")?;
        Ok(done)
    });
    // Its threads hold the store.
    drop(runtime);
    let closed = store.close().context("close the store");
    outcome.and_then(|done| closed.map(|()| done))
}

impl Database {
    async fn open(store: &NarufsStore) -> Result<Database> {
        let metrics = Arc::new(DefaultMetricsRecorder::new());
        let builder = Db::builder("db", Arc::new(store.clone()));
        let db = builder.with_settings(settings()).with_metrics_recorder(metrics.clone()).build().await?;
        let database = Database { db, metrics, seen: Mutex::default() };
        database.seen.lock().unwrap_or_else(PoisonError::into_inner).tables = database.compacted();
        Ok(database)
    }

    /// What is there, as a scan has it.
    ///
    /// # Errors
    /// What SlateDB says, keys out of order, and values that no batch has given.
    pub async fn rows(&self, order: IterationOrder) -> Result<Rows> {
        let mut rows = Rows::new();
        let options = ScanOptions::default().with_order(order).with_read_ahead_bytes(256 << 10);
        let mut scan = self.db.scan_with_options(.., &options).await.context("scan")?;
        let mut before = None;
        while let Some(row) = scan.next().await.context("scan")? {
            let key = std::str::from_utf8(&row.key)?.to_owned();
            let origin = Origin::of(&key, &row.value)?;
            if let Some(before) = before {
                let is_right = match order {
                    IterationOrder::Ascending => before < key,
                    IterationOrder::Descending => before > key,
                };
                ensure!(is_right, "a scan has {key} after {before}");
            }
            before = Some(key.clone());
            rows.insert(key, origin);
        }
        Ok(rows)
    }

    /// Which batch the value of a key is of, as a get has it.
    ///
    /// # Errors
    /// As [`Database::rows`].
    pub async fn row(&self, key: &str) -> Result<Option<Origin>> {
        let value = self.db.get(key).await.context("get")?;
        value.map(|value| Origin::of(key, &value)).transpose()
    }

    /// Makes a batch, and returns when it is durable: with a batch or a transaction of SlateDB, waited for in one of the ways
    /// that it has.
    ///
    /// # Errors
    /// What SlateDB says.
    pub async fn commit(&self, origin: Origin) -> Result<()> {
        let changes = origin.changes().into_iter().map(|(key, change)| match change {
            Change::Put => (origin.value(&key), key, change),
            Change::Delete => (Vec::new(), key, change),
        });
        let written = if origin.batch.is_multiple_of(4) {
            let transaction = self.db.begin(IsolationLevel::SerializableSnapshot)?;
            for (value, key, change) in changes {
                transaction.get(&key).await?;
                match change {
                    Change::Put => transaction.put(&key, value)?,
                    Change::Delete => transaction.delete(&key)?,
                }
            }
            let Some(written) = transaction.commit().await? else { bail!("a transaction was not written") };
            written
        } else {
            let mut batch = WriteBatch::new();
            for (value, key, change) in changes {
                match change {
                    Change::Put => batch.put(&key, value),
                    Change::Delete => batch.delete(&key),
                }
            }
            self.db.write(batch).await?
        };
        let flush_type = if origin.batch.is_multiple_of(101) { FlushType::MemTable } else { FlushType::Wal };
        if origin.batch.is_multiple_of(3) || matches!(flush_type, FlushType::MemTable) {
            self.db.flush_with_options(FlushOptions { flush_type }).await?;
        }
        written.await_durable().await?;
        Ok(())
    }

    /// The tables that compactions have made.
    fn compacted(&self) -> Vec<u128> {
        let manifest = self.db.manifest();
        manifest.compacted().iter().flat_map(|run| run.sst_views()).map(|table| table.id.0).collect()
    }

    /// What it has done since it was opened; to be asked often, for two compactions between are seen as one.
    pub fn counts(&self) -> Counts {
        let tables = self.compacted();
        let compactions = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.compactions += u64::from(seen.tables != tables);
            seen.tables = tables;
            seen.compactions
        };
        let metrics = self.metrics.snapshot();
        let requests = |api: &str| {
            let of_api = |labels: &[(String, String)]| {
                labels.iter().any(|(name, value)| name == "api" && value == api)
            };
            let counts = metrics.by_name(REQUEST_COUNT).into_iter().filter(|metric| of_api(&metric.labels));
            counts.map(|metric| if let MetricValue::Counter(count) = metric.value { count } else { 0 }).sum()
        };
        [requests("put"), requests("multipart_complete"), requests("delete"), compactions]
    }
}
