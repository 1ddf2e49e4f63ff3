//! Changes of directories that a repair plans: entries removed and put in, first buckets.

use super::*;

/// Removes the first entry of a directory that leads to an inode.
pub(in crate::fsck) fn remove_entry(state: &mut State<'_>, dir: Nid, nid: Nid) -> Result<()> {
    let Some(inode) = state.inode(dir) else { return Ok(()) };
    let blocks = buckets_of(state, &inode)?;
    let dir = describe(&inode, blocks.len());
    for (bucket, first) in blocks.into_iter().enumerate() {
        for (block, bytes) in chain(state, &dir, bucket as u32, first) {
            let (mut entries, _) = read_entries(&bytes);
            if let Some(at) = entries.iter().position(|entry| entry.nid == nid) {
                entries.remove(at);
                let next = image::word(&bytes, BLOCK_HEADER_SIZE);
                return write_bucket(state, &dir, bucket as u32, block, next, &entries);
            }
        }
    }
    Ok(())
}

/// Whether there are names in a directory.
pub(in crate::fsck) fn has_names(state: &mut State<'_>, dir: Nid) -> Result<bool> {
    let Some(inode) = state.inode(dir) else { return Ok(false) };
    let blocks = buckets_of(state, &inode)?;
    let dir = describe(&inode, blocks.len());
    let mut buckets = (0..).zip(blocks);
    Ok(buckets.any(|(bucket, first)| {
        chain(state, &dir, bucket, first).iter().any(|(_, bytes)| !read_entries(bytes).0.is_empty())
    }))
}

/// What a name in a directory leads to.
pub(in crate::fsck) fn lookup(state: &mut State<'_>, dir: Nid, name: &[u8]) -> Result<Option<Nid>> {
    let Some(inode) = state.inode(dir) else { return Ok(None) };
    let blocks = buckets_of(state, &inode)?;
    if blocks.is_empty() {
        return Ok(None);
    }
    let dir = describe(&inode, blocks.len());
    let bucket = bucket_of(state.image.hash.of(name), dir.buckets);
    let found = chain(state, &dir, bucket, blocks[bucket as usize])
        .into_iter()
        .find_map(|(_, bytes)| read_entries(&bytes).0.into_iter().find(|entry| entry.name == name));
    Ok(found.map(|entry| entry.nid))
}

/// Puts an entry in, with a block of its own if need be; whether there was room and no such name. To be used
/// once every block is claimed.
pub(in crate::fsck) fn insert(state: &mut State<'_>, to: &Move) -> Result<bool> {
    let Some(mut inode) = state.inode(to.dir) else { return Ok(false) };
    let mut blocks = buckets_of(state, &inode)?;
    if blocks.is_empty() {
        let Some(block) = add_buckets(state, &mut inode, 1)? else { return Ok(false) };
        blocks.push(block);
    }
    let dir = describe(&inode, blocks.len());
    let hash = state.image.hash.of(&to.name);
    let bucket = bucket_of(hash, dir.buckets);
    let chain = chain(state, &dir, bucket, blocks[bucket as usize]);
    let mut seen = Seen::default();
    for entry in chain.iter().flat_map(|(_, bytes)| read_entries(bytes).0) {
        seen.cookies.insert(entry.cookie);
        seen.names.insert(entry.name);
    }
    let Some(cookie) = seen.cookie(hash).filter(|_| !seen.names.contains(&to.name)) else { return Ok(false) };
    let dentry = Dentry { name: &to.name, nid: to.nid, cookie, file_type: to.file_type };
    for (block, bytes) in &chain {
        if let Ok(Ok(Some(gap))) = bucket::gap(bytes, hash, &to.name, true, |_| {})
            && let Ok(patches) = bucket::insert(bytes, gap, &dentry)
        {
            let mut bytes = bytes.clone();
            for (at, patch) in patches.iter() {
                bytes[at..at + patch.len()].copy_from_slice(patch);
            }
            state.image.put(*block, BlockKind::Bucket, bytes)?;
            return Ok(true);
        }
    }
    // A longer one would not be followed to its end.
    if chain.len() >= MAX_CHAIN {
        return Ok(false);
    }
    let Some((last, mut bytes)) = chain.into_iter().next_back() else { return Ok(false) };
    let Some(new) = state.allocate(1, true)? else { return Ok(false) };
    let entry = Entry { name: to.name.clone(), nid: to.nid, cookie, file_type: to.file_type };
    // As old as can be: where nothing leads to it yet, what was there before is not taken for what it replaces.
    state.image.put(new, BlockKind::Bucket, bucket_block(&dir, bucket, 0, &[entry]))?;
    bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8].copy_from_slice(&new.to_le_bytes());
    state.image.put(last, BlockKind::Bucket, bytes)?;
    inode.blocks.set(inode.blocks.get() + 1);
    state.put_inode(to.dir, &inode)?;
    Ok(true)
}

/// Gives a directory without buckets its first ones, in a row; the first block. None without room.
pub(in crate::fsck) fn add_buckets(
    state: &mut State<'_>,
    inode: &mut Inode,
    count: u32,
) -> Result<Option<u64>> {
    use crate::extent::encode;
    use zerocopy::IntoBytes;
    let Some(first) = state.allocate(count, true)? else { return Ok(None) };
    let dir = describe(inode, count as usize);
    for bucket in 0..count {
        write_bucket(state, &dir, bucket, first + u64::from(bucket), 0, &[])?;
    }
    let run = encode(&Run { logical: 0, len: count, block: first, unwritten: false });
    inode.inline[..run.as_bytes().len()].copy_from_slice(run.as_bytes());
    (inode.extent_depth, inode.extent_count) = (0, 1);
    inode.buckets.set(count);
    inode.size.set(u64::from(count) * BLOCK_SIZE as u64);
    inode.blocks.set(inode.blocks.get() + u64::from(count));
    state.put_inode(inode.nid.get(), inode)?;
    Ok(Some(first))
}
