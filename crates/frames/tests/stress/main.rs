//! Loaders, readers without a trace, pinners, writers, removers and drains over a few frames, for
//! ThreadSanitizer.
//!
//! Every word of a page says whose it is. One foreign or torn byte, or one that changes under a
//! pin, fails at once. Pinned pages are read as plain memory, so that ThreadSanitizer sees whether
//! the loader's, the writers' and the next owner's writes are ordered with them.
#![cfg(not(pagefold_loom))]

mod policy;
mod reading;
mod writing;
