//! A request that the kernel has. This module makes the kernel's entry for the request, and
//! processes the answer.
//!
//! A thread may end before the kernel has started one of the thread's buffered reads or writes.
//! Then the kernel answers that the request was cancelled, or that its address is bad. On such an
//! answer, a thread of the pool makes the attempt again, with a system call.

use std::any::Any;
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use io_uring::{opcode, types};
use sync::Arc;

use crate::lines::{self, Work};
use crate::posix::PosixFile;
use crate::posix::route::Way;
use crate::thread_pool::Pool;
use crate::{BackingFile as _, Direction, IoError, Request, failing_if_it_panics};

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
    ///
    /// # Errors
    /// What the request's completion closure panicked with.
    pub(super) fn complete(self, result: i32, pool: &Pool) -> Result<(), Box<dyn Any + Send>> {
        let Self { submitted: Submitted { file, request }, way, .. } = self;
        let completed = catch_unwind(AssertUnwindSafe(|| process(&file, request, &way, result, pool)));
        // The file's last handle may have been dropped meanwhile. Then the request had the last
        // reference to the file. Dropping this reference closes the file, which may wait for the
        // device.
        if let Some(last) = Arc::into_inner(file) {
            // Sometimes: a file is closed after its last request.
            pool.put(last.identity(), std::iter::once(Work::Call(Box::new(move || drop(last)))));
        }
        completed
    }
}

/// Completes the request, or has the pool continue it.
fn process(file: &Arc<PosixFile>, request: Request, way: &Way, result: i32, pool: &Pool) {
    let mut forgotten = Vec::new();
    let mut answered = |answer| file.answered(way, answer, |range| forgotten.push(range));
    let answer = match result {
        0.. => answered(Ok(result as usize)),
        SUBMITTER_GONE | SUBMITTER_GONE_LATER => None,
        _ => answered(Err(IoError::Os(-result))),
    };
    // This query of the length doesn't wait: the file is a prompt one.
    let rest = match answer {
        Some(answer) => request.complete(&|| failing_if_it_panics(|| file.len()), answer),
        None => Some(request),
    };
    if !forgotten.is_empty() {
        let (identity, file) = (file.identity(), Arc::clone(file));
        let forget = move || forgotten.into_iter().for_each(|range| file.forget(range));
        pool.put(identity, std::iter::once(Work::Call(Box::new(forget))));
    }
    if let Some(request) = rest {
        // Transition: request, answered → submitted again for the rest.
        let (identity, file) = (file.identity(), Arc::clone(file));
        pool.put(identity, std::iter::once(Work::Request(lines::Submitted { file, request })));
    }
}

#[cfg(test)]
mod tests {
    use sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::patience::wait_until;
    use crate::{Access, DirectIo, Posix};

    /// Regression: the thread that completed a file's last request closed the file, if the last
    /// handle had been dropped meanwhile. Closing may wait for the device. Meanwhile the reaper
    /// took no answers of other devices, or another completing thread took no answers of its own.
    #[test]
    fn a_thread_that_completes_requests_never_closes_their_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, [7; 4096]).unwrap();
        for panics in [false, true] {
            let file = Arc::new(Posix::new(DirectIo::Never).open_file(&path, Access::Read).unwrap());
            let (identity, descriptor) = (file.identity(), format!("/proc/self/fd/{}", file.fd.as_raw_fd()));
            let is_open = || std::fs::read_link(&descriptor).is_ok_and(|link| link == path);
            // The pool's only thread is busy, so work that is queued for it waits.
            let (pool, may_go_on) = (Pool::new(1).unwrap(), Arc::new(AtomicBool::new(false)));
            let told = Arc::clone(&may_go_on);
            let busy = move || wait_until("the request is completed", || told.load(Ordering::Acquire));
            pool.put(identity, std::iter::once(Work::Call(Box::new(busy))));
            let memory: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
            let then = move |_, _| assert!(!panics, "on purpose");
            let request = Request::read(0, memory, then).unwrap();
            let (in_flight, _) = prepare(Submitted { file, request });
            assert_eq!(in_flight.complete(4096, &pool).is_err(), panics);
            let was_open = is_open();
            may_go_on.store(true, Ordering::Release);
            assert!(was_open, "the completing thread has closed the file");
            drop(pool);
            assert!(!is_open(), "no thread has closed the file");
        }
    }
}
