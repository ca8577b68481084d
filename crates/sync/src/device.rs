//! What a device that isn't there takes of the machine's time.

#[cfg(pagefold_manycore)]
use crate::time::Instant;

/// Bytes that the machine's disk is moving.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    #[cfg(pagefold_manycore)]
    over: Instant,
}

impl Transfer {
    /// Asks the machine's disk for `bytes`: in a virtual machine. Elsewhere a simulated disk takes
    /// no time.
    #[must_use]
    pub fn start(bytes: usize) -> Self {
        #[cfg(not(pagefold_manycore))]
        let _ = bytes;
        Self {
            #[cfg(pagefold_manycore)]
            over: manycore::work::disk_request(bytes),
        }
    }

    /// Waits until it is over.
    pub fn wait(self) {
        #[cfg(pagefold_manycore)]
        manycore::work::disk_wait(self.over);
    }
}
