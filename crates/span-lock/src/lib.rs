#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod claim;
mod geometry;
mod guard;
mod levels;
mod lock;
mod node;
mod order;
mod queue;
mod range;
mod word;

pub use guard::{RangeReadGuard, RangeWriteGuard};
pub use lock::RangeLock;
pub use queue::BYPASS_MAX;
pub use range::{BadRange, LockRange};
