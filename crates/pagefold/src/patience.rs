//! How unit tests wait.

use sync::thread::sleep;
use sync::time::{Duration, Instant};

/// The timeout for events that must happen: much longer than they take on the busiest machine.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

/// Calls `look` until it returns `Some`, and returns the value. If that takes too long, panics with
/// `what`, which describes what is wrong.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < WATCHDOG, "{what}, after {WATCHDOG:?}");
        sleep(Duration::from_millis(1));
    }
}

/// Waits until `is_so` returns true, as [`wait_for`] does.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}
