//! Pagefold: files larger than memory, read and written within a hard memory budget that many
//! tenants share.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data.bin");
//! # std::fs::write(&path, vec![7; 100_000])?;
//! use pagefold::Pagefold;
//!
//! let mm = Pagefold::builder().memory("64MiB").build()?;
//! let tenant = mm.group("tenant-a").max("16MiB").build()?;
//!
//! let file = tenant.open(&path)?;
//! let mut buf = [0; 100];
//! let n = file.read_at(&mut buf, 99_950)?; // Like pread: short at the end of the file.
//! assert_eq!(n, 50);
//!
//! let page = file.page_at(3 * 4096)?; // Pinned: its bytes stay where they are until the guard is dropped.
//! assert_eq!(page[0], 7);
//!
//! let log = tenant.open_options().write(true).create(true).open(path.with_extension("log"))?;
//! log.write_at(b"hello", 0)?; // Into memory; to the file within seconds, or when `log` is dropped,
//! log.sync()?; // or now, for good.
//!
//! println!("{}", mm.stats());
//! # Ok(())
//! # }
//! ```
//!
//! - [`Pagefold`] is one memory budget. Frames, loads in flight, pinned pages, page maps and other
//!   metadata count towards it.
//! - A [`Group`] is a tenant: a limit, and the pages charged to it.
//! - A [`File`] is read with [`read_at`](File::read_at), which takes no lock if the page is in
//!   memory, or through a [`PageRef`]. A file is written with [`write_at`](File::write_at) or
//!   through a [`PageMut`], and made durable with [`sync`](File::sync).
//! - A [`Space`] is an address space, in which anonymous memory and files are mapped. With swap
//!   ([`SwapArea`]), its anonymous memory may be larger than the budget.
//! - [`Stats`] has the statistics, as a struct, as text, and [for
//!   Prometheus](Stats::to_prometheus) if that feature is on.
//!
//! A read blocks its thread while the device reads. A write doesn't wait for the device, unless
//! much dirty data waits for write-back.
//!
//! # Features
//! | feature | by default | what it adds | what it needs |
//! |---|---|---|---|
//! | `uring` | on | [`io::Uring`], and its use by [`io::automatic`]; without it, a pool of threads performs requests | the crate `io-uring` |
//! | `prometheus` | off | [`Stats::to_prometheus`] | `prometheus-client`, 7 crates in all |
//! | `serde` | off | `Serialize` for [`Stats`] and the structs in it | `serde` with its macro |
//! | `zstd` | off | [compressed swap](SwapArea::compressed) recompresses pages that have been in it for a long time | Zstandard's library, and a C compiler |
//! | `encrypted-swap` | off | [`SwapArea::encrypted`] | `ring`, and a C compiler |
//!
//! A build without `zstd` and `encrypted-swap` needs no C compiler.
//!
//! This crate contains no `unsafe` code. Some crates below it do, above all `pagefold-frames`.
#![cfg_attr(
    any(pagefold_loom, pagefold_manycore, not(all(feature = "uring", feature = "prometheus"))),
    allow(rustdoc::broken_intra_doc_links)
)]
#![forbid(unsafe_code)]

/// The backends through which files are opened: those for the machine's file systems, and the
/// traits for a backend of your own ([`Backend`](io::Backend)). The crate `pagefold-test-disks` has
/// backends for tests: a disk in memory that can lose its power, and a disk whose calls fail by a
/// schedule.
pub mod io {
    #[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
    pub use ::io::Uring;
    pub use ::io::{
        Access, Backend, BackingFile, Batch, DirectIo, Direction, Fingerprint, Helping, Identity, IoError, Posix,
        Queue, Request, SharedBytes, StableBytes, ThreadPool, automatic, read_full, read_full_vectored, write_full,
    };
}

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod api;
mod budget;
mod dirty;
mod error;
mod file;
mod group;
mod lru;
mod machine;
mod manager;
mod memory;
mod numbered;
#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod patience;
mod protection;
mod read;
mod read_ahead;
mod size;
mod space;
mod stats;
mod swapping;
mod timers;
mod write;

pub use api::builder::Builder;
pub use api::file::File;
pub use api::group::{Group, GroupBuilder};
pub use api::open_options::OpenOptions;
pub use api::pagefold::Pagefold;
pub use api::{ReadQueue, ReadRequest, WriteRequest};
pub use error::{DeviceFailure, Error, SwapFailure};
pub use file::page_ref::PageRef;
pub use machine::{MemoryAllowed, memory_allowed};
pub use protection::Protection;
pub use read::page_future::PageFuture;
pub use read_ahead::advice::Advice;
pub use size::{IntoSize, Size, SizeError};
pub use space::{Area, AreaFile, Space};
pub use stats::pattern::AccessPattern;
pub use stats::swap_areas::{CompressedSwapStats, SwapAreaStats};
pub use stats::{FileStats, GroupStats, Stats};
pub use swap::{AddError, Placement, PlacementReason, RemoveError};
pub use swapping::area::SwapArea;
pub use write::page_mut::PageMut;
