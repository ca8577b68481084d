//! The two modes exclude each other, in every order of arrival.
#![cfg(pagefold_loom)]

use smp_list::TwoModeLock;
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
