//! Threads lock random ranges, small ones and large ones, in all modes. For ThreadSanitizer, too.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

mod board;
mod work;

use board::Board;
use span_lock::RangeLock;
use sync::Arc;
use sync::random::Random;
use sync::thread;

/// The number of uses of the lock by each thread.
const TURNS: u64 = if cfg!(pagefold_tsan) { 20_000 } else { 200_000 };

/// Uses a lock with units of 2^`unit_bits`, and `cells` cells of `stride` numbers each. With small
/// units, the cells extend over granules of both levels.
fn stress(unit_bits: u32, cells: usize, stride: u64) {
    let lock = Arc::new(RangeLock::with_unit_bits(unit_bits));
    let board = Arc::new(Board::new(cells, stride));
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let (lock, board) = (Arc::clone(&lock), Arc::clone(&board));
            thread::spawn("stress", move || {
                let mut random = Random::seeded(seed);
                let mut wrote = 0;
                for _ in 0..TURNS {
                    let range = work::range(&mut random, board_cells(&board), stride);
                    wrote += work::one(&lock, &board, range, &mut random);
                }
                wrote
            })
            .unwrap()
        })
        .collect();
    let wrote: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let mut board = Arc::into_inner(board).unwrap();
    assert_eq!(board.sum(), wrote, "a write was lost");
    assert!(lock.try_write(span_lock::LockRange::FULL).is_some(), "a range is still locked");
}

fn board_cells(board: &Board) -> u64 {
    board.len_of(span_lock::LockRange::FULL)
}

#[test]
fn neighbours_in_one_granule() {
    stress(12, 16, 4096);
}

#[test]
fn granules_of_the_lowest_level() {
    stress(4, 32, 4096);
}

#[test]
fn granules_of_all_levels() {
    stress(0, 24, 1 << 16);
}
