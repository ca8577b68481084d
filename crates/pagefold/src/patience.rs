//! How long the unit tests wait.

use sync::time::Duration;

/// For what must happen: much longer than it takes on the busiest machine.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);
