//! A simulated disk: named files whose bytes are in memory or computed, and a clock that advances
//! only when the disk is used.
//!
//! A generated file takes no memory, whatever its length: each of its words is computed from the
//! file's seed and the word's offset. Truncation works as on a real disk: if a file is truncated
//! and extended again, the bytes that were cut off read as zeros.
//!
//! Files can be written. A power cut may lose the bytes written since the last sync, as on a real
//! disk ([`SimulatedDisk::power_cut`]). The disk can be full, and its writeback can fail.
//!
//! On a simulated many-core machine (`--cfg pagefold_manycore`), a thread that reads or writes also
//! waits in virtual time, until the transfer is complete on that machine's own disk. The clock of
//! this module's disk is separate, and advances as usual.

pub(crate) mod virtual_clock;

mod contents;
mod directory;
mod file;
mod queue;

use std::path::{Path, PathBuf};

use io::{Access, Backend, BackingFile, Fingerprint, Helping, Identity, IoError, Queue, Request};
use sync::atomic::{AtomicBool, Backoff, Ordering};
use sync::device::Transfer;
use sync::lock::{Mutex, RwLock, RwLockReadGuard};
use sync::random::{Random, mix};
use sync::{Arc, SharedBytes};

use contents::Contents;
use directory::Directory;
use file::File;
use queue::{DiskFile, SimulatedQueue, Submitted};
use virtual_clock::{Timing, VirtualClock};

/// The simulated disk. Clones refer to the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

/// Counts of what a simulated disk has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Reads, including those past the end of a file.
    pub requests: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Writes, including failed ones.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs, including failed ones.
    pub syncs: u64,
    /// Virtual time during which at least one request was in progress.
    pub busy_ns: u64,
}

struct Shared {
    files: Mutex<Directory>,
    meter: Mutex<Meter>,
    failing: Mutex<Failing>,
    queue: Arc<SimulatedQueue<OpenFile>>,
    /// All files have one identity.
    numbers_alike: AtomicBool,
    /// The number of power cuts so far, behind a lock. Each operation on an open file holds the
    /// lock for reading, and a power cut holds it for writing. So no operation is in progress
    /// during a cut.
    cuts: RwLock<u64>,
}

/// The syncs that will fail.
#[derive(Default)]
struct Failing {
    syncs: u64,
    random: Option<Random>,
}

struct Meter {
    clock: VirtualClock,
    requests: u64,
    bytes: u64,
    writes: u64,
    bytes_written: u64,
    syncs: u64,
}

/// Returns the word at `offset`, a multiple of 8, of a file created with
/// [`SimulatedDisk::add_generated`].
#[inline]
#[must_use]
pub fn generated_word(seed: u64, offset: u64) -> u64 {
    mix(mix(seed).wrapping_add(offset / 8))
}

impl SimulatedDisk {
    /// Creates an empty disk, at time 0.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        let clock = VirtualClock::new(timing);
        let meter = Meter { clock, requests: 0, bytes: 0, writes: 0, bytes_written: 0, syncs: 0 };
        let shared = Shared {
            files: Mutex::new(Directory::new()),
            meter: Mutex::new(meter),
            failing: Mutex::default(),
            queue: Arc::new(SimulatedQueue::new()),
            numbers_alike: AtomicBool::new(false),
            cuts: RwLock::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Creates a file with these bytes. If another file had the name, handles of that file stay
    /// valid.
    pub fn add_bytes(&self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        self.add(path.into(), len, Contents::Given(bytes));
    }

    /// Creates a file of `len` bytes that consists of [`generated_word`]s.
    pub fn add_generated(&self, path: impl Into<PathBuf>, seed: u64, len: u64) {
        self.add_with(path, seed, len, generated_word);
    }

    /// Creates a file of `len` bytes with `word(seed, offset)` at each offset that is a multiple of
    /// 8.
    pub fn add_with(&self, path: impl Into<PathBuf>, seed: u64, len: u64, word: fn(u64, u64) -> u64) {
        self.add(path.into(), len, Contents::Generated { seed, word });
    }

    fn add(&self, path: PathBuf, len: u64, contents: Contents) {
        self.shared.files.lock().add(path, contents, len);
    }

    /// Truncates a file to `len` bytes, as another process would. A shorter file is unchanged.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> Result<(), IoError> {
        self.find(path.as_ref())?.set_len(|now| now.min(len));
        Ok(())
    }

