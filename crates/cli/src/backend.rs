//! From `--backend` to a backend of the library.

use anyhow::Context;
use pagefold::io::{DirectIo, Posix, SimulatedDisk, ThreadPool, Uring};
use pagefold::{Builder, Pagefold};

use crate::choices::BackendChoice;
use crate::content::Content;
use crate::failure::Failure;
use crate::target::Target;

/// The builder with the chosen backend, and the disk if it is a simulated one.
///
/// # Errors
/// The system's refusal of what was asked for.
pub(crate) fn builder(choice: BackendChoice, target: &Target) -> Result<(Builder, Option<SimulatedDisk>), Failure> {
    let builder = Pagefold::builder();
    Ok(match choice {
        // The default.
        BackendChoice::Auto => (builder, None),
        BackendChoice::Uring => {
            let refused = "the system refuses io_uring; --backend threads and --backend posix do without";
            (builder.backend(Uring::new(DirectIo::Auto).context(refused)?), None)
        }
        BackendChoice::Threads { threads } => {
            let pool = ThreadPool::new(Posix::default(), threads).context("can't set threads up")?;
            (builder.backend(pool), None)
        }
        BackendChoice::Posix => (builder.backend(Posix::default()), None),
        BackendChoice::Direct => (builder.backend(Posix::new(DirectIo::Always)), None),
        BackendChoice::Buffered => (builder.backend(Posix::new(DirectIo::Never)), None),
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
