//! Batches: many reads or writes in one call.
//!
//! Reads whose pages are in memory are copied first. While one read is copied, the page words and
//! the bytes of the next reads are prefetched into the CPU's cache, page words further ahead than
//! bytes. So the memory latencies of a dozen reads overlap.
//!
//! Then the missing pages' loads are launched (`flight`). Neighbouring pages share a request.
//! Requests are submitted a few at a time, so the device begins early. Each of the remaining reads
//! then completes like a single read, in the order in which the pages arrive. If a load fails, only
//! the reads that need its pages fail.

use std::ops::Range;

use frames::PageState;
use sync::time::{Duration, Instant};

use crate::api::file::File;
use crate::error::Error;
use crate::file::handle::Handle;
use crate::read::call::Call;
use crate::read::call::Purpose;
use crate::timers::counted_wait;
use io::Helping;

/// A page's word is prefetched this many reads before the page is read.
const WORD_AHEAD: usize = 16;
/// A page's bytes are prefetched this many reads before the page is read.
const BYTES_AHEAD: usize = 8;
/// Runs of neighbouring pages that are launched together.
const STRETCHES_TOGETHER: usize = 8;
/// If the missing pages form at most this many runs, they may be part of a stream, and readahead is
/// informed.
const STRETCHES_MAX: usize = 8;

/// One read of a batch.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open("data")?;
/// use pagefold::ReadRequest;
///
/// let (mut a, mut b) = ([0; 100], [0; 100]);
/// let mut reads = [ReadRequest::new(0, &mut a), ReadRequest::new(50_000, &mut b)];
/// file.read_batch(&mut reads); // Both are under way at once.
/// for read in &reads {
///     assert!(matches!(read.result, Ok(100)));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReadRequest<'b> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The buffer to read into.
    pub into: &'b mut [u8],
    /// The result that [`File::read_at`] would have returned. `Ok(0)` until the batch has been
    /// read.
    pub result: Result<usize, Error>,
}

impl<'b> ReadRequest<'b> {
    /// Creates a read of `into.len()` bytes at `offset`.
    pub fn new(offset: u64, into: &'b mut [u8]) -> Self {
        Self { offset, into, result: Ok(0) }
    }
}

/// One write of a batch.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let file = group.open_options().write(true).open("data")?;
/// use pagefold::WriteRequest;
///
/// let mut writes = [WriteRequest::new(0, b"one"), WriteRequest::new(50_000, b"two")];
/// file.write_batch(&mut writes); // The pages that are missing are read at once.
/// assert!(writes.iter().all(|write| write.result.is_ok()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WriteRequest<'b> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The bytes to write.
    pub from: &'b [u8],
    /// The result that [`File::write_at`] would have returned. `Ok(())` until the batch has been
    /// written.
    pub result: Result<(), Error>,
}

impl<'b> WriteRequest<'b> {
    /// Creates a write of all of `from` at `offset`.
    #[must_use]
    pub fn new(offset: u64, from: &'b [u8]) -> Self {
        Self { offset, from, result: Ok(()) }
    }
}

