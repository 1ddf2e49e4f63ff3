//! What must be there of the server of PostgreSQL (testing/machines/loads/postgres.py, whose `judge` says the same of a mount).
//!
//! Each process has a table: transaction N adds row N and removes that of [`super::oracle::KEEP`] before. A copy of the server's
//! directory is started as PostgreSQL's single user, who recovers it by the same code as a server; then amcheck looks at
//! each table and index, and the rows are read. It takes the programs of the version that has made the directory.

use super::acked::{Allowed, Found, PROCESSES};
use super::look;
use super::oracle::{content, kept};
use crate::model::Tree;
use std::io::{Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Command;

/// Damage of tables, one a line.
const HEAP: &str = "SELECT c.oid::regclass || ': ' || v.msg FROM pg_class c, LATERAL verify_heapam(c.oid) v \
    WHERE c.relkind IN ('r', 't', 'm') AND c.relpersistence = 'p'";
/// Fails where an index is damaged, or lacks what its table has.
const INDEXES: &str = "SELECT count(bt_index_check(c.oid, true)) > 0 FROM pg_class c JOIN pg_am a ON a.oid = c.relam \
    WHERE c.relkind = 'i' AND a.amname = 'btree' AND c.relpersistence = 'p'";

/// Judges what is there: the last transaction of each process.
///
/// # Errors
/// What contradicts what was acknowledged, in words.
pub fn judge(tree: &Tree, allowed: &Allowed) -> Result<Found, String> {
    let work = tempfile::tempdir().map_err(|e| e.to_string())?;
    let base = work.path().join("pg");
    let made = std::fs::DirBuilder::new().mode(0o700).create(&base);
    made.and_then(|()| look::copy(tree, "/pg", &base)).map_err(|e| e.to_string())?;
    // Its number may be that of another process here.
    let _ = std::fs::remove_file(base.join("postmaster.pid"));
    let results = work.path().join("results");
    std::fs::create_dir(&results).map_err(|e| e.to_string())?;
    let result = |name: &str| results.join(name);
    let mut asks = format!(
        "COPY ({HEAP}) TO '{0}'\nCOPY ({INDEXES}) TO '{1}'\n",
        result("heap").display(),
        result("indexes").display()
    );
    for process in 0..PROCESSES {
        let rows =
            format!("SELECT number || ' ' || encode(content, 'hex') FROM told{process} ORDER BY number");
        asks += &format!("COPY ({rows}) TO '{}'\n", result(&format!("rows{process}")).display());
    }
    let said = single_user(work.path(), &base, &asks)?;
    let read =
        |name: &str| std::fs::read_to_string(result(name)).map_err(|_| format!("PostgreSQL says {said}"));
    let (heap, indexes) = (read("heap")?, read("indexes")?);
    if !heap.is_empty() || indexes != "t\n" {
        return Err(format!("amcheck says {heap:?}, of indexes {indexes:?}"));
    }
    allowed.each(|process, _| rows(process, &read(&format!("rows{process}"))?))
}

/// The last row; all of them must be those of so many transactions.
fn rows(process: usize, said: &str) -> Result<u64, String> {
    let last = said.lines().last().and_then(|row| row.split(' ').next());
    let last = last.map_or(Ok(0), |number| number.parse().map_err(|_| format!("row {number:?}")))?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let wanted: String =
        kept(last).map(|number| format!("{number} {}\n", hex(&content(process, number)))).collect();
    if said == wanted {
        Ok(last)
    } else {
        Err(format!("its {} rows are not those of {last}", said.lines().count()))
    }
}

/// Recovers what is there, and asks it; what it says of that. Nothing has to outlive a loss of power here.
pub(super) fn single_user(work: &Path, base: &Path, asks: &str) -> Result<String, String> {
    let told = |e: std::io::Error| format!("PostgreSQL: {e}");
    let version = std::fs::read_to_string(base.join("PG_VERSION")).map_err(|e| format!("PG_VERSION: {e}"))?;
    let mut input = tempfile::tempfile().map_err(told)?;
    input.write_all(asks.as_bytes()).and_then(|()| input.rewind()).map_err(told)?;
    let mut command = program(work, version.trim(), "postgres")?;
    command.args(["--single", "-F", "-D"]).arg(base).args(["-c", "log_min_messages=warning"]);
    // Where it gives up it leaves its shared memory, which goes with the directory then.
    command.args(["-c", "dynamic_shared_memory_type=mmap", "postgres"]);
    let output = command.stdin(input).output().map_err(told)?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    if output.status.success() { Ok(said) } else { Err(format!("PostgreSQL: {}: {said}", output.status)) }
}

/// A program of a version; root is nobody it would run for, so `postgres` is to own the directory then.
pub(super) fn program(work: &Path, version: &str, name: &str) -> Result<Command, String> {
    let program = format!("/usr/lib/postgresql/{version}/bin/{name}");
    if !rustix::process::geteuid().is_root() {
        return Ok(Command::new(program));
    }
    let owned = Command::new("chown").args(["-R", "postgres:"]).arg(work).status();
    if !owned.map_err(|e| format!("chown: {e}"))?.success() {
        return Err("there is no user `postgres`".into());
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--", &program]).current_dir("/");
    Ok(command)
}
