//! One random use of a lock.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use span_lock::{LockRange, RangeLock};
use sync::random::Random;
use sync::time::Duration;

use crate::board::Board;

/// Returns a random range: a few cells, many cells, the full range, or a range that doesn't consist
/// of whole cells.
pub fn range(random: &mut Random, cells: u64, unit: u64) -> LockRange {
    let at = |start: u64, len: u64| LockRange::at(start, len).unwrap();
    match random.below(16) {
        0 => LockRange::FULL,
        1 => at(random.below(cells / 2) * unit, (1 + random.below(cells / 2)) * unit),
        2 => at(random.below(cells) * unit + random.below(unit), 1 + random.below(3 * unit)),
        _ => at(random.below(cells) * unit, (1 + random.below(3)) * unit),
    }
}

/// Locks the range in a random way, reads or writes its cells, and unlocks it. Sometimes tries to
/// make the lock compact first. Returns the number of cells that it wrote.
pub fn one(lock: &RangeLock, board: &Board, range: LockRange, random: &mut Random) -> u64 {
    let time = Duration::from_micros(random.below(50));
    let wrote = board.len_of(range);
    if random.below(16) == 0 {
        lock.compact();
    }
    match random.below(8) {
        0..=1 => {
            let _guard = lock.read(range);
            board.read(range);
            0
        }
        2..=3 => {
            let _guard = lock.write(range);
            board.write(range);
            wrote
        }
        4 => {
            let guard = lock.write(range);
            board.write(range);
            let _guard = guard.downgrade();
            board.read(range);
            wrote
        }
        5 => lock.try_write(range).map_or(0, |_guard| {
            board.write(range);
            wrote
        }),
        6 => lock.try_write_for(range, time).map_or(0, |_guard| {
            board.write(range);
            wrote
        }),
        _ => {
            if let Some(_guard) = lock.try_read_for(range, time) {
                board.read(range);
            }
            if let Some(_guard) = lock.try_read(range) {
                board.read(range);
            }
            0
        }
    }
}
