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
}
