//! The lock for writing a file back, and the state that each cycle leaves to the next
//! (`writeback`).

use sync::atomic::AtomicU64;
use sync::atomic::Ordering::Relaxed;
use sync::lock::{Mutex, MutexGuard};

use crate::dirty::course::Course;
use io::IoError;

/// The state of a file's write-back, shared by the threads that run its cycles.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    /// The thread that holds this lock runs a cycle, or excludes cycles.
    pub(crate) turn: Mutex<Turn>,
    /// The number of calls that wait for `turn`, sweeps not included.
    waiting: AtomicU64,
    /// The number of full cycles over the whole file that have begun (`begun`), and the number of
    /// the last such cycle that has ended (`ended`).
    pub(crate) begun: AtomicU64,
    pub(crate) ended: AtomicU64,
}

/// The state that a cycle leaves to the next one.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The error of the last full cycle over the whole file.
    pub(crate) error: Option<IoError>,
    /// The page that the next cycle starts at.
    pub(crate) hand: u64,
    /// The round that sweeps have begun and not finished, if it had no failure so far.
    pub(crate) round: Option<Round>,
}

#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) rest: Course,
    pub(crate) started_ms: u64,
}

impl Writeback {
    /// Waits until the running cycle has ended. No other thread can run a cycle until the returned
    /// guard is dropped.
    pub(crate) fn pause(&self) -> MutexGuard<'_, Turn> {
        // Relaxed, here and in `is_wanted`: a hint to the thread that sweeps.
        self.waiting.fetch_add(1, Relaxed);
        let turn = self.turn.lock();
        self.waiting.fetch_sub(1, Relaxed);
        turn
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }
}
