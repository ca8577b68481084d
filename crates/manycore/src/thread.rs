//! Threads in virtual time.

use crate::state::State;
use crate::task::{Doing, TaskId, here};
use crate::ticks::Ticks;
use crate::time::{Duration, ticks_of};
use crate::world::{self, Body, World};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex as HostMutex, PoisonError};

/// The return value of a thread. Locked only for a moment, and never while the machine switches to
/// another thread.
type Packet<T> = Arc<HostMutex<Option<T>>>;

/// A handle for joining a thread. If it is dropped, the thread continues on its own.
pub struct JoinHandle<T> {
    task: TaskId,
    packet: Packet<T>,
}

/// A handle for unparking a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(TaskId);

/// Options for starting a thread.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: Option<String>,
    cpu: Option<usize>,
}

impl Builder {
    /// Creates options for a thread without a name, on any free CPU.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the thread's name, for messages.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the only CPU that the thread may run on, modulo the number of CPUs.
    #[must_use]
    pub fn cpu(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The host's error, if it has no memory for another stack.
    ///
    /// # Panics
    /// Outside of a machine.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(self, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
        let packet = Packet::default();
        let result = Arc::clone(&packet);
        let task = self.start(Box::new(move || put(&result, body())))?;
        Ok(JoinHandle { task, packet })
    }

    #[track_caller]
    fn start(self, body: Body) -> io::Result<TaskId> {
        let world = world::expect("a virtual thread");
        let at = here();
        world.arrive(at);
        let (name, pin) = {
            let mut state = world.state.borrow_mut();
            let cost = state.times.thread_start;
            state.spend_system(cost);
            let name = self.name.unwrap_or_else(|| format!("thread {}", state.tasks.len()));
            (name, self.cpu.map(|cpu| cpu % state.cpus.len()))
        };
        world.start(name, pin, at, body)
    }
}

fn put<T>(packet: &Packet<T>, value: T) {
    *packet.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
}

/// Starts a thread.
///
/// # Panics
/// Outside of a machine, or if the host has no memory for another stack.
#[track_caller]
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(body).expect("no memory for a thread's stack")
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended, and returns its result.
    ///
    /// # Errors
    /// None: a thread that panics ends the run. The type is that of `std`'s handle.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        join_task(world::expect("joining a virtual thread"), self.task);
        let value = self.packet.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(value.expect("a finished thread has returned"))
    }

    /// Returns whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let world = world::expect("looking after a virtual thread");
        world.state.borrow().tasks[self.task as usize].doing == Doing::Finished
    }

    /// Returns the handle for unparking.
    #[must_use]
    pub fn thread(&self) -> Thread {
        Thread(self.task)
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinHandle").field(&self.task).finish()
    }
}

#[track_caller]
fn join_task(world: &World, task: TaskId) {
    world.arrive(here());
    let blocked = {
        let mut state = world.state.borrow_mut();
        let me = state.task;
        let other = &mut state.tasks[task as usize];
        let alive = other.doing != Doing::Finished;
        if alive {
            other.joiners.push(me);
            state.block(Doing::Joining(task), None);
        }
        alive
    };
    if blocked {
        world.wait();
    }
}

/// A scope for threads that may borrow from the thread that started them. They may do so because
/// they end before [`scope`] returns.
pub struct Scope<'scope, 'env: 'scope> {
    tasks: RefCell<Vec<TaskId>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread. If `cpu` is given, the thread runs only on that CPU.
    ///
    /// # Panics
    /// If the host has no memory for another stack.
    #[track_caller]
    pub fn spawn(&'scope self, cpu: Option<usize>, body: impl FnOnce() + Send + 'scope) {
        let body: Box<dyn FnOnce() + 'scope> = Box::new(body);
        // SAFETY: only the lifetime changes. Usually `scope` joins all of its tasks, so the body
        // has ended before `scope` returns. If the machine stops earlier, the body is leaked and
        // never runs again (W4 in `world`). In that case the thread that called `scope` is leaked,
        // too, so the data that the body borrows is never freed.
        let body: Body = unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'scope>, Body>(body) };
        let builder = Builder { name: None, cpu };
        let task = builder.start(body).expect("no memory for a thread's stack");
        self.tasks.borrow_mut().push(task);
    }
}

