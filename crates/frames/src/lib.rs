//! Page frames: the part of Pagefold that holds the `unsafe`.
//!
//! - [`Frames`] is the memory of one budget: an arena of frames, which stays mapped when pages are
//!   evicted; a table with one cache line for each frame; and each CPU's free frames.
//! - [`PageMap`] holds one object's page words. A page word is eight bytes that tell where its page
//!   is, so a lookup is one load.
//! - [`Tables`] hold an index that readers search without a lock.
//! - [`Budget`] limits the memory that frames, page maps and tables take together.
//!
//! Everything else is policy: which files there are, which group a page is charged to, and which
//! page is evicted next. Policy lives in the `pagefold` crate, without `unsafe`. The protocols are
//! described in the module heads of `page_word`, `frame_table`, `page_map`, `page_maps`, `writing`,
//! `write_state`, `writeback`, `swapping`, `chunks`, `extents` and `wait_table`, and are modelled
//! in `tests/loom_*.rs`.
//!
//! Lock order, outermost first:
//! 1. the drain lock (`drain_turn` of `extents`);
//! 2. the lock of the frames that the drain has collected (`caught` of `extents`);
//! 3. the lock of a CPU's stock of free frames (`free_frames`).
//!
//! Four more locks are leaves: the lock of the set of extents that have memory (`population`), the
//! lock of the free segments (`segments`), the lock of the free batches that a drain hasn't
//! examined yet (`free_frames`), and the lock of the budget's limit (`budget`). `far_words` and
//! `wait_table` describe their own locks.

mod budget;
mod chunks;
mod config;
mod error;
mod extents;
mod far_words;
mod frame_id;
mod frame_table;
mod frames;
mod free_frames;
mod held_run;
mod kept_writing;
mod length;
mod loading_run;
mod lookup;
mod map_number;
mod map_state;
mod numa;
mod page_map;
mod page_maps;
mod page_word;
mod page_words;
mod population;
mod region;
mod segments;
mod swapping;
mod tables;
mod usage;
mod wait_table;
mod word_geometry;
mod write_state;
mod writeback;
mod writing;

pub use budget::Budget;
pub use chunks::{Payment, Unpaid};
pub use config::{Config, FRAMES_MAX, map_room, room_to_grow};
pub use error::ReserveError;
pub use frame_id::FrameId;
pub use frames::{FrameDrain, FrameStats, Frames, IsolatedFrame, NotMoved, OwnedFrame, Refused, Use};
pub use held_run::HeldRun;
pub use kept_writing::KeptWriting;
pub use loading_run::LoadingRun;
pub use map_number::{MapInWord, MapNumber, NUMBER_SHIFT};
pub use page_map::{BeginLoad, Detach, KeptPin, Labels, Loading, PageMap, PinError, PinnedFrame, Pinner};
pub use page_maps::PageMaps;
pub use page_word::{PageState, PageWord};
pub use page_words::MapPart;
pub use swapping::Unwritten;
pub use tables::{TABLE_BYTES, TABLE_SHIFT, Table, Tables};
pub use usage::Usage;
pub use wait_table::{LoadFailure, Waiting};
pub use word_geometry::PAGE_WORDS_SHIFT;
pub use write_state::USES_MAX;
pub use write_state::{Ahead, Unclean};
pub use writeback::{HeldPage, Hold};
pub use writing::{BeginWrite, Writer, Writing};

/// Returns the size of a system page in bytes: the unit in which the system gives and takes memory.
#[must_use]
pub fn system_page_size() -> usize {
    rustix::param::page_size()
}

/// Returns the size of the machine's memory in bytes.
#[must_use]
pub fn system_memory() -> u64 {
    let told = rustix::system::sysinfo();
    (told.totalram as u64).saturating_mul(told.mem_unit.into())
}
