//! What is asked for: words `NAME=VALUE`.

use super::Outcome;
use crate::demand;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The words.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The command under test.
    pub narufs: PathBuf,
    named: BTreeMap<String, String>,
}

impl Settings {
    /// From the words behind the command; `known` are the names that it has.
    ///
    /// # Errors
    /// A word that says nothing.
    pub fn new(narufs: PathBuf, words: &[String], known: &[&str]) -> Outcome<Settings> {
        let mut named = BTreeMap::new();
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: no NAME=VALUE"))?;
            demand!(known.contains(&name), "{name}: none of {}", known.join(", "));
            named.insert(name.to_owned(), value.to_owned());
        }
        Ok(Settings { narufs, named })
    }

    /// A number, or what is usual.
    ///
    /// # Errors
    /// It is none.
    pub fn number(&self, name: &str, usual: u64) -> Outcome<u64> {
        match self.named.get(name) {
            Some(value) => value.parse().map_err(|_| format!("{name}={value}: not a number").into()),
            None => Ok(usual),
        }
    }

    /// A word, or what is usual.
    pub fn text<'s>(&'s self, name: &str, usual: &'s str) -> &'s str {
        self.named.get(name).map_or(usual, String::as_str)
    }
}
