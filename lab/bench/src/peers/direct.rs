//! What the disk itself does: `O_DIRECT` writes, timed one by one.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use crate::peers::contents::{PAGE, offset_of};
use crate::peers::latency::Latencies;
use crate::random::Random;

/// Bytes in a large request.
pub(crate) const LARGE: usize = 1 << 20;

/// Bytes where direct I/O wants them.
#[repr(align(4096))]
pub(crate) struct Aligned<const N: usize>(pub(crate) [u8; N]);

impl<const N: usize> Aligned<N> {
    pub(crate) fn zeroed() -> Box<Self> {
        // SAFETY: an array of bytes may hold zeros.
        unsafe { Box::new_zeroed().assume_init() }
    }

    pub(crate) fn zeroed_slice(len: usize) -> Box<[Self]> {
        // SAFETY: as above.
        unsafe { Box::new_zeroed_slice(len).assume_init() }
    }

    /// All bytes of a slice of whole pages, which have nothing between them.
    pub(crate) fn bytes_of(slice: &mut [Self]) -> &mut [u8] {
        const { assert!(size_of::<Self>() == N) };
        // SAFETY: these are as many bytes as the slice has (the assertion above), and the result
        // borrows it.
        unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice)) }
    }
}

/// Writes `range` of `file` once, in requests of 1 MiB (the last may be smaller). `depth` requests
/// are in flight at a time. Returns the latencies.
pub(crate) fn write_sequentially(file: &File, range: Range<u64>, depth: usize) -> Result<Latencies> {
    let next = AtomicU64::new(range.start);
    at_once(depth, |_| {
        let bytes = Aligned::<LARGE>::zeroed();
        let mut latencies = Latencies::default();
        loop {
            let at = next.fetch_add(LARGE as u64, Ordering::Relaxed);
            if at >= range.end {
                return Ok(latencies);
            }
            let len = LARGE.min((range.end - at) as usize);
            latencies.time(|| write(file, &bytes.0[..len], at))?;
        }
    })
}

/// Overwrites random pages of `file` until `deadline`, but at least one in each thread. `depth`
/// writes are in flight at a time. Returns the latencies.
pub(crate) fn overwrite_randomly(file: &File, pages: u32, deadline: Instant, depth: usize) -> Result<Latencies> {
    at_once(depth, |seed| {
        let (bytes, mut random) = (Aligned::<PAGE>::zeroed(), Random::new(seed));
        let mut latencies = Latencies::default();
        loop {
            latencies.time(|| write(file, &bytes.0, offset_of(random.below(pages))))?;
            if Instant::now() >= deadline {
                return Ok(latencies);
            }
        }
    })
}

fn write(file: &File, bytes: &[u8], at: u64) -> Result<()> {
    let len = rustix::io::pwrite(file, bytes, at).context("cannot write to the disk")?;
    ensure!(len == bytes.len(), "the disk wrote {len} of {} bytes", bytes.len());
    Ok(())
}

/// Runs `work` in so many threads; all their times together.
fn at_once(threads: usize, work: impl Fn(u64) -> Result<Latencies> + Sync) -> Result<Latencies> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads as u64)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        let mut all = Latencies::default();
        for thread in threads {
            all.add(&thread.join().map_err(|_| anyhow!("a thread that writes panicked"))??);
        }
        Ok(all)
    })
}
