//! Whose turn it is to write a file back, and what the last one left (`writeback`).

use sync::atomic::AtomicU64;
use sync::atomic::Ordering::Relaxed;
use sync::lock::{Mutex, MutexGuard};

use crate::dirty::course::Course;
use io::IoError;

/// What the threads that write a file back share.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    /// The thread that has it runs a cycle, or keeps others from it.
    pub(crate) turn: Mutex<Turn>,
    /// Calls that want the turn, other than for a sweep.
    waiting: AtomicU64,
    /// Cycles over the whole file that have begun, and the last one of those that has ended.
    pub(crate) begun: AtomicU64,
    pub(crate) ended: AtomicU64,
}

/// What cycles leave to each other.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// What went wrong in the last full cycle over the whole file.
    pub(crate) error: Option<IoError>,
    /// The page that the next cycle starts at.
    pub(crate) hand: u64,
    /// The round that sweeps are in the middle of, without a failure so far.
    pub(crate) round: Option<Round>,
}

#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) rest: Course,
    pub(crate) started_ms: u64,
}

impl Writeback {
    /// Keeps the file from being written back, from when what is under way has ended.
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
