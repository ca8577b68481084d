//! Requests submitted by two threads, one thread of the pool, and helpers: in every interleaving each request is over once,
//! with its own bytes, nobody sleeps for ever, and every thread ends. Run with `RUSTFLAGS="--cfg pagefold_loom" cargo test
//! --test loom_thread_pool --release`.
#![cfg(pagefold_loom)]

use std::path::Path;

use io::{Access, Backend, BackingFile, Identity, IoError, Request, ThreadPool};
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::{Arc, SharedBytes, thread};

/// A file whose words hold their offset.
struct Offsets;

impl Backend for Offsets {
    fn name(&self) -> &'static str {
        "offsets"
    }

    fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(Self))
    }
}

impl BackingFile for Offsets {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: 1 }
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
    Arc::from(ThreadPool::new(Offsets, threads).unwrap().open(Path::new(""), Access::Read).unwrap())
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
