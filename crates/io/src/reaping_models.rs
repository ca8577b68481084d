//! Loom models of reaping. Each model runs a kernel that answers requests, threads that help, and a
//! reaper that is notified of answers, in every interleaving. All requests must complete, and no
//! thread may sleep forever. Run with `RUSTFLAGS="--cfg pagefold_loom" cargo test --lib --release`.

use sync::atomic::{AtomicUsize, Ordering};
use sync::{Arc, thread};

use super::*;
use crate::lines::Tally;

/// A ring, its kernel, and the reaper's notifications.
#[derive(Default)]
struct Model {
    reaping: Reaping,
    kernel: Mutex<Kernel>,
    /// Signaled when an answer arrives.
    answered: Condvar,
    /// Signaled when the reaper is notified, when the kernel gets a request, when a request
    /// completes, or when the test ends.
    told: Condvar,
    unfinished: AtomicUsize,
    completed: AtomicUsize,
    /// The work of the pool.
    others: Tally,
}

#[derive(Default)]
struct Kernel {
    in_flight: usize,
    answers: usize,
    watched: bool,
    /// A timer will make the reaper visit.
    timer: bool,
    reaper_told: bool,
    over: bool,
}

impl Kernel {
    fn tell(&mut self) {
        if self.watched && self.answers > 0 {
            (self.watched, self.reaper_told) = (false, true);
        }
    }
}

impl Answers for Model {
    fn others_over(&self) -> u64 {
        self.others.over()
    }

    fn will_answer(&self, others_over: u64) -> bool {
        self.others.are_all_over(others_over)
    }

    fn reap(&self, visit: Visit) -> bool {
        // A model has no time, so a limited wait may end at any moment.
        if let Visit::Wait(Some(pause)) = visit {
            thread::sleep(pause);
        }
        let mut kernel = self.kernel.lock();
        while visit == Visit::Wait(None) && kernel.answers == 0 {
            self.answered.wait(&mut kernel);
        }
        let answers = std::mem::take(&mut kernel.answers);
        // Under the lock, because threads wait for this on `told`.
        self.completed.fetch_add(answers, Ordering::Release);
        self.unfinished.fetch_sub(answers, Ordering::Relaxed);
        drop(kernel);
        self.told.notify_all();
        answers > 0
    }

    fn is_idle(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed) == 0
    }

    fn watch_later(&self) {
        self.kernel.lock().timer = true;
        self.told.notify_all();
    }

    fn watch(&self, watch: bool) {
        let mut kernel = self.kernel.lock();
        kernel.watched = watch;
        kernel.tell();
        drop(kernel);
        self.told.notify_all();
    }
}

impl Model {
    fn submit(&self) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        self.kernel.lock().in_flight += 1;
        self.told.notify_all();
        self.reaping.attend(self);
    }

    /// Gives the pool a request.
    fn leave_to_pool(&self) {
        self.others.enter(1);
    }

    /// What a thread of the pool does with a request.
    fn complete_in_pool(&self) {
        // Relaxed: the helper reads the tally first, which ensures that this is visible.
        self.completed.fetch_add(1, Ordering::Relaxed);
        self.others.end();
    }

    fn help_until(&self, completed: usize) {
        let done = || self.completed.load(Ordering::Acquire) >= completed;
        self.reaping.help(self, Helping::default(), &done);
    }

    /// Helps like `help_until`, with a promise to be back soon.
    fn help_for_now_until(&self, completed: usize) {
        let done = || self.completed.load(Ordering::Acquire) >= completed;
        self.reaping.help(self, Helping { back_soon: true, ..Helping::default() }, &done);
    }

    /// The kernel. For each step (`wanted`, `count`), it waits until `wanted` requests are in
    /// flight, and then answers `count` of them, one by one.
    fn answer(&self, steps: &[(usize, usize)]) {
        for &(wanted, count) in steps {
            let mut kernel = self.kernel.lock();
            while kernel.in_flight < wanted {
                self.told.wait(&mut kernel);
            }
            drop(kernel);
            for _ in 0..count {
                let mut kernel = self.kernel.lock();
                kernel.in_flight -= 1;
                kernel.answers += 1;
                kernel.tell();
                drop(kernel);
                self.answered.notify_all();
                self.told.notify_all();
            }
        }
    }

    /// The reaper's main loop.
    fn look_after(&self) {
        loop {
            let mut kernel = self.kernel.lock();
            while !kernel.reaper_told && !kernel.timer && !kernel.over {
                self.told.wait(&mut kernel);
            }
            // The timer may expire at any moment: this thread can take it at any time.
            let timer = std::mem::take(&mut kernel.timer);
            if !std::mem::take(&mut kernel.reaper_told) && !timer {
                return;
            }
            drop(kernel);
            self.reaping.visit(self);
        }
    }

    fn end(&self) {
        self.kernel.lock().over = true;
        self.told.notify_all();
    }
}

/// Runs `body` while a kernel answers as `steps` specify, and checks that all requests complete.
fn check(steps: &'static [(usize, usize)], body: impl Fn(&Arc<Model>) + Send + Sync + 'static) {
    sync::model(move || {
        let model = Arc::new(Model::default());
        let theirs = Arc::clone(&model);
        let kernel = thread::spawn("kernel", move || theirs.answer(steps)).unwrap();
        body(&model);
        kernel.join().unwrap();
        let count = steps.iter().map(|&(_, count)| count).sum();
        assert_eq!(model.completed.load(Ordering::Acquire), count);
    });
}

