//! Address spaces: what they promise, by themselves, beside the files that are mapped in them, and
//! beside a plain model.

mod files;
mod hits;
mod memory;
mod model;
mod moves;
#[path = "../support/mod.rs"]
mod support;
mod world;
