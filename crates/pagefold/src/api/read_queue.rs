//! Many reads under way in one thread, each handed out when its bytes are there.
//!
//! A batch ends with its slowest read, and the device runs dry towards the end. In a queue the
//! caller puts the next read in whenever it takes one out, so that as many as it likes are under
//! way all the time. That needs no other thread: the thread that waits helps the backend (`io`),
//! and so sleeps on its own ring.
//!
//! | a read is | because | becomes |
//! |---|---|---|
//! | put off | it was just put in | under way, with a few others: launched together (`flight`) |
//! | under way | some of its pages are being loaded, perhaps by others | there, when none was any more at the last look |
//! | there | | handed out, when its bytes were copied |
//!
//! All that is under way is looked at when nothing is there any more: once for as many reads as the
//! device has answered.
//!
//! What is under way belongs to its load and not to the queue, which can be dropped at any time. A
//! page that couldn't be loaded, or is gone again, is read when the read is handed out, as by
//! [`read_at`](File::read_at).

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use crate::api::batch::ReadRequest;
use crate::api::file::File;
use crate::read::call::Call;
use crate::read::call::Purpose;

/// Reads that are put off until there are so many, or there is nothing else to do: they have their
/// way to the device in common.
const PUT_OFF_MAX: usize = 8;
/// They are no larger a part of all that haven't been handed out, as the device isn't to run dry.
const PUT_OFF_SHARE: usize = 4;

/// Reads of one file, by one thread at a time: see [`push`](Self::push) and [`wait`](Self::wait).
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
    /// Each oldest first.
    put_off: VecDeque<Entry<'b, T>>,
    under_way: Vec<Entry<'b, T>>,
    there: VecDeque<Entry<'b, T>>,
    /// Of what is under way, or there.
    pages: u64,
    call: Call,
}

struct Entry<'b, T> {
    request: ReadRequest<'b>,
    /// What it touches of the file.
    pages: Range<u64>,
    tag: T,
}

impl<'b, T> ReadQueue<'b, T> {
    /// With nothing in it.
    #[must_use]
    pub fn new(file: &File) -> Self {
        let (put_off, there) = (VecDeque::new(), VecDeque::new());
        let call = Call::of_many();
        Self { file: file.clone(), put_off, under_way: Vec::new(), there, pages: 0, call }
    }

    /// Puts a read in, with whatever is to come out together with it. It doesn't wait for the
    /// device.
    ///
    /// Pages that aren't in memory are loaded at the same time as those of the other reads, up to a
    /// quarter of what the group may hold. A page that is in memory isn't copied before its read is
    /// handed out either, so it may have to be loaded then.
    pub fn push(&mut self, request: ReadRequest<'b>, tag: T) {
        let pages = self.file.handle().pages_of(request.offset, request.into.len());
        self.put_off.push_back(Entry { request, pages, tag });
        if self.put_off.len() >= (self.len() / PUT_OFF_SHARE).min(PUT_OFF_MAX) {
            self.launch();
        }
    }

    /// Waits for any of the reads, takes it out, and gives it with its
    /// [result](ReadRequest::result), as from [`read_at`](File::read_at). `None` if there is none.
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
        // If nothing has come of helping, others load what the oldest one wants.
        let oldest = || if self.under_way.is_empty() { None } else { Some(self.under_way.remove(0)) };
        let Entry { mut request, pages, tag } = self.there.pop_front().or_else(oldest)?;
        self.pages -= pages.end - pages.start;
        self.call.begin(pages);
        self.call.is_late = is_late;
        request.result = self.file.handle().read_in_call(&mut self.call, request.into, request.offset);
        Some((request, tag))
    }

    /// Reads that haven't been handed out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.put_off.len() + self.under_way.len() + self.there.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to load what was put off, as far as that isn't too much at a time.
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

    /// Finds out what is there by now.
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
