use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use sync::lock::Mutex;
use sync::time::Duration;

use super::*;
use crate::patience::{build_directory, has_uring, not_here, wait_until};

const PAGE: u64 = 4096;
const PAGES: u64 = 512;

/// Rings that two requests fill.
const TINY: Sizes = Sizes { submissions: 1, in_flight: 2 };

fn file_of_pages() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir_in(build_directory()).unwrap();
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..PAGES).flat_map(|page| page.to_ne_bytes().repeat(512)).collect();
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

/// Counts completed requests, and records wrong results. It doesn't panic in a completion, because
/// the panic would look like a request that never completes.
#[derive(Default)]
struct Over {
    count: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Over {
    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn assert(&self, count: usize) {
        let wrong = self.wrong.lock();
        assert!(self.count() == count && wrong.is_empty(), "{} of {count}, wrong: {wrong:?}", self.count());
    }

    fn wait(&self, count: usize) {
        wait_until(&format!("{count} requests are over"), || self.count() >= count);
        self.assert(count);
    }
}

fn read(page: u64, over: &Arc<Over>) -> Request {
    let memory: Box<[AtomicU64]> = (0..512).map(|_| AtomicU64::new(u64::MAX)).collect();
    let over = Arc::clone(over);
    let then = move |memory: Box<[AtomicU64]>, result| {
        let first_wrong = memory.iter().map(|word| word.load(Ordering::Relaxed)).find(|&word| word != page);
        if result != Ok(4096) || first_wrong.is_some() {
            over.wrong.lock().push(format!("page {page}: {result:?}, {first_wrong:?}"));
        }
        over.count.fetch_add(1, Ordering::SeqCst);
    };
    Request::read(page * PAGE, memory, then).unwrap()
}

fn await_all(over: &AtomicUsize, count: usize) {
    wait_until(&format!("{count} requests that are over"), || over.load(Ordering::SeqCst) >= count);
}

/// Creates the backend with `count` rings. `None` if this machine has no io_uring.
fn rings(count: usize, sizes: Sizes) -> Option<Uring> {
    rings_with(DirectIo::Auto, count, sizes)
}

fn rings_with(direct: DirectIo, count: usize, sizes: Sizes) -> Option<Uring> {
    let uring = Uring::with_rings(direct, count, sizes);
    let refusal = uring.as_ref().err().and_then(|error| error.errno());
    has_uring(refusal).then(|| uring.unwrap())
}

/// Returns whether requests for the file go through rings; prints a message if not.
fn goes_through_rings(uring: &Uring, path: &Path) -> bool {
    let file = uring.posix.open_file(path, Access::Read).unwrap();
    let does = file.is_prompt() && !file.is_in_memory();
    if !does {
        not_here("a file system whose files go through rings");
    }
    does
}

#[test]
fn a_ring_that_is_full_has_the_rest_wait() {
    let (_directory, path) = file_of_pages();
    let Some(uring) = rings(1, TINY) else { return };
    let file = uring.open(&path, Access::Read).unwrap();
    let over = Arc::new(Over::default());
    let queue = file.submit(&mut (0..PAGES).map(|page| read(page, &over)).collect());
    file.help(queue, &|| over.count() == PAGES as usize);
    file.submit(&mut (0..PAGES).map(|page| read(page, &over)).collect());
    over.wait(2 * PAGES as usize);
}

#[test]
fn threads_that_share_one_ring_complete_each_others_requests() {
    let (_directory, path) = file_of_pages();
    let Some(uring) = rings(1, TINY) else { return };
    let file: Arc<dyn BackingFile> = Arc::from(uring.open(&path, Access::Read).unwrap());
    let helper = |number: u64| {
        let file = Arc::clone(&file);
        std::thread::spawn(move || {
            for round in 0..20 {
                let over = Arc::new(Over::default());
                let mut requests = (0..8).map(|page| read((number * 64 + page + round) % PAGES, &over)).collect();
                let queue = file.submit(&mut requests);
                file.help(queue, &|| over.count() == 8);
                over.assert(8);
            }
        })
    };
    let helpers: Vec<_> = (0..8).map(helper).collect();
    helpers.into_iter().for_each(|helper| helper.join().unwrap());
}

/// A thread may help in the queue of another thread, with the requests that the other thread
/// submitted.
#[test]
fn a_thread_helps_in_another_ones_queue() {
    let (_directory, path) = file_of_pages();
    let Some(uring) = rings(64, Sizes::default()) else { return };
    let file: Arc<dyn BackingFile> = Arc::from(uring.open(&path, Access::Read).unwrap());
    let over = Arc::new(Over::default());
    let ours = thread::number() % 64;
    // Threads of other tests take numbers, too. If the new thread's ring would be ours, the new
    // thread submits nothing, and another one is started.
    let queue = loop {
        let (theirs, told) = (Arc::clone(&file), Arc::clone(&over));
        let submit = move || {
            let differs = thread::number() % 64 != ours;
            differs.then(|| theirs.submit(&mut (0..PAGES).map(|page| read(page, &told)).collect()))
        };
        if let Some(queue) = std::thread::spawn(submit).join().unwrap() {
            break queue;
        }
    };
    assert_ne!(queue, file.queue());
    file.help(queue, &|| over.count() == PAGES as usize);
    over.assert(PAGES as usize);
}

/// When a thread ends, the kernel cancels those of the thread's requests that it hasn't started
/// yet. Pagefold must perform these requests all the same. Buffered reads can be cancelled in this
/// way, because the kernel gives them to worker threads, which end with the submitter.
#[test]
fn requests_outlive_the_thread_that_submitted_them() {
    for direct in [DirectIo::Never, DirectIo::Auto] {
        let (_directory, path) = file_of_pages();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let Some(uring) = rings_with(direct, *RINGS.start(), Sizes::default()) else { return };
        let over = Arc::new(Over::default());
        for round in 1..=20 {
            let file = uring.open(&path, Access::Read).unwrap();
            rustix::fs::fadvise(std::fs::File::open(&path).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let told = Arc::clone(&over);
            let submit = move || {
                file.submit(&mut (0..PAGES).map(|page| read(page, &told)).collect());
            };
            std::thread::spawn(submit).join().unwrap();
            over.wait(round * PAGES as usize);
        }
    }
}

#[test]
fn dropping_the_last_handle_waits_for_what_is_in_flight() {
    let (_directory, path) = file_of_pages();
    for _ in 0..20 {
        let Some(uring) = rings(4, TINY) else { return };
        let file = uring.open(&path, Access::Read).unwrap();
        drop(uring);
        let over = Arc::new(Over::default());
        file.submit(&mut (0..PAGES).map(|page| read(page, &over)).collect());
        drop(file);
        over.assert(PAGES as usize);
    }
}

/// Regression: the pool's requests were waited for only when the pool itself was dropped. A thread
/// that was summoned to a ring holds a handle of the ring, and through it a handle of the pool. So
/// when the last handle of the backend was dropped, the pool stayed alive, and the drop returned
/// without waiting for the requests.
#[test]
fn dropping_the_last_handle_waits_for_what_threads_do() {
    let (_directory, path) = file_of_pages();
    let Some(uring) = rings(1, TINY) else { return };
    let summoned = Arc::clone(uring.rings.shared.rings[0].get().unwrap().as_ref().unwrap());
    let file = Arc::new(uring.posix.open_file(&path, Access::Read).unwrap());
    let over = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&over);
    let memory: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
    let then = move |_, _| {
        thread::sleep(Duration::from_millis(100));
        told.store(1, Ordering::SeqCst);
    };
    let request = Request::read(0, memory, then).unwrap();
    uring.rings.shared.others.put([Submitted { file, request }]);
    drop(uring);
    assert_eq!(over.load(Ordering::SeqCst), 1);
    drop(summoned);
}

/// The closure called after a request may own the last handle. Then the reaper drops the rings, and
/// must not wait for itself.
#[test]
fn the_reaper_may_drop_the_rings() {
    let (_directory, path) = file_of_pages();
    // This memory isn't aligned for direct I/O. So if the file is direct, a thread of the pool
    // performs the read and drops the last handle. If the file is buffered, the reaper completes
    // the read and drops the handle.
    for direct in [DirectIo::Auto, DirectIo::Never].repeat(10) {
        let Some(uring) = rings_with(direct, *RINGS.start(), Sizes::default()) else { return };
        if !goes_through_rings(&uring, &path) {
            return;
        }
        let file: Arc<dyn BackingFile> = Arc::from(uring.open(&path, Access::Read).unwrap());
        let (theirs, over) = (Arc::clone(&file), Arc::new(AtomicUsize::new(0)));
        let (told, given_up) = (Arc::clone(&over), Arc::new(AtomicBool::new(false)));
        let theirs_alone = Arc::clone(&given_up);
        let memory: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
        let then = move |_, _| {
            wait_until("the test gives up its handles", || theirs_alone.load(Ordering::SeqCst));
            drop(theirs);
            told.store(1, Ordering::SeqCst);
        };
        file.submit(&mut vec![Request::read(0, memory, then).unwrap()]);
        drop(uring);
        drop(file);
        given_up.store(true, Ordering::SeqCst);
        await_all(&over, 1);
    }
}

#[test]
fn a_completion_may_submit_more() {
    fn chain(file: &Arc<dyn BackingFile>, page: u64, over: &Arc<AtomicUsize>) {
        let memory: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
        let (theirs, over) = (Arc::clone(file), Arc::clone(over));
        let then = move |_, result| {
            assert_eq!(result, Ok(4096));
            over.fetch_add(1, Ordering::SeqCst);
            if page + 1 < PAGES {
                chain(&theirs, page + 1, &over);
            }
        };
        file.submit(&mut vec![Request::read(page * PAGE, memory, then).unwrap()]);
    }
    let (_directory, path) = file_of_pages();
    let Some(uring) = rings(2, TINY) else { return };
    let file: Arc<dyn BackingFile> = Arc::from(uring.open(&path, Access::Read).unwrap());
    let over = Arc::new(AtomicUsize::new(0));
    chain(&file, 0, &over);
    await_all(&over, PAGES as usize);
}

#[test]
fn a_panic_in_a_completion_is_the_reapers_and_nothing_else_is_lost() {
    let (_directory, path) = file_of_pages();
    let Some(uring) = rings_with(DirectIo::Never, 1, Sizes::default()) else { return };
    if !goes_through_rings(&uring, &path) {
        return;
    }
    // The thread that leads must complete these reads. Threads of the pool would perform direct
    // reads, because this memory isn't aligned for direct I/O. So the reads are buffered. They are
    // also the first requests, so the reaper isn't active when this thread wants to lead.
    let file = uring.open(&path, Access::Read).unwrap();
    let over = Arc::new(Over::default());
    let mut requests: Vec<_> = (0..64).map(|page| read(page, &over)).collect();
    let memory: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
    requests.insert(32, Request::read(0, memory, |_, _| panic!("on purpose")).unwrap());
    let requests = std::cell::RefCell::new(requests);
    let help = || {
        // Submitted while this thread leads, so that no other thread completes them.
        file.help(file.queue(), &|| {
            file.submit(&mut requests.borrow_mut());
            false
        });
    };
    let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(help));
    assert_eq!(thrown.unwrap_err().downcast_ref(), Some(&"on purpose"));
    over.wait(64);
}

