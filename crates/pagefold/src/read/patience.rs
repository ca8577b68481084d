//! Waiting for a page that somebody uses: not for ever.

use std::time::Duration;

use sync::atomic::Backoff;
use sync::thread::sleep;

use crate::error::Error;

/// How often a page is found pinned or being written to while that may be over in moments,
pub(crate) const SPINS: u32 = 20;
/// and how often after that, a millisecond apart.
const WAITS_MAX: u32 = 4_000;

/// Waiting for a page that others use: moments at first, then in sleep, and not for ever.
#[derive(Default)]
pub(crate) struct Patience {
    backoff: Backoff,
}

impl Patience {
    /// # Errors
    /// `busy`, when it has taken seconds.
    pub(crate) fn wait(&mut self, busy: impl FnOnce() -> Error) -> Result<(), Error> {
        if self.backoff.turns() >= SPINS {
            if self.backoff.turns() > SPINS + WAITS_MAX {
                return Err(busy());
            }
            sleep(Duration::from_millis(1));
        }
        self.backoff.wait();
        Ok(())
    }
}
