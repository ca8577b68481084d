//! How tests wait, and how they report that the machine lacks something. The tests in `tests/`
//! include this file too.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::path::PathBuf;

use sync::thread;
use sync::time::{Duration, Instant};

/// A time in which everything that a test waits for happens, however busy the machine is: more than
/// ten times the longest time seen.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `is_so` returns true.
///
/// # Panics
/// After [`PATIENCE`], with `what` in the message.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for this: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reports that a test can't continue because the machine lacks `what`.
pub fn not_here(what: &str) {
    println!("not here: {what}");
}

/// Returns whether this machine has io_uring and allows it; prints a message if not.
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub fn has_uring(refusal: Option<i32>) -> bool {
    let is_missing = matches!(refusal, Some(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP));
    if is_missing {
        not_here("io_uring");
    }
    !is_missing
}

/// Returns a directory for tests below the build's own directory. So it is usually on a disk, and
/// never among the sources.
pub fn build_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    // From `target/release/deps/io-0123456789abcdef`.
    let directory = program.ancestors().nth(3).unwrap().join("tmp");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
