//! The interface between Pagefold's concurrent code and the machine that it runs on.
//!
//! Pagefold takes all atomics, locks, per-CPU and per-thread values, spin hints, CPU numbers,
//! clocks, random numbers and threads from this crate, never from `std` or another crate. The build
//! selects their implementation:
//!
//! | build | implementation | used for |
//! |---|---|---|
//! | default | `core` atomics, futex locks, rseq | the product; every item is a re-export or an inlined call |
//! | `--cfg pagefold_loom` | [loom](https://docs.rs/loom) | exhaustive models of each protocol (`tests/loom_*.rs`) |
//! | `--cfg pagefold_manycore` | `manycore` | a virtual machine of many CPUs, which shows where locks and cache lines cost time |
//! | `--cfg pagefold_tsan` | as default, but bytes are copied word by word | ThreadSanitizer, which can't see into `asm!` |
//!
//! loom and the virtual machine see only accesses that are made through this crate. So even words
//! that are accessed only under a lock, such as the links of a list, are atomics of this crate.
//! They are accessed `Relaxed`.
//!
//! `Arc` is `std`'s in every build: no protocol that loom explores depends on the order in which
//! handles are dropped.

#[cfg(all(pagefold_loom, pagefold_manycore))]
compile_error!("choose one backend for `sync`: pagefold_loom or pagefold_manycore");

#[cfg(not(pagefold_loom))]
#[doc(hidden)]
pub mod asleep;
pub mod atomic;
pub mod bytes;
pub mod counter;
pub mod cpu;
pub mod device;
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub mod exit;
mod first_time;
pub mod fork;
pub mod lock;
#[cfg(pagefold_loom)]
mod loom_stacks;
pub mod memory;
pub mod nearby;
#[cfg(not(pagefold_loom))]
#[doc(hidden)]
pub mod one_cpu;
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
pub use first_time::FirstTime;
pub use fork::ForkMark;
pub use per_cpu::PerCpu;
pub use sparse::SparseWords;
pub use stable::StableBytes;
pub use std::sync::{Arc, Weak};

/// Explores every interleaving of `model` that loom can distinguish, with at most three preemptions
/// in total, over all threads and the whole run.
///
/// The environment variable `LOOM_MAX_PREEMPTIONS` overrides the limit, and
/// `PAGEFOLD_MORE_PREEMPTIONS` is added to it.
#[cfg(pagefold_loom)]
pub fn model(model: impl Fn() + Send + Sync + 'static) {
    model_deeper(3, model);
}

/// Explores `model` as [`model`] does, but with at most `preemptions` preemptions rather than
/// three. A higher limit also finds failures that need more preemptions, and takes more time.
#[cfg(pagefold_loom)]
pub fn model_deeper(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let more = std::env::var("PAGEFOLD_MORE_PREEMPTIONS").map_or(Ok(0), |more| more.parse::<usize>());
    let more = more.expect("PAGEFOLD_MORE_PREEMPTIONS is a number");
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(preemptions) + more);
    builder.check(model);
}
