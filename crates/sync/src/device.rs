//! What a device that isn't there takes of the machine's time.

/// Waits until the machine's disk has moved `bytes`: in a virtual machine. Elsewhere a simulated disk takes no time.
pub fn transfer(bytes: usize) {
    #[cfg(pagefold_manycore)]
    manycore::work::disk(bytes);
    #[cfg(not(pagefold_manycore))]
    let _ = bytes;
}
