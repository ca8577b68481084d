use std::collections::HashSet;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::time::{Duration, Instant};

use super::*;
use crate::{SimulatedDisk, Timing, generated_word, read_full, write_full};

/// Calls `read` instead of reading.
struct Custom<F>(Arc<F>);

impl<F: Fn(u64, SharedBytes<'_>) -> Result<usize, IoError> + Send + Sync + 'static> Backend for Custom<F> {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl<F: Fn(u64, SharedBytes<'_>) -> Result<usize, IoError> + Send + Sync> BackingFile for Custom<F> {
    fn identity(&self) -> Identity {
        Identity { device: 1, inode: 2 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(3)
    }

    fn read(&self, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
        (self.0)(offset, into)
    }
}

fn pool_of<F: Fn(u64, SharedBytes<'_>) -> Result<usize, IoError> + Send + Sync + 'static>(
    threads: usize,
    queue: usize,
    read: F,
) -> ThreadPool {
    ThreadPool::new(Custom(Arc::new(read)), threads, queue).unwrap()
}

fn page() -> Vec<AtomicU64> {
    (0..512).map(|_| AtomicU64::new(u64::MAX)).collect()
}

#[test]
fn many_callers_each_get_their_own_bytes() {
    for (threads, queue) in [(1, 0), (3, 0), (4, 2), (0, 100)] {
        let disk = SimulatedDisk::new(Timing::default());
        disk.add_generated("file", 7, 1 << 40);
        let pool = ThreadPool::new(disk, threads, queue).unwrap();
        let file = pool.open(Path::new("file"), Access::Read).unwrap();
        drop(pool);
        std::thread::scope(|scope| {
            for caller in 0..16 {
                let file = &*file;
                scope.spawn(move || {
                    let words = page();
                    for i in 0..200 {
                        let offset = (i * 16 + caller) * 4096;
                        assert_eq!(read_full(file, offset, SharedBytes::new(&words)), Ok(4096));
                        for (at, word) in words.iter().enumerate() {
                            let wanted = generated_word(7, offset + at as u64 * 8);
                            assert_eq!(word.load(Ordering::Relaxed), wanted);
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn no_more_reads_at_once_than_threads_and_none_in_the_caller() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let readers = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&readers);
    let pool = pool_of(3, 1, move |_, _| {
        seen.lock().insert(std::thread::current().id());
        MOST.fetch_max(NOW.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
        NOW.fetch_sub(1, Ordering::Relaxed);
        Ok(0)
    });
    let file = pool.open(Path::new(""), Access::Read).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| (0..5).for_each(|_| assert_eq!(file.read(0, SharedBytes::new(&page())), Ok(0))));
        }
    });
    assert_eq!(MOST.load(Ordering::Relaxed), 3);
    assert_eq!(readers.lock().len(), 3);
    assert!(!readers.lock().contains(&std::thread::current().id()));
}

#[test]
fn errors_and_what_isnt_a_read_come_through() {
    let pool = pool_of(1, 1, |offset, _| if offset == 0 { Err(IoError::IO) } else { Ok(5) });
    let file = pool.open(Path::new(""), Access::Read).unwrap();
    assert_eq!(file.read(0, SharedBytes::new(&page())), Err(IoError::IO));
    assert_eq!(file.read(4096, SharedBytes::new(&page())), Ok(5));
    assert_eq!((file.len(), file.identity()), (Ok(3), Identity { device: 1, inode: 2 }));
}

#[test]
fn a_panic_reaches_the_caller_and_the_thread_lives_on() {
    let pool = pool_of(1, 0, |offset, _| if offset == 0 { panic!("on purpose") } else { Ok(9) });
    let file = pool.open(Path::new(""), Access::Read).unwrap();
    for _ in 0..3 {
        let thrown = catch_unwind(AssertUnwindSafe(|| file.read(0, SharedBytes::new(&page())))).unwrap_err();
        assert_eq!(thrown.downcast_ref(), Some(&"on purpose"));
        assert_eq!(file.read(4096, SharedBytes::new(&page())), Ok(9));
    }
}

/// Waits until so many threads of this process have the name. Threads name themselves after they started, and are
/// listed for a moment after they were joined.
fn await_threads(name: &str, wanted: usize) {
    let named = |comm: std::path::PathBuf| std::fs::read_to_string(comm).is_ok_and(|comm| comm.trim() == name);
    let start = Instant::now();
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let count = tasks.filter(|task| named(task.as_ref().unwrap().path().join("comm"))).count();
        if count == wanted {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{count} threads instead of {wanted}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_threads_end_with_the_last_handle() {
    // Nobody else's pool has so many threads.
    let name = "pagefold-io-39";
    let pool = pool_of(40, 0, |_, _| Ok(0));
    let file = pool.open(Path::new(""), Access::Read).unwrap();
    drop(pool);
    await_threads(name, 1);
    assert_eq!(file.read(0, SharedBytes::new(&page())), Ok(0));
    drop(file);
    await_threads(name, 0);
}

#[test]
fn many_writers_each_write_their_own_bytes_and_what_was_synced_stays() {
    let disk = SimulatedDisk::new(Timing::default());
    let pool = ThreadPool::new(disk.clone(), 3, 2).unwrap();
    let file = pool.open(Path::new("file"), Access::CreateNew).unwrap();
    drop(pool);
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let file = &*file;
            scope.spawn(move || {
                for i in 0..50 {
                    let offset = (i * 8 + caller) * 8192;
                    let words: Vec<_> =
                        (0..1024).map(|at| AtomicU64::new(generated_word(7, offset + at * 8))).collect();
                    let slices = [SharedBytes::new(&words[..512]), SharedBytes::new(&words[512..])];
                    assert_eq!(write_full(file, offset, &slices, 8192), Ok(()));
                }
                assert_eq!(file.sync(), Ok(()));
            });
        }
    });
    disk.power_cut(1);
    assert_eq!(file.write(0, &[SharedBytes::new(&page())], 4096), Err(IoError::IO));
    assert_eq!((file.sync(), file.set_len(5)), (Err(IoError::IO), Err(IoError::IO)));
    let file = disk.open(Path::new("file"), Access::Read).unwrap();
    assert_eq!(file.len(), Ok(400 * 8192));
    let words = page();
    for offset in (0..400 * 8192).step_by(4096) {
        assert_eq!(read_full(&*file, offset, SharedBytes::new(&words)), Ok(4096));
        let wanted = |at: usize| generated_word(7, offset + at as u64 * 8);
        assert!(words.iter().enumerate().all(|(at, word)| word.load(Ordering::Relaxed) == wanted(at)), "at {offset}");
    }
}

/// Writes and syncs come from the pool's threads, and may panic there.
#[test]
fn writes_and_syncs_are_done_by_the_pool() {
    struct Panics;
    impl Backend for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }

        fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
            Ok(Box::new(Self))
        }
    }
    impl BackingFile for Panics {
        fn identity(&self) -> Identity {
            Identity { device: 1, inode: 2 }
        }

        fn len(&self) -> Result<u64, IoError> {
            Ok(0)
        }

        fn read(&self, _: u64, _: SharedBytes<'_>) -> Result<usize, IoError> {
            Ok(0)
        }

        fn write(&self, _: u64, _: &[SharedBytes<'_>], _: usize) -> Result<usize, IoError> {
            panic!("write in {:?}", std::thread::current().name())
        }

        fn sync(&self) -> Result<(), IoError> {
            panic!("sync in {:?}", std::thread::current().name())
        }
    }
    let file = ThreadPool::new(Panics, 1, 0).unwrap().open(Path::new(""), Access::Write).unwrap();
    let thrown = |call: &dyn Fn()| *catch_unwind(AssertUnwindSafe(call)).unwrap_err().downcast::<String>().unwrap();
    let write = thrown(&|| assert!(file.write(0, &[SharedBytes::new(&page())], 4096).is_ok()));
    let sync = thrown(&|| assert!(file.sync().is_ok()));
    assert_eq!([write, sync], ["write", "sync"].map(|call| format!("{call} in Some(\"pagefold-io-0\")")));
}
