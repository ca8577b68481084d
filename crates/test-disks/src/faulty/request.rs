//! Submitted requests some of whose attempts fail on purpose.

use io::{Direction, IoError, Request};
use sync::Arc;

use super::faults::{Call, Faults, spoil, written_by_failure};
use super::schedule::{Fault, FaultKind};

/// What happens to the next attempt at a request.
#[derive(Clone, Copy)]
struct Attempt {
    fault: Option<Fault>,
    /// The error with which it fails.
    error: Option<IoError>,
}

/// Returns the file's length, or fails.
type FileLen<'a> = dyn Fn() -> Result<u64, IoError> + 'a;

/// Returns the request for the inner backend. Returns `None` if the request has completed already,
/// because its attempts failed on purpose. Then nothing is left for the inner backend.
pub(super) fn prepare(faults: &Arc<Faults>, mut request: Request, len: &FileLen<'_>) -> Option<Request> {
    loop {
        let direction = request.direction();
        let call = if direction == Direction::Read { Call::Read } else { Call::Write };
        let (number, fault) = faults.next(call);
        let error = fault.and_then(|fault| faults.error(fault).err());
        // The most bytes that the attempt may move.
        let most = match (error, fault) {
            (Some(_), _) if direction == Direction::Read => 0,
            (Some(_), _) => written_by_failure(number, request.asked()),
            (None, Some(Fault::Short(most) | Fault::ShortThenErrno(most, _))) if direction == Direction::Write => most,
            _ => usize::MAX,
        };
        let attempt = Attempt { fault, error };
        if most > 0 {
            let faults = Arc::clone(faults);
            return Some(request.intercepted(most, move |request, len, answer| {
                prepare(&faults, attempt.answer(&faults, request, len, answer)?, len)
            }));
        }
        request = attempt.answer(faults, request, len, Ok(0))?;
    }
}

/// Returns a function that queries the length. Each query counts as a call, and may fail as
/// scheduled.
fn checked<'a>(faults: &'a Faults, len: &'a FileLen<'_>) -> impl Fn() -> Result<u64, IoError> + 'a {
    || faults.check(Call::Len).and_then(|()| len())
}

impl Attempt {
    /// Passes the attempt's answer, changed by its fault, to the request. Returns the request if
    /// bytes remain; otherwise the request is over.
    fn answer(
        self,
        faults: &Faults,
        request: Request,
        len: &FileLen<'_>,
        answer: Result<usize, IoError>,
    ) -> Option<Request> {
        let Self { fault, error } = self;
        let answer = match (error, fault, answer) {
            (Some(error), ..) => {
                if request.direction() == Direction::Read {
                    spoil(&request.slices(), 0);
                }
                Err(error)
            }
            (None, Some(Fault::Short(most) | Fault::ShortThenErrno(most, _)), Ok(n)) => match request.direction() {
                Direction::Read if most < n => {
                    faults.count(FaultKind::Short);
                    spoil(&request.slices(), most);
                    Ok(most)
                }
                Direction::Write if most < request.asked() => {
                    faults.count(FaultKind::Short);
                    Ok(n)
                }
                _ => Ok(n),
            },
            (.., answer) => answer,
        };
        let rest = request.complete(&checked(faults, len), answer);
        if rest.is_none() {
            faults.is_over();
        }
        rest
    }
}
