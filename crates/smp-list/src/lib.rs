#![doc = include_str!("../README.md")]

mod combining_lock;
mod cut;
mod exclusive;
mod link;
mod list;
mod local_list;
mod two_mode_lock;

pub use combining_lock::CombiningLock;
pub use cut::Claim;
pub use exclusive::Iter;
pub use link::{Links, NODES_MAX, Nodes};
pub use list::SmpList;
pub use local_list::LocalList;
pub use two_mode_lock::{ExclusiveMode, SharedMode, TwoModeLock};
