//! The fuzz targets. A target panics if something is wrong: for example, if a call panics, or if a
//! group exceeds its limit of memory.
//!
//! Ordinary tests run the corpora in `fuzz/corpus` (`tests/corpora.rs`), which has a folder for
//! each target. The crate `fuzz` is what `cargo fuzz` needs.
#![forbid(unsafe_code)]

mod calls_of_files;
mod calls_of_spaces;
mod numbers;
mod swap_headers;
mod traces;

/// Something that takes bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its corpus, and of its program for `cargo fuzz`.
    pub name: &'static str,
    /// Tries it out.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 5] = [
    Target { name: "calls_of_files", run: calls_of_files::run },
    Target { name: "calls_of_spaces", run: calls_of_spaces::run },
    Target { name: "swap_headers", run: swap_headers::run },
    Target { name: "traces", run: traces::any },
    Target { name: "iologs", run: traces::iologs },
];

/// Runs the target of that name.
///
/// # Panics
/// If something is wrong, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no target is called {name}")).run)(bytes);
}
