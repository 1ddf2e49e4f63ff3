//! The process that is killed: it makes batches, and says which are acknowledged.

use crate::database::{Counts, within};
use crate::rule::{Origin, last, same};
use anyhow::{Context, Result, ensure};
use slatedb::IterationOrder;
use std::io::Write;
use std::path::Path;

/// After so many batches it looks at everything itself.
const LOOKS: u64 = 200;

/// What it says.
pub enum Said {
    /// That it begins to open the database.
    Opens,
    /// That a batch is durable, and what was done until then.
    Done(u64, Counts),
}

impl Said {
    fn say(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        match self {
            Said::Opens => writeln!(out, "opens")?,
            Said::Done(batch, counts) => {
                writeln!(out, "done {batch}{}", counts.map(|count| format!(" {count}")).concat())?;
            }
        }
        Ok(out.flush()?)
    }

    /// From a line of what it has said; none if a kill has cut it off.
    pub fn of(line: &str) -> Option<Said> {
        let mut words = line.split(' ');
        match words.next()? {
            "opens" => Some(Said::Opens),
            "done" => {
                let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
                let (batch, counts) = numbers.split_first()?;
                Some(Said::Done(*batch, counts.try_into().ok()?))
            }
            _ => None,
        }
    }
}

/// Makes batches until it is killed, from the one on that is missing.
///
/// # Errors
/// What SlateDB and narufs say, and what is not there as it should be.
pub fn run(image: &Path, round: u64) -> Result<()> {
    Said::Opens.say()?;
    within(image, None, async |database| {
        let mut rows = database.rows(IterationOrder::Ascending).await?;
        for batch in last(&rows) + 1.. {
            let origin = Origin { batch, round };
            database.commit(origin).await.with_context(|| format!("batch {batch}"))?;
            origin.apply(&mut rows);
            Said::Done(batch, database.counts()).say()?;
            // What lies in tables that compactions replace meanwhile, or nowhere any more.
            for key in (Origin { batch: batch / 2, round }).changes().into_keys() {
                let (found, known) = (database.row(&key).await?, rows.get(&key));
                ensure!(found.as_ref() == known, "{key} should be {known:?}, and is {found:?}");
            }
            if batch.is_multiple_of(LOOKS) {
                same(&rows, &database.rows(IterationOrder::Ascending).await?)?;
            }
        }
        Ok(())
    })
}
