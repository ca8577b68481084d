//! Reads and writes the files and devices that hold the bytes of Pagefold's pages.
//!
//! Everything above this crate uses two traits, [`Backend`] and [`BackingFile`], and two functions,
//! [`read_full()`] and [`write_full()`], which turn the partial reads and writes of an operating
//! system into complete ones. The implementations of the traits:
//!
//! | backend | bytes are in | how it performs calls and requests |
//! |---|---|---|
//! | [`Posix`] | the machine's files and disks, bypassing the kernel's page cache if possible | all of them in the caller's thread |
//! | [`Uring`] | the same | calls in the caller's thread; many requests at once through io_uring, or in threads where the kernel might keep the submitter waiting. The product uses it. Needs the feature `uring`, on by default |
//! | [`ThreadPool`] | the files of another backend | calls in the caller's thread; requests in threads of a pool. The product uses it where there is no io_uring |
//!
//! The crate `pagefold-test-disks` has backends for tests: a simulated disk, and one whose calls
//! fail by a schedule.
//!
//! A [`Request`] is an asynchronous read or write. It owns its memory, and is
//! [submitted](BackingFile::submit) together with others. The request completes later, on any
//! thread. A thread that waits for the result can [help](BackingFile::help_as) to complete the
//! request.
//!
//! Written bytes are guaranteed to survive a power cut only after a [`sync`](BackingFile::sync) has
//! succeeded. If a sync fails, the system may have discarded the bytes that were written before the
//! sync, so the caller must write them again.
//!
//! `EINTR` isn't treated as a failure: the interrupted call is retried ([`uninterrupted()`]).
//!
//! Pages are read into [`SharedBytes`], and written from them. During a read, optimistic readers
//! may be copying the same bytes; during a write, other threads may be changing them. So this crate
//! never creates a `&mut [u8]` or `&[u8]` to a page: the kernel gets a raw pointer, and all other
//! code accesses the page word by word. If a device can't handle bytes that change during a write,
//! the caller writes from [`Copies`] instead.
//!
//! [`automatic()`] chooses the best backend that works on this machine.
//!
//! Unsafe code is used only for system calls (`pread`, `preadv`, `pwritev`, `name_to_handle_at`,
//! `getrlimit`), for the entries, queues and descriptor of a ring, for sending a request in flight
//! to another thread, for the guarantee that the buffers of copies don't move, and for dropping the
//! rings, which must not happen in a forked child.
#![cfg_attr(any(pagefold_loom, pagefold_manycore, not(feature = "uring")), allow(rustdoc::broken_intra_doc_links))]
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
mod fingerprint;
mod io_error;
mod lines;
mod panics;
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
#[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
mod reaper;
#[cfg(any(pagefold_loom, all(feature = "uring", not(pagefold_manycore))))]
#[cfg_attr(pagefold_loom, allow(dead_code))]
mod reaping;
mod request;
mod retry;
#[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
mod ring;
mod same_file;
#[cfg(not(pagefold_loom))]
mod system_calls;
mod thread_pool;
mod under_way;
#[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
mod uring;
mod workers;
mod write_full;

#[cfg(not(pagefold_loom))]
pub use automatic::automatic;
pub use backend::{Access, Backend, BackingFile, Helping, Identity};
pub use copies::{Copies, Copy};
pub use fingerprint::Fingerprint;
pub use io_error::IoError;
pub use panics::{failing_if_it_panics, unless_it_panics};
#[cfg(not(pagefold_loom))]
pub use posix::{DirectIo, Posix};
pub use progress::Direction;
pub use read_full::{read_full, read_full_vectored};
pub use request::{Batch, Queue, Request};
pub use retry::uninterrupted;
pub use same_file::is_same_file;
pub use sync::{SharedBytes, StableBytes};
pub use thread_pool::ThreadPool;
pub use under_way::{Task, UnderWay};
#[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
pub use uring::Uring;
pub use workers::Workers;
pub use write_full::write_full;
