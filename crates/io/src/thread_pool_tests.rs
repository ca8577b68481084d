use sync::SharedBytes;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::time::Duration;

use super::*;
use crate::Identity;
use crate::patience::wait_until;

/// A file whose reads call a function.
struct Custom<F>(Arc<F>);

impl<F: Fn(u64) -> Result<usize, IoError> + Send + Sync + 'static> Backend for Custom<F> {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl<F: Fn(u64) -> Result<usize, IoError> + Send + Sync> BackingFile for Custom<F> {
    fn identity(&self) -> Identity {
        Identity { device: 1, inode: 2 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(u64::MAX)
    }

    fn read(&self, offset: u64, _: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        (self.0)(offset)
    }
}

fn file_of<F: Fn(u64) -> Result<usize, IoError> + Send + Sync + 'static>(
    threads: usize,
    read: F,
) -> Box<dyn BackingFile> {
    ThreadPool::new(Custom(Arc::new(read)), threads).unwrap().open(Path::new(""), Access::Read).unwrap()
}

fn request(offset: u64, then: impl FnOnce(Result<usize, IoError>) + Send + 'static) -> Request {
    let page: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
    Request::read(offset, page, |_, result| then(result)).unwrap()
}

/// Creates `count` reads, and a counter of the completed ones.
fn counted(count: u64) -> (Vec<Request>, Arc<AtomicUsize>) {
    let over = Arc::new(AtomicUsize::new(0));
    let one = |at| {
        let over = Arc::clone(&over);
        request(at * 4096, move |_| {
            over.fetch_add(1, Ordering::SeqCst);
        })
    };
    ((0..count).map(one).collect(), over)
}

#[test]
fn no_more_threads_than_allowed_and_the_helper() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let file = file_of(3, |_| {
        MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        wait_until("three threads and the helper read at once", || MOST.load(Ordering::SeqCst) >= 4);
        // Gives a fifth read time to start, which must not happen.
        thread::sleep(Duration::from_millis(2));
        NOW.fetch_sub(1, Ordering::SeqCst);
        Ok(4096)
    });
    let (mut requests, over) = counted(60);
    let queue = file.submit(&mut requests);
    file.help(queue, &|| over.load(Ordering::SeqCst) == 60);
    assert_eq!((over.load(Ordering::SeqCst), MOST.load(Ordering::SeqCst)), (60, 4));
}

#[test]
fn what_is_called_is_done_by_the_caller() {
    let caller = std::thread::current().id();
    let file = file_of(1, move |offset| {
        assert_eq!(std::thread::current().id(), caller);
        if offset == 0 { Err(IoError::IO) } else { Ok(5) }
    });
    let page: Vec<_> = (0..512).map(AtomicU64::new).collect();
    assert_eq!(file.read(0, &[SharedBytes::new(&page)]), Err(IoError::IO));
    assert_eq!(file.read(4096, &[SharedBytes::new(&page)]), Ok(5));
    assert_eq!((file.len(), file.identity()), (Ok(u64::MAX), Identity { device: 1, inode: 2 }));
}

#[test]
fn a_read_that_panics_fails_alone() {
    let file = file_of(1, |offset| if offset == 0 { panic!("on purpose") } else { Ok(4096) });
    for _ in 0..3 {
        let (mut requests, over) = counted(5);
        let queue = file.submit(&mut requests);
        file.help(queue, &|| over.load(Ordering::SeqCst) == 5);
        assert_eq!(over.load(Ordering::SeqCst), 5, "each request completes");
    }
}

/// Waits until exactly `wanted` threads of this process have this name. A test must wait for that,
/// because a thread sets its name after it has started, and stays listed for a moment after it was
/// joined.
fn await_threads(name: &str, wanted: usize) {
    let named = |comm: std::path::PathBuf| std::fs::read_to_string(comm).is_ok_and(|comm| comm.trim() == name);
    wait_until(&format!("{wanted} threads have the name {name}"), || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.filter(|task| task.as_ref().is_ok_and(|task| named(task.path().join("comm")))).count() == wanted
    });
}

#[test]
fn threads_start_as_they_are_needed_and_end_with_the_last_handle() {
    // No other pool in this process has so many threads: the pools of rings have 32 for each of two
    // devices.
    let name = "pagefold-io-99";
    let file = file_of(100, |_| {
        thread::sleep(Duration::from_millis(1));
        Ok(4096)
    });
    await_threads(name, 0);
    let (mut requests, over) = counted(500);
    file.submit(&mut requests);
    await_threads(name, 1);
    drop(file);
    assert_eq!(over.load(Ordering::SeqCst), 500);
    await_threads(name, 0);
}

