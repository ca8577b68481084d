//! Stress tests for ThreadSanitizer. Loaders, readers without a trace, pinners, writers, removers
//! and drains share a few frames.
//!
//! Every word of a page names the page, and its load or version. A test fails at once if a thread
//! reads another page's bytes or a torn page, or if bytes change under a pin. Pinned pages are read
//! as plain memory, so ThreadSanitizer checks that these reads are ordered with all writes to the
//! frame.
#![cfg(not(pagefold_loom))]

mod policy;
mod reading;
mod writing;
