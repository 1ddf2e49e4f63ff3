//! What is said to the commands that watch mounts.

use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Arguments of `narufs metrics`.
#[derive(Debug, Args)]
pub struct Metrics {
    /// Directories in mounts
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
}

/// Arguments of `narufs top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Directories in mounts
    #[arg(value_name = "DIR", required = true)]
    pub dirs: Vec<PathBuf>,
    /// Seconds between two looks, 0.1 to 3600
    #[arg(long, short = 'i', value_name = "SECONDS", default_value = "1")]
    pub interval: Interval,
    /// Look once, and print what was done in one interval
    #[arg(long)]
    pub once: bool,
    /// Print one JSON document for each look
    #[arg(long)]
    pub json: bool,
}

/// A time between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval(pub Duration);

impl FromStr for Interval {
    type Err = String;

    fn from_str(said: &str) -> Result<Interval, String> {
        let seconds = said.strip_suffix('s').unwrap_or(said).parse().ok();
        let seconds = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
        seconds
            .map(|seconds| Interval(Duration::from_secs_f64(seconds)))
            .ok_or_else(|| "say 0.1 to 3600 seconds".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_bounds() {
        let millis = |said: &str| said.parse::<Interval>().map(|interval| interval.0.as_millis());
        assert_eq!((millis("0.5"), millis("2s"), millis("3600")), (Ok(500), Ok(2000), Ok(3_600_000)));
        for bad in ["", "0", "0.01", "-1", "3601", "NaN", "inf", "fast"] {
            assert!(millis(bad).is_err(), "{bad}");
        }
    }
}
