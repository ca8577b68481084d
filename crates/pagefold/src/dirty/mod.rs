//! Dirty pages: counts them by file, group and device, and decides which thread writes them.

pub(crate) mod course;
pub(crate) mod device;
pub(crate) mod error_latch;
pub(crate) mod file_dirt;
mod line;
pub(crate) mod turn;
