//! Where the bytes of Pagefold's pages come from, and go to.
//!
//! Everything above this crate sees two traits, [`Backend`] and [`BackingFile`], and two functions,
//! [`read_full()`] and [`write_full()`], which make a whole read or write out of the answers that
//! systems give. What stands behind them:
//!
//! | backend | bytes | time | used for |
//! |---|---|---|---|
//! | [`Posix`] | the machine's files and disks, past the kernel's page cache if possible | real | calls, all in their caller |
//! | [`Uring`] | the same | real | the product: calls in their caller, many requests at once through io_uring, or by threads where the kernel might keep the submitter waiting |
//! | [`ThreadPool`] | another backend's | real | the product where there is no io_uring: requests done by threads |
//! | [`SimulatedDisk`] | given, or computed; some lost in power cuts | virtual | repeatable tests and experiments |
//! | [`FaultyBackend`] | another backend's, some of them lost | the other's | fault sweeps |
//!
//! A [`Request`] is an asynchronous read or write: it owns its memory, and is
//! [submitted](BackingFile::submit) with others. It completes later, on any thread; a caller that
//! needs the result sooner [helps](BackingFile::help_as).
//!
//! What was written is sure to survive a power cut after a [`sync`](BackingFile::sync) that
//! succeeded, and only then. After one that failed, the system may have dropped what it was given:
//! it has to be given again.
//!
//! `EINTR` is no failure of a call: it is made again ([`uninterrupted()`]).
//!
//! Pages are read into [`SharedBytes`], which optimistic readers may be copying at the same time,
//! and written from them while others may be changing them; hence no `&mut [u8]` or `&[u8]` of them
//! exists anywhere here. The kernel has a raw pointer, the others go word by word. A device that
//! can't bear that is given [`Copies`].
//!
//! [`automatic()`] chooses. The only unsafe code is the system calls (`preadv`, `pwritev`,
//! `name_to_handle_at`), a ring's entries, that copies stay where they are, and that rings aren't
//! dropped in a forked child.
#![cfg_attr(any(pagefold_loom, pagefold_manycore), allow(rustdoc::broken_intra_doc_links))]
#![deny(unsafe_code)]

#[cfg(not(pagefold_loom))]
mod automatic;
mod backend;
mod copies;
#[cfg(not(pagefold_loom))]
mod directories;
#[cfg(not(pagefold_loom))]
mod drop_behind;
#[cfg(not(pagefold_loom))]
mod durability;
mod faults;
mod faulty;
mod faulty_request;
mod fingerprint;
mod io_error;
mod lines;
#[cfg(all(test, not(pagefold_loom)))]
mod patience;
#[cfg(not(pagefold_loom))]
mod posix;
#[cfg(not(pagefold_loom))]
mod posix_lock;
#[cfg(not(pagefold_loom))]
mod posix_open;
mod progress;
mod queued_file;
mod read_full;
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
mod reaper;
#[cfg(any(pagefold_loom, not(pagefold_manycore)))]
#[cfg_attr(pagefold_loom, allow(dead_code))]
mod reaping;
mod request;
mod retry;
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
mod ring;
mod same_file;
mod schedule;
mod simulated;
mod simulated_contents;
mod simulated_directory;
mod simulated_file;
mod simulated_queue;
#[cfg(not(pagefold_loom))]
mod system_calls;
mod thread_pool;
mod under_way;
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
mod uring;
mod virtual_clock;
mod workers;
mod write_full;

#[cfg(not(pagefold_loom))]
pub use automatic::automatic;
pub use backend::{Access, Backend, BackingFile, Helping, Identity};
pub use copies::{Copies, Copy};
pub use faults::Call;
pub use faulty::FaultyBackend;
pub use fingerprint::Fingerprint;
pub use io_error::IoError;
#[cfg(not(pagefold_loom))]
pub use posix::{DirectIo, Posix};
pub use progress::Direction;
pub use read_full::{read_full, read_full_vectored};
pub use request::{Batch, Queue, Request};
pub use retry::uninterrupted;
pub use same_file::is_same_file;
pub use schedule::{Fault, FaultKind, Schedule};
pub use simulated::{DiskStats, SimulatedDisk, generated_word};
pub use sync::{SharedBytes, StableBytes};
pub use thread_pool::ThreadPool;
pub use under_way::{Task, UnderWay};
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use uring::Uring;
pub use virtual_clock::Timing;
pub use workers::Workers;
pub use write_full::write_full;
