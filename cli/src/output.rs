//! Standard output. That its reader has gone, as in `narufs info IMAGE | head -n 1`, is no failure.

use std::fmt;
use std::io::Write;

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::output::line(format_args!($($words)*)) };
}
pub use say;

/// What [`say`] calls.
pub fn line(words: fmt::Arguments<'_>) {
    // Whoever does not read to the end has seen what they wanted; the exit status says the rest.
    let _ = writeln!(std::io::stdout(), "{words}");
}
