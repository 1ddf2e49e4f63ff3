//! Golden images: what earlier builds have left, to be mounted, recovered, checked and read by every later one.
//!
//! A set is a directory with `image.gz`, `ring.gz` where the ring or its staging was left too, and `manifest.gz`, the
//! tree as it was before the image was left: a line for each name. `make golden NAME=... SETS=...` makes new sets by any
//! build's binary; those that are there are never changed.

mod files;
pub mod make;
pub mod media;
pub mod tree;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// Bytes of a block of a packed file.
const BLOCK: usize = 4096;

/// Packs a file: its number of blocks, then the blocks that are not zero, each after its number; all compressed.
///
/// # Errors
/// Those of the files.
pub fn pack(from: &Path, into: &Path, most_blocks: u64) -> io::Result<()> {
    let mut from = File::open(from)?;
    let blocks = (from.metadata()?.len() / BLOCK as u64).min(most_blocks);
    let mut into = GzEncoder::new(File::create_new(into)?, Compression::best());
    into.write_all(&blocks.to_le_bytes())?;
    let mut buf = [0; BLOCK];
    for block in 0..blocks {
        from.read_exact(&mut buf)?;
        if buf.iter().any(|byte| *byte != 0) {
            into.write_all(&block.to_le_bytes())?;
            into.write_all(&buf)?;
        }
    }
    into.finish()?.sync_all()
}

/// Unpacks what [`pack`] has packed: gives its number of blocks to `begin`, then each block that is not zero to
/// `each` with what `begin` gave back.
///
/// # Errors
/// Those of the file.
pub fn unpack<T>(
    from: &Path,
    begin: impl FnOnce(u64) -> T,
    mut each: impl FnMut(&T, u64, &[u8]),
) -> io::Result<T> {
    let mut from = GzDecoder::new(BufReader::new(File::open(from)?));
    let mut number = [0; 8];
    from.read_exact(&mut number)?;
    let into = begin(u64::from_le_bytes(number));
    let mut rest = Vec::new();
    from.read_to_end(&mut rest)?;
    for row in rest.chunks_exact(number.len() + BLOCK) {
        let (block, bytes) = row.split_at(number.len());
        number.copy_from_slice(block);
        each(&into, u64::from_le_bytes(number), bytes);
    }
    Ok(into)
}

fn write_manifest(set: &Path, lines: &[String]) -> io::Result<()> {
    let mut into = GzEncoder::new(File::create_new(set.join("manifest.gz"))?, Compression::best());
    into.write_all(lines.join("\n").as_bytes())?;
    into.finish()?.sync_all()
}

/// The lines of a set's manifest.
///
/// # Errors
/// Those of the file.
pub fn manifest(set: &Path) -> io::Result<Vec<String>> {
    let mut text = String::new();
    GzDecoder::new(File::open(set.join("manifest.gz"))?).read_to_string(&mut text)?;
    Ok(text.lines().map(str::to_owned).collect())
}
