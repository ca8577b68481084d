//! The time that transfers of a simulated device take on a virtual machine.

#[cfg(pagefold_manycore)]
use crate::time::Instant;

/// A transfer by the machine's disk.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    #[cfg(pagefold_manycore)]
    over: Instant,
}

impl Transfer {
    /// Starts a transfer of `bytes` bytes at a position of the virtual machine's disk. Outside a
    /// virtual machine, a simulated disk takes no time.
    #[must_use]
    pub fn start(position: u64, bytes: usize) -> Self {
        #[cfg(not(pagefold_manycore))]
        let _ = (position, bytes);
        Self {
            #[cfg(pagefold_manycore)]
            over: manycore::work::disk_request_at(position, bytes),
        }
    }

    /// Waits until the transfer is complete.
    pub fn wait(self) {
        #[cfg(pagefold_manycore)]
        manycore::work::disk_wait(self.over);
    }
}
