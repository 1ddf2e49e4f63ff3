//! Results in few bytes, for a report that is kept beside its documents: records as a table, a row for each, figures
//! with four digits, repeated words by their place in a list. What each run read and wrote by cause, and its check,
//! are left out. [`Results`] is read from this form as from the long one.

use super::Results;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::io::{self, Write};

/// Fields of a record that the table leaves out.
const LEFT_OUT: [&str; 2] = ["causes", "check"];

/// A list in either form.
#[derive(Deserialize)]
#[serde(untagged, bound = "T: DeserializeOwned")]
enum Form<T> {
    Long(Vec<T>),
    Short(Table),
}

#[derive(Serialize, Deserialize)]
struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
}

/// A field of all records. Where it has words, rows hold their places.
#[derive(Serialize, Deserialize)]
struct Column {
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    words: Vec<Value>,
}

/// Four digits are more than any two runs have in common.
fn rounded(value: &Value) -> Value {
    let Some(exact) = value.as_f64().filter(|_| value.is_f64()) else { return value.clone() };
    match format!("{exact:.3e}").parse::<f64>() {
        Ok(whole) if whole.fract() == 0.0 && whole.abs() < 1e15 => Value::from(whole as i64),
        Ok(other) => Value::from(other),
        Err(_) => Value::Null,
    }
}

fn table<T: Serialize>(records: &[T]) -> serde_json::Result<Table> {
    let mut maps = Vec::with_capacity(records.len());
    let mut names: Vec<String> = Vec::new();
    for record in records {
        if let Value::Object(map) = serde_json::to_value(record)? {
            for name in map.keys().filter(|name| !LEFT_OUT.contains(&name.as_str())) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            maps.push(map);
        }
    }
    let of = |map: &Map<String, Value>, name: &str| map.get(name).map_or(Value::Null, rounded);
    let mut columns = Vec::new();
    for name in names {
        let mut words: Vec<Value> = Vec::new();
        if !maps.iter().any(|map| map.get(&name).is_some_and(Value::is_number)) {
            for map in &maps {
                let word = of(map, &name);
                if !words.contains(&word) {
                    words.push(word);
                }
            }
        }
        columns.push(Column { name, words });
    }
    let cell = |map: &Map<String, Value>, column: &Column| {
        let value = of(map, &column.name);
        column.words.iter().position(|word| *word == value).map_or(value, Value::from)
    };
    let rows = maps.iter().map(|map| columns.iter().map(|column| cell(map, column)).collect()).collect();
    Ok(Table { columns, rows })
}

/// JSON with a line for each list in a list.
#[derive(Default)]
struct Lines {
    /// Whether what is open is a list, from the outermost on.
    open: Vec<bool>,
}

impl serde_json::ser::Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let line = self.open.last() == Some(&true);
        self.open.push(true);
        writer.write_all(if line { b"\n[" } else { b"[" })
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.pop();
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.push(false);
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open.pop();
        writer.write_all(b"}")
    }
}

/// The results as JSON in few bytes.
///
/// # Errors
/// If a record cannot be JSON, which none that was read or measured is.
pub fn compact(results: &Results) -> serde_json::Result<Vec<u8>> {
    let mut all = serde_json::to_value(results)?;
    all["records"] = serde_json::to_value(table(&results.records)?)?;
    if let Some(spilled) = &results.spilled {
        all["spilled"]["rows"] = serde_json::to_value(table(&spilled.rows)?)?;
    }
    let mut text = Vec::new();
    all.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Lines::default()))?;
    text.push(b'\n');
    Ok(text)
}

/// Reads a list in either form.
pub(in crate::compare) fn rows<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let table = match Form::deserialize(from)? {
        Form::Long(records) => return Ok(records),
        Form::Short(table) => table,
    };
    table.rows.into_iter().map(|row| record(&table.columns, row).map_err(D::Error::custom)).collect()
}

fn record<T: DeserializeOwned>(columns: &[Column], row: Vec<Value>) -> Result<T, String> {
    if row.len() != columns.len() {
        return Err(format!("a row has {} figures for {} columns", row.len(), columns.len()));
    }
    let mut map = Map::new();
    for (column, value) in columns.iter().zip(row) {
        let value = match column.words.is_empty() {
            true => value,
            false => {
                let place = value.as_u64().and_then(|at| column.words.get(usize::try_from(at).ok()?));
                place.cloned().ok_or_else(|| format!("{value} is no word of column {}", column.name))?
            }
        };
        if !value.is_null() {
            map.insert(column.name.clone(), value);
        }
    }
    serde_json::from_value(Value::Object(map)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::super::{page, table as shown};
    use super::*;

    #[test]
    fn the_short_form_gives_the_same_report() {
        let mut long = results();
        long.records[0].ops_per_s = 123_456.789;
        let text = compact(&long).expect("it is JSON");
        let short: Results = serde_json::from_slice(&text).expect("it is read");
        assert_eq!(short.records[0].ops_per_s, 123_500.0);
        long.records[0].ops_per_s = 123_500.0;
        assert_eq!((page(&short), shown(&short, 80)), (page(&long), shown(&long, 80)));
        assert!(text.len() < serde_json::to_string(&long).expect("JSON").len(), "{}", text.len());
    }

    #[test]
    fn the_long_form_is_read_back_whole() {
        let text = serde_json::to_string(&results()).expect("it is JSON");
        let back: Results = serde_json::from_str(&text).expect("it is read");
        assert_eq!(back.records, results().records);
    }

    #[test]
    fn tables_that_are_wrong_are_refused() {
        let good = String::from_utf8(compact(&results()).expect("it is JSON")).expect("text");
        let wrong = [
            ("\n[", "\n[7,"),
            ("\"columns\"", "\"colums\""),
            ("\"survives\",\"words\":[", "\"survives\",\"none\":["),
        ];
        for (from, to) in wrong {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{to}");
            assert!(serde_json::from_str::<Results>(&bad).is_err(), "{to}");
        }
    }
}
