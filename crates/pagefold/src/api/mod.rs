//! What users hold: a Pagefold, its groups, its files. Spaces stand above (`space`).

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
