use super::*;
use crate::manager::file_io::WORKERS_MAX;
use crate::patience::{eventually, wait_for};
use crate::{Advice, File, Pagefold};
use sync::lock::{Mutex, RwLock};
use test_disks::SimulatedDisk;

const PAGE: u64 = 4096;

fn file(io_timeout: Duration) -> File {
    let disk = SimulatedDisk::default();
    disk.add_bytes("file", vec![1; 4096]);
    let mm = Pagefold::builder().memory("4MiB").backend(disk).io_timeout(io_timeout).build().unwrap();
    mm.group("a").build().unwrap().open("file").unwrap()
}

/// Polls the future until it is ready, and returns its error.
fn error_of(mut future: PageFuture<'_>) -> Error {
    wait_for("the future is never ready", || match future.poll_found(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => Some(found.map(|_| "a page").unwrap_err()),
        Poll::Pending => None,
    })
}

/// Regression: a future waited for a worker that made room for page maps, or reclaimed. When the
/// wait exceeded the device's time limit, the device was taken for silent. And when the worker was
/// done, this was taken for an answer of the device.
#[test]
fn a_wait_for_memory_is_no_wait_for_the_device() {
    let file = file(Duration::from_secs(3600));
    let state = &file.handle().file;
    let watch = state.watch().unwrap();
    let mut future = PageFuture::new(file.handle(), 0);
    let gate = Arc::new(RwLock::new(()));
    let (closed, its) = (gate.write(), Arc::clone(&gate));
    let wait = move |_: &FileState| {
        drop(its.read());
        Ok(Done::Room)
    };
    future.elsewhere(Waker::noop(), false, wait).unwrap();
    let poll = |future: &mut PageFuture<'_>| {
        let mut context = Context::from_waker(Waker::noop());
        future.poll_found(&mut context).is_pending()
    };
    assert!(poll(&mut future) && future.timer.is_none());
    assert!(watch.give_up(state, || None::<()>).is_err(), "another call gives up");
    assert!(poll(&mut future), "the future needs no device now");
    drop(closed);
    let error = error_of(future); // When there is room, it needs the device.
    assert!(matches!(error, Error::DeviceTimeout { .. }), "{error}");
    assert!(watch.is_silent());
}

/// Regression: all workers of a device were busy, so no worker began with a future's work.
/// After the time limit, the device was taken for silent.
#[test]
fn work_that_no_worker_has_begun_makes_no_device_silent() {
    let file = file(Duration::from_millis(1));
    let state = &file.handle().file;
    let (workers, gate) = (state.manager.file_io.workers().unwrap(), Arc::new(RwLock::new(())));
    let closed = gate.write();
    for _ in 0..100 {
        let gate = Arc::clone(&gate);
        workers.run(state.backing.identity(), move || drop(gate.read()));
    }
    let mut future = PageFuture::new(file.handle(), 0);
    future.elsewhere(Waker::noop(), true, |_| Ok(Done::Len)).unwrap();
    let error = error_of(future);
    assert!(matches!(error, Error::DeviceTimeout { .. }), "{error}");
    assert!(!state.is_device_silent());
    drop(closed);
}

/// Regression: workers made room for the futures of all groups in one queue. The first future of
/// one group waited behind thousands of futures of another group.
#[test]
fn a_group_does_not_queue_behind_another_for_memory() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("file", vec![1; 4096]);
    let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
    let [many, one] = ["many", "one"].map(|name| mm.group(name).build().unwrap().open("file").unwrap());
    // Two workers go on when the first gate opens, the others at the end.
    let [first, other] = [(); 2].map(|()| Arc::new(RwLock::new(())));
    let (first_closed, other_closed) = (first.write(), other.write());
    let begun = Arc::new(Mutex::new(Vec::new()));
    let add = |file: &File, name: &'static str, gate: &Arc<RwLock<()>>| {
        let (gate, begun) = (Arc::clone(gate), Arc::clone(&begun));
        let does = move |_: &FileState| {
            begun.lock().push(name);
            drop(gate.read());
            Ok(Done::Room)
        };
        PageFuture::new(file.handle(), 0).elsewhere(Waker::noop(), false, does).unwrap();
    };
    let await_begun = |count| eventually("no worker begins", || begun.lock().len() >= count);
    (0..WORKERS_MAX + 100).for_each(|at| add(&many, "many", if at < 2 { &first } else { &other }));
    await_begun(WORKERS_MAX);
    add(&one, "one", &other);
    drop(first_closed);
    await_begun(WORKERS_MAX + 2);
    let next = begun.lock()[WORKERS_MAX..].to_vec();
    drop(other_closed);
    assert!(next.contains(&"one"), "{next:?}");
}

