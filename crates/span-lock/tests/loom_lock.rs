//! Models of the lock's protocol. In a model, a granule has four units, and each table has few
//! nodes.
//!
//! If a waiter is never woken, the model reports a deadlock. If two threads hold ranges that
//! exclude each other, loom's cells report that.
#![cfg(pagefold_loom)]

use loom::cell::UnsafeCell;
use span_lock::{LockRange, RangeLock};
use sync::Arc;
use sync::thread::{JoinHandle, spawn};
use sync::time::Duration;

/// Each number below this one has a cell.
const CELLS: usize = 12;

struct World {
    lock: RangeLock,
    cells: [UnsafeCell<u32>; CELLS],
}

// SAFETY: the lock keeps threads apart, and the cells find out if it doesn't.
unsafe impl Sync for World {}

type Shared = Arc<World>;

fn range(start: u64, end: u64) -> LockRange {
    LockRange::new(start, end).unwrap()
}

impl World {
    fn new() -> Shared {
        Arc::new(Self { lock: RangeLock::with_unit_bits(0), cells: std::array::from_fn(|_| UnsafeCell::new(0)) })
    }

    /// Creates a world whose lock has spread.
    fn spread() -> Shared {
        let world = Self::new();
        let low = world.lock.read(range(0, 1));
        drop((world.lock.read(range(1, 2)), low));
        assert!(world.lock.table_bytes() > 0);
        world
    }

