//! The two modes exclude each other, in every order of arrival.
#![cfg(pagefold_loom)]

use smp_list::{CombiningLock, TwoModeLock};
use sync::Arc;
use sync::atomic::{AtomicU32, Ordering};
use sync::thread::spawn;

/// Two words that differ only while a thread is in exclusive mode, and one that changes only while
/// a thread is in shared mode.
#[derive(Default)]
struct Pair([AtomicU32; 2], AtomicU32);

fn shared(lock: &TwoModeLock<Pair>) {
    let pair = lock.shared();
    let [a, b] = [0, 1].map(|at| pair.0[at].load(Ordering::Relaxed));
    assert_eq!(a, b, "in shared mode beside exclusive mode");
    pair.1.store(pair.1.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn exclusive(lock: &TwoModeLock<Pair>) {
    let pair = lock.exclusive();
    let before = pair.0[0].load(Ordering::Relaxed);
    let shared = pair.1.load(Ordering::Relaxed);
    pair.0[0].store(before + 1, Ordering::Relaxed);
    assert_eq!(pair.0[1].load(Ordering::Relaxed), before, "two in exclusive mode");
    pair.0[1].store(before + 1, Ordering::Relaxed);
    assert_eq!(pair.1.load(Ordering::Relaxed), shared, "in exclusive mode beside shared mode");
}

fn together(threads: &'static [fn(&TwoModeLock<Pair>)], exclusives: u32) {
    sync::model(move || {
        let lock = Arc::new(TwoModeLock::new(Pair::default()));
        let start = |&body: &fn(&TwoModeLock<Pair>)| {
            let lock = Arc::clone(&lock);
            spawn("mode", move || body(&lock)).unwrap()
        };
        let others: Vec<_> = threads[1..].iter().map(start).collect();
        threads[0](&lock);
        others.into_iter().for_each(|other| other.join().unwrap());
        let mut lock = Arc::into_inner(lock).unwrap();
        let pair = lock.get_mut();
        assert_eq!([0, 1].map(|at| pair.0[at].load(Ordering::Relaxed)), [exclusives; 2]);
    });
}

#[test]
fn one_of_each() {
    together(&[shared, exclusive], 1);
}

#[test]
fn two_in_exclusive_mode() {
    together(&[exclusive, exclusive], 2);
}

#[test]
fn shared_mode_goes_on_after_the_one_it_waited_for() {
    together(
        &[shared, |lock| {
            exclusive(lock);
            exclusive(lock);
        }],
        2,
    );
}

#[test]
fn shared_mode_again_and_again() {
    together(
        &[
            |lock| {
                shared(lock);
                shared(lock);
            },
            exclusive,
        ],
        1,
    );
}

/// Each thread leaves changes, and every change is made exactly once, by one thread at a time,
/// whether or not the thread that left it got exclusive mode.
fn changes_are_made(threads: &'static [u32]) {
    sync::model(move || {
        let lock = Arc::new(CombiningLock::new(Pair::default()));
        let change = |lock: &CombiningLock<Pair, u32>, times: u32| {
            for _ in 0..times {
                lock.change(1, |pair, more| {
                    let [a, b] = &mut pair.0;
                    let before = a.load(Ordering::Relaxed);
                    a.store(before + more, Ordering::Relaxed);
                    assert_eq!(b.load(Ordering::Relaxed), before, "two in exclusive mode");
                    b.store(before + more, Ordering::Relaxed);
                });
            }
        };
        let start = |&times: &u32| {
            let lock = Arc::clone(&lock);
            spawn("changes", move || change(&lock, times)).unwrap()
        };
        let others: Vec<_> = threads[1..].iter().map(start).collect();
        change(&lock, threads[0]);
        let pair = lock.shared();
        let [a, b] = [0, 1].map(|at| pair.0[at].load(Ordering::Relaxed));
        assert_eq!(a, b, "in shared mode beside exclusive mode");
        drop(pair);
        others.into_iter().for_each(|other| other.join().unwrap());
        let mut lock = Arc::into_inner(lock).unwrap();
        let made = lock.get_mut().0[0].load(Ordering::Relaxed);
        assert_eq!(made, threads.iter().sum(), "a change was forgotten");
    });
}

#[test]
fn no_change_is_forgotten() {
    changes_are_made(&[1, 1]);
}

#[test]
fn no_change_is_forgotten_by_one_that_comes_again() {
    changes_are_made(&[2, 1]);
}
