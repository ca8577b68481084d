//! Asynchronous reads and writes.
//!
//! A [`Request`] owns its memory and its completion closure. So the submitting thread may return,
//! or be unwound, before the request has completed: the memory stays alive until the last byte has
//! been moved. A request continues after short reads and writes, `EINTR` and `EAGAIN`, as
//! [`read_full`](crate::read_full()) and [`write_full`](crate::write_full()) do.
//!
//! The requests that one call waits for form a [`Batch`]. A waiting thread helps with the requests
//! of its own batch, and stops when all of them have completed. If the thread also waited for the
//! requests of another tenant, a slow device of that tenant could delay it.
//!
//! | a request is | held by | becomes |
//! |---|---|---|
//! | created | its creator; dropping it has no effect | submitted |
//! | submitted | the backend: queued, or in flight on a device | answered |
//! | answered | the thread that reaps the answer: [`Request::complete`] | completed, or submitted again for the remaining bytes |
//! | completed | the creator's closure, which is called once, in the reaping thread, with the memory and the result | |
//!
//! - Q1. The completion closure is called exactly once for each request that was submitted,
//!   whatever happens.
//! - Q2. A device has pointers into the memory only between submission and answer, and the request
//!   isn't dropped in that time.

use std::ops::Deref;

use sync::atomic::{AtomicUsize, Ordering};
use sync::{Arc, SharedBytes, StableBytes};

use crate::IoError;
use crate::progress::{Direction, FileLen, Progress, Slices, zero_rest};

/// Identifies where submitted requests wait, and which of them a thread helps with: see
/// [`BackingFile::help_as`](crate::BackingFile::help_as).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub(crate) place: u32,
    /// Helpers help with this batch alone; with all of the file's requests if there is no batch.
    pub(crate) batch: Option<Batch>,
}

impl Queue {
    /// Returns the queue at `place`, for requests that are about to be submitted there together.
    /// The backend chooses the numbers of its places; a backend with one queue needs only 0.
    #[must_use]
    pub fn of(place: u32, requests: &[Request]) -> Self {
        Self { place, batch: requests.first().and_then(Request::batch).cloned() }
    }

    /// Returns the backend's number of the place where the requests wait.
    #[must_use]
    pub fn place(&self) -> u32 {
        self.place
    }

    /// Returns whether the batch has no unfinished requests. Always false without a batch.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.unfinished() == 0)
    }
}

/// A group of requests that one call waits for.
#[derive(Clone, Debug, Default)]
pub struct Batch(Arc<AtomicUsize>);

impl Batch {
    /// Returns the number of requests that were put into the batch and have neither completed nor
    /// been dropped.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        // Acquire pairs with the Release in `Member`'s drop: the effects of the completion closures
        // are visible.
        self.0.load(Ordering::Acquire)
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Batch {}

/// A request's membership in a batch. Dropping it decrements the count.
struct Member(Batch);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// A read or write that owns everything it needs.
pub struct Request {
    operation: Box<dyn Operation>,
    /// Declared after `operation`, so that it is dropped later: the request counts as unfinished
    /// until its completion closure has returned.
    member: Option<Member>,
}

/// The part of a request that a backend calls: its next attempt, and its completion.
trait Operation: Send {
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
    /// Creates a read of as many bytes at `offset` as `into` has. Bytes past the end of the file
    /// are zeroed.
    ///
    /// On completion, `then` is called with `into` and with the same result as
    /// [`read_full`](crate::read_full()) would return: the number of bytes that the file had, or
    /// the error. The closure runs in the thread that reaps the answer, which can be any thread, so
    /// it should be short and must not wait. It may submit other requests.
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

    /// Creates a write of the first `len` bytes of `from` at `offset`. As for
    /// [`write_full`](crate::write_full()), `offset` and the lengths of the runs of `from` must be
    /// multiples of 4 KiB. So must `len`, unless the write ends at the end of the file. For `then`,
    /// see [`read`](Self::read).
    ///
    /// # Errors
    /// `EINVAL` for a range that no file has, and if `from` has fewer than `len` bytes.
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

