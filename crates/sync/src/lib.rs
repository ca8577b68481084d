//! The seam between Pagefold's concurrent code and the machine it runs on.
//!
//! Every atomic, lock, per-CPU or per-thread value, spin hint, CPU number, clock, random number and
//! thread of Pagefold comes from here, never from `std` or another crate. What stands behind the
//! seam is decided by the build:
//!
//! | build | behind the seam | used for |
//! |---|---|---|
//! | default | `core` atomics, futex locks, rseq | the product; every item is a re-export or an inlined call |
//! | `--cfg pagefold_loom` | [loom](https://docs.rs/loom) | exhaustive models of each protocol (`tests/loom_*.rs`) |
//! | `--cfg pagefold_manycore` | `manycore` | a virtual machine of many CPUs: where locks and lines lose time |
//! | `--cfg pagefold_tsan` | as default, but bytes are copied word by word | ThreadSanitizer, which can't see into `asm!` |
//!
//! What doesn't go through the seam is invisible to the checkers, so even words that are only ever
//! touched under a lock, such as the links of a list, are atomics from here, accessed `Relaxed`.
//!
//! `Arc` is `std`'s in every build: no protocol of ours depends on the order in which handles are
//! dropped.

#[cfg(all(pagefold_loom, pagefold_manycore))]
compile_error!("choose one backend for `sync`: pagefold_loom or pagefold_manycore");

pub mod atomic;
pub mod bytes;
pub mod counter;
pub mod cpu;
pub mod device;
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub mod exit;
pub mod fork;
pub mod lock;
pub mod memory;
pub mod nearby;
pub mod per_cpu;
pub mod prefetch;
pub mod random;
mod sparse;
mod stable;
pub mod tasks;
pub mod thread;
pub mod time;
pub mod wait;
pub mod zeroed;

pub use bytes::SharedBytes;
pub use counter::{CounterPlace, ThreadCounter};
pub use crossbeam_utils::CachePadded;
pub use fork::ForkMark;
pub use per_cpu::PerCpu;
pub use sparse::SparseWords;
pub use stable::StableBytes;
pub use std::sync::{Arc, Weak};

/// Explores every interleaving of `model` that loom can tell apart, with at most three preemptions:
/// of all threads together, from its beginning to its end.
///
/// The environment variable `LOOM_MAX_PREEMPTIONS` overrides the bound, and
/// `PAGEFOLD_MORE_PREEMPTIONS` is added to it.
#[cfg(pagefold_loom)]
pub fn model(model: impl Fn() + Send + Sync + 'static) {
    model_deeper(3, model);
}

/// As [`model`], with at most `preemptions`. What takes more turns than three to go wrong needs
/// more, and more time.
#[cfg(pagefold_loom)]
pub fn model_deeper(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let more = std::env::var("PAGEFOLD_MORE_PREEMPTIONS").map_or(Ok(0), |more| more.parse::<usize>());
    let more = more.expect("PAGEFOLD_MORE_PREEMPTIONS is a number");
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(preemptions) + more);
    builder.check(model);
}
