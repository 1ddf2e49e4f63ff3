//! A swap area on a device, for as long as it is needed.
//!
//! It has the highest priority there is, so that the kernel fills it before any other area and what is counted for
//! its device is what was swapped. Another area of that priority would take turns with it, and is refused.

use crate::compare::call;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The highest priority of a swap area.
const PRIORITY: i32 = 32767;

/// A swap area; turned off when dropped.
#[derive(Debug)]
pub(super) struct Swap {
    device: PathBuf,
}

/// A line of /proc/swaps.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    path: String,
    priority: i32,
}

fn parse(table: &str) -> Vec<Area> {
    let area = |line: &str| {
        let mut fields = line.split_whitespace();
        Some(Area { path: fields.next()?.to_owned(), priority: fields.nth(3)?.parse().ok()? })
    };
    table.lines().skip(1).filter_map(area).collect()
}

fn areas() -> Result<Vec<Area>> {
    let table = std::fs::read_to_string("/proc/swaps")
        .map_err(|e| Error::Refused(format!("this kernel has no swap: /proc/swaps: {e}")))?;
    Ok(parse(&table))
}

/// The swap areas that are in use, for a reader.
pub(super) fn in_use() -> String {
    let names: Vec<String> = areas().unwrap_or_default().into_iter().map(|area| area.path).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

impl Swap {
    /// Makes and turns on a swap area; what was on the device is lost.
    pub fn on(device: &Path) -> Result<Swap> {
        if let Some(rival) = areas()?.iter().find(|area| area.priority >= PRIORITY) {
            return Err(Error::Refused(format!(
                "the swap area {} has the highest priority already, so that swapped bytes could not be told apart: \
                 swapoff it first",
                rival.path
            )));
        }
        let shown = device.display().to_string();
        call("mkswap", &["-f", &shown])?;
        call("swapon", &["-p", &PRIORITY.to_string(), &shown])?;
        Ok(Swap { device: device.to_owned() })
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        if let Err(e) = call("swapoff", &[&self.device.display().to_string()]) {
            tracing::warn!("{e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_understood() {
        let table = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/loop0                              partition\t262140\t\t0\t\t32767\n\
            /swap\\040file                          file\t\t100\t\t7\t\t-2\n";
        let found = parse(table);
        assert_eq!(found[0], Area { path: "/dev/loop0".into(), priority: 32767 });
        assert_eq!((found.len(), found[1].priority), (2, -2));
        assert_eq!(parse("Filename Type Size Used Priority\n"), []);
    }
}