    /// Returns a request that replaces this one in its batch. Its next attempt moves at most `most`
    /// bytes, and the answer to that attempt goes to `answered`. The arguments of `answered` are
    /// this request, the function that returns the file's length, and the answer. So a backend that
    /// passes requests on to another backend can limit the attempt, and observe or change its
    /// answer.
    ///
    /// `answered` passes the answer, or a different one, to [`complete`](Self::complete), and
    /// returns the request that `complete` returns. To intercept the next attempt, too, `answered`
    /// first calls `intercepted` on that request. `answered` runs in the thread that reaps the
    /// answer, and must not wait.
    #[must_use]
    pub fn intercepted<F>(mut self, most: usize, answered: F) -> Self
    where
        F: FnOnce(Self, &dyn Fn() -> Result<u64, IoError>, Result<usize, IoError>) -> Option<Self> + Send + 'static,
    {
        let member = self.member.take();
        Self { operation: Box::new(Intercepted { inner: self, most, answered }), member }
    }

    /// Puts the request into a batch.
    #[must_use]
    pub fn in_batch(mut self, batch: &Batch) -> Self {
        // Relaxed: a thread that reads the count has submitted the request, or synchronized with
        // the thread that did.
        batch.0.fetch_add(1, Ordering::Relaxed);
        self.member = Some(Member(batch.clone()));
        self
    }

    /// Returns the batch that the request belongs to.
    pub(crate) fn batch(&self) -> Option<&Batch> {
        self.member.as_ref().map(|member| &member.0)
    }

    /// Returns the direction of the transfer.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.operation.direction()
    }

    /// Returns the offset in the file at which the next attempt starts.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.operation.offset()
    }

    /// See [`Progress::pause`].
    pub(crate) fn pause(&self) {
        self.operation.pause();
    }

    /// Returns the slices that the next attempt moves, and the number of bytes: see
    /// [`Progress::next`].
    pub(crate) fn next(&self) -> (Slices<'_>, usize) {
        self.operation.next()
    }

    /// Returns the slices of memory that the next attempt moves, in order. They may be longer than
    /// the attempt, which moves only the first [`asked`](Self::asked) bytes. The memory stays where
    /// it is until the request is completed or dropped.
    #[must_use]
    pub fn slices(&self) -> impl Deref<Target = [SharedBytes<'_>]> {
        self.next().0
    }

    /// Returns the number of bytes that the next attempt is to move.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.next().1
    }

    /// Processes the result of an attempt: the number of bytes moved (at most
    /// [`asked`](Self::asked)), or an error. `len` returns the file's current length. If bytes
    /// remain, returns the request, and the caller must submit or [run](Self::run) it again.
    /// Returns `None` once the request has completed.
    #[must_use]
    pub fn complete(self, len: &dyn Fn() -> Result<u64, IoError>, answer: Result<usize, IoError>) -> Option<Self> {
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

/// A request whose next attempt's answer goes to `answered`.
struct Intercepted<F> {
    inner: Request,
    /// The most bytes that the attempt may move.
    most: usize,
    answered: F,
}

impl<F> Operation for Intercepted<F>
where
    F: FnOnce(Request, &dyn Fn() -> Result<u64, IoError>, Result<usize, IoError>) -> Option<Request> + Send + 'static,
{
    fn direction(&self) -> Direction {
        self.inner.direction()
    }

    fn offset(&self) -> u64 {
        self.inner.offset()
    }

    fn next(&self) -> (Slices<'_>, usize) {
        let (slices, asked) = self.inner.next();
        (slices, asked.min(self.most))
    }

    fn pause(&self) {
        self.inner.pause();
    }

    fn complete(self: Box<Self>, len: &FileLen<'_>, answer: Result<usize, IoError>) -> Option<Request> {
        let Self { inner, answered, .. } = *self;
        answered(inner, len, answer)
    }
}

fn len_of(bytes: &impl StableBytes) -> usize {
    let mut len = 0_usize;
    bytes.each(&mut |slice| len = len.saturating_add(slice.len()));
    len
}