/// If a leader leaves for now and doesn't come back, the reaper still attends to the ring.
#[test]
fn what_is_left_for_now_is_completed_by_the_reaper_after_a_while() {
    let (_directory, path) = file_of_pages();
    let Some(uring) = rings(1, TINY) else { return };
    let file = uring.open(&path, Access::Read).unwrap();
    let over = Arc::new(Over::default());
    for round in 1..=50 {
        let queue = file.submit(&mut (0..16).map(|page| read(page, &over)).collect());
        let for_now = Helping { back_soon: true, ..Helping::default() };
        file.help_as(&queue, for_now, &|| true);
        if round % 2 == 0 {
            file.help_as(&queue, for_now, &|| over.count() > 16 * round - 8);
        }
        over.wait(16 * round);
    }
}

/// Regression: the time limit was spent on the ring, and then a second time on the pool's threads.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_time_limit_is_spent_once() {
    let (_directory, path) = file_of_pages();
    let Some(uring) = rings_with(DirectIo::Never, 1, TINY) else { return };
    if !goes_through_rings(&uring, &path) {
        return;
    }
    let file = uring.open(&path, Access::Read).unwrap();
    // The reaper leads the ring, and a thread of the pool reads, until the test ends.
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let endless = || {
        let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
        let memory: Box<[AtomicU64]> = (0..512).map(AtomicU64::new).collect();
        let then = move |_, _| {
            begun.fetch_add(1, Ordering::SeqCst);
            wait_until("the test ends", || ended.load(Ordering::SeqCst));
        };
        Request::read(0, memory, then).unwrap()
    };
    let queue = file.submit(&mut vec![endless()]);
    let theirs = Arc::new(uring.posix.open_file(&path, Access::Read).unwrap());
    uring.rings.shared.others.put([Submitted { file: theirs, request: endless() }]);
    await_all(&begun, 2);
    let at_most = Duration::from_millis(500);
    let start = Instant::now();
    file.help_as(&queue, Helping { at_most: Some(at_most), ..Helping::default() }, &|| false);
    let elapsed = start.elapsed();
    ended.store(true, Ordering::SeqCst);
    assert!((at_most..at_most * 2).contains(&elapsed), "{elapsed:?}");
}
