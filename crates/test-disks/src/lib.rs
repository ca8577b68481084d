//! Disks for tests of Pagefold itself, and of programs that use Pagefold for their files.
//!
//! A test passes one of these backends to `Pagefold::builder().backend(…)`, and keeps a clone.
//! Through the clone, it controls what the disk does.
//!
//! - A [`SimulatedDisk`] has its files in memory, or computes their bytes ([`generated_word`]), so
//!   that a file of a tebibyte takes no memory. Its clock is virtual ([`Timing`]) and advances only
//!   when the disk is used. So the clock shows how much disk time a program takes, and no thread
//!   waits. The disk can lose its [power](SimulatedDisk::power_cut), be
//!   [full](SimulatedDisk::set_capacity), fail [syncs](SimulatedDisk::fail_syncs), and answer
//!   requests [in any order](SimulatedDisk::reorder) or [when the test says
//!   so](SimulatedDisk::answer_by_hand).
//! - A [`FaultyBackend`] passes calls on to another backend. Its [`Schedule`] says which calls
//!   fail, and each [`Fault`] how: with an error number, with `EINTR` or `EAGAIN`, or by moving
//!   fewer bytes than it was asked to. A *sweep* runs a test with call 1 failing, then with call 2
//!   failing, and so on, until a run ends without having made the call that should fail.
//!
//! A seed determines everything that is random, so a failure can be repeated.
//!
//! ```
//! use std::path::Path;
//!
//! # use io as pagefold_io;
//! use pagefold_io::{Access, Backend, SharedBytes, read_full, write_full};
//! use pagefold_test_disks::{Fault, FaultyBackend, Schedule, SimulatedDisk};
//!
//! # fn main() -> Result<(), pagefold_io::IoError> {
//! let disk = SimulatedDisk::default();
//! let backend = FaultyBackend::new(disk.clone(), Schedule::Never);
//! let log = Path::new("log");
//! let mut bytes = vec![7; 4096];
//! let page = SharedBytes::of(&mut bytes).expect("whole words");
//!
//! // What was synced survives a power cut, whatever the seed.
//! let file = backend.open(log, Access::Create)?;
//! write_full(&*file, 0, &[page], 4096)?;
//! file.sync()?;
//! disk.power_cut(7);
//! assert!(file.len().is_err(), "a file that was open has to be opened again");
//! let file = backend.open(log, Access::Write)?;
//! assert_eq!(read_full(&*file, 0, page)?, 4096);
//!
//! // The next call is interrupted, which `read_full` hides. The one after it fails.
//! backend.set_schedule(Schedule::Once(1, Fault::Interrupted));
//! assert_eq!(read_full(&*file, 0, page)?, 4096);
//! backend.set_schedule(Schedule::From(1, Fault::Errno(5)));
//! assert!(read_full(&*file, 0, page).is_err());
//! assert_eq!(backend.fired_total(), 2);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod faulty;
mod simulated;

pub use faulty::FaultyBackend;
pub use faulty::faults::Call;
pub use faulty::schedule::{Fault, FaultKind, Schedule};
pub use simulated::virtual_clock::Timing;
pub use simulated::{DiskStats, SimulatedDisk, generated_word};
