//! A test for each bug that was found. The comment of a test says, in the past tense, what happened
//! before the bug was fixed.
#![cfg(not(pagefold_loom))]

mod advised_pages;
mod another_process;
mod bad_sector;
mod changing_limits;
mod closing;
mod devices;
mod dirty_pages;
mod everything_pinned;
mod forked_children;
mod futures;
mod gated_disk;
mod given_up;
mod giving_back;
mod growing_files;
mod hooked;
mod hostile_arguments;
mod interrupted;
mod io_timeout;
mod last_moments;
mod locked_files;
mod lookups;
mod lost_writes;
mod many_objects;
mod meanwhile;
mod meddling;
mod openings;
mod orders;
mod pins_and_neighbours;
mod shrinking_files;
mod small_budgets;
mod space_addresses;
mod space_index;
#[path = "../../pagefold/tests/support/mod.rs"]
mod support;
mod swap_areas;
mod swap_owners;
mod waiting;
mod watched;
mod watchful_devices;
mod whose_pages;
