//! The public handles of a Pagefold, its groups and its files. Spaces build on these (`space`).

mod batch;
pub(crate) mod builder;
mod census;
mod close_all;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod group;
pub(crate) mod open_options;
pub(crate) mod pagefold;
mod read_queue;

pub use batch::{ReadRequest, WriteRequest};
pub use read_queue::ReadQueue;