impl File {
    /// Performs many reads and stores each one's [result](ReadRequest::result). Works well for up
    /// to about a thousand reads. Pages that aren't in memory are loaded concurrently, up to a
    /// quarter of the group's limit at a time; neighbouring pages are loaded in one request.
    ///
    /// Each read behaves like [`read_at`](Self::read_at). The order of the reads is unspecified.
    pub fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        let mut missed = Vec::new();
        let mut hits = 0;
        for at in 0..requests.len() {
            if let Some(later) = requests.get(at + WORD_AHEAD) {
                self.map().prefetch_word(later.offset);
            }
            if let Some(soon) = requests.get(at + BYTES_AHEAD) {
                self.map().prefetch_bytes(soon.offset, soon.into.len());
            }
            let request = &mut requests[at];
            if self.map().read_hot(request.offset, request.into) {
                request.result = Ok(request.into.len());
                hits += 1;
            } else {
                missed.push(at);
            }
        }
        self.count_hits(hits);
        if !missed.is_empty() {
            self.handle().read_missed(requests, &missed);
        }
    }

    /// Performs many writes, in order, and stores each one's [result](WriteRequest::result). Pages
    /// that are partly overwritten and aren't in memory are loaded concurrently.
    ///
    /// Each write behaves like [`write_at`](Self::write_at).
    pub fn write_batch(&self, requests: &mut [WriteRequest<'_>]) {
        let handle = self.handle();
        let mut rest = requests;
        while !rest.is_empty() {
            let ends = rest.iter().map(|request| handle.pages_touched(request.offset, request.from.len()));
            let (part, after) = rest.split_at_mut(handle.part_len(ends));
            let mut call = handle.load_for_writes(part);
            for request in part {
                handle.await_for_write(&mut call, request);
                request.result = self.write_at(request.from, request.offset);
            }
            rest = after;
        }
    }
}

impl Handle {
    /// Performs the reads of a batch that weren't plain hits, given their indexes.
    #[cold]
    fn read_missed(&self, requests: &mut [ReadRequest<'_>], missed: &[usize]) {
        let mut rest = missed;
        while !rest.is_empty() {
            let sizes = rest.iter().map(|&at| self.pages_touched(requests[at].offset, requests[at].into.len()));
            let (part, after) = rest.split_at(self.part_len(sizes));
            let wanted = part.iter().map(|&at| self.pages_of(requests[at].offset, requests[at].into.len()));
            let mut call =
                if self.has_device() { self.launch_all(wanted.flatten().collect(), true) } else { Call::default() };
            self.read_as_they_come(&mut call, requests, part.to_vec());
            rest = after;
        }
    }

    /// Performs the `waiting` reads of a batch in the order in which their pages arrive. All loads
    /// that they need have been launched.
    fn read_as_they_come(&self, call: &mut Call, requests: &mut [ReadRequest<'_>], mut waiting: Vec<usize>) {
        let pages_of = |request: &ReadRequest<'_>| self.pages_of(request.offset, request.into.len());
        while let Some(&oldest) = waiting.first() {
            let is_there = |&at: &usize| !self.is_loading(&pages_of(&requests[at]));
            let is_late = self.help_until(call, &|| waiting.iter().any(is_there));
            // If no read's pages have arrived even now, the device's timeout is over, or other
            // threads are loading the pages. Then the oldest read waits for its own pages.
            let awaited = if waiting.iter().any(is_there) { None } else { Some(oldest) };
            waiting.retain(|&at| {
                let request = &mut requests[at];
                let pages = pages_of(request);
                if awaited != Some(at) && self.is_loading(&pages) {
                    return true;
                }
                call.begin(pages);
                call.is_late = is_late && awaited == Some(at);
                request.result = self.read_in_call(call, request.into, request.offset);
                false
            });
        }
    }

    /// Returns how many of the requests form the next part of a batch, at least one. `pages` has
    /// the number of pages that each request touches.
    fn part_len(&self, pages: impl Iterator<Item = u64>) -> usize {
        let most = self.launch_max();
        let mut sum = 0_u64;
        let fits = |pages: &u64| {
            sum = sum.saturating_add(*pages);
            sum <= most
        };
        pages.take_while(fits).count().max(1)
    }

    fn pages_touched(&self, offset: u64, len: usize) -> u64 {
        (offset & (self.file.page_bytes() - 1)).saturating_add(len as u64).div_ceil(self.file.page_bytes()).max(1)
    }

    /// Launches the loads of those of `pages` that aren't in memory, for a call that then accesses
    /// each page. Informs readahead of them if `reading` is set.
    fn launch_all(&self, pages: Vec<u64>, reading: bool) -> Call {
        let mut call = Call::of_many();
        let mut missing = self.missing(pages, reading);
        missing.truncate(self.launch_max() as usize);
        // A single missing page isn't launched: its reader loads it.
        let mut rest = if missing.len() > 1 { &missing[..] } else { &[] };
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.chunk_by(is_next).take(STRETCHES_TOGETHER).map(<[u64]>::len).sum());
            let batch = call.batch();
            call.add(self.launch(part.iter().copied(), Purpose::Use, &batch));
            rest = after;
        }
        call
    }

