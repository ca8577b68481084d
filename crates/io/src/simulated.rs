//! A disk that isn't there: named files in memory or out of a generator, and a clock that runs only when it is used.
//!
//! A generated file takes no memory, whatever its length: each of its words is computed from the file's seed and the
//! word's offset. Lengths change as they do on a real disk: what was cut off and comes back is zeros.
//!
//! On a virtual machine (`--cfg pagefold_manycore`) a read also waits, in virtual time, for that machine's disk, whose
//! latency and bandwidth are the machine's; the disk's own clock goes on as everywhere.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sync::lock::{Mutex, RwLock};
use sync::random::mix;
use sync::{Arc, SharedBytes};

use crate::virtual_clock::{Timing, VirtualClock};
use crate::{Backend, BackingFile, Identity, IoError};

/// Bytes copied at once, on the stack.
const CHUNK: usize = 512;

/// The simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

/// What a simulated disk has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Reads, those past the end of a file included.
    pub requests: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Virtual time in which there was at least one request.
    pub busy_ns: u64,
}

struct Shared {
    files: Mutex<Directory>,
    meter: Mutex<Meter>,
}

#[derive(Default)]
struct Directory {
    files: HashMap<PathBuf, Arc<File>>,
    added: u64,
}

struct Meter {
    clock: VirtualClock,
    requests: u64,
    bytes: u64,
}

struct File {
    inode: u64,
    contents: Contents,
    extent: RwLock<Extent>,
}

enum Contents {
    Given(Vec<u8>),
    Generated { seed: u64, word: fn(u64, u64) -> u64 },
}

/// The file is `len` bytes long; the contents end at `filled`, and zeros follow. `filled <= len`.
#[derive(Clone, Copy)]
struct Extent {
    len: u64,
    filled: u64,
}

impl Extent {
    /// How many of `len` bytes at `offset` there are.
    fn bytes_at(self, offset: u64, len: usize) -> usize {
        len.min(usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX))
    }
}

/// The word at `offset`, a multiple of 8, of a file made with [`SimulatedDisk::add_generated`].
#[must_use]
pub fn generated_word(seed: u64, offset: u64) -> u64 {
    mix(mix(seed).wrapping_add(offset / 8))
}

impl SimulatedDisk {
    /// An empty disk, at time 0.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        let meter = Meter { clock: VirtualClock::new(timing), requests: 0, bytes: 0 };
        Self { shared: Arc::new(Shared { files: Mutex::default(), meter: Mutex::new(meter) }) }
    }

    /// Makes a file with these bytes. A file that had the name lives on for those who have it open.
    pub fn add_bytes(&self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        self.add(path.into(), len, Contents::Given(bytes));
    }

    /// Makes a file of `len` bytes, the words of which are [`generated_word`]s.
    pub fn add_generated(&self, path: impl Into<PathBuf>, seed: u64, len: u64) {
        self.add_with(path, seed, len, generated_word);
    }

    /// Makes a file of `len` bytes with `word(seed, offset)` at each offset that is a multiple of 8.
    pub fn add_with(&self, path: impl Into<PathBuf>, seed: u64, len: u64, word: fn(u64, u64) -> u64) {
        self.add(path.into(), len, Contents::Generated { seed, word });
    }

    fn add(&self, path: PathBuf, len: u64, contents: Contents) {
        let mut directory = self.shared.files.lock();
        directory.added += 1;
        let file = File { inode: directory.added, contents, extent: RwLock::new(Extent { len, filled: len }) };
        directory.files.insert(path, Arc::new(file));
    }

    /// Shortens a file to `len` bytes; a shorter one stays as it is.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> Result<(), IoError> {
        let file = self.find(path.as_ref())?;
        let mut extent = file.extent.write();
        *extent = Extent { len: extent.len.min(len), filled: extent.filled.min(len) };
        Ok(())
    }

    /// Lengthens a file to `len` bytes, with zeros; a longer one stays as it is.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn grow(&self, path: impl AsRef<Path>, len: u64) -> Result<(), IoError> {
        let file = self.find(path.as_ref())?;
        let mut extent = file.extent.write();
        extent.len = extent.len.max(len);
        Ok(())
    }

    /// The disk's time: when the last request that came ends.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.meter.lock().clock.now_ns()
    }

    /// Lets so much time pass without a request.
    pub fn idle(&self, ns: u64) {
        self.shared.meter.lock().clock.idle(ns);
    }

    /// What the disk has done so far.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        let meter = self.shared.meter.lock();
        DiskStats { requests: meter.requests, bytes: meter.bytes, busy_ns: meter.clock.busy_ns() }
    }

    fn find(&self, path: &Path) -> Result<Arc<File>, IoError> {
        self.shared.files.lock().files.get(path).cloned().ok_or(IoError::NOT_FOUND)
    }
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new(Timing::default())
    }
}

impl Backend for SimulatedDisk {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn open(&self, path: &Path) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(OpenFile { file: self.find(path)?, shared: Arc::clone(&self.shared) }))
    }
}

struct OpenFile {
    file: Arc<File>,
    shared: Arc<Shared>,
}

impl BackingFile for OpenFile {
    fn identity(&self) -> Identity {
        // The address tells simulated disks apart; real devices have smaller numbers.
        Identity { device: Arc::as_ptr(&self.shared).addr() as u64, inode: self.file.inode }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(self.file.extent.read().len)
    }

    fn read(&self, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
        sync::device::transfer(self.file.extent.read().bytes_at(offset, into.len()));
        let n = self.file.read(offset, into);
        let mut meter = self.shared.meter.lock();
        meter.requests += 1;
        meter.bytes += n as u64;
        meter.clock.serve(n as u64);
        Ok(n)
    }
}

impl File {
    fn read(&self, offset: u64, into: SharedBytes<'_>) -> usize {
        let extent = self.extent.read();
        let n = extent.bytes_at(offset, into.len());
        let mut chunk = [0; CHUNK];
        for at in (0..n).step_by(CHUNK) {
            let part = &mut chunk[..CHUNK.min(n - at)];
            self.fill(offset + at as u64, extent.filled, part);
            into.copy_from_device(at, part);
        }
        n
    }

    /// Puts the bytes at `offset` into `part`, zeros from `filled` on.
    fn fill(&self, offset: u64, filled: u64, part: &mut [u8]) {
        let there = usize::try_from(filled.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (bytes, zeros) = part.split_at_mut(there.min(part.len()));
        zeros.fill(0);
        match &self.contents {
            Contents::Given(given) => {
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(given) = given.get(at..).and_then(|rest| rest.get(..bytes.len())) {
                    bytes.copy_from_slice(given);
                }
            }
            Contents::Generated { seed, word } => {
                let mut at = offset;
                let mut rest = bytes;
                while !rest.is_empty() {
                    let word = word(*seed, at / 8 * 8).to_ne_bytes();
                    let part = &word[(at % 8) as usize..];
                    let n = part.len().min(rest.len());
                    let (now, later) = rest.split_at_mut(n);
                    now.copy_from_slice(&part[..n]);
                    at += n as u64;
                    rest = later;
                }
            }
        }
    }
}

#[cfg(all(test, not(pagefold_loom)))]
#[path = "simulated_tests.rs"]
mod tests;
