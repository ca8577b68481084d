//! Loom models of the thread pool: two threads submit requests, a thread of the pool performs them,
//! and threads help. In every interleaving, each request must complete once, with its own bytes; no
//! thread may sleep forever; and every thread must end. Run with `RUSTFLAGS="--cfg pagefold_loom"
//! cargo test --test loom_thread_pool --release`.
#![cfg(pagefold_loom)]

use std::path::Path;

use pagefold_io::{Access, Backend, BackingFile, Batch, Helping, Identity, IoError, Request, ThreadPool};
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::{Arc, SharedBytes, thread};

/// A file on the device with this number. Each word of the file is the word's offset.
struct Offsets(u64);

impl Backend for Offsets {
    fn name(&self) -> &'static str {
        "offsets"
    }

    fn open(&self, path: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(Self(path.as_os_str().len() as u64)))
    }
}

impl BackingFile for Offsets {
    fn identity(&self) -> Identity {
        Identity { device: self.0, inode: 1 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(u64::MAX)
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        into[0].copy_from(0, &offset.to_ne_bytes());
        Ok(8)
    }
}

/// A read that checks its word, and counts itself.
fn read_of(offset: u64, over: &Arc<AtomicUsize>) -> Request {
    let over = Arc::clone(over);
    let words: Box<[AtomicU64]> = Box::new([AtomicU64::new(0)]);
    let then = move |words: Box<[AtomicU64]>, result| {
        assert_eq!(result, Ok(8));
        // Relaxed: written by this thread.
        assert_eq!(words[0].load(Ordering::Relaxed), offset);
        // Release: pairs with the helper's.
        over.fetch_add(1, Ordering::Release);
    };
    Request::read(offset, words, then).unwrap()
}

fn open(threads: usize) -> Arc<dyn BackingFile> {
    Arc::from(ThreadPool::new(Offsets(0), threads).unwrap().open(Path::new(""), Access::Read).unwrap())
}

fn submit_and_help(file: &dyn BackingFile, offsets: &[u64]) {
    let over = Arc::new(AtomicUsize::new(0));
    let mut requests = offsets.iter().map(|&offset| read_of(offset, &over)).collect();
    let queue = file.submit(&mut requests);
    let done = || over.load(Ordering::Acquire) == offsets.len();
    file.help(queue, &done);
    assert!(done());
}

#[test]
fn a_helper_beside_a_thread() {
    sync::model(|| submit_and_help(&*open(1), &[8, 16]));
}

#[test]
fn two_helpers_beside_a_thread() {
    sync::model(|| {
        let file = open(1);
        let theirs = Arc::clone(&file);
        let other = thread::spawn("helper", move || submit_and_help(&*theirs, &[8])).unwrap();
        submit_and_help(&*file, &[16]);
        other.join().unwrap();
    });
}

#[test]
fn a_pool_that_is_dropped_ends_what_nobody_waits_for() {
    sync::model(|| {
        let over = Arc::new(AtomicUsize::new(0));
        let file = open(1);
        file.submit(&mut vec![read_of(8, &over)]);
        file.submit(&mut vec![read_of(16, &over)]);
        drop(file);
        assert_eq!(over.load(Ordering::Acquire), 2);
    });
}

/// Two devices, with a limit of one thread for each. A thread that has finished with one device
/// must also find the remaining work of the other.
#[test]
fn two_devices_are_served_in_turn() {
    sync::model(|| {
        let over = Arc::new(AtomicUsize::new(0));
        let pool = ThreadPool::new(Offsets(0), 1).unwrap();
        let open = |path| pool.open(Path::new(path), Access::Read).unwrap();
        let (one, other) = (open("a"), open("bb"));
        one.submit(&mut vec![read_of(8, &over)]);
        other.submit(&mut vec![read_of(16, &over)]);
        drop((one, other, pool));
        assert_eq!(over.load(Ordering::Acquire), 2);
    });
}

/// A helper performs the requests of its own batch, and waits for those that a thread of the pool
/// has taken. It leaves other requests to that thread.
#[test]
fn a_helper_of_a_batch_beside_a_thread() {
    sync::model(|| {
        let file = open(1);
        let (over, own) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let batch = Batch::default();
        file.submit(&mut vec![read_of(8, &over)]);
        let queue = file.submit(&mut vec![read_of(16, &own).in_batch(&batch)]);
        file.help_as(&queue, Helping::default(), &|| false);
        assert_eq!((own.load(Ordering::Acquire), batch.unfinished()), (1, 0));
        drop(file);
        assert_eq!(over.load(Ordering::Acquire), 1);
    });
}

/// A file of which no read from offset 16 on ends before the latch is opened.
struct Latched(Arc<Latch>);

#[derive(Default)]
struct Latch {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }
}

impl Backend for Latched {
    fn name(&self) -> &'static str {
        "latched"
    }

    fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl BackingFile for Latched {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: 1 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(u64::MAX)
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        if offset >= 16 {
            self.0.wait();
        }
        Offsets(0).read(offset, into)
    }
}

/// T2: the pool's thread completes the helper's request after the helper has called `done()`, and
/// before the helper sleeps. The file has another request, which completes only after the helper
/// has returned. So no later completion wakes the helper.
#[test]
fn a_helper_misses_no_completion() {
    sync::model(|| {
        let (over, own) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let latch = Arc::new(Latch::default());
        let file = ThreadPool::new(Latched(Arc::clone(&latch)), 1).unwrap().open(Path::new(""), Access::Read).unwrap();
        let batch = Batch::default();
        let queue = file.submit(&mut vec![read_of(8, &own).in_batch(&batch)]);
        file.submit(&mut vec![read_of(16, &over)]);
        file.help_as(&queue, Helping::default(), &|| own.load(Ordering::Acquire) == 1);
        assert_eq!(own.load(Ordering::Acquire), 1);
        latch.open();
        drop(file);
        assert_eq!(over.load(Ordering::Acquire), 1);
    });
}
