//! The metadata of an image as what the data path works on.

use crate::Result;
use crate::device::BlockDevice;
use crate::file::{Change, Home, Logged, Need};
use crate::format::Position;
use crate::inode::InodeObj;
use crate::meta::{Blocks, Mapping, Meta, Room};
use crate::store::Profile;
use std::ops::Range;

impl Home for Meta {
    type Inode = InodeObj;
    type Credits<'a> = Room<'a>;
    fn device(&self) -> &dyn BlockDevice {
        Meta::device(self)
    }
    fn profile(&self) -> Profile {
        Meta::profile(self)
    }
    fn map(&self, inode: &InodeObj, page: u64) -> Result<Mapping> {
        Meta::map(self, inode, page)
    }
    fn reserve(&self, blocks: u64) -> Result<()> {
        Meta::reserve(self, blocks)
    }
    fn reserve_for_record(&self, blocks: u64) -> Result<()> {
        Meta::reserve_for_record(self, blocks)
    }
    fn make_room_for(&self, blocks: u64) -> Result<()> {
        Meta::make_room_for(self, blocks)
    }
    fn unreserve(&self, blocks: u64) {
        Meta::unreserve(self, blocks)
    }
    fn allocate(&self, want: u32, ahead: u32, goal: Option<u64>) -> Result<Blocks> {
        Meta::allocate(self, want, ahead, goal)
    }
    fn release(&self, blocks: Blocks) {
        Meta::release(self, blocks)
    }
    fn allocate_spare(&self, want: u32) -> Result<Blocks> {
        Meta::allocate_spare(self, want)
    }
    fn release_spare(&self, blocks: Blocks) {
        Meta::release_spare(self, blocks)
    }
    fn fitting(&self, inode: &InodeObj, need: Need) -> usize {
        Meta::fitting(self, inode, need)
    }
    fn credits(&self, inode: &InodeObj, need: Need) -> Result<Room<'_>> {
        Meta::credits(self, inode, need)
    }
    fn try_credits(&self, inode: &InodeObj, need: Need) -> Result<Option<Room<'_>>> {
        Meta::try_credits(self, inode, need)
    }
    fn ample_credits(&self, inode: &InodeObj, need: Need) -> Result<Option<Room<'_>>> {
        Meta::ample_credits(self, inode, need)
    }
    fn log(&self, credits: Room<'_>, inode: &InodeObj, change: Change) -> Result<Logged> {
        Meta::log(self, credits, inode, change)
    }
    fn finish_removal(&self, inode: &InodeObj, pages: Range<u64>) -> Result<()> {
        Meta::finish_removal(self, inode, pages)
    }
    fn collapse(&self, inode: &InodeObj, range: Range<u64>, size: u64) -> Result<()> {
        Meta::collapse(self, inode, range, size)
    }
    fn insert_hole(&self, inode: &InodeObj, at: u64, by: u64, size: u64) -> Result<()> {
        Meta::insert_hole(self, inode, at, by, size)
    }
    fn tail(&self) -> Position {
        Meta::tail(self)
    }
    fn commit_upto(&self, upto: Position) -> Result<()> {
        Meta::commit_upto(self, upto)
    }
    fn settle_upto(&self, upto: Position) -> Result<()> {
        Meta::settle_upto(self, upto)
    }
    fn commit_power(&self, upto: Position) -> Result<()> {
        Meta::commit_power(self, upto)
    }
    fn may_lag(&self) -> bool {
        Meta::may_lag(self)
    }
    fn order_after(&self, writes: u64) -> Result<()> {
        Meta::order_after(self, writes)
    }
    fn keep_promises(&self) -> Result<()> {
        Meta::keep_promises(self)
    }
    fn head(&self) -> Position {
        Meta::head(self)
    }
    fn absorbs(&self) -> bool {
        Meta::absorbs(self)
    }
}
