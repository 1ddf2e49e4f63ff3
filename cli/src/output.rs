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
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Why some of what was said is lost, if so.
pub fn lost() -> Option<&'static io::Error> {
    // Whoever does not read to the end has seen what they wanted; the exit status says the rest.
    FAILED.get().filter(|e| e.kind() != ErrorKind::BrokenPipe)
}

/// Whether nothing more is read, or kept, of what is said: who would go on for ever ends.
pub fn is_over() -> bool {
    FAILED.get().is_some()
}

/// What [`say`] calls.
pub fn line(words: fmt::Arguments<'_>) {
    note(writeln!(io::stdout(), "{words}"));
}

/// Prints what has its lines already.
pub fn whole(text: &str) {
    note(io::stdout().write_all(text.as_bytes()));
}

fn note(written: io::Result<()>) {
    if let Err(e) = written {
        FAILED.get_or_init(|| e);
    }
}
