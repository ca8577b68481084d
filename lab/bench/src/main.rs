//! `bench`: compares Pagefold with its peers on real CPUs, and with the designs that it replaces on
//! up to 256 virtual CPUs.
//!
//! ```text
//! cargo run --release -p bench -- peers hit     what finding a resident page costs, here, beside other caches
//! cargo bench-virtual lookup                    how finding a page scales, on 1 to 88 virtual CPUs
//! cargo bench-real lookup                       the same code on the CPUs that there are
//! cargo bench-real calibrate                    what this machine's CPUs cost, for a virtual machine like it
//! ```
//!
//! Results are text by default. `--json` prints an array of flat records ([`record::Record`]), and
//! `--plot FILE.svg` draws a plot. With `--quick`, all sizes and times are small.
//!
//! This program has two builds. With `--cfg pagefold_manycore`, it runs the [`experiments`] on
//! virtual CPUs, in their [`scaling`] frame. Without it, it runs the same experiments on real
//! threads, and the comparisons with peers.

#[cfg(not(pagefold_manycore))]
mod buffered;
#[cfg(not(pagefold_manycore))]
mod calibrate;
mod cli;
mod commands;
#[cfg(not(pagefold_manycore))]
mod crowds;
#[cfg(not(pagefold_manycore))]
mod encrypted_swap;
mod experiments;
#[cfg(pagefold_manycore)]
mod fixed_addresses;
#[cfg(not(pagefold_manycore))]
mod machine;
mod neighbours;
mod output;
#[cfg(not(pagefold_manycore))]
mod peers;
mod placed;
mod popularity;
mod random;
mod record;
#[cfg(not(pagefold_manycore))]
mod resize;
#[cfg(not(pagefold_manycore))]
mod rows;
mod scaling;
#[cfg(not(pagefold_manycore))]
mod shared_lines;
#[cfg(not(pagefold_manycore))]
mod stepper;
mod summary;
mod usage;
#[cfg(not(pagefold_manycore))]
mod writer_wait;
mod zipf;

use std::process::ExitCode;

use crate::usage::Usage;

/// Keeps the host's heap out of what virtual CPUs see.
#[cfg(pagefold_manycore)]
#[global_allocator]
static ALLOCATOR: manycore::Allocator = manycore::Allocator;

fn main() -> ExitCode {
    #[cfg(pagefold_manycore)]
    fixed_addresses::ensure();
    match cli::run_this() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}
