//! Reads and writes that nobody has to wait for.
//!
//! A [`Request`] owns the memory that it is about, and what is to be done when it is over. Whoever submits it can go
//! away, or be unwound: the memory stays until the last byte has been moved. It goes on after short reads and writes,
//! `EINTR` and `EAGAIN` as [`read_full`](crate::read_full()) and [`write_full`](crate::write_full()) do.
//!
//! | a request is | with | becomes |
//! |---|---|---|
//! | made | its maker; dropped, it never was | submitted |
//! | submitted | the backend: waiting, or with a device | answered |
//! | answered | whoever reaps the answer: [`Request::complete`] | over, or submitted again for the rest |
//! | over | what its maker wanted done is called with the memory and the result, once, in that thread | |
//!
//! - Q1. What is to be done at the end is called exactly once for each request that was submitted, whatever happens.
//! - Q2. A device has pointers into the memory between submission and answer only, and the request is not dropped then.

use sync::StableBytes;

use crate::progress::{Direction, Progress, Slices, zero_rest};
use crate::{BackingFile, IoError};

/// Where submitted requests wait to be answered: see [`BackingFile::help`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue(pub(crate) u32);

/// A read or write with all that it needs.
pub struct Request(Box<dyn Operation>);

/// The length of the file that a request is for.
pub(crate) type FileLen<'a> = dyn Fn() -> Result<u64, IoError> + 'a;

/// What a backend sees of a request, and what it does at the end.
pub(crate) trait Operation: Send {
    fn direction(&self) -> Direction;
    fn offset(&self) -> u64;
    /// See [`Progress::next`].
    fn next(&self) -> (Slices<'_>, usize);
    fn complete(self: Box<Self>, len: &FileLen<'_>, answer: Result<usize, IoError>) -> Option<Request>;
}

struct Whole<B, F> {
    progress: Progress,
    bytes: B,
    then: F,
}

impl Request {
    /// A read of as many bytes at `offset` as `into` has. What lies past the end of the file is zeroed.
    ///
    /// In the end `then` gets `into` back, and learns how many bytes the file had, or the error, as from
    /// [`read_full`](crate::read_full()). It is called in whichever thread learns of it, so it should be short, and mustn't wait.
    /// It may submit other requests.
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

    /// A write of the first `len` bytes of `from` at `offset`, as [`write_full`](crate::write_full()) does it: `offset`
    /// and the runs of `from` are multiples of 4 KiB, and so is `len` unless it ends at the file's end to be. The rest is as in
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
        Ok(Self(Box::new(Whole { progress, bytes, then })))
    }

    pub(crate) fn from_operation(operation: impl Operation + 'static) -> Self {
        Self(Box::new(operation))
    }

    /// Which way the bytes go.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.0.direction()
    }

    /// Where in the file the next attempt starts.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset()
    }

    /// What the next attempt moves.
    pub(crate) fn next(&self) -> (Slices<'_>, usize) {
        self.0.next()
    }

    /// Takes the answer to an attempt. Gives back what is still to be done, to be tried next.
    #[must_use]
    pub(crate) fn complete(self, len: &FileLen<'_>, answer: Result<usize, IoError>) -> Option<Self> {
        self.0.complete(len, answer)
    }

    /// Does all of it, in this thread.
    pub fn run(self, file: &(impl BackingFile + ?Sized)) {
        let mut rest = Some(self);
        while let Some(request) = rest {
            let answer = request.attempt(file);
            rest = request.complete(&|| file.len(), answer);
        }
    }

    /// Makes the next attempt, in this thread.
    pub(crate) fn attempt(&self, file: &(impl BackingFile + ?Sized)) -> Result<usize, IoError> {
        let (slices, asked) = self.next();
        match self.direction() {
            _ if asked == 0 => Ok(0),
            Direction::Read => file.read(self.offset(), &slices),
            Direction::Write => file.write(self.offset(), &slices, asked),
        }
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

    fn complete(mut self: Box<Self>, len: &FileLen<'_>, answer: Result<usize, IoError>) -> Option<Request> {
        let asked = self.next().1;
        let result = if asked == 0 { Some(answer.map(|_| 0)) } else { self.progress.answered(len, asked, answer) };
        let Some(result) = result else { return Some(Request(self)) };
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
