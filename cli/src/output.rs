//! Standard output. That its reader has gone, as in `narufs info IMAGE | head -n 1`, is no failure; that it has no room is one.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::output::line(format_args!($($words)*)) };
}
pub use say;

/// Why some of it was not written.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Why some of what was said is lost, if so.
pub fn lost() -> Option<&'static io::Error> {
    LOST.get()
}

/// What [`say`] calls.
pub fn line(words: fmt::Arguments<'_>) {
    // Whoever does not read to the end has seen what they wanted; the exit status says the rest.
    if let Err(e) = writeln!(io::stdout(), "{words}")
        && e.kind() != ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| e);
    }
}
