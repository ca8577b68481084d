//! Where the bytes of Pagefold's pages come from.
//!
//! Everything above this crate sees two traits, [`Backend`] and [`BackingFile`], and one function, [`read_full()`],
//! which makes a whole read out of the answers that systems give. What stands behind them:
//!
//! | backend | bytes | time | used for |
//! |---|---|---|---|
//! | [`Posix`] | the machine's files and disks, past the kernel's page cache if possible | real | the product |
//! | [`ThreadPool`] | another backend's | real | at most so many reads of the other backend at once |
//! | [`SimulatedDisk`] | given, or computed from a seed | virtual | tests and experiments that can be repeated |
//! | [`FaultyBackend`] | another backend's, some of them lost | the other's | fault sweeps |
//!
//! Pages are read into [`SharedBytes`](sync::SharedBytes), which optimistic readers may be copying at the same time;
//! hence no `&mut [u8]` exists anywhere here. The kernel writes through a raw pointer, the others word by word.
//!
//! The only unsafe code is that system call (`pread`) and the lifetime that [`ThreadPool`] hides from its workers.
#![cfg_attr(pagefold_loom, allow(rustdoc::broken_intra_doc_links))]
#![deny(unsafe_code)]

mod backend;
#[cfg(not(pagefold_loom))]
mod drop_behind;
#[cfg(not(pagefold_loom))]
mod durability;
mod faulty;
#[cfg(not(pagefold_loom))]
mod posix;
#[cfg(not(pagefold_loom))]
mod posix_open;
mod read_full;
mod schedule;
mod simulated;
#[cfg(not(pagefold_loom))]
mod system_calls;
mod thread_pool;
mod virtual_clock;
mod write_full;

pub use backend::{Access, Backend, BackingFile, Identity, IoError};
pub use faulty::{Call, FaultyBackend};
#[cfg(not(pagefold_loom))]
pub use posix::{DirectIo, Posix};
pub use read_full::read_full;
pub use schedule::{Fault, FaultKind, Schedule};
pub use simulated::{DiskStats, SimulatedDisk, generated_word};
pub use thread_pool::ThreadPool;
pub use virtual_clock::Timing;
pub use write_full::write_full;
