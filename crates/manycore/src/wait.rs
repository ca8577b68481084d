//! Waiting and waking: spins, queues at an address (like those of futexes), parking, joining,
//! sleeping.

use crate::ledger::Spent;
use crate::state::{Order, State};
use crate::task::{Doing, TaskId};
use crate::ticks::{NS, Ticks};
use std::cmp::Reverse;

/// If a spinning thread also reads the clock, its spin hint returns after this time even if no line
/// has changed.
const CLOCK_POLL: Ticks = 1_000 * NS;

/// On a machine without contention, this many accesses are free after a spin: they check the value
/// again, and the thread has already paid for a check before the wait.
const LOOK_EVENTS: u8 = 1;

impl State {
    /// Makes the running thread wait for a fixed time, whatever changes during that time. Unlike a
    /// spin hint, this keeps the list of lines that the thread watches. Suppose that a thread
    /// spins, and takes a lock in each round of its loop: the wait for the lock must not clear the
    /// lines that the loop has read.
    pub(crate) fn rest(&mut self, time: Ticks) {
        let (site, subject) = self.place();
        self.ledger.count(site, subject, 0, 0);
        self.step_back();
        self.foresee_nothing();
        let time = self.jittered(time);
        self.spend(site, subject, Spent::Waiting, time);
    }

    /// Executes a spin hint of the running thread. Returns true if the thread must suspend until a
    /// line that it watches changes.
    pub(crate) fn spin(&mut self, cost: Ticks) -> bool {
        let (site, _) = self.place();
        let subject = self.spun_on(self.task);
        self.ledger.count(site, subject, 0, 0);
        self.step_back();
        self.foresee_nothing();
        let watched = std::mem::take(&mut self.current().watched);
        let news = watched.iter().any(|&(line, version)| self.directory.line(line).version != version);
        // An inner loop's hint clears the lines that the outer loop has read. So in random order, a
        // hint doesn't suspend the thread if the thread's last hint came from another source line.
        let is_whole = self.current().hinted_at.replace(site).is_none_or(|last| last == site);
        let is_whole = is_whole || self.setup.order == Order::Measured;
        let park = !news && is_whole && !watched.is_empty() && !self.current().watched_over;
        if park {
            for &(line, _) in &watched {
                self.directory.add_waiter(line, self.cpu as u16);
            }
        }
        self.current().watched = watched;
        if self.setup.contention || !(park || news) {
            self.spend(site, subject, Spent::Waiting, cost);
        } else {
            self.current().free_events = LOOK_EVENTS;
        }
        if !park {
            self.current().watch_nothing();
            return false;
        }
        let (now, task) = (self.clock(), self.task);
        let poll = self.current().watched_time.then_some(now + CLOCK_POLL);
        let cpu = &mut self.cpus[self.cpu];
        cpu.spinning = true;
        let slice = (!cpu.queue.is_empty()).then_some(cpu.slice_end.max(now));
        self.begin_wait(Doing::Spinning);
        if let Some(time) = [poll, slice].into_iter().flatten().min() {
            self.set_timer(task, time);
        }
        true
    }

    /// Returns the subject that a spinning thread's time is charged to: the lock that it waits for,
    /// else the first line that it watches.
    pub(crate) fn spun_on(&mut self, task: TaskId) -> u32 {
        let task = &self.tasks[task as usize];
        match (task.subject, task.watched.first()) {
            (0, Some(&(line, _))) => self.directory.line(line).subject,
            (subject, _) => subject,
        }
    }

    fn begin_wait(&mut self, doing: Doing) {
        let now = self.clock();
        let task = self.current();
        task.doing = doing;
        task.waits += 1;
        task.timed_out = false;
        task.blocked_at = now;
    }

    /// Takes the running thread off its CPU until it is resumed, or until `deadline`.
    pub(crate) fn block(&mut self, doing: Doing, deadline: Option<Ticks>) {
        if self.setup.contention || !doing.is_contention() {
            self.spend_system(self.times.park_call);
        }
        self.begin_wait(doing);
        if let Some(time) = deadline {
            self.set_timer(self.task, time);
        }
        self.leave();
    }

    /// Blocks the running thread like [`State::block`], at no cost.
    pub(crate) fn pause(&mut self) {
        self.begin_wait(Doing::Waiting);
        self.leave();
    }

    /// Blocks the running thread in the queue at `address`.
    pub(crate) fn block_at(&mut self, address: usize, doing: Doing, deadline: Option<Ticks>) {
        self.enqueue(address);
        self.block(doing, deadline);
    }

    /// Puts the running thread into the queue at `address`, before it blocks.
    pub(crate) fn enqueue(&mut self, address: usize) {
        let task = self.task;
        self.current().queue = address;
        self.queues.entry(address).or_default().push_back(task);
    }

    /// Returns whether the running thread was removed from its queue before it could block.
    pub(crate) fn was_notified(&mut self) -> bool {
        self.current().queue == 0
    }

    /// Wakes up to `count` threads from the queue at `address`. Returns the number of threads
    /// woken.
    pub(crate) fn wake_at(&mut self, address: usize, count: usize) -> usize {
        let mut woken = 0;
        while woken < count {
            let Some(queue) = self.queues.get_mut(&address) else { break };
            let Some(task) = queue.pop_front() else {
                self.queues.remove(&address);
                break;
            };
            self.tasks[task as usize].queue = 0;
            woken += 1;
            if self.tasks[task as usize].doing != Doing::Running {
                self.wake(task);
            }
        }
        woken
    }

    /// Wakes a blocked thread.
    pub(crate) fn wake(&mut self, id: TaskId) {
        self.ledger.wakeups += 1;
        let (doing, since) = (self.tasks[id as usize].doing, self.tasks[id as usize].blocked_at);
        if !self.setup.contention && doing.is_contention() {
            // Its CPU continues at the time at which it stopped: the wait was free.
            return self.resume(id, 0);
        }
        self.spend_system(self.times.wake_call);
        let time = self.clock() + self.times.wake_up;
        if let Doing::Locking(subject) = doing {
            self.ledger.subjects[subject as usize].parked += time.saturating_sub(since);
        }
        self.resume(id, time);
    }

    /// Ends the running thread.
    pub(crate) fn finish(&mut self) {
        self.current().doing = Doing::Finished;
        self.live -= 1;
        let index = self.current().index;
        self.indexes.push(Reverse(index));
        for joiner in std::mem::take(&mut self.current().joiners) {
            self.wake(joiner);
        }
        self.leave();
    }
}
