//! A race that ThreadSanitizer has to report: if this test passes under ThreadSanitizer, the other
//! tests prove nothing.
//!
//! Run by hand or by the gate: `cargo test --test known_race -- --ignored`, which must fail under
//! ThreadSanitizer.
#![cfg(not(pagefold_loom))]

use sync::thread;

struct Racy(std::cell::UnsafeCell<u64>);

// SAFETY: none. This is what the test is about: nothing keeps two threads apart.
unsafe impl Sync for Racy {}

static RACY: Racy = Racy(std::cell::UnsafeCell::new(0));

#[test]
#[ignore = "for ThreadSanitizer: a data race that it must find"]
fn two_threads_write_without_order() {
    let threads = [1, 2].map(|mark| {
        let write = move || {
            for _ in 0..1000 {
                // SAFETY: none, as above.
                unsafe { RACY.0.get().write_volatile(mark) };
                thread::yield_now();
            }
        };
        thread::spawn("racy", write).unwrap()
    });
    for thread in threads {
        thread.join().unwrap();
    }
}