    fn touch(&self, range: LockRange) {
        for cell in &self.cells[range.start() as usize..(range.end() as usize).min(CELLS)] {
            // SAFETY: the model checks it.
            cell.with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    fn look(&self, range: LockRange) {
        for cell in &self.cells[range.start() as usize..(range.end() as usize).min(CELLS)] {
            // SAFETY: the model checks it.
            cell.with(|cell| assert!(unsafe { *cell } < 100));
        }
    }

    fn write(&self, range: LockRange) {
        let _guard = self.lock.write(range);
        self.touch(range);
    }

    fn read(&self, range: LockRange) {
        let _guard = self.lock.read(range);
        self.look(range);
    }
}

fn thread(world: &Shared, body: impl FnOnce(&World) + Send + 'static) -> JoinHandle<()> {
    let world = Arc::clone(world);
    spawn("model", move || body(&world)).unwrap()
}

fn two(world: fn() -> Shared, ours: fn(&World), theirs: fn(&World)) {
    sync::model(move || {
        let world = world();
        let other = thread(&world, theirs);
        ours(&world);
        other.join().unwrap();
        // If a waiter was left in a queue by mistake, it doesn't exclude other claims at first. But
        // each claim that overtakes it is counted, so a release soon makes it a holder. Then an
        // attempt below fails.
        for _ in 0..3 {
            for range in [range(0, 2), LockRange::FULL] {
                assert!(world.lock.try_write(range).is_some(), "somebody never gave a range back");
            }
        }
    });
}

#[test]
fn overlapping_writers_of_a_fresh_lock() {
    two(World::new, |world| world.write(range(0, 2)), |world| world.write(range(1, 3)));
}

#[test]
fn overlapping_writers_of_a_spread_lock() {
    two(World::spread, |world| world.write(range(0, 2)), |world| world.write(range(1, 3)));
}

#[test]
fn adjacent_writers_make_the_lock_spread() {
    two(World::new, |world| world.write(range(0, 2)), |world| world.write(range(2, 4)));
}

#[test]
fn a_range_over_two_granules_against_each_of_them() {
    two(World::spread, |world| world.write(range(3, 6)), |world| world.write(range(5, 7)));
    two(World::spread, |world| world.write(range(3, 6)), |world| world.write(range(2, 4)));
}

#[test]
fn two_ranges_over_the_same_granules() {
    two(World::spread, |world| world.write(range(3, 6)), |world| world.write(range(2, 5)));
}

#[test]
fn the_full_range_contains_small_ones() {
    two(World::spread, |world| world.write(LockRange::FULL), |world| world.write(range(1, 2)));
}

#[test]
fn the_full_range_contains_a_range_over_two_granules() {
    two(World::spread, |world| world.write(LockRange::FULL), |world| world.write(range(3, 6)));
}

#[test]
fn a_range_of_the_middle_level_contains_small_ones() {
    two(World::spread, |world| world.write(range(0, 10)), |world| world.write(range(6, 7)));
}

#[test]
fn readers_and_a_writer() {
    two(World::spread, |world| world.read(range(0, 2)), |world| world.write(range(1, 3)));
    two(World::new, |world| world.read(LockRange::FULL), |world| world.write(LockRange::FULL));
}

#[test]
fn a_reader_of_everything_and_a_writer_of_little() {
    two(World::spread, |world| world.read(LockRange::FULL), |world| world.write(range(1, 2)));
}

#[test]
fn a_writer_that_becomes_a_reader() {
    let downgrade = |world: &World| {
        let range = range(0, 2);
        let guard = world.lock.write(range);
        world.touch(range);
        let _guard = guard.downgrade();
        world.look(range);
    };
    two(World::spread, downgrade, |world| world.read(range(1, 3)));
    two(World::spread, downgrade, |world| world.write(range(1, 3)));
    two(World::spread, downgrade, |world| world.read(LockRange::FULL));
}

/// A model has no clock: a timeout passes at once, or never.
#[test]
fn a_waiter_that_gives_up_leaves_nothing_behind() {
    let hasty = |world: &World| {
        if let Some(_guard) = world.lock.try_write_for(range(0, 2), Duration::ZERO) {
            world.touch(range(0, 2));
        }
    };
    two(World::spread, |world| world.write(range(1, 3)), hasty);
    two(World::new, |world| world.write(range(1, 3)), hasty);
    two(
        World::spread,
        |world| world.write(range(1, 3)),
        |world| {
            if let Some(_guard) = world.lock.try_write_for(LockRange::FULL, Duration::ZERO) {
                world.touch(LockRange::FULL);
            }
        },
    );
}

#[test]
fn trying() {
    two(
        World::spread,
        |world| world.write(range(1, 3)),
        |world| {
            if let Some(_guard) = world.lock.try_read(LockRange::FULL) {
                world.look(LockRange::FULL);
            }
        },
    );
}

#[test]
fn the_lock_spreads_under_a_claim_of_the_full_range() {
    sync::model(|| {
        let world = World::new();
        let low = thread(&world, |world| world.write(range(0, 1)));
        let full = thread(&world, |world| world.write(LockRange::FULL));
        world.write(range(5, 6));
        low.join().unwrap();
        full.join().unwrap();
    });
}

/// Makes `claim` while another thread runs `compacts`. A claim can be overtaken twice by a thread
/// that makes the lock compact and lets it spread again. This takes four preemptions, so the model
/// permits five.
fn compacted(claim: LockRange, compacts: fn(&World)) {
    sync::model_deeper(5, move || {
        let world = World::spread();
        let other = thread(&world, compacts);
        world.write(claim);
        other.join().unwrap();
        assert!(world.lock.compact(), "nobody is about");
    });
}

/// A claim must not rely on what it saw of the lock before the lock was made compact.
#[test]
fn the_lock_is_made_compact_under_claims_of_all_levels() {
    for claim in [range(1, 2), range(3, 6), range(0, 10), LockRange::FULL] {
        compacted(claim, |world| {
            world.lock.compact();
            world.write(range(1, 5));
        });
    }
}

#[test]
fn a_compact_lock_spreads_again_under_a_claim_that_began_before() {
    compacted(range(0, 10), |world| {
        if world.lock.compact() {
            let low = world.lock.try_write(range(10, 11));
            let high = world.lock.try_write(range(11, 12));
            drop((low, high));
        }
        world.write(range(1, 2));
    });
}

#[test]
fn a_compact_lock_spreads_again_while_a_claim_looks_at_it() {
    compacted(range(1, 2), |world| {
        if world.lock.compact()
            && let Some(_low) = world.lock.try_write(range(1, 2))
        {
            let _high = world.lock.try_write(range(5, 6));
            world.touch(range(1, 2));
        }
    });
}

#[test]
fn three_writers_in_a_row_are_all_served() {
    sync::model(|| {
        let world = World::spread();
        let others = [range(0, 2), range(1, 3)].map(|range| thread(&world, move |world| world.write(range)));
        world.write(range(1, 2));
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
