//! Rounds: a process makes batches, and ends in the midst of them; then everything is looked at.

use crate::child::{Child, Heard};
use crate::database::{COUNTED, Counts, within};
use crate::drive::Drive;
use crate::place::Place;
use crate::rule::{Rows, judge};
use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use slatedb::IterationOrder;
use slatedb::config::FlushType;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// A process lives for so many batches at the most, and then for so long.
const BATCHES: u64 = 300;
const AFTER: Duration = Duration::from_millis(30);
/// One that is to end while it opens the database, for so long at the most.
const OPENING: Duration = Duration::from_millis(400);

/// The image, what is known to be there, and what was seen.
struct Trial {
    place: Place,
    known: Rows,
    seed: u64,
    acknowledged: u64,
    /// Batches that were not, and are there.
    unanswered: u64,
    counts: Counts,
}

impl Trial {
    fn begin(work: &Path, seed: u64) -> Result<Trial> {
        let place = Place::make(work)?;
        Ok(Trial {
            place,
            known: Rows::new(),
            seed,
            acknowledged: 0,
            unanswered: 0,
            counts: Counts::default(),
        })
    }

    /// When the process of a round ends: after so many batches, and so long after the last of them. One of four ends while it
    /// opens the database, or soon after.
    fn moment(&self, round: u64) -> (u64, Duration) {
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_mul(1 << 32).wrapping_add(round));
        let (batches, most) = match random.random_ratio(1, 4) {
            true => (0, OPENING),
            false => (random.random_range(1..=BATCHES), AFTER),
        };
        (batches, random.random_range(Duration::ZERO..=most))
    }

    /// Looks at what is left.
    fn look(&mut self, round: u64, heard: &Heard) -> Result<()> {
        self.place.check().context("as the process has left it")?;
        let order =
            if round.is_multiple_of(2) { IterationOrder::Ascending } else { IterationOrder::Descending };
        // Every third process finds all that the one before had written in sorted tables.
        let flush = round.is_multiple_of(3).then_some(FlushType::MemTable);
        let (found, counts) = within(&self.place.image(), flush, async |database| {
            Ok((database.rows(order).await?, database.counts()))
        })?;
        let is_more = judge(&mut self.known, found, heard.acknowledged, round)?;
        self.place.check().context("after it was closed")?;
        self.acknowledged += heard.batches;
        self.unanswered += u64::from(is_more);
        for (sum, (of_process, of_look)) in self.counts.iter_mut().zip(heard.counts.iter().zip(counts)) {
            *sum += of_process + of_look;
        }
        println!("round {round}: {} batches acknowledged, {} keys", heard.batches, self.known.len());
        Ok(())
    }

    fn tell(&self, ends: &str, rounds: u64) {
        let counted: Vec<String> =
            COUNTED.iter().zip(self.counts).map(|(what, count)| format!("{count} {what}")).collect();
        println!(
            "{rounds} {ends}: {} batches acknowledged, all there; {} more that were under way; objects: {}",
            self.acknowledged,
            self.unanswered,
            counted.join(", ")
        );
    }
}

/// Kills processes.
///
/// # Errors
/// The round, and what was not as it should be.
pub fn kills(work: &Path, seed: u64, rounds: u64) -> Result<()> {
    let mut trial = Trial::begin(work, seed)?;
    for round in 1..=rounds {
        let heard = kill(&trial, round);
        heard
            .and_then(|heard| trial.look(round, &heard))
            .with_context(|| format!("round {round}, seed {seed}"))?;
    }
    trial.tell("kills", rounds);
    Ok(())
}

fn kill(trial: &Trial, round: u64) -> Result<Heard> {
    let (batches, after) = trial.moment(round);
    let mut child = Child::start(&trial.place.image(), round, Stdio::inherit())?;
    child.wait_for(batches)?;
    // Not to wait for something: the moment is to lie anywhere in what it does.
    std::thread::sleep(after);
    child.kill()
}

/// Takes the power of the drive that the image is on.
///
/// # Errors
/// As [`kills`].
pub fn losses(work: &Path, seed: u64, rounds: u64, program: &Path) -> Result<()> {
    let mut trial = Trial::begin(work, seed)?;
    for round in 1..=rounds {
        let heard = lose(&trial, round, program);
        heard
            .and_then(|heard| trial.look(round, &heard))
            .with_context(|| format!("round {round}, seed {seed}"))?;
    }
    trial.tell("losses of power", rounds);
    Ok(())
}

fn lose(trial: &Trial, round: u64, program: &Path) -> Result<Heard> {
    let (batches, after) = trial.moment(round);
    // Of every third nothing is left that was not flushed.
    let seed = (!round.is_multiple_of(3)).then_some(trial.seed.wrapping_add(round));
    let mut drive = Drive::mount(program, &trial.place.image(), seed)?;
    // It says what it thinks of a drive that is gone.
    let mut child = Child::start(&drive.disk(), round, Stdio::null())?;
    child.wait_for(batches)?;
    std::thread::sleep(after);
    child.is_at_work()?;
    drive.lose_power()?;
    // What it makes of that is its affair.
    let (heard, _) = child.end()?;
    drop(drive);
    trial.place.lose_memory()?;
    Ok(heard)
}
