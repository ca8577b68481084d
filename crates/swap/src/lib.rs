//! Swap: pages that have no file, written elsewhere when memory is short, and read back.
//!
//! - [`Slots`] is one area's slots: each CPU allocates from a cluster of 512 slots of its own, what
//!   is in a slot is looked up without a lock, and slots are freed in batches.
//! - [`Swap`] is all areas, files, block devices, memory or compressed memory, with priorities,
//!   coming and going while pages are in them. What comes back from one is what went there, or an
//!   error: every page is sealed by a checksum that the device doesn't see, or encrypted, with the
//!   feature `encryption`.
//! - [`PageEntry`] is what a page word says of a swapped page: its slot, or, for a page that
//!   repeats one word, that word.
//!
//! The crate knows nothing of groups, address spaces and reclaim: a page has a number ([`Owner`]),
//! and the code that has the pages implements [`Owners`]. It is a crate by itself, beside `frames`
//! and `io`, because it runs as a whole on loom and on virtual CPUs, and because it needs no
//! `unsafe`, of which `frames` is the place.
//!
//! The protocols are in the heads of `slot_word`, `slot_table`, `cluster`, `hand`, `slots`, `swap`,
//! `block_pool`, `spill` and `encryption`.
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
mod reserve;
mod rotation;
mod seal;
mod slot_bits;
mod slot_table;
mod slot_word;
mod slots;
mod spill;
mod swap;
mod write_out;

pub use allowance::Memory;
pub use area::{AreaOptions, Source};
pub use compressed::CompressedInfo;
pub use error::{AddError, RemoveError, SwapInError, SwapOutError};
pub use header::HeaderError;
pub use page_entry::{Fill, PageEntry};
pub use page_out::PageOut;
pub use slot_table::StaleSlot;
pub use slot_word::{BATCH_MAX, Note, Owner, SlotBatch, SlotId, SlotState};
pub use slots::{Placement, Slots};
pub use swap::{AreaInfo, NotBack, Owners, Position, Swap};
