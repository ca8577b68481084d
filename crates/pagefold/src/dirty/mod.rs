//! Dirty pages: how they are counted by file, group and device, and whose turn it is to write them.

pub(crate) mod course;
pub(crate) mod device;
pub(crate) mod error_latch;
pub(crate) mod file_dirt;
mod line;
pub(crate) mod turn;
