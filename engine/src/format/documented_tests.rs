//! docs/FORMAT.md and the types say the same.

use super::BLOCK_SIZE;
use super::*;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// A structure as the document or the code has it: bytes, and fields with their offsets.
type Shape = (usize, Vec<(usize, String)>);

macro_rules! shapes {
    ($($name:ident { $($field:ident)* })*) => {
        BTreeMap::from([$((
            stringify!($name).to_owned(),
            (size_of::<$name>(), vec![$((offset_of!($name, $field), stringify!($field).to_owned())),*]),
        )),*])
    };
}

macro_rules! numbers {
    ($($name:ident)*) => { BTreeMap::from([$((stringify!($name).to_owned(), $name as u64)),*]) };
}

fn shapes() -> BTreeMap<String, Shape> {
    shapes! {
        Superblock {
            crc version magic uuid label compat ro_compat incompat sequence epoch state journal_kind ring_uuid
            blocks ring_start ring_blocks dw_start dw_blocks nat_index_start nat_index_blocks orphan_root
            groups_start groups hash_key created ring_slots next_position journal_path
        }
        BlockHeader { crc magic owner generation reserved position }
        NatEntry { place generation reserved }
        Inode {
            crc mode flags nid generation nlink uid gid size blocks atime mtime ctime btime rdev extent_depth
            extent_count reserved0 parent xattr_block buckets reserved1 reserved2 inline
        }
        ExtentEntry { logical len block }
        ExtentNodeHeader { count depth reserved }
        BucketHeader { next bucket count reserved }
        DentryHeader { nid cookie rec_len name_len file_type reserved }
        XattrHeader { next len reserved }
        XattrEntry { value_len name_len reserved }
        OrphanEntry { nid generation intent arg0 arg1 progress }
        BatchHeader { crc count }
        BatchRun { nid generation pages target source size }
        DoubleWriteHeader { crc count magic epoch round sequence reserved }
        DoubleWriteEntry { block tag crc kind }
        RingHeader { crc version magic image_uuid ring_uuid sequence epoch round head slots }
        StagingOwner { crc kind magic device number born }
        SlotHeader { position crc epoch index count kind reserved len }
        CommitPayload { range_start durable_upto range_crc reserved }
        DeltaHeader { block offset len kind aux again }
        FurtherHeader { offset len again reserved mark }
        DataKey { nid offset len generation reserved }
    }
}

fn constants() -> BTreeMap<String, u64> {
    numbers! {
        FORMAT_VERSION BLOCK_SIZE BLOCKS_PER_GROUP INODE_SIZE INODES_PER_BLOCK INODE_INLINE_SIZE NAT_PER_BLOCK
        NAT_INDEX_PER_BLOCK EXTENT_ROOT_ENTRIES EXTENT_NODE_START EXTENT_NODE_ENTRIES EXTENT_MAX_DEPTH
        BUCKET_START FIRST_COOKIE MAX_NAME XATTR_START XATTR_MAX_BLOCKS ORPHANS_PER_BLOCK ORPHAN_TABLES
        DOUBLE_WRITE_ENTRIES SLOT_SIZE SLOT_HEADER_SIZE SLOT_PAYLOAD SLOTS_PER_BLOCK RING_HEADER_SPACE
        RING_HEADER_COPY STAGING_OWNER
    }
}

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FORMAT.md");
    std::fs::read_to_string(path).expect("the document is in the tree")
}

/// The cells of a row, without the marks of code.
fn cells(line: &str) -> Option<Vec<String>> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect())
}

#[test]
fn every_structure_is_documented_as_it_is() {
    let mut found: BTreeMap<String, Shape> = BTreeMap::new();
    let mut current = None;
    for line in document().lines() {
        if let Some(heading) = line.strip_prefix("### `") {
            let (name, rest) = heading.split_once("`, ").expect("a name, then its size");
            let bytes = rest.strip_suffix(" bytes").and_then(|n| n.parse().ok()).expect("a size");
            found.insert(name.to_owned(), (bytes, Vec::new()));
            current = Some(name.to_owned());
        } else if let (Some(name), Some(row)) = (&current, cells(line)) {
            if let Ok(offset) = row[0].parse() {
                found.get_mut(name).expect("just inserted").1.push((offset, row[1].clone()));
            }
        } else {
            current = None;
        }
    }
    let code = shapes();
    assert_eq!(found.keys().collect::<Vec<_>>(), code.keys().collect::<Vec<_>>());
    for (name, shape) in &code {
        assert_eq!(&found[name], shape, "{name}");
    }
}

#[test]
fn every_number_is_documented_as_it_is() {
    let text = document();
    let rows: BTreeMap<String, u64> = text
        .lines()
        .skip_while(|line| *line != "## Numbers")
        .take_while(|line| *line != "## Checksums")
        .filter_map(cells)
        .filter_map(|row| Some((row[0].clone(), row[1].parse().ok()?)))
        .collect();
    assert_eq!(rows, constants());
}

#[test]
fn the_bounds_of_records_and_the_least_rings_are_documented_as_they_are() {
    let text = document();
    let documented: BTreeMap<String, u64> = text
        .lines()
        .skip_while(|line| !line.starts_with("## How large records are"))
        .filter_map(cells)
        .filter_map(|row| {
            let name = row[0].split(['`', ':']).next()?.to_owned();
            Some((name, row[1].parse().ok()?))
        })
        .collect();
    let code = crate::vfs::RECORDS.iter().map(|(name, slots)| (name.to_string(), u64::from(*slots)));
    assert_eq!(documented, code.collect());
    for kind in [JournalKind::Ssd, JournalKind::Emulated] {
        let least = crate::mkfs::least_journal_slots(kind);
        assert!(text.contains(&format!("{least} slots ({} KiB)", least / 4)), "{kind:?}: {least} slots");
    }
}