/// A request's completion closure may own the pool's last handle. Then the thread that runs the
/// closure drops the pool. Because it is a thread of the pool, it must not wait for its own end.
#[test]
fn a_thread_may_drop_the_pool() {
    let given_up = Arc::new(AtomicUsize::new(0));
    let theirs_alone = Arc::clone(&given_up);
    let file: Arc<dyn BackingFile> = Arc::from(file_of(1, move |_| {
        wait_until("the test gives up its handle", || theirs_alone.load(Ordering::SeqCst) == 1);
        Ok(4096)
    }));
    let (over, theirs) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&file));
    let told = Arc::clone(&over);
    let then = move |_| {
        drop(theirs);
        told.store(1, Ordering::SeqCst);
    };
    file.submit(&mut vec![request(0, then)]);
    drop(file);
    given_up.store(1, Ordering::SeqCst);
    wait_until("the thread that drops the pool doesn't wait for itself", || over.load(Ordering::SeqCst) == 1);
}

/// Files on two devices. The file "stuck" is on the device `STUCK`, whose reads complete only when
/// the test releases them. All other files are on the other device.
#[derive(Clone, Default)]
struct Devices {
    stuck: Arc<(Mutex<bool>, sync::lock::Condvar)>,
    reads_of_stuck: Arc<AtomicUsize>,
}

struct OnDevice {
    devices: Devices,
    device: u64,
}

const STUCK: u64 = 1;

impl Devices {
    fn file(&self, pool: &ThreadPool, name: &str) -> Box<dyn BackingFile> {
        pool.open(Path::new(name), Access::Read).unwrap()
    }

    fn let_go(&self) {
        *self.stuck.0.lock() = true;
        self.stuck.1.notify_all();
    }

    /// Waits until `count` reads of the stuck device have begun.
    fn await_stuck(&self, count: usize) {
        wait_until("reads of the stuck device begin", || self.reads_of_stuck.load(Ordering::SeqCst) >= count);
    }
}

impl Backend for Devices {
    fn name(&self) -> &'static str {
        "devices"
    }

    fn open(&self, path: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let device = if path == Path::new("stuck") { STUCK } else { 2 };
        Ok(Box::new(OnDevice { devices: self.clone(), device }))
    }
}

impl BackingFile for OnDevice {
    fn identity(&self) -> Identity {
        Identity { device: self.device, inode: 1 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(u64::MAX)
    }

    fn read(&self, _: u64, _: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        if self.device == STUCK {
            self.devices.reads_of_stuck.fetch_add(1, Ordering::SeqCst);
            let mut free = self.devices.stuck.0.lock();
            while !*free {
                self.devices.stuck.1.wait(&mut free);
            }
        }
        Ok(4096)
    }
}

fn await_count(over: &AtomicUsize, count: usize) {
    wait_until(&format!("{count} reads are over"), || over.load(Ordering::SeqCst) >= count);
}

/// Regression: there was one queue for all files. A tenant prefetched from a device that didn't
/// answer, and these requests tied up all threads. So no other tenant's future completed.
#[test]
fn a_stuck_device_keeps_its_own_threads_alone() {
    let devices = Devices::default();
    let pool = ThreadPool::new(devices.clone(), 4).unwrap();
    let (stuck, other) = (devices.file(&pool, "stuck"), devices.file(&pool, "other"));
    let (mut requests, stuck_over) = counted(100);
    stuck.submit(&mut requests);
    devices.await_stuck(4);
    let (mut requests, over) = counted(100);
    other.submit(&mut requests);
    await_count(&over, 100);
    assert_eq!((devices.reads_of_stuck.load(Ordering::SeqCst), stuck_over.load(Ordering::SeqCst)), (4, 0));
    devices.let_go();
    await_count(&stuck_over, 100);
}

/// Regression: a thread that waited for its page took the oldest request of the queue and performed
/// it. This was another tenant's request, and took three seconds.
#[test]
fn a_helper_does_nothing_but_its_own_batch() {
    let devices = Devices::default();
    let pool = ThreadPool::new(devices.clone(), 1).unwrap();
    let stuck = devices.file(&pool, "stuck");
    let (requests, over) = counted(5);
    let (mut theirs, mut ours) = (requests, Vec::new());
    let batch = crate::Batch::default();
    let done = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&done);
    stuck.submit(&mut theirs);
    devices.await_stuck(1);
    ours.push(
        request(0, move |_| {
            told.fetch_add(1, Ordering::SeqCst);
        })
        .in_batch(&batch),
    );
    // A helper that only waits performs nothing, and gives up when its time limit has passed.
    let queue = stuck.submit(&mut ours);
    let how = Helping { at_most: Some(Duration::from_millis(5)), waits_only: true, ..Helping::default() };
    stuck.help_as(&queue, how, &|| false);
    assert_eq!((devices.reads_of_stuck.load(Ordering::SeqCst), batch.unfinished()), (1, 1));
    // A helper that performs requests takes its own, the last in the queue.
    std::thread::scope(|scope| {
        let helper = scope.spawn(|| stuck.help_as(&queue, Helping::default(), &|| false));
        devices.await_stuck(2);
        assert_eq!(over.load(Ordering::SeqCst), 0);
        devices.let_go();
        helper.join().unwrap();
    });
    assert_eq!((done.load(Ordering::SeqCst), batch.unfinished()), (1, 0));
    await_count(&over, 5);
}
