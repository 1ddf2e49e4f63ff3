//! Buffers that the kernel may write to while a request is in flight.

/// An aligned buffer of whole blocks.
#[derive(Debug, Default)]
pub struct IoBuf {
    bytes: Vec<u8>,
}
