//! The state that all handles of one Pagefold share, in four parts. This folder has the operations
//! that need several of the parts. For example, a thread that takes a frame may first have to evict
//! a page. To evict it, the thread may have to swap the page out, or wait until dirty pages of
//! files are written back.

pub(crate) mod clean_wait;
pub(crate) mod file_io;
pub(crate) mod group_handle;
pub(crate) mod mailbox;
mod numbers;
pub(crate) mod page_owners;
pub(crate) mod parts;
pub(crate) mod reclaim;
pub(crate) mod swap_areas;
pub(crate) mod take_frame;
mod warm;

use crate::manager::file_io::FileIo;
use crate::manager::page_owners::SpaceTable;
use crate::memory::Memory;
use crate::swapping::Swapping;

/// The state that all handles and the background threads share.
pub(crate) struct Manager {
    pub(crate) memory: Memory,
    pub(crate) file_io: FileIo,
    pub(crate) swapping: Swapping,
    pub(crate) spaces: SpaceTable,
}
