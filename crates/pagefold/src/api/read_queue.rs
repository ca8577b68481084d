//! A queue of concurrent reads for one thread: each read is returned when its pages have arrived.
//!
//! A batch ends with its slowest read, so the device idles towards the end of the batch. With a
//! queue, the caller can push a new read whenever it takes a completed read out, and so keep as
//! many reads in the queue as it wants. The queue needs no thread of its own: the thread that waits
//! for a read helps the backend (`io`) to complete requests.
//!
//! | a read is | because | becomes |
//! |---|---|---|
//! | put off | it was just pushed | under way: launched together with a few others (`flight`) |
//! | under way | some of its pages are being loaded, perhaps by other threads | there, when a check finds that none of its pages is being loaded |
//! | there | its pages were loaded | returned, after its bytes were copied |
//!
//! The queue checks the reads that are under way only when no read is there. So one check finds all
//! reads whose pages have arrived since the previous check.
//!
//! The queue doesn't own the loads that it launched. It may be dropped at any time, and its loads
//! still complete. If a load failed, or the loaded page was evicted before its read is returned,
//! [`wait`](ReadQueue::wait) loads the page again, as [`read_at`](File::read_at) would.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use crate::api::batch::ReadRequest;
use crate::api::file::File;
use crate::read::call::Call;
use crate::read::call::Purpose;

/// A pushed read is first put off: the queue collects up to this many reads and launches them
/// together, which shares the cost of submitting requests. The queue launches them earlier if the
/// caller waits and no read is ready to be returned. It collects more reads than this only while
/// the limit on pages in flight is reached.
const PUT_OFF_MAX: usize = 8;
/// In a short queue, fewer reads are launched together: 1/`PUT_OFF_SHARE` of all reads in the
/// queue. Otherwise the device would idle.
const PUT_OFF_SHARE: usize = 4;

/// A queue of reads of one file, for one thread at a time: see [`push`](Self::push) and
/// [`wait`](Self::wait).
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let group = pagefold::Pagefold::builder().memory("64 MiB").build()?.group("g").build()?;
/// use pagefold::{ReadQueue, ReadRequest};
///
/// let file = group.open("data")?;
/// let mut buffers = vec![[0; 4096]; 64];
/// let mut offsets = (0..file.len()).step_by(1 << 20);
/// let mut queue = ReadQueue::new(&file);
/// for (buffer, offset) in buffers.iter_mut().zip(&mut offsets) {
///     queue.push(ReadRequest::new(offset, buffer), ());
/// }
/// while let Some((read, ())) = queue.wait() {
///     let n = read.result?;
///     println!("{} bytes at {}", n, read.offset);
///     if let Some(offset) = offsets.next() {
///         queue.push(ReadRequest::new(offset, read.into), ());
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct ReadQueue<'b, T = ()> {
    file: File,
    /// This list and the next two are in order, the oldest read first.
    put_off: VecDeque<Entry<'b, T>>,
    under_way: Vec<Entry<'b, T>>,
    there: VecDeque<Entry<'b, T>>,
    /// The number of pages of the reads that are under way or there.
    pages: u64,
    call: Call,
}

struct Entry<'b, T> {
    request: ReadRequest<'b>,
    /// The pages that the read touches.
    pages: Range<u64>,
    tag: T,
}

impl<'b, T> ReadQueue<'b, T> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(file: &File) -> Self {
        let (put_off, there) = (VecDeque::new(), VecDeque::new());
        let call = Call::of_many();
        Self { file: file.clone(), put_off, under_way: Vec::new(), there, pages: 0, call }
    }

    /// Adds a read, with a tag that is returned together with it. Doesn't wait for the device.
    ///
    /// The missing pages of all reads in the queue are loaded concurrently, up to a quarter of the
    /// group's limit. This call copies no bytes, not even from pages that are already in memory:
    /// [`wait`](Self::wait) copies them when it returns the read. If a page is evicted before that,
    /// `wait` loads it again.
    pub fn push(&mut self, request: ReadRequest<'b>, tag: T) {
        let pages = self.file.handle().pages_of(request.offset, request.into.len());
        self.put_off.push_back(Entry { request, pages, tag });
        if self.put_off.len() >= (self.len() / PUT_OFF_SHARE).min(PUT_OFF_MAX) {
            self.launch();
        }
    }

    /// Waits until any of the reads can complete, removes that read from the queue and returns it.
    /// The read's [result](ReadRequest::result) is the result that [`read_at`](File::read_at) would
    /// have returned. Returns `None` if the queue is empty.
    pub fn wait(&mut self) -> Option<(ReadRequest<'b>, T)> {
        let mut is_late = false;
        if self.there.is_empty() {
            self.look();
        }
        if self.there.is_empty() {
            self.launch();
            is_late = self
                .file
                .handle()
                .help_until(&self.call, &|| self.under_way.iter().any(|entry| !self.is_loading(entry)));
            self.look();
        }
        // If `there` is still empty, the device's timeout is over, or other threads are loading the
        // pages. Then the oldest read waits for its own pages.
        let oldest = || if self.under_way.is_empty() { None } else { Some(self.under_way.remove(0)) };
        let Entry { mut request, pages, tag } = self.there.pop_front().or_else(oldest)?;
        self.pages -= pages.end - pages.start;
        self.call.begin(pages);
        self.call.is_late = is_late;
        request.result = self.file.handle().read_in_call(&mut self.call, request.into, request.offset);
        Some((request, tag))
    }

    /// Returns the number of reads that haven't been returned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.put_off.len() + self.under_way.len() + self.there.len()
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Launches the reads that were put off, as far as the limit on pages in flight allows.
    fn launch(&mut self) {
        let handle = self.file.handle();
        let (before, most) = (self.under_way.len(), handle.launch_max());
        while let Some(entry) = self.put_off.front() {
            let pages = entry.pages.end - entry.pages.start;
            if self.pages > 0 && self.pages.saturating_add(pages) > most {
                break;
            }
            self.pages += pages;
            self.under_way.extend(self.put_off.pop_front());
        }
        if handle.has_device() {
            let wanted = self.under_way.iter().skip(before).flat_map(|entry| entry.pages.clone());
            let missing = handle.missing(wanted.take(most as usize).collect(), true);
            let launched = handle.launch(missing, Purpose::Use, &self.call.batch());
            self.call.add(launched);
        }
    }

    /// Moves the reads whose pages are no longer being loaded to `there`.
    fn look(&mut self) {
        let handle = self.file.handle();
        self.there.extend(self.under_way.extract_if(.., |entry| !handle.is_loading(&entry.pages)));
    }

    fn is_loading(&self, entry: &Entry<'_, T>) -> bool {
        self.file.handle().is_loading(&entry.pages)
    }
}

impl<T> fmt::Debug for ReadQueue<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadQueue").field("file", &self.file).field("len", &self.len()).finish_non_exhaustive()
    }
}