/// Calls `f` with a scope in which threads that borrow can be started, and waits for these threads.
///
/// # Panics
/// Outside of a machine.
#[track_caller]
pub fn scope<'env, R>(f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
    /// Joins the threads also when `f` panics, because they borrow from its frame.
    struct JoinAll<'a>(&'a World, &'a RefCell<Vec<TaskId>>);
    impl Drop for JoinAll<'_> {
        #[track_caller]
        fn drop(&mut self) {
            while let Some(task) = { self.1.borrow_mut().pop() } {
                join_task(self.0, task);
            }
        }
    }
    let world = world::expect("a scope of virtual threads");
    let scope = Scope { tasks: RefCell::default(), scope: PhantomData, env: PhantomData };
    let join_all = JoinAll(world, &scope.tasks);
    let result = f(&scope);
    drop(join_all);
    result
}

/// Returns the handle of this thread.
///
/// # Panics
/// Outside of a machine.
#[must_use]
pub fn current() -> Thread {
    Thread(world::expect("the current virtual thread").state.borrow().task)
}

impl Thread {
    /// Ends the thread's [`park`]. If the thread isn't parked, its next `park` returns at once.
    #[track_caller]
    pub fn unpark(&self) {
        let world = world::expect("unparking a virtual thread");
        world.arrive(here());
        let mut state = world.state.borrow_mut();
        match state.tasks[self.0 as usize].doing {
            Doing::Parked => state.wake(self.0),
            _ => state.tasks[self.0 as usize].permit = true,
        }
    }
}

/// Waits until another thread unparks this one.
///
/// # Panics
/// Outside of a machine.
#[track_caller]
pub fn park() {
    park_until(None);
}

/// Parks like [`park`], for at most `timeout`.
#[track_caller]
pub fn park_timeout(timeout: Duration) {
    park_until(Some(timeout));
}

#[track_caller]
fn park_until(timeout: Option<Duration>) {
    let world = world::expect("parking a virtual thread");
    world.arrive(here());
    let blocked = {
        let mut state = world.state.borrow_mut();
        let blocked = !std::mem::take(&mut state.current().permit);
        if blocked {
            let now = state.clock();
            state.block(Doing::Parked, timeout.map(|timeout| now + ticks_of(timeout)));
        }
        blocked
    };
    if blocked {
        world.wait();
    }
}

/// Yields this CPU to the next thread in the CPU's queue. If the queue is empty, this works like a
/// [spin hint](crate::spin_hint), but costs as much as a system call. Like a spin hint, it may then
/// suspend the thread until a value that the thread has read changes: a thread that yields in a
/// loop is assumed to wait for such a change.
#[track_caller]
pub fn yield_now() {
    let Some(world) = world::current() else { return std::thread::yield_now() };
    if std::thread::panicking() {
        return; // W5 in `world`
    }
    world.arrive(here());
    let wait = {
        let mut state = world.state.borrow_mut();
        let cost = state.times.yield_call;
        if state.cpus[state.cpu].queue.is_empty() {
            state.spin(cost)
        } else {
            state.current().watch_nothing();
            state.yield_to_next(cost);
            true
        }
    };
    if wait {
        world.suspend();
    }
}

/// Lets the CPU's next thread run, like [`yield_now`]. If no thread waits for the CPU, this thread
/// pays for the call and continues. Unlike `yield_now`, this function never suspends the thread
/// until a value changes.
#[track_caller]
pub(crate) fn give_up_cpu(world: &World) {
    if std::thread::panicking() {
        return; // W5 in `world`
    }
    world.arrive(here());
    let waits = {
        let mut state = world.state.borrow_mut();
        let cost = state.times.yield_call;
        let waits = !state.cpus[state.cpu].queue.is_empty();
        if waits {
            state.yield_to_next(cost);
        } else {
            state.rest(cost);
        }
        waits
    };
    if waits {
        world.suspend();
    }
}

impl State {
    fn yield_to_next(&mut self, cost: Ticks) {
        self.spend_system(cost);
        self.step_back();
        self.preempt();
    }
}

/// Sleeps for `time`.
#[track_caller]
pub fn sleep(time: Duration) {
    let Some(world) = world::current() else { return std::thread::sleep(time) };
    world.arrive(here());
    let until = world.state.borrow().clock() + ticks_of(time);
    sleep_until_ticks(world, until);
}

#[track_caller]
pub(crate) fn sleep_until_ticks(world: &World, time: Ticks) {
    world.arrive(here());
    if world.state.borrow_mut().sleep_until(time) {
        world.wait();
    }
}

/// Returns a number that no other living thread of the machine has: the lowest number that was free
/// when the thread started. `main` has number 0. Outside of a machine, returns 0.
#[must_use]
pub fn index() -> usize {
    world::current().map_or(0, |world| world.state.borrow_mut().current().index)
}
