//! The machine's files and block devices, with requests given to the kernel through io_uring.
//!
//! Files are those of [`Posix`], and calls are made in the caller's thread as there; what is submitted goes through rings. Each
//! thread has a ring of its own as long as there are few threads, so that a thread that submits and then helps meets nobody else;
//! with more, rings are shared. Not one for each CPU: threads that wait for a disk come and go on a CPU, and would wait for each other's
//! answers. A ring is made when a thread first needs it; if the system refuses, the first ring is shared.
//!
//! Files that are the kernel's memory anyway (tmpfs) are read and written by whoever submits.
//!
//! After a fork the child has no rings: requests are done in the caller there, and nothing of the parent's is touched.

use std::mem::ManuallyDrop;
use std::path::Path;

use sync::lock::OnceCell;
use sync::thread::{self, JoinHandle};
use sync::{Arc, ForkMark};

use crate::posix::{PosixFile, range_of};
use crate::queued_file::{QueuedFile, Submission};
use crate::reaper::Reaper;
use crate::ring::{Ring, Sizes, Submitted, error_of};
use crate::{Access, Backend, BackingFile, DirectIo, Direction, IoError, Posix, Queue, Request};

/// Rings for each CPU, and altogether: many threads may wait for a disk on few CPUs.
const RINGS_PER_CPU: usize = 4;
const RINGS: std::ops::RangeInclusive<usize> = 16..=256;

/// The backend of the machine's file systems, with io_uring.
pub struct Uring {
    posix: Posix,
    rings: Arc<Rings>,
}

impl Uring {
    /// Files read and written as `direct` says.
    ///
    /// # Errors
    /// The system's, if it has no ring to give: `EPERM` and `ENOSYS` if it isn't allowed, or not known; `ENOMEM`, `EMFILE`;
    /// `EAGAIN` if there is no thread left.
    pub fn new(direct: DirectIo) -> Result<Self, IoError> {
        let rings = (sync::cpu::count() * RINGS_PER_CPU).clamp(*RINGS.start(), *RINGS.end());
        Self::with_rings(direct, rings, Sizes::default())
    }

    pub(crate) fn with_rings(direct: DirectIo, rings: usize, sizes: Sizes) -> Result<Self, IoError> {
        Ok(Self { posix: Posix::new(direct), rings: Rings::start(rings, sizes)? })
    }
}

impl Backend for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let file = Arc::new(self.posix.open_file(path, access)?);
        Ok(Box::new(QueuedFile { file, submission: Arc::clone(&self.rings) }))
    }
}

/// All rings, for the backend and its files. When none of them is left, what is in flight is waited for.
struct Rings {
    /// Never dropped in a forked child, to whom they don't belong.
    shared: ManuallyDrop<Arc<Shared>>,
    thread: ManuallyDrop<JoinHandle<()>>,
    fork: ForkMark,
}

/// What the reaper has too.
struct Shared {
    /// Each with the first thread that needs it.
    rings: Box<[OnceCell<Ring>]>,
    sizes: Sizes,
    reaper: Arc<Reaper>,
}

impl Rings {
    fn start(count: usize, sizes: Sizes) -> Result<Arc<Self>, IoError> {
        let fork = ForkMark::new().map_err(error_of)?;
        let reaper = Arc::new(Reaper::new()?);
        let mut first = Ring::new(sizes, |uring| reaper.watch(uring, 0))?;
        first.probe()?;
        let rings: Box<[_]> = (0..count.max(1)).map(|_| OnceCell::new()).collect();
        let _ = rings[0].set(first);
        let shared = Arc::new(Shared { rings, sizes, reaper });
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn("pagefold-reaper", move || theirs.look_after()).map_err(error_of)?;
        Ok(Arc::new(Self { shared: ManuallyDrop::new(shared), thread: ManuallyDrop::new(thread), fork }))
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        if self.fork.is_child() {
            return;
        }
        self.shared.reaper.end();
        // SAFETY: taken once, here.
        #[allow(unsafe_code)]
        let thread = unsafe { ManuallyDrop::take(&mut self.thread) };
        // The reaper itself may have had the last handle: then it ends when it has done what it is at.
        if !thread::is_current(&thread) {
            let _ = thread.join();
        }
        // SAFETY: dropped once, here, and not used afterwards.
        #[allow(unsafe_code)]
        unsafe {
            ManuallyDrop::drop(&mut self.shared);
        }
    }
}

impl Shared {
    /// The reaper's life. At its end all that was submitted is over.
    fn look_after(&self) {
        let attend = |ring: &Ring, body: &dyn Fn(&Ring)| {
            let body = std::panic::AssertUnwindSafe(|| body(ring));
            let thrown = std::panic::catch_unwind(body).is_err();
            if thrown {
                tracing::error!("what was to be done after a read or write panicked");
            }
            thrown
        };
        self.reaper.run(|number| {
            if let Some(ring) = self.rings.get(number).and_then(OnceCell::get) {
                attend(ring, &Ring::visit);
            }
        });
        for ring in self.rings.iter().filter_map(OnceCell::get) {
            while attend(ring, &|ring| ring.help(&|| false)) {}
        }
    }

    /// The calling thread's ring.
    fn here(&self) -> (Queue, &Ring) {
        let number = thread::number() % self.rings.len();
        let make = || Ring::new(self.sizes, |uring| self.reaper.watch(uring, number));
        match self.rings[number].get_or_try_init(make) {
            Ok(ring) => (Queue(number as u32), ring),
            Err(_) => (Queue(0), self.first()),
        }
    }

    fn of(&self, Queue(number): Queue) -> &Ring {
        self.rings.get(number as usize).and_then(OnceCell::get).unwrap_or_else(|| self.first())
    }

    fn first(&self) -> &Ring {
        self.rings[0].get().expect("made at the start")
    }
}

impl Submission for Rings {
    type File = PosixFile;

    fn submit(&self, file: &Arc<PosixFile>, requests: &mut Vec<Request>) -> Queue {
        // What isn't for the device is done here. It may submit more, so the ring isn't touched yet.
        let here = file.is_in_memory() || self.fork.is_child();
        let odd = |request: &mut Request| here || request.next().1 == 0 || check(file, request).is_err();
        requests.extract_if(.., odd).for_each(|request| request.run(&**file));
        if requests.is_empty() {
            return self.queue();
        }
        let (queue, ring) = self.shared.here();
        ring.submit(requests.drain(..).map(|request| Submitted { file: Arc::clone(file), request }));
        queue
    }

    fn queue(&self) -> Queue {
        if self.fork.is_child() { Queue::default() } else { self.shared.here().0 }
    }

    fn help(&self, queue: Queue, done: &dyn Fn() -> bool) {
        if !self.fork.is_child() {
            self.shared.of(queue).help(done);
        }
    }

    fn help_for_now(&self, queue: Queue, done: &dyn Fn() -> bool) {
        if !self.fork.is_child() {
            self.shared.of(queue).help_for_now(done);
        }
    }
}

/// What would go wrong with the request before the device has it.
fn check(file: &PosixFile, request: &Request) -> Result<(), IoError> {
    if request.direction() == Direction::Write {
        file.check_writable()?;
    }
    range_of(request.offset(), request.next().1).map(|_| ())
}

#[cfg(test)]
#[path = "uring_tests.rs"]
mod tests;
