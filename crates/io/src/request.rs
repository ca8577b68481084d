//! Asynchronous reads and writes.
//!
//! A [`Request`] owns its memory, and what is to be done when it completes. The thread that submits
//! it can go away, or be unwound: the memory stays until the last byte has been moved. A request
//! goes on after short reads and writes, `EINTR` and `EAGAIN` as [`read_full`](crate::read_full())
//! and [`write_full`](crate::write_full()) do.
//!
//! Requests that one call waits for are of one [`Batch`]. A thread that waits helps with the
//! requests of its own batch, and stops when all of them are over: a request of another tenant, on
//! another device, must not keep it.
//!
//! | a request is | with | becomes |
//! |---|---|---|
//! | made | its maker; dropped, it never was | submitted |
//! | submitted | the backend: waiting, or with a device | answered |
//! | answered | the thread that reaps the answer: [`Request::complete`] | over, or submitted again for the rest |
//! | over | what its maker wanted done is called with the memory and the result, once, in that thread | |
//!
//! - Q1. What is to be done at the end is called exactly once for each request that was submitted,
//!   whatever happens.
//! - Q2. A device has pointers into the memory between submission and answer only, and the request
//!   is not dropped then.

use sync::atomic::{AtomicUsize, Ordering};
use sync::{Arc, StableBytes};

use crate::IoError;
use crate::progress::{Direction, FileLen, Progress, Slices, zero_rest};

/// Where submitted requests wait to be answered, and which of them a thread helps with: see
/// [`BackingFile::help_as`](crate::BackingFile::help_as).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub(crate) place: u32,
    /// Helpers take part in these alone; in all of the file's if there is none.
    pub(crate) batch: Option<Batch>,
}

impl Queue {
    /// The queue at `place`, for requests that are about to be submitted there together.
    pub(crate) fn of(place: u32, requests: &[Request]) -> Self {
        Self { place, batch: requests.first().and_then(Request::batch).cloned() }
    }

    /// Whether nothing is left that a helper would take part in, as far as the batch tells.
    pub(crate) fn is_over(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.unfinished() == 0)
    }
}

/// Requests that one call waits for.
#[derive(Clone, Debug, Default)]
pub struct Batch(Arc<AtomicUsize>);

