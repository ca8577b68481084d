//! How long unit tests wait.

use sync::time::Duration;

/// The timeout for events that must happen: much longer than they take on the busiest machine.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);