/// When a worker begins some work, the work has the device's full time limit. Until then, the time
/// limit starts again whenever the device's workers make progress.
#[test]
fn the_time_of_work_counts_from_its_beginning() {
    let time = Duration::from_secs(3600);
    let file = file(time);
    let state = &file.handle().file;
    let watch = state.watch().unwrap();
    while state.manager.memory.now_ms() == 0 {
        std::thread::yield_now();
    }
    let rest = |begun_ms| {
        let mut future = PageFuture::new(file.handle(), 0);
        let work = Work { mailbox: Mailbox::new(Waker::noop()), asks_device: true, begun_ms };
        future.state = State::Elsewhere(Arc::new(work));
        future.rest_of_work(watch, future.begun()).unwrap()
    };
    let begun = |ms| {
        let cell = OnceCell::new();
        assert!(cell.set(ms).is_ok());
        cell
    };
    assert!(rest(OnceCell::new()) < time);
    assert_eq!(rest(begun(u64::MAX)), time);
    watch.device.workers.is(u64::MAX);
    assert_eq!(rest(OnceCell::new()), time);
    assert!(rest(begun(0)) < time);
}

/// Regression: a future got a frame by its last resort, a reclaim that may look at all pages, but
/// lost its page before it was polled. When it lacked a frame once more, it failed without another
/// such reclaim.
#[test]
fn a_future_that_got_a_frame_has_its_last_resort_again() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("file", vec![1; PAGE as usize]);
    let mm = Pagefold::builder().memory("4MiB").backend(disk.clone()).build().unwrap();
    let file = mm.group("a").build().unwrap().open("file").unwrap();
    disk.answer_by_hand();
    let mut future = PageFuture::new(file.handle(), 0);
    (future.tries_pinned, future.in_earnest) = (TRIES_PINNED_MAX, true);
    let polled = future.poll_found(&mut Context::from_waker(Waker::noop())).is_pending();
    while disk.answer_next() {} // Before a check fails: the file's closing waits for the load.
    assert!(polled && matches!(future.state, State::Loading(_)));
    assert_eq!((future.tries_pinned, future.in_earnest), (0, false));
}

/// Regression: a future had tried often to get a frame. Then it got one, but the budget had no
/// room for the page's word. The future failed without making room.
#[test]
fn a_future_that_waited_long_for_a_frame_still_makes_room_for_its_word() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("file", vec![1; 2000 * PAGE as usize]);
    let mm = Pagefold::builder().memory("1MiB").backend(disk).build().unwrap();
    let file = mm.group("tenant").build().unwrap().open("file").unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    // So that there are frames, in more than one extent.
    (0..100).for_each(|page| file.read_exact_at(&mut [0], page * PAGE).unwrap());
    let budget = mm.manager().memory.frames.budget();
    assert!(budget.try_charge(budget.room()));
    let mut future = PageFuture::new(file.handle(), 1999);
    future.tries_pinned = LOST_MAX;
    let poll = || match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(page) => Some(page.expect("room can be made")),
        Poll::Pending => None,
    };
    let page = wait_for("no page comes", poll);
    assert_eq!(page[..], [1; PAGE as usize]);
}
