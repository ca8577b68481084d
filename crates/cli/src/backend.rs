//! Creates the library's backend for `--backend`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use pagefold::io::{self, Access, Backend, BackingFile, DirectIo, IoError, Posix, ThreadPool};
use pagefold::{Builder, Pagefold};
use test_disks::SimulatedDisk;

use crate::choices::BackendChoice;
use crate::content::Content;
use crate::failure::Failure;
use crate::target::Target;

/// Returns the builder with the chosen backend, and the disk if it is a simulated one.
///
/// # Errors
/// The system refuses the chosen backend.
pub(crate) fn builder(choice: BackendChoice, target: &Target) -> Result<(Builder, Option<SimulatedDisk>), Failure> {
    let backend: Box<dyn Backend> = match choice {
        BackendChoice::Auto => io::automatic(),
        BackendChoice::Uring => uring()?,
        BackendChoice::Threads { threads } => {
            Box::new(ThreadPool::new(Posix::default(), threads).context("can't set threads up")?)
        }
        BackendChoice::Posix => Box::new(Posix::default()),
        BackendChoice::Direct => Box::new(Posix::new(DirectIo::Always)),
        BackendChoice::Buffered => Box::new(Posix::new(DirectIo::Never)),
        BackendChoice::Simulated { capacity } => {
            let disk = SimulatedDisk::default();
            if let Some(bytes) = capacity {
                disk.set_capacity(bytes);
            }
            if let Some(content) = target.content() {
                disk.add_with(target.path(), content.seed(), target.size(), Content::word);
            }
            return Ok((Pagefold::builder().backend(disk.clone()), Some(disk)));
        }
    };
    let backend = match target.open_path() {
        path if path == target.path() => backend,
        path => Box::new(Elsewhere { backend, name: target.path().to_owned(), path: path.to_owned() }),
    };
    Ok((Pagefold::builder().backend(backend), None))
}

#[cfg(feature = "uring")]
fn uring() -> Result<Box<dyn Backend>, Failure> {
    let refused = "the system refuses io_uring; --backend threads and --backend posix do without";
    Ok(Box::new(io::Uring::new(DirectIo::Auto).context(refused)?))
}

#[cfg(not(feature = "uring"))]
fn uring() -> Result<Box<dyn Backend>, Failure> {
    Err(Failure::usage(
        "this program was built without io_uring (the feature `uring`); --backend threads and --backend posix do \
         without",
    ))
}

/// A backend that opens one file at another path than its name. Errors and metrics contain the
/// name.
struct Elsewhere {
    backend: Box<dyn Backend>,
    name: PathBuf,
    path: PathBuf,
}

impl Backend for Elsewhere {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        self.backend.open(if path == self.name { &self.path } else { path }, access)
    }

    fn waits_in_submit(&self) -> bool {
        self.backend.waits_in_submit()
    }
}
