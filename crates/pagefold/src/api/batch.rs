//! Batches: many reads or writes in one call.
//!
//! What is in memory is copied first, with the addresses of those to come fetched into the CPU's
//! cache meanwhile: page words a while ahead, bytes a shorter while, so that the waits for memory
//! of a dozen reads overlap. Then the pages that are missing are launched together (`flight`),
//! neighbours in one request, a few requests at a time so that the device begins early; and each
//! read is done as if it were alone, in the order in which their pages come. One that can't be read
//! is that one's error.

use std::ops::Range;

use frames::PageState;
use sync::time::Instant;

use crate::api::file::File;
use crate::error::Error;
use crate::file::handle::Handle;
use crate::read::call::Call;
use crate::read::call::Purpose;
use io::Helping;

/// Reads between fetching a page's word and using it,
const WORD_AHEAD: usize = 16;
/// and between fetching its bytes and copying them.
const BYTES_AHEAD: usize = 8;
/// Stretches of neighbours that are launched together.
const STRETCHES_TOGETHER: usize = 8;
/// In so few stretches, what a batch misses may be part of a stream.
const STRETCHES_MAX: usize = 8;

/// One read of a batch.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = pagefold::io::SimulatedDisk::default();
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
    /// Where in the file.
    pub offset: u64,
    /// Where to.
    pub into: &'b mut [u8],
    /// What came of it, as from [`File::read_at`]; before, 0 bytes.
    pub result: Result<usize, Error>,
}

impl<'b> ReadRequest<'b> {
    /// A read of `into.len()` bytes at `offset`.
    pub fn new(offset: u64, into: &'b mut [u8]) -> Self {
        Self { offset, into, result: Ok(0) }
    }
}

/// One write of a batch.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = pagefold::io::SimulatedDisk::default();
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
    /// Where in the file.
    pub offset: u64,
    /// What.
    pub from: &'b [u8],
    /// What came of it, as from [`File::write_at`].
    pub result: Result<(), Error>,
}

impl<'b> WriteRequest<'b> {
    /// A write of all of `from` at `offset`.
    #[must_use]
    pub fn new(offset: u64, from: &'b [u8]) -> Self {
        Self { offset, from, result: Ok(()) }
    }
}

impl File {
    /// Does many reads, and gives each its own [result](ReadRequest::result). Up to a thousand or
    /// so go well together: pages that aren't in memory are loaded at the same time, as far as the
    /// group's limit allows, neighbours in one request.
    ///
    /// Each read is as from [`read_at`](Self::read_at); nothing is said about their order.
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

    /// Does many writes, in order, and gives each its own [result](WriteRequest::result). Pages
    /// that are overwritten in part, and aren't in memory, are loaded at the same time.
    ///
    /// Each write is as from [`write_at`](Self::write_at).
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
    /// The reads of a batch, by their numbers, that weren't plain hits.
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

    /// Those of a batch that are `waiting`, for whose pages everything was done that has to be: as
    /// the pages come.
    fn read_as_they_come(&self, call: &mut Call, requests: &mut [ReadRequest<'_>], mut waiting: Vec<usize>) {
        let pages_of = |request: &ReadRequest<'_>| self.pages_of(request.offset, request.into.len());
        while let Some(&oldest) = waiting.first() {
            let is_there = |&at: &usize| !self.is_loading(&pages_of(&requests[at]));
            let is_late = self.help_until(call, &|| waiting.iter().any(is_there));
            // If nothing has come of helping, others load what the oldest one wants.
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

    /// How many requests that touch so many pages each are one part of a batch: at least one.
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

    /// Launches what isn't in memory of `pages`, for a call that then comes to each.
    fn launch_all(&self, pages: Vec<u64>, reading: bool) -> Call {
        let mut call = Call::of_many();
        let mut missing = self.missing(pages, reading);
        missing.truncate(self.launch_max() as usize);
        // A single missing page isn't launched: the reader that wants it loads it itself.
        let mut rest = if missing.len() > 1 { &missing[..] } else { &[] };
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.chunk_by(is_next).take(STRETCHES_TOGETHER).map(<[u64]>::len).sum());
            let batch = call.batch();
            call.add(self.launch(part.iter().copied(), Purpose::Use, &batch));
            rest = after;
        }
        call
    }

    /// Those of `pages` that aren't in memory, in ascending order. Read-ahead is told of them if
    /// they are to be read.
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

    /// Whether any of these pages is being loaded.
    pub(crate) fn is_loading(&self, pages: &Range<u64>) -> bool {
        pages.clone().any(|page| self.file.map.state(page) == PageState::Loading)
    }

    /// Completes what `call` launched until `done()`, or until nothing is left to complete. A page
    /// that another thread loads is noticed a few milliseconds late at most. Returns whether that
    /// took longer than a call may wait for a device.
    pub(crate) fn help_until(&self, call: &Call, done: &dyn Fn() -> bool) -> bool {
        let time = self.file.watch().map(|watch| (watch, Instant::now()));
        let is_late = || time.is_some_and(|(watch, start)| watch.is_silent() || start.elapsed() >= watch.time());
        while let Some(queue) = call.unfinished() {
            self.file.backing.help_as(queue, Helping { back_soon: true, ..self.helping() }, done);
            if done() {
                return false;
            }
            if is_late() {
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

    /// Waits for what was begun for a write, and does what can be done in this thread meanwhile. If
    /// it can't be read, writing will say so.
    fn await_for_write(&self, call: &mut Call, request: &WriteRequest<'_>) {
        if call.queue.is_some() {
            for page in self.pages_to_read(request) {
                let _ = self.bring_in(call, page);
            }
        }
    }

    /// Pages that aren't in memory, and that the write overwrites in part: the first and the last
    /// one.
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
