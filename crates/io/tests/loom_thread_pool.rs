//! Two callers, one worker, fewer seats than callers need: every interleaving answers each caller with its own bytes,
//! and every thread ends. Run with `RUSTFLAGS="--cfg pagefold_loom" cargo test --test loom_thread_pool --release`.
#![cfg(pagefold_loom)]

use std::path::Path;

use io::{Access, Backend, BackingFile, Identity, IoError, ThreadPool};
use sync::atomic::{AtomicU64, Ordering};
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

    fn read(&self, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
        into.copy_from(0, &offset.to_ne_bytes());
        Ok(offset as usize)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let mut word = [0; 8];
        from[0].copy_to(0, &mut word);
        assert_eq!((u64::from_ne_bytes(word), from[0].len()), (offset, len));
        Ok(len)
    }
}

fn read_one(file: &dyn BackingFile, offset: u64) {
    let words = [AtomicU64::new(0)];
    assert_eq!(file.read(offset, SharedBytes::new(&words)), Ok(offset as usize));
    // Relaxed: the answer came under the pool's lock, which orders it.
    assert_eq!(words[0].load(Ordering::Relaxed), offset);
}

fn write_one(file: &dyn BackingFile, offset: u64) {
    let words = [AtomicU64::new(offset)];
    assert_eq!(file.write(offset, &[SharedBytes::new(&words)], 8), Ok(8));
}

fn two_callers(queue: usize, other_call: fn(&dyn BackingFile, u64)) {
    sync::model(move || {
        let pool = ThreadPool::new(Offsets, 1, queue).unwrap();
        let file: Arc<dyn BackingFile> = Arc::from(pool.open(Path::new(""), Access::Read).unwrap());
        drop(pool);
        let other = Arc::clone(&file);
        let caller = thread::spawn("caller", move || other_call(&*other, 8)).unwrap();
        read_one(&*file, 16);
        caller.join().unwrap();
    });
}

#[test]
fn callers_wait_for_a_seat() {
    two_callers(0, read_one);
}

#[test]
fn callers_wait_in_line() {
    two_callers(1, read_one);
}

#[test]
fn a_writer_and_a_reader_wait_for_a_seat() {
    two_callers(0, write_one);
}
