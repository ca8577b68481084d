//! Threads change two lists at the same time: for ThreadSanitizer, and for real CPUs.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

mod world;

use smp_list::{CombiningLock, Links, LocalList, SmpList, TwoModeLock};
use sync::random::Random;
use world::{Op, World};

const THREADS: u32 = 4;
const NODES: u32 = 48;
const OPS: u64 = if cfg!(pagefold_tsan) { 20_000 } else { 100_000 };

/// Joins the threads one by one: ThreadSanitizer doesn't see that a scope waits for its threads.
fn join(threads: Vec<std::thread::ScopedJoinHandle<'_, ()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn lists_stay_whole() {
    let mut world = World::new(NODES, 0);
    std::thread::scope(|scope| {
        let world = &world;
        let at_work = |thread: u32| {
            move || {
                let mut random = Random::seeded(u64::from(thread));
                for _ in 0..OPS {
                    let node = random.below(u64::from(NODES)) as u32;
                    let op = match random.below(6) {
                        0 | 1 => Op::Touch(node),
                        5 => Op::Cool(node),
                        2 => Op::Move(node),
                        3 => Op::Rotate,
                        _ => Op::Fetch,
                    };
                    world.run(op, 0);
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(at_work(thread))).collect();
        join(threads);
    });
    world.check("after all");
    let second = world.take(1, NODES as usize, true).len();
    assert_eq!(world.all().len() + second, NODES as usize);
}

/// A walk in exclusive mode sees an intact list, although other threads change the list in shared
/// mode between two walks.
#[test]
fn a_walk_sees_all() {
    let nodes: Vec<Links> = (0..NODES).map(|_| Links::new()).collect();
    let nodes = &nodes[..];
    let lock = TwoModeLock::new(SmpList::new(0));
    let mut local = LocalList::new();
    (0..NODES).for_each(|node| local.push_back(nodes, node));
    lock.shared().splice_head(nodes, local);
    std::thread::scope(|scope| {
        let lock = &lock;
        let at_work = |thread: u32| {
            move || {
                let mut random = Random::seeded(u64::from(thread));
                for _ in 0..OPS / 10 {
                    // Each thread uses only nodes of its own, so these count as claimed by the
                    // thread.
                    let node = random.below(u64::from(NODES / THREADS)) as u32 * THREADS + thread;
                    let list = lock.shared();
                    list.del(nodes, node);
                    list.add_head(nodes, node);
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(at_work(thread))).collect();
        for _ in 0..50 {
            let mut list = lock.exclusive();
            assert!(list.is_consistent(nodes, NODES as usize));
            assert_eq!(list.iter(nodes).count(), NODES as usize);
            list.move_to_head(nodes, 7);
            assert_eq!(list.iter(nodes).next(), Some(7));
        }
        join(threads);
    });
}

/// Changes that threads leave for each other are made once each.
#[test]
fn changes_are_made_by_any_thread() {
    let mut lock = CombiningLock::new(Vec::new());
    let note = |made: &mut Vec<u64>, change| made.push(change);
    std::thread::scope(|scope| {
        let lock = &lock;
        let at_work = |thread: u64| {
            move || {
                for turn in 0..OPS / 10 {
                    lock.change(turn * u64::from(THREADS) + thread, note);
                    if turn % 100 == 0 {
                        let made = lock.shared();
                        assert!(made.last().is_none_or(|&last| last < OPS), "a change that no thread left");
                    }
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(at_work(u64::from(thread)))).collect();
        join(threads);
    });
    // Also makes the changes that were left over.
    let count = u64::from(THREADS) * (OPS / 10);
    lock.change(count, note);
    let made = lock.get_mut();
    made.sort_unstable();
    assert!(made.iter().copied().eq(0..=count));
}

#[test]
fn one_list_goes_to_the_end_of_another() {
    let nodes: Vec<Links> = (0..6).map(|_| Links::new()).collect();
    let nodes = &nodes[..];
    let [mut first, mut second] = [0, 1].map(SmpList::new);
    (0..3).for_each(|node| first.add_tail(nodes, node));
    first.append(nodes, &mut second);
    (3..6).for_each(|node| second.add_tail(nodes, node));
    first.append(nodes, &mut second);
    assert!(second.is_empty() && second.is_consistent(nodes, 6) && first.is_consistent(nodes, 6));
    assert_eq!(first.iter(nodes).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    second.append(nodes, &mut first);
    assert!(first.is_empty() && second.iter(nodes).eq(0..6));
}
