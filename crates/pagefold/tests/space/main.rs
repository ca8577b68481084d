//! Tests of spaces: by themselves, together with the files that are mapped in them, and compared
//! with a simple model.

mod files;
mod hits;
mod memory;
mod model;
mod moves;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod world;
