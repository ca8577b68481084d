//! Swap: pages that have no file are written to swap areas when memory is short, and are read back
//! when they are used again.
//!
//! - [`Slots`] manages the slots of one area. Each CPU allocates from its own cluster of 512 slots,
//!   the state of a slot is read without a lock, and slots are freed in batches.
//! - [`Swap`] manages all areas: files, block devices, memory and compressed memory. Areas have
//!   priorities, and can be added and removed while they hold pages. A read from an area returns
//!   the bytes that were written, or an error: every page has a checksum, which is kept in memory,
//!   away from the device. With the feature `encryption`, a page can be encrypted, and a tag
//!   replaces the checksum.
//! - [`PageEntry`] is what a page word stores for a swapped page: normally the page's slot. If the
//!   page repeats a single 64-bit value, and this value can be encoded in the bits that a page word
//!   has for an entry, the page word stores the value instead, and the page needs no slot.
//!
//! The crate doesn't know groups, address spaces or reclaim. It identifies a page by a number
//! ([`Owner`]), and the code that owns the pages implements [`Owners`]. The crate is separate from
//! `frames` and `io` for two reasons. First, it needs no `unsafe`. Second, all its code can be
//! tested on virtual CPUs and, except for `encryption`, in loom models.
//!
//! The protocols are described in the heads of `slot_word`, `slot_table`, `cluster`, `hand`,
//! `slots`, `swap`, `block_pool`, `spill` and `encryption`.
#![forbid(unsafe_code)]

mod allowance;
mod area;
mod area_list;
mod block_pool;
mod cluster;
mod cluster_list;
mod clusters;
mod codec;
#[cfg(feature = "zstd")]
mod cold_codec;
#[cfg(not(feature = "zstd"))]
#[path = "cold_codec/none.rs"]
mod cold_codec;
mod compressed;
mod disk;
#[cfg(all(feature = "encryption", not(pagefold_loom)))]
mod encryption;
#[cfg(not(all(feature = "encryption", not(pagefold_loom))))]
#[path = "encryption/none.rs"]
mod encryption;
mod error;
mod hand;
mod header;
mod memory_file;
mod page_entry;
mod page_out;
mod placement;
mod reserve;
mod seal;
mod slot_bits;
mod slot_table;
mod slot_word;
mod slots;
mod spill;
mod swap;
mod write_out;

pub use allowance::{Memory, Need};
pub use area::{AreaOptions, Source};
pub use compressed::CompressedInfo;
pub use error::{AddError, NotExchanged, RemoveError, SwapInError, SwapOutError};
pub use header::HeaderError;
pub use page_entry::{Fill, PageEntry};
pub use page_out::PageOut;
pub use placement::{Placement, PlacementReason};
pub use slot_table::StaleSlot;
pub use slot_word::{BATCH_MAX, Note, Owner, SlotBatch, SlotId, SlotState};
pub use slots::Slots;
pub use spill::GaveWay;
pub use swap::{Added, AreaInfo, NotBack, Owners, Position, Swap};
