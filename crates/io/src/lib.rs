//! Where the bytes of Pagefold's pages come from, and go to.
//!
//! Everything above this crate sees two traits, [`Backend`] and [`BackingFile`], and two functions, [`read_full()`] and
//! [`write_full()`], which make a whole read or write out of the answers that systems give. What stands behind them:
//!
//! | backend | bytes | time | used for |
//! |---|---|---|---|
//! | [`Posix`] | the machine's files and disks, past the kernel's page cache if possible | real | the product |
//! | [`ThreadPool`] | another backend's | real | at most so many requests of the other backend at once |
//! | [`SimulatedDisk`] | given, or computed; some lost in power cuts | virtual | repeatable tests and experiments |
//! | [`FaultyBackend`] | another backend's, some of them lost | the other's | fault sweeps |
//!
//! What was written is sure to survive a power cut after a [`sync`](BackingFile::sync) that succeeded, and only then.
//! After one that failed, the system may have dropped what it was given: it has to be given again.
//!
//! Pages are read into [`SharedBytes`](sync::SharedBytes), which optimistic readers may be copying at the same time,
//! and written from them while others may be changing them; hence no `&mut [u8]` or `&[u8]` of them exists anywhere
//! here. The kernel has a raw pointer, the others go word by word.
//!
//! The only unsafe code is the system calls (`pread`, `pwritev`) and the lifetime that [`ThreadPool`] hides from its
//! workers.
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
mod simulated_contents;
mod simulated_directory;
mod simulated_file;
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