    /// Returns those of `pages` before the file's end that are neither in memory nor being loaded,
    /// in ascending order. If `reading` is set, informs readahead of them, unless they form more
    /// than `STRETCHES_MAX` runs.
    pub(crate) fn missing(&self, mut pages: Vec<u64>, reading: bool) -> Vec<u64> {
        pages.sort_unstable();
        pages.dedup();
        let end = self.file.len().div_ceil(self.file.page_bytes());
        pages.retain(|&page| page < end && matches!(self.file.map.state(page), PageState::Vacant { .. }));
        if reading && pages.chunk_by(is_next).count() <= STRETCHES_MAX {
            for stretch in pages.chunk_by(is_next) {
                self.read_ahead_of(stretch[0]..stretch[stretch.len() - 1] + 1, stretch[0]);
            }
        }
        pages
    }

    /// Returns whether any of these pages is being loaded.
    pub(crate) fn is_loading(&self, pages: &Range<u64>) -> bool {
        pages.clone().any(|page| self.file.map.state(page) == PageState::Loading)
    }

    /// Helps to complete the loads that `call` launched, until `done()` returns true or all of
    /// these loads have completed. Returns true if the wait ended because of the device's timeout.
    ///
    /// If another thread completes a load, and `done()` becomes true for that reason, this function
    /// notices it within a few milliseconds.
    pub(crate) fn help_until(&self, call: &Call, done: &dyn Fn() -> bool) -> bool {
        let (watch, mut waited) = (self.file.watch(), Duration::ZERO);
        let helping = Helping { back_soon: true, ..self.helping() };
        while let Some(queue) = call.unfinished() {
            let began = Instant::now();
            self.file.backing.help_as(queue, helping, done);
            if done() {
                return false;
            }
            waited += counted_wait(helping.at_most, began); // WATCH-4
            if watch.is_some_and(|watch| watch.is_silent() || waited >= watch.time()) {
                return true;
            }
        }
        false
    }

    /// Begins to load the pages that the writes overwrite in part.
    fn load_for_writes(&self, requests: &[WriteRequest<'_>]) -> Call {
        if !self.has_device() || self.check_writable().is_err() {
            return Call::default();
        }
        self.launch_all(requests.iter().flat_map(|request| self.pages_to_read(request)).collect(), false)
    }

    /// Waits for the loads that were launched for a write, and helps to complete them. If a load
    /// fails, the write reports the error.
    fn await_for_write(&self, call: &mut Call, request: &WriteRequest<'_>) {
        if call.queue.is_some() {
            for page in self.pages_to_read(request) {
                let _ = self.bring_in(call, page);
            }
        }
    }

    /// Returns the pages that the write overwrites in part and that aren't in memory: the first and
    /// the last page at most.
    fn pages_to_read(&self, request: &WriteRequest<'_>) -> impl Iterator<Item = u64> {
        let page_bytes = self.file.page_bytes();
        let end = request.offset.checked_add(request.from.len() as u64).filter(|_| !request.from.is_empty());
        let (first, last) = (request.offset / page_bytes, end.map_or(0, |end| (end - 1) / page_bytes));
        let in_part = move |page: &u64| {
            let (start, after) = (page * page_bytes, (page + 1).saturating_mul(page_bytes));
            end.is_some_and(|end| self.needs_reading(request.offset.max(start), end.min(after), false))
        };
        let second = Some(last).filter(|&last| last > first);
        std::iter::once(first).chain(second).filter(in_part)
    }
}

fn is_next(a: &u64, b: &u64) -> bool {
    a + 1 == *b
}
