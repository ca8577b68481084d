//! Waiting and waking: spins, queues at an address (what a futex is to locks), parking, joining,
//! sleeping.

use crate::ledger::Spent;
use crate::state::{Order, State};
use crate::task::{Doing, TaskId};
use crate::ticks::{NS, Ticks};
use std::cmp::Reverse;

/// How soon a spin that also reads the clock looks again, if nothing changes.
const CLOCK_POLL: Ticks = 1_000 * NS;

/// Without contention, a spinning thread's next look is free: it has looked, and paid, before. That
/// many accesses are taken for the look.
const LOOK_EVENTS: u8 = 1;

impl State {
    /// The running thread waits for a while, whatever happens meanwhile. That is no turn of a spin
    /// of its own: a loop that takes a lock in each turn goes on watching what it read before.
    pub(crate) fn rest(&mut self, time: Ticks) {
        let (site, subject) = self.place();
        self.ledger.count(site, subject, 0, 0);
        self.step_back();
        self.foresee_nothing();
        let time = self.jittered(time);
        self.spend(site, subject, Spent::Waiting, time);
    }

    /// A spin hint of the running thread. True if it is to suspend until a line that it watches
    /// changes.
    pub(crate) fn spin(&mut self, cost: Ticks) -> bool {
        let (site, _) = self.place();
        let subject = self.spun_on(self.task);
        self.ledger.count(site, subject, 0, 0);
        self.step_back();
        self.foresee_nothing();
        let watched = std::mem::take(&mut self.current().watched);
        let news = watched.iter().any(|&(line, version)| self.directory.line(line).version != version);
        // What a loop read before another loop, which it has in its turns, isn't watched any more.
        let is_whole = self.current().hinted_at.replace(site).is_none_or(|last| last == site);
        let is_whole = is_whole || self.setup.order == Order::Measured;
        let park = !news && is_whole && !watched.is_empty() && !self.current().watched_over;
        if park {
            for &(line, _) in &watched {
                self.directory.line(line).waiters.push(self.cpu as u16);
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

    /// What a spinning thread's time is charged to: the lock that it is in, else the first line
    /// that it watches.
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

    /// As [`State::block`], at no cost.
    pub(crate) fn pause(&mut self) {
        self.begin_wait(Doing::Waiting);
        self.leave();
    }

    /// Blocks the running thread in the queue at `address`.
    pub(crate) fn block_at(&mut self, address: usize, doing: Doing, deadline: Option<Ticks>) {
        self.enqueue(address);
        self.block(doing, deadline);
    }

    /// Puts the running thread into the queue at `address`; it is going to block.
    pub(crate) fn enqueue(&mut self, address: usize) {
        let task = self.task;
        self.current().queue = address;
        self.queues.entry(address).or_default().push_back(task);
    }

    /// Whether the running thread was taken out of its queue again, before it could block.
    pub(crate) fn was_notified(&mut self) -> bool {
        self.current().queue == 0
    }

    /// Wakes up to `count` threads from the queue at `address`; how many it were.
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
            // Its CPU goes on where it stopped: the wait was free.
            return self.resume(id, 0);
        }
        self.spend_system(self.times.wake_call);
        let time = self.clock() + self.times.wake_up;
        if let Doing::Locking(subject) = doing {
            self.ledger.subjects[subject as usize].parked += time.saturating_sub(since);
        }
        self.resume(id, time);
    }

    /// The running thread is over.
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
