//! How an image is to be opened, in words.

use crate::names::{known, of_environment};
use narufs::{Durability, MountOptions, Origin};
use std::path::Path;
use std::time::Duration;

/// How an image is to be opened, in words: of a URI's parameters or of the environment.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    pub durability: Option<String>,
    pub memory: Option<String>,
    /// Where the image is not there, one of this size is made, for a database.
    pub size: Option<String>,
    pub makes: bool,
    /// What an image is that was not closed: copied or moved.
    pub origin: Option<String>,
    /// The directory where others look in.
    pub serve: Option<String>,
}

impl Wishes {
    /// Those of the environment, for what is not wished yet; it names one directory, where its own image is served.
    pub fn or_environment(mut self, image: &Path) -> Wishes {
        self.durability = self.durability.or_else(|| of_environment("NARUFS_SQLITE_DURABILITY"));
        self.memory = self.memory.or_else(|| of_environment("NARUFS_SQLITE_MEMORY"));
        self.size = self.size.or_else(|| of_environment("NARUFS_SQLITE_SIZE"));
        self.origin = self.origin.or_else(|| of_environment("NARUFS_SQLITE_ORIGIN"));
        let own = of_environment("NARUFS_SQLITE_IMAGE");
        if own.is_none_or(|own| known(&own) == image) {
            self.serve = self.serve.or_else(|| of_environment("NARUFS_SQLITE_SERVE"));
        }
        self
    }

    /// The same for the library.
    ///
    /// # Errors
    /// In words: which of them cannot be.
    pub fn options(&self) -> Result<MountOptions, String> {
        let mut options = MountOptions::new();
        if let Some(words) = &self.durability {
            options = options.durability(durability(words)?);
        }
        if let Some(words) = &self.memory {
            options = options.memory(bytes(words)?);
        }
        options = match self.origin.as_deref() {
            None => options,
            Some("copied") => options.origin(Origin::Copied),
            Some("moved") => options.origin(Origin::Moved),
            Some(words) => return Err(format!("origin={words}: say copied or moved")),
        };
        Ok(options)
    }
}

fn durability(words: &str) -> Result<Durability, String> {
    match words {
        "power" => Ok(Durability::Power),
        "process" => Ok(Durability::Process),
        _ => {
            let ms =
                words.strip_prefix("window=").and_then(|w| w.strip_suffix("ms")).and_then(|w| w.parse().ok());
            let ms = ms.ok_or_else(|| format!("durability={words}: say power, process or window=100ms"))?;
            Ok(Durability::Window(Duration::from_millis(ms)))
        }
    }
}

/// A number of bytes, in words: `64M`.
pub fn bytes(words: &str) -> Result<u64, String> {
    let wrong = || format!("{words}: say a number of bytes, or one with K, M or G");
    let (digits, unit) = match words.char_indices().last() {
        Some((at, 'K' | 'k')) => (&words[..at], 10),
        Some((at, 'M' | 'm')) => (&words[..at], 20),
        Some((at, 'G' | 'g')) => (&words[..at], 30),
        _ => (words, 0),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << unit)).ok_or_else(wrong)
}