/// Each submitter helps until both requests have completed; no other thread attends to the ring.
#[test]
fn two_threads_that_submit_and_help() {
    check(&[(1, 1), (1, 1)], |model| {
        let theirs = Arc::clone(model);
        let helper = thread::spawn("helper", move || {
            theirs.submit();
            theirs.help_until(2);
        })
        .unwrap();
        model.submit();
        model.help_until(2);
        helper.join().unwrap();
    });
}

/// One thread leaves while a request is unfinished. Another thread waits for this request, so it
/// becomes the leader.
#[test]
fn a_leader_that_leaves_early_is_followed() {
    check(&[(2, 2)], |model| {
        let theirs = Arc::clone(model);
        model.submit();
        model.submit();
        let helper = thread::spawn("helper", move || theirs.help_until(2)).unwrap();
        model.help_until(1);
        helper.join().unwrap();
    });
}

/// A leader that continues to wait wakes its followers after each pass. In some interleavings, this
/// thread is the leader and waits for three requests. The follower submits the third request, but
/// only after it has seen one of the first two complete. If the leader didn't wake the follower
/// after that completion, both would sleep forever.
#[test]
fn a_follower_misses_no_pass_of_a_leader_that_stays() {
    check(&[(2, 1), (2, 2)], |model| {
        let theirs = Arc::clone(model);
        model.submit();
        model.submit();
        let helper = thread::spawn("helper", move || {
            theirs.help_until(1);
            theirs.submit();
        })
        .unwrap();
        model.help_until(3);
        helper.join().unwrap();
        // The helper may have been the leader, and the third request may come after this thread
        // found nothing left.
        model.help_until(3);
    });
}

/// Runs `body` with a reaper, and checks that the reaper completes all requests.
fn with_reaper(steps: &'static [(usize, usize)], body: impl Fn(&Model) + Send + Sync + 'static) {
    check(steps, move |model| {
        let theirs = Arc::clone(model);
        let reaper = thread::spawn("reaper", move || theirs.look_after()).unwrap();
        body(model);
        // `help` would make this thread the leader, so it waits here.
        let mut kernel = model.kernel.lock();
        while model.unfinished.load(Ordering::Relaxed) > 0 {
            model.told.wait(&mut kernel);
        }
        drop(kernel);
        model.end();
        reaper.join().unwrap();
    });
}

#[test]
fn the_reaper_completes_what_nobody_waits_for() {
    with_reaper(&[(1, 1)], Model::submit);
}

#[test]
fn the_reaper_completes_what_a_leader_leaves() {
    with_reaper(&[(2, 2)], |model| {
        model.submit();
        model.submit();
        model.help_until(1);
    });
}

/// The leader leaves for now, but never comes back. The timer makes the reaper visit the ring,
/// perhaps before the second answer arrives. If so, the visit leaves the ring watched, and the
/// second answer wakes the reaper.
#[test]
fn the_reaper_completes_what_a_leader_leaves_for_now() {
    with_reaper(&[(2, 2)], |model| {
        model.submit();
        model.submit();
        model.help_for_now_until(1);
    });
}

/// The leader is back and submits more, before or after the timer expires.
#[test]
fn a_leader_that_left_for_now_comes_back() {
    with_reaper(&[(1, 1), (1, 1)], |model| {
        model.submit();
        model.help_for_now_until(0);
        model.submit();
        model.help_for_now_until(2);
    });
}

/// A thread whose time limit has passed leaves unfinished requests to a follower or to the reaper.
#[test]
fn a_leader_whose_time_is_over_leaves_the_ring_to_others() {
    with_reaper(&[(1, 1)], |model| {
        let no_time = Helping { at_most: Some(Duration::ZERO), ..Helping::default() };
        model.submit();
        model.reaping.help(model, no_time, &|| false);
    });
}

#[test]
fn a_follower_of_a_leader_whose_time_is_over_leads() {
    check(&[(1, 1)], |model| {
        let theirs = Arc::clone(model);
        model.submit();
        let helper = thread::spawn("helper", move || theirs.help_until(1)).unwrap();
        let no_time = Helping { at_most: Some(Duration::ZERO), ..Helping::default() };
        model.reaping.help(&**model, no_time, &|| false);
        helper.join().unwrap();
    });
}

/// The only request that the leader waits for is with the pool. The ring's own request is another
/// device's, which never answers.
#[test]
fn a_leader_notices_what_the_pool_completes() {
    sync::model(|| {
        let model = Arc::new(Model::default());
        model.submit();
        model.leave_to_pool();
        let theirs = Arc::clone(&model);
        let pool = thread::spawn("pool", move || theirs.complete_in_pool()).unwrap();
        model.help_until(1);
        pool.join().unwrap();
    });
}

/// `done()` itself gives the pool a request, which the pool may complete before the leader sleeps.
#[test]
fn a_leader_notices_what_the_pool_completes_for_its_condition() {
    sync::model(|| {
        let model = Arc::new(Model::default());
        model.submit();
        let pool = std::cell::RefCell::new(None);
        let done = || {
            let is_done = model.completed.load(Ordering::Acquire) > 0;
            pool.borrow_mut().get_or_insert_with(|| {
                model.leave_to_pool();
                let theirs = Arc::clone(&model);
                thread::spawn("pool", move || theirs.complete_in_pool()).unwrap()
            });
            is_done
        };
        model.reaping.help(&*model, Helping::default(), &done);
        pool.into_inner().unwrap().join().unwrap();
    });
}