impl Batch {
    /// Requests that were put into the batch, and are neither over nor dropped.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        // Acquire pairs with the Release in `Member`'s drop: what was done at a request's end has
        // been done.
        self.0.load(Ordering::Acquire)
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Batch {}

/// A request's being of a batch.
struct Member(Batch);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// A read or write with all that it needs.
pub struct Request {
    operation: Box<dyn Operation>,
    /// After the operation: it counts until what is done at the end is done.
    member: Option<Member>,
}

/// What a backend sees of a request, and what it does at the end.
pub(crate) trait Operation: Send {
    fn direction(&self) -> Direction;
    fn offset(&self) -> u64;
    /// See [`Progress::next`].
    fn next(&self) -> (Slices<'_>, usize);
    /// See [`Progress::pause`].
    fn pause(&self);
    fn complete(self: Box<Self>, len: &FileLen<'_>, answer: Result<usize, IoError>) -> Option<Request>;
}

struct Whole<B, F> {
    progress: Progress,
    bytes: B,
    then: F,
}

impl Request {
    /// A read of as many bytes at `offset` as `into` has. What lies past the end of the file is
    /// zeroed.
    ///
    /// In the end `then` gets `into` back, and learns how many bytes the file had, or the error, as
    /// from [`read_full`](crate::read_full()). It is called in whichever thread learns of it, so it
    /// should be short, and mustn't wait. It may submit other requests.
    ///
    /// # Errors
    /// `EINVAL` for a range that no file has.
    pub fn read<B, F>(offset: u64, into: B, then: F) -> Result<Self, IoError>
    where
        B: StableBytes + Send + 'static,
        F: FnOnce(B, Result<usize, IoError>) + Send + 'static,
    {
        let len = len_of(&into);
        Self::new(Progress::new(Direction::Read, offset, len)?, into, then)
    }

    /// A write of the first `len` bytes of `from` at `offset`, as
    /// [`write_full`](crate::write_full()) does it: `offset` and the runs of `from` are multiples
    /// of 4 KiB, and so is `len` unless it ends at the file's end to be. The rest is as in
    /// [`read`](Self::read).
    ///
    /// # Errors
    /// `EINVAL` for a range that no file has, and if there aren't `len` bytes.
    pub fn write<B, F>(offset: u64, from: B, len: usize, then: F) -> Result<Self, IoError>
    where
        B: StableBytes + Send + 'static,
        F: FnOnce(B, Result<usize, IoError>) + Send + 'static,
    {
        if len > len_of(&from) {
            return Err(IoError::INVALID);
        }
        Self::new(Progress::new(Direction::Write, offset, len)?, from, then)
    }

    fn new<B, F>(progress: Progress, bytes: B, then: F) -> Result<Self, IoError>
    where
        B: StableBytes + Send + 'static,
        F: FnOnce(B, Result<usize, IoError>) + Send + 'static,
    {
        Ok(Self { operation: Box::new(Whole { progress, bytes, then }), member: None })
    }

    /// `operation` in place of `inner`, which it has: it is of the same batch.
    pub(crate) fn wrapping<T: Operation + 'static>(mut inner: Self, wrap: impl FnOnce(Self) -> T) -> Self {
        let member = inner.member.take();
        Self { operation: Box::new(wrap(inner)), member }
    }

    /// Puts the request into a batch.
    #[must_use]
    pub fn in_batch(mut self, batch: &Batch) -> Self {
        // Relaxed: the thread that asks for the count has submitted the request, or was told by a
        // thread that has.
        batch.0.fetch_add(1, Ordering::Relaxed);
        self.member = Some(Member(batch.clone()));
        self
    }

    /// The batch that the request is in.
    pub(crate) fn batch(&self) -> Option<&Batch> {
        self.member.as_ref().map(|member| &member.0)
    }

    /// Which way the bytes go.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.operation.direction()
    }

    /// Where in the file the next attempt starts.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.operation.offset()
    }

    /// See [`Progress::pause`].
    pub(crate) fn pause(&self) {
        self.operation.pause();
    }

    /// What the next attempt moves.
    pub(crate) fn next(&self) -> (Slices<'_>, usize) {
        self.operation.next()
    }

    /// Takes the answer to an attempt. Gives back what is still to be done, to be tried next.
    #[must_use]
    pub(crate) fn complete(self, len: &FileLen<'_>, answer: Result<usize, IoError>) -> Option<Self> {
        let Self { operation, member } = self;
        let mut rest = operation.complete(len, answer)?;
        rest.member = member;
        Some(rest)
    }
}

impl<B, F> Operation for Whole<B, F>
where
    B: StableBytes + Send + 'static,
    F: FnOnce(B, Result<usize, IoError>) + Send + 'static,
{
    fn direction(&self) -> Direction {
        self.progress.direction()
    }

    fn offset(&self) -> u64 {
        self.progress.offset()
    }

    fn next(&self) -> (Slices<'_>, usize) {
        self.progress.next(|f| self.bytes.each(f))
    }

    fn pause(&self) {
        self.progress.pause();
    }

    fn complete(mut self: Box<Self>, len: &FileLen<'_>, answer: Result<usize, IoError>) -> Option<Request> {
        let asked = self.next().1;
        let result = if asked == 0 { Some(answer.map(|_| 0)) } else { self.progress.answered(len, asked, answer) };
        let Some(result) = result else { return Some(Request { operation: self, member: None }) };
        let Self { progress, bytes, then } = *self;
        if progress.direction() == Direction::Read
            && let Ok(n) = result
        {
            zero_rest(n, |f| bytes.each(f));
        }
        then(bytes, result);
        None
    }
}

fn len_of(bytes: &impl StableBytes) -> usize {
    let mut len = 0_usize;
    bytes.each(&mut |slice| len = len.saturating_add(slice.len()));
    len
}
