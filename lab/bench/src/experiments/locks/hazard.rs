//! Versions behind a number, as in read-copy-update. A reader announces, on a line of its own, the
//! version that it reads. A writer overwrites a version only if no reader has announced it (M.
//! Michael, "Hazard pointers: safe memory reclamation for lock-free objects", TPDS 2004).
//!
//! There are two versions: the current one, and the previous one, which the next writer overwrites.

use sync::atomic::{AtomicU64, Ordering, fence, spin_hint};
use sync::lock::Mutex;

use super::words::Words;
use super::{Shared, is_rare, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "hazard",
    about: "two versions; each 16th operation of a task publishes a new one, the others announce and read the current",
    hidden: false,
    measure: |job| measure(job, new),
};

/// The number of the first version. Neither this number nor the one below is `NOTHING`.
const FIRST: u64 = 2;
/// Announced by a task that reads no version.
const NOTHING: u64 = 0;

/// The number of a version.
#[repr(align(64))]
struct Number(AtomicU64);

struct Versions {
    current: Number,
    /// Version n is at n % 2.
    versions: [Words; 2],
    /// What each task reads.
    announced: Box<[Number]>,
    writer: Mutex<()>,
}

/// Versions for so many tasks.
pub(super) fn new(tasks: usize) -> impl Shared {
    let number = |value| Number(AtomicU64::new(value));
    Versions {
        current: number(FIRST),
        versions: Default::default(),
        announced: (0..tasks).map(|_| number(NOTHING)).collect(),
        writer: Mutex::new(()),
    }
}

impl Versions {
    fn of(&self, number: u64) -> &Words {
        &self.versions[(number % 2) as usize]
    }

    fn read(&self, task: usize) {
        let announced = &self.announced[task].0;
        // Relaxed: the second look decides.
        let mut number = self.current.0.load(Ordering::Relaxed);
        loop {
            // Release pairs with the Acquire in `write`. A writer may see this number without
            // having seen the `NOTHING` that this task stored earlier. It must then know, too, that
            // this task has finished reading the version that it had announced before.
            announced.store(number, Ordering::Release);
            // Pairs with the fence in `write`: either the writer sees this announcement, or the
            // load below sees the number of the newer version.
            fence(Ordering::SeqCst);
            // Acquire pairs with the Release in `write`.
            let now = self.current.0.load(Ordering::Acquire);
            if now == number {
                break;
            }
            number = now;
        }
        self.of(number).read();
        // Release pairs with the Acquire in `write`.
        announced.store(NOTHING, Ordering::Release);
    }

    fn write(&self) {
        let _writer = self.writer.lock();
        // Relaxed: changes under the lock alone.
        let number = self.current.0.load(Ordering::Relaxed);
        // Pairs with the fence in `read`.
        fence(Ordering::SeqCst);
        for announced in &self.announced {
            // Acquire pairs with both Releases in `read`: the version before has been read.
            while announced.0.load(Ordering::Acquire) == number - 1 {
                spin_hint();
            }
        }
        self.of(number + 1).set(self.of(number).read() + 1);
        // Release pairs with the Acquire in `read`.
        self.current.0.store(number + 1, Ordering::Release);
    }
}

impl Shared for Versions {
    fn operate(&self, task: usize, turn: u64) {
        if is_rare(turn) { self.write() } else { self.read(task) }
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        // Relaxed: all tasks have ended.
        let number = self.current.0.load(Ordering::Relaxed);
        assert_eq!((number - FIRST, self.of(number).read()), (uses / super::RARE, uses / super::RARE));
    }
}
