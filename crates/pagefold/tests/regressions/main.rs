//! Bugs that were found, each with its story, so that they stay away.
#![cfg(not(pagefold_loom))]

mod bad_sector;
mod changing_limits;
mod forked_children;
mod hooked;
mod hostile_arguments;
mod lost_writes;
mod meanwhile;
mod orders;
mod pins_and_neighbours;
mod shrinking_files;
mod small_budgets;
#[path = "../support/mod.rs"]
mod support;
mod watched;
