//! A request that the kernel has. This module makes the kernel's entry for the request, and
//! processes the answer.
//!
//! A thread may end before the kernel has started one of the thread's buffered reads or writes.
//! Then the kernel answers that the request was cancelled, or that its address is bad. On such an
//! answer, a thread of the pool makes the attempt again, with a system call.

use std::os::fd::AsRawFd as _;

use io_uring::{opcode, types};
use sync::Arc;

use crate::lines::{self, Work};
use crate::posix::PosixFile;
use crate::posix::route::Way;
use crate::thread_pool::Pool;
use crate::{BackingFile as _, Direction, IoError, Request};

/// The kernel's answers if the submitting thread ended before the request was started, or before
/// the request could be continued.
const SUBMITTER_GONE: i32 = -libc::ECANCELED;
const SUBMITTER_GONE_LATER: i32 = -libc::EFAULT;

/// A request and its file.
pub(crate) struct Submitted {
    pub(crate) file: Arc<PosixFile>,
    pub(crate) request: Request,
}

/// A request that the kernel has.
pub(super) struct InFlight {
    pub(super) submitted: Submitted,
    way: Way,
    /// The runs of memory, if there is more than one.
    _runs: Box<[libc::iovec]>,
}

// SAFETY: the pointers in `_runs` are into the memory of the request, which may be sent to other
// threads. Only the kernel dereferences them.
#[allow(unsafe_code)]
unsafe impl Send for InFlight {}

/// Creates the kernel's entry for a request.
pub(super) fn prepare(submitted: Submitted) -> (InFlight, io_uring::squeue::Entry) {
    let Submitted { file, request } = &submitted;
    let (slices, asked) = request.next();
    let way = file.way(request.direction(), &(request.offset()..request.offset() + asked as u64));
    debug_assert!(!way.is_part_page(), "a part page is written by a call");
    let (fd, offset) = (types::Fd(file.fd.as_raw_fd()), request.offset());
    let runs = crate::system_calls::io_vecs(&slices, 0..way.len());
    let write = request.direction() == Direction::Write;
    let (runs, entry) = match runs[..] {
        [libc::iovec { iov_base, iov_len }] => {
            // If a run is longer than the length field can express, the read or write is short.
            let len = u32::try_from(iov_len).unwrap_or(1 << 30);
            let entry = if write {
                opcode::Write::new(fd, iov_base.cast(), len).offset(offset).build()
            } else {
                opcode::Read::new(fd, iov_base.cast(), len).offset(offset).build()
            };
            (Box::default(), entry)
        }
        _ => {
            let runs: Box<[libc::iovec]> = runs.into_iter().collect();
            let (first, len) = (runs.as_ptr(), runs.len() as u32);
            let entry = if write {
                opcode::Writev::new(fd, first, len).offset(offset).build()
            } else {
                opcode::Readv::new(fd, first, len).offset(offset).build()
            };
            (runs, entry)
        }
    };
    drop(slices);
    (InFlight { submitted, way, _runs: runs }, entry)
}

impl InFlight {
    /// Processes the answer. Leaves remaining work that might delay this thread to the pool.
    pub(super) fn complete(self, result: i32, pool: &Pool) {
        let Self { submitted: Submitted { file, request }, way, .. } = self;
        let identity = file.identity();
        let mut forgotten = Vec::new();
        let mut answered = |answer| file.answered(&way, answer, |range| forgotten.push(range));
        let answer = match result {
            0.. => answered(Ok(result as usize)),
            SUBMITTER_GONE | SUBMITTER_GONE_LATER => None,
            _ => answered(Err(IoError::Os(-result))),
        };
        // This query of the length doesn't wait: the file is a prompt one.
        let rest = match answer {
            Some(answer) => request.complete(&|| file.len(), answer),
            None => Some(request),
        };
        if !forgotten.is_empty() {
            let file = Arc::clone(&file);
            let forget = move || forgotten.into_iter().for_each(|range| file.forget(range));
            pool.put(identity, std::iter::once(Work::Call(Box::new(forget))));
        }
        if let Some(request) = rest {
            // Transition: request, answered → submitted again for the rest.
            pool.put(identity, std::iter::once(Work::Request(lines::Submitted { file, request })));
        }
    }
}
