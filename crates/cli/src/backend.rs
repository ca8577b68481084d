//! From `--backend` to a backend of the library.

use anyhow::Context;
use pagefold::io::{DirectIo, Posix, SimulatedDisk, ThreadPool};
use pagefold::{Builder, Pagefold};

use crate::choices::BackendChoice;
use crate::content::Content;
use crate::failure::Failure;
use crate::target::Target;

/// Requests that may wait for each thread of a pool.
const QUEUE_PER_THREAD: usize = 16;

/// The builder with the chosen backend, and the disk if it is a simulated one.
///
/// # Errors
/// A pool that gets no threads.
pub(crate) fn builder(choice: BackendChoice, target: &Target) -> Result<(Builder, Option<SimulatedDisk>), Failure> {
    let builder = Pagefold::builder();
    Ok(match choice {
        BackendChoice::Posix => (builder.backend(Posix::default()), None),
        BackendChoice::Direct => (builder.backend(Posix::new(DirectIo::Always)), None),
        BackendChoice::Buffered => (builder.backend(Posix::new(DirectIo::Never)), None),
        BackendChoice::Pool { threads } => {
            let queue = threads.saturating_mul(QUEUE_PER_THREAD);
            let pool = ThreadPool::new(Posix::default(), threads, queue).context("can't start the pool's threads")?;
            (builder.backend(pool), None)
        }
        BackendChoice::Simulated { capacity } => {
            let disk = SimulatedDisk::default();
            if let Some(bytes) = capacity {
                disk.set_capacity(bytes);
            }
            if let Some(content) = target.content() {
                disk.add_with(target.path(), content.seed(), target.size(), Content::word);
            }
            (builder.backend(disk.clone()), Some(disk))
        }
    })
}