    /// Extends a file to `len` bytes with zeros, as another process would. A longer file is
    /// unchanged.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn grow(&self, path: impl AsRef<Path>, len: u64) -> Result<(), IoError> {
        self.find(path.as_ref())?.set_len(|now| now.max(len));
        Ok(())
    }

    /// Limits the total space for new pages, in all files together, to `bytes`. A page of 4 KiB is
    /// new if it wasn't part of its file when the file was added to the disk, or if it has been
    /// truncated away since. If no space is left for a new page, writing that page fails with
    /// `ENOSPC`. If a write covers several pages, the pages before the failing page are still
    /// written. Truncating a file frees space, and raising the limit adds space.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.files.lock().set_capacity(bytes / 4096);
    }

    /// Makes the next `count` syncs fail with `EIO`, as after a failed writeback. Each sector
    /// written since the last sync may then be lost; reads of a lost sector return its earlier
    /// contents. The seed determines which sectors are lost.
    pub fn fail_syncs(&self, count: u64, seed: u64) {
        *self.shared.failing.lock() = Failing { syncs: count, random: Some(Random::seeded(seed)) };
    }

    /// Cuts the power and restores it. For each file, the changes since its last sync are affected:
    ///
    /// - each sector of 512 bytes that was written has the contents of one of these writes, or its
    ///   contents before them;
    /// - the length is one of those that the file had; bytes that weren't written, and lie below
    ///   all of these lengths, are unchanged;
    /// - bytes that were cut off by a truncation, and exist again, are zeros or their earlier
    ///   contents;
    /// - a file that was created and not synced may be gone.
    ///
    /// The seed determines the outcome. Files that are open return `EIO` from now on; they can be
    /// opened again.
    pub fn power_cut(&self, seed: u64) {
        let mut cuts = self.shared.cuts.write();
        *cuts += 1;
        self.shared.files.lock().power_cut(seed);
    }

    /// Gives all files one [`Identity`], as some union file systems do. The caller must call this
    /// before any file is opened.
    pub fn number_alike(&self) {
        self.shared.numbers_alike.store(true, Ordering::Relaxed);
    }

    /// Makes the disk answer [submitted](BackingFile::submit) requests in random order from now on.
    /// The seed determines the order.
    pub fn reorder(&self, seed: u64) {
        self.shared.queue.reorder(seed);
    }

    /// Makes the disk answer a submitted request only when a thread [helps](BackingFile::help) or
    /// calls [`answer_next`](Self::answer_next). So a test decides when requests are answered. By
    /// default, a thread of the disk answers them.
    pub fn answer_by_hand(&self) {
        self.shared.queue.by_hand();
    }

    /// Answers one submitted request. Returns false if there is none.
    pub fn answer_next(&self) -> bool {
        self.shared.queue.answer_next()
    }

    /// Returns the largest number of submitted requests that waited for the disk at one time.
    #[must_use]
    pub fn longest_queue(&self) -> usize {
        self.shared.queue.longest()
    }

    /// Returns the disk's time: when the last request so far ends.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.meter.lock().clock.now_ns()
    }

    /// Advances the disk's time by `ns` without a request.
    pub fn idle(&self, ns: u64) {
        self.shared.meter.lock().clock.idle(ns);
    }

    /// Returns what the disk has done so far.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        let meter = self.shared.meter.lock();
        DiskStats {
            requests: meter.requests,
            bytes: meter.bytes,
            writes: meter.writes,
            bytes_written: meter.bytes_written,
            syncs: meter.syncs,
            busy_ns: meter.clock.busy_ns(),
        }
    }

    fn find(&self, path: &Path) -> Result<Arc<File>, IoError> {
        self.shared.files.lock().find(path)
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

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let cuts = *self.shared.cuts.read();
        let file = self.shared.files.lock().open(path, access)?;
        let opening = Arc::new(());
        if access == Access::Alone {
            file.lock(&opening, cuts)?;
        }
        Ok(Box::new(OpenFile { file, shared: Arc::clone(&self.shared), writable: access.writes(), cuts, opening }))
    }

    fn waits_in_submit(&self) -> bool {
        false
    }
}

#[derive(Clone)]
struct OpenFile {
    file: Arc<File>,
    shared: Arc<Shared>,
    writable: bool,
    /// The number of power cuts before the file was opened.
    cuts: u64,
    /// Identifies the opening, which may hold the file's lock. All clones share it.
    opening: Arc<()>,
}

