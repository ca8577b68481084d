//! How tests wait, and what they do without on a machine that lacks it. Those in `tests/` have this
//! file too.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::path::PathBuf;

use sync::thread;
use sync::time::{Duration, Instant};

/// What must happen has happened by then, however busy the machine is: ten times as long as it ever
/// takes, and more.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `is_so`.
///
/// # Panics
/// When patience is at its end: says `what` was waited for.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for this: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// For a test that can't go on: the machine hasn't got `what`.
pub fn not_here(what: &str) {
    println!("not here: {what}");
}

/// Whether this machine has io_uring, and allows it; says so if not.
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub fn has_uring(refusal: Option<i32>) -> bool {
    let is_missing = matches!(refusal, Some(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP));
    if is_missing {
        not_here("io_uring");
    }
    !is_missing
}

/// A directory for tests in the build's own directory, so on a disk as a rule, and never among the
/// sources.
pub fn build_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    // From `target/release/deps/io-0123456789abcdef`.
    let directory = program.ancestors().nth(3).unwrap().join("tmp");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
