#![doc = include_str!("../README.md")]

mod access;
pub mod allocator;
mod atomic;
mod blocks;
pub mod bytes;
mod costs;
pub mod cpu;
mod description;
mod directory;
mod error;
mod figures;
mod free_blocks;
mod host;
mod latency;
mod ledger;
mod line_caches;
mod local;
mod locals;
pub mod lock;
mod machine;
mod paths;
#[cfg(feature = "plot")]
pub mod plot;
mod preset;
pub mod profile;
mod random;
mod report;
mod report_text;
mod schedule;
mod shape;
mod state;
mod task;
pub mod thread;
mod ticks;
pub mod time;
mod together;
mod wait;
pub mod work;
mod world;

#[doc = include_str!("../docs/model.md")]
pub mod model {}

pub use allocator::Allocator;
pub use atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
    AtomicU64, AtomicUsize, Ordering, compiler_fence, fence, prefetch, spin_hint,
};
pub use costs::{Cost, Costs};
pub use description::Description;
pub use error::{Cause, Failure, Position, SetupError};
pub use local::{AccessError, LocalKey};
pub use lock::{Condvar, Mutex, OnceCell, RwLock};
pub use machine::{Efficiency, Machine, Run, Window};
pub use preset::{PRESETS, Preset, Sourced};
pub use random::Random;
pub use report::{ChainShare, Latency, LineShare, LockShare, Report, Shares, WorkShare};
pub use shape::{CPUS_MAX, Shape};
pub use time::Instant;
