//! The system refuses new threads. The test is alone in its process, because the refusals apply to
//! the whole process.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use pagefold::Pagefold;
use sync::atomic::{AtomicBool, Ordering};
use sync::memory::refusals;
use test_disks::SimulatedDisk;

const PAGE: u64 = 4096;

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Regression: the thread that ends pauses couldn't be started, so each pause of a future was over
/// at once. The poll tried again and again to get the page. It kept the executor's thread busy for
/// four seconds, and then failed.
#[test]
fn a_poll_returns_even_if_no_thread_can_end_its_pause() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("file", vec![1; 8 * PAGE as usize]);
    let mm = Pagefold::builder().memory("1MiB").backend(disk).build().unwrap();
    let file = mm.group("tenant").build().unwrap().open_options().write(true).open("file").unwrap();
    let changed = file.page_mut_at(3 * PAGE).unwrap();
    let mut future = file.page_at_async(3 * PAGE);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut poll = || Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
    refusals::refuse(1..=u64::MAX);
    let polled = poll();
    assert!(refusals::allow() > 0, "no thread was needed");
    assert!(polled.is_pending(), "{polled:?}");
    assert!(woken.0.load(Ordering::Relaxed), "the executor doesn't poll again");
    drop(changed);
    let Poll::Ready(Ok(page)) = poll() else { panic!("the page is in memory") };
    assert_eq!(page[..], [1; PAGE as usize]);
}
