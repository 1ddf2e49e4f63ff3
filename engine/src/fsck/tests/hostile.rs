//! Inodes that contradict themselves, in an image that is mounted without a check: each call on them ends.

use super::tool::{Made, Tool, made};
use crate::format::{InodeFlags, ROOT_NID};
use crate::path::Files;
use crate::sync::Arc;
use crate::vfs::{Context, RenameFlags, Vfs};
use crate::volume::{AssembleOptions, ImageOptions, Running, mount};
use crate::{Error, Result};

fn mounted<T>(damage: impl FnOnce(&Tool<'_>), call: impl FnOnce(&Made, &Arc<Vfs>) -> T) -> T {
    let made = made();
    made.damage(damage);
    let mounted = mount(made.media(), &ImageOptions { background: false, ..ImageOptions::default() });
    let mounted = mounted.expect("nothing that a mount looks at");
    let options = AssembleOptions { background: false, ..AssembleOptions::default() };
    let running = Running::start(mounted.checkpointer(), &options).expect("an image");
    call(&made, running.fs())
}

fn is_corrupt(result: Result<()>) -> bool {
    matches!(result, Err(Error::Corrupt { .. }))
}

#[test]
fn what_has_a_name_and_says_that_it_is_removed_is_damage() {
    let dead = InodeFlags::DEAD.bits();
    let root = Context::root();
    mounted(
        |t| {
            t.edit_inode(t.made.inner, |inode| inode.flags.set(dead));
            t.edit_inode(t.made.plain, |inode| inode.flags.set(dead));
        },
        |made, fs| {
            assert!(is_corrupt(fs.rmdir(&root, made.dir, b"inner")));
            let rename = |to: &[u8], flags| fs.rename(&root, made.dir, b"inner", ROOT_NID, to, flags);
            assert!(is_corrupt(rename(b"new", RenameFlags::empty())));
            assert!(is_corrupt(rename(b"marked", RenameFlags::EXCHANGE)));
        },
    );
}

#[test]
fn a_link_without_a_target_and_without_names_ends_who_follows_it() {
    mounted(
        |t| {
            t.edit_inode(t.made.link, |inode| {
                inode.flags.set(inode.flags.get() & !InodeFlags::INLINE_SYMLINK.bits());
                inode.nlink.set(0);
            });
        },
        |_, fs| {
            let files = Files::new(fs.clone());
            assert_eq!(files.read_link("/link"), Err(Error::Errno(libc::ELOOP)));
        },
    );
}