impl OpenFile {
    fn read_now(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let _power = self.power()?;
        let n = self.file.read(offset, into);
        let mut meter = self.shared.meter.lock();
        meter.requests += 1;
        meter.bytes += n as u64;
        meter.clock.serve(n as u64);
        Ok(n)
    }

    fn write_now(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let _power = self.power_to_write()?;
        offset.checked_add(len as u64).ok_or(IoError::INVALID)?;
        let result = self.file.write(offset, from, len);
        let n = result.unwrap_or(0) as u64;
        let mut meter = self.shared.meter.lock();
        meter.writes += 1;
        meter.bytes_written += n;
        meter.clock.serve(n);
        result
    }

    /// Returns the position on the disk of an offset in the file. A file lies in one piece.
    fn position(&self, offset: u64) -> u64 {
        (self.file.inode << 40).wrapping_add(offset)
    }

    /// Returns a guard that prevents power cuts. Fails with `EIO` if there was a cut since the file
    /// was opened.
    fn power(&self) -> Result<RwLockReadGuard<'_, u64>, IoError> {
        let cuts = self.shared.cuts.read();
        if *cuts == self.cuts { Ok(cuts) } else { Err(IoError::IO) }
    }

    /// Returns the guard of [`power`](Self::power) for changes. Fails with `EBADF` if the file
    /// isn't writable.
    fn power_to_write(&self) -> Result<RwLockReadGuard<'_, u64>, IoError> {
        if self.writable { self.power() } else { Err(IoError::BAD_FILE) }
    }
}

impl BackingFile for OpenFile {
    fn identity(&self) -> Identity {
        // The address distinguishes simulated disks; real devices have smaller numbers.
        // Relaxed: set before the files are opened.
        let inode = if self.shared.numbers_alike.load(Ordering::Relaxed) { 0 } else { self.file.inode };
        Identity { device: Arc::as_ptr(&self.shared).addr() as u64, inode }
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::number(self.file.inode)
    }

    fn len(&self) -> Result<u64, IoError> {
        let _power = self.power()?;
        Ok(self.file.len())
    }

    fn room(&self) -> Option<u64> {
        Some(self.file.room())
    }

    fn tells_len_at_once(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let wanted = into.iter().map(SharedBytes::len).sum();
        Transfer::start(self.position(offset), self.file.bytes_at(offset, wanted)).wait();
        self.read_now(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        Transfer::start(self.position(offset), len).wait();
        self.write_now(offset, from, len)
    }

    fn submit(&self, requests: &mut Vec<Request>) -> Queue {
        let queue = Queue::of(0, requests);
        self.shared.queue.submit(requests.drain(..).map(|request| {
            let transfer = Transfer::start(self.position(request.offset()), request.asked());
            Submitted { file: self.clone(), transfer, request }
        }));
        queue
    }

    fn help_as(&self, queue: &Queue, how: Helping, done: &dyn Fn() -> bool) {
        self.shared.queue.help(queue, how, done);
    }

    fn sync(&self) -> Result<(), IoError> {
        let _power = self.power_to_write()?;
        let mut meter = self.shared.meter.lock();
        meter.syncs += 1;
        meter.clock.flush();
        drop(meter);
        let mut failing = self.shared.failing.lock();
        if let Failing { syncs: 1.., random: Some(random) } = &mut *failing {
            self.file.lose_writes(random);
            failing.syncs -= 1;
            return Err(IoError::IO);
        }
        drop(failing);
        self.file.sync();
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        let _power = self.power_to_write()?;
        self.file.set_len(|_| len);
        Ok(())
    }

    fn lock(&self) -> Result<(), IoError> {
        let mut backoff = Backoff::new();
        loop {
            let power = self.power()?;
            match self.file.lock(&self.opening, *power) {
                Err(IoError::BUSY) => drop(power),
                answer => return answer,
            }
            backoff.wait_or(|| IoError::BUSY)?;
        }
    }

    fn unlock(&self) {
        self.file.unlock(&self.opening);
    }

    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        let _power = self.power_to_write()?;
        self.file.set_len(|now| now.max(len));
        Ok(())
    }
}

impl DiskFile for OpenFile {
    fn attempt_at_once(&self, request: &Request) -> Result<usize, IoError> {
        request.attempt(&Waited(self))
    }
}

/// A file whose transfers have been waited for already.
struct Waited<'a>(&'a OpenFile);

impl BackingFile for Waited<'_> {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.0.len()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.0.read_now(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.0.write_now(offset, from, len)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.close();
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;

#[cfg(all(test, not(pagefold_loom)))]
mod power_cut_tests;
