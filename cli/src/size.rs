//! Sizes as users write and read them: powers of 1024, with units.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;
    fn from_str(s: &str) -> Result<Size, String> {
        parse_size::Config::new()
            .with_binary()
            .parse_size(s)
            .map(Size)
            .map_err(|_| format!("{s}: not a size such as 512M or 8G"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", bytesize::ByteSize(self.0).display().iec())
    }
}

/// A size, or by how much something is to become larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewSize {
    /// So many bytes.
    To(u64),
    /// So many bytes more.
    By(u64),
}

impl FromStr for NewSize {
    type Err = String;
    fn from_str(s: &str) -> Result<NewSize, String> {
        match s.strip_prefix('+') {
            Some(more) => more.parse().map(|Size(bytes)| NewSize::By(bytes)),
            None => s.parse().map(|Size(bytes)| NewSize::To(bytes)),
        }
    }
}

impl NewSize {
    /// The size of something that has `now` bytes.
    pub fn of(self, now: u64) -> u64 {
        match self {
            NewSize::To(bytes) => bytes,
            NewSize::By(more) => now.saturating_add(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [("8G", 8 << 30), ("256M", 256 << 20), ("64MiB", 64 << 20), ("4096", 4096)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        assert!("8 parrots".parse::<Size>().is_err());
        assert_eq!(Size(8 << 30).to_string(), "8.0 GiB");
    }

    #[test]
    fn a_plus_asks_for_more_than_there_is() {
        let of = |text: &str| text.parse::<NewSize>().map(|size| size.of(1 << 30));
        assert_eq!(of("4G"), Ok(4 << 30));
        assert_eq!(of("+4G"), Ok(5 << 30));
        assert!(of("+").is_err() && of("-1G").is_err());
    }
}
