//! Submitted requests some of whose attempts fail on purpose.

use sync::Arc;

use crate::faults::{Call, Faults, spoil, written_by_failure};
use crate::progress::{Direction, FileLen, Slices};
use crate::request::Operation;
use crate::{Fault, FaultKind, IoError, Request};

/// The next attempt at `inner`, and its fault.
struct Attempt {
    inner: Request,
    faults: Arc<Faults>,
    fault: Option<Fault>,
    /// The most bytes that it may move.
    most: usize,
    /// The error with which it fails after that.
    error: Option<IoError>,
}

/// Returns the request for the inner backend. `None` if the request's attempts failed until it
/// completed.
pub(crate) fn prepare(faults: &Arc<Faults>, mut inner: Request, len: &FileLen<'_>) -> Option<Request> {
    loop {
        let direction = inner.direction();
        let call = if direction == Direction::Read { Call::Read } else { Call::Write };
        let (number, fault) = faults.next(call);
        let error = fault.and_then(|fault| faults.error(fault).err());
        let most = match (error, fault) {
            (Some(_), _) if direction == Direction::Read => 0,
            (Some(_), _) => written_by_failure(number, inner.next().1),
            (None, Some(Fault::Short(most) | Fault::ShortThenErrno(most, _))) if direction == Direction::Write => most,
            _ => usize::MAX,
        };
        let attempt = |inner| Attempt { inner, faults: Arc::clone(faults), fault, most, error };
        if most > 0 {
            return Some(Request::wrapping(inner, attempt));
        }
        inner = attempt(inner).answer(len, Ok(0))?;
    }
}

/// Returns a function that queries the length, and that may fail.
fn checked<'a>(faults: &'a Faults, len: &'a FileLen<'_>) -> impl Fn() -> Result<u64, IoError> + 'a {
    || faults.check(Call::Len).and_then(|()| len())
}

impl Operation for Attempt {
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
        let faults = Arc::clone(&self.faults);
        prepare(&faults, self.answer(len, answer)?, len)
    }
}

impl Attempt {
    /// Passes the attempt's answer, changed by its fault, to `inner`. Returns the request if bytes
    /// remain.
    fn answer(self, len: &FileLen<'_>, answer: Result<usize, IoError>) -> Option<Request> {
        let Self { inner, faults, fault, error, .. } = self;
        let (slices, asked) = inner.next();
        let answer = match (error, fault, answer) {
            (Some(error), ..) => {
                if inner.direction() == Direction::Read {
                    spoil(&slices, 0);
                }
                Err(error)
            }
            (None, Some(Fault::Short(most) | Fault::ShortThenErrno(most, _)), Ok(n)) => match inner.direction() {
                Direction::Read if most < n => {
                    faults.count(FaultKind::Short);
                    spoil(&slices, most);
                    Ok(most)
                }
                Direction::Write if most < asked => {
                    faults.count(FaultKind::Short);
                    Ok(n)
                }
                _ => Ok(n),
            },
            (.., answer) => answer,
        };
        drop(slices);
        inner.complete(&checked(&faults, len), answer)
    }
}
