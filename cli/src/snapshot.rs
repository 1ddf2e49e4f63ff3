//! All counters of a live mount at one moment, for whoever shows them.

use crate::failure::{Failure, Status};
use serde_json::Value;
use std::path::Path;

/// Asks the mount at `dir`.
///
/// # Errors
/// Nobody answers there, or not as expected.
pub fn of(dir: &Path) -> Result<Value, Failure> {
    let json = narufs_fuse::control::stats(dir).map_err(|e| Failure::of_call(dir, &e))?;
    let unknown = |e: serde_json::Error| {
        Failure::about(Status::Failed, dir, format_args!("its server answers in words unknown here: {e}"))
    };
    let mut counters: Value = serde_json::from_str(&json).map_err(unknown)?;
    let latencies = narufs_fuse::control::latencies(dir).map_err(|e| Failure::of_call(dir, &e))?;
    counters["latencies"] = serde_json::to_value(latencies).map_err(unknown)?;
    Ok(counters)
}

/// A number at a place of it; 0: there is none.
pub fn number(of: &Value, place: &str) -> u64 {
    of.pointer(place).and_then(Value::as_u64).unwrap_or(0)
}

/// A word at a place of it, or an empty one.
pub fn text<'v>(of: &'v Value, place: &str) -> &'v str {
    of.pointer(place).and_then(Value::as_str).unwrap_or("")
}

/// The list at a place of it.
pub fn list<'v>(of: &'v Value, place: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    of.pointer(place).and_then(Value::as_array).into_iter().flatten()
}

/// The names at a place of it, with what stands under each.
pub fn named<'v>(of: &'v Value, place: &str) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
    of.pointer(place).and_then(Value::as_object).into_iter().flatten()
}
