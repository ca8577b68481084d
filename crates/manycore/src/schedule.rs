//! Schedules threads on CPUs: placing, time slices, stealing.
//!
//! A thread that becomes ready returns to its last CPU. If that CPU is taken, the thread goes to an
//! idle CPU, in the same socket if possible. If no CPU is idle, or the thread is pinned, the thread
//! is queued at its last CPU. Queues are first in, first out.
//!
//! A thread leaves its CPU when its slice is over and other threads are queued there. A CPU whose
//! own queue is empty takes a thread from the longest queue: the first that isn't pinned.

use crate::ledger::At;
use crate::state::State;
use crate::task::{Cpu, Doing, Task, TaskId};
use crate::ticks::Ticks;
use std::cmp::Reverse;

impl State {
    /// Adds a thread, which starts at the running CPU's current time.
    pub(crate) fn add_task(&mut self, name: String, pin: Option<usize>, at: At) -> TaskId {
        let id = TaskId::try_from(self.tasks.len()).expect("fewer than 2^32 threads");
        let cpu = pin.unwrap_or_else(|| self.place_for_new());
        let index = self.indexes.pop().map_or(self.live, |Reverse(index)| index);
        self.tasks.push(Task::new(name, index, u16::try_from(cpu).expect("at most 256 CPUs"), pin.is_some(), at));
        self.live += 1;
        self.run_on(cpu, id, self.clock());
        id
    }

    /// Returns the first idle CPU, or else the CPU with the shortest queue.
    fn place_for_new(&self) -> usize {
        let load = |cpu: &Cpu| usize::from(cpu.task.is_some()) + cpu.queue.len();
        let places = self.cpus.iter().enumerate();
        places.min_by_key(|(at, cpu)| (load(cpu), *at)).map_or(0, |(at, _)| at)
    }

    /// Makes a thread ready after a wait: on its CPU, or on an idle CPU if its own is taken.
    pub(crate) fn resume(&mut self, id: TaskId, time: Ticks) {
        let task = &mut self.tasks[id as usize];
        task.doing = Doing::Running;
        task.waits += 1;
        let last = usize::from(task.cpu);
        let cpu =
            if self.cpus[last].task.is_none() || task.pinned { last } else { self.idle_near(last).unwrap_or(last) };
        self.run_on(cpu, id, time);
    }

    fn idle_near(&self, cpu: usize) -> Option<usize> {
        let socket = self.cpus[cpu].socket;
        let idle =
            |same: bool| self.cpus.iter().position(|other| other.task.is_none() && (other.socket == socket) == same);
        idle(true).or_else(|| idle(false))
    }

    fn run_on(&mut self, at: usize, id: TaskId, time: Ticks) {
        self.tasks[id as usize].cpu = u16::try_from(at).expect("at most 256 CPUs");
        let cpu = &mut self.cpus[at];
        if let Some(there) = cpu.task {
            cpu.queue.push_back(id);
            cpu.preempt_at = cpu.slice_end;
            if cpu.spinning {
                let end = cpu.slice_end.max(time);
                self.set_timer(there, end);
            }
            return;
        }
        cpu.clock = cpu.clock.max(time);
        self.occupy(at, id);
    }

    /// Puts a thread on a CPU that has none, and starts its slice.
    fn occupy(&mut self, at: usize, id: TaskId) {
        self.tasks[id as usize].cpu = u16::try_from(at).expect("at most 256 CPUs");
        let cpu = &mut self.cpus[at];
        cpu.task = Some(id);
        cpu.slice_end = cpu.clock + self.times.time_slice;
        cpu.preempt_at = if cpu.queue.is_empty() { Ticks::MAX } else { cpu.slice_end };
        self.make_ready(at);
    }

    /// Ends the running CPU's slice, and switches to the next thread.
    pub(crate) fn preempt(&mut self) {
        let cpu = &mut self.cpus[self.cpu];
        cpu.queue.push_back(self.task);
        self.leave();
    }

    /// Removes the running CPU's thread, and takes the next one, from another CPU's queue if
    /// necessary.
    pub(crate) fn leave(&mut self) {
        let at = self.cpu;
        self.cpus[at].task = None;
        let Some(next) = self.cpus[at].queue.pop_front().or_else(|| self.steal()) else { return };
        self.ledger.switches += 1;
        self.spend_system(self.times.context_switch);
        self.occupy(at, next);
    }

    /// Takes the first thread that isn't pinned from the longest queue.
    fn steal(&mut self) -> Option<TaskId> {
        let longest = (0..self.cpus.len()).max_by_key(|&cpu| (self.cpus[cpu].queue.len(), Reverse(cpu)))?;
        let queue = &mut self.cpus[longest].queue;
        let at = queue.iter().position(|&task| !self.tasks[task as usize].pinned)?;
        let taken = queue.remove(at);
        if queue.is_empty() {
            self.cpus[longest].preempt_at = Ticks::MAX;
        }
        taken
    }
}
