//! A running machine, and the calls from the user's code into it.
//!
//! The machine runs on a host thread of its own, with one coroutine per virtual thread.
//! [`World::drive`] runs a virtual thread, and with it the user's code, by calling
//! `Coroutine::resume`. The user's code calls the crate's functions, which get the world of this
//! host thread from [`current`]. To let another virtual thread run, a function returns control to
//! `drive` by calling [`World::suspend`].
//!
//! - W1. The pointer in `RUNNING` is set exactly while a call of [`World::drive`] is on the host
//!   thread's stack. That call borrows the world. So the world is alive whenever the pointer is
//!   set.
//! - W2. A task's `suspender` points to its coroutine's yielder, which lies at the bottom of the
//!   coroutine's stack. The pointer is set when the coroutine starts, and used only by that
//!   coroutine. So the yielder is alive whenever the pointer is used.
//! - W3. Coroutines never leave their host thread.
//! - W4. A coroutine that hasn't finished when the machine stops is leaked: it is never resumed,
//!   and its stack is never unwound or freed. So nothing that the coroutine borrowed is ever used
//!   again.
//! - W5. While a thread unwinds from a panic, its coroutine isn't suspended, because the next
//!   coroutine would inherit the host thread's panic count. If the unwinding thread has to wait for
//!   another thread, the run ends.

use crate::error::{Cause, Failure, Position};
use crate::free_blocks::FreeBlocks;
use crate::ledger::At;
use crate::locals::{self, Locals};
use crate::state::{Next, Setup, State};
use crate::task::{Doing, Suspender, TaskId};
use crate::ticks::{NS, Ticks};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static RUNNING: Cell<*const World> = const { Cell::new(std::ptr::null()) };
}

/// The code that a thread runs.
pub(crate) type Body = Box<dyn FnOnce()>;

type Fiber = Coroutine<(), (), (), DefaultStack>;

/// A running machine.
pub(crate) struct World {
    pub(crate) state: RefCell<State>,
    /// Each thread's coroutine, by thread number. `None` while the thread runs, and after it has
    /// ended.
    fibers: RefCell<Vec<Option<Fiber>>>,
    /// Each thread's own values.
    pub(crate) locals: RefCell<Vec<Locals>>,
    /// Memory that virtual threads freed.
    pub(crate) free_blocks: RefCell<FreeBlocks>,
    stack_bytes: usize,
}

/// Returns the machine in which this code runs, if there is one.
#[inline]
pub(crate) fn current<'a>() -> Option<&'a World> {
    // SAFETY: by W1 the pointer is non-null only during `drive`, which borrows the world. Callers
    // run on a coroutine that `drive` resumes, and keep the reference for one call only.
    unsafe { RUNNING.get().as_ref() }
}

/// Returns the machine in which this code runs.
///
/// # Panics
/// Outside of a machine.
#[track_caller]
pub(crate) fn expect<'a>(what: &str) -> &'a World {
    match current() {
        Some(world) => world,
        None => panic!("{what} needs a virtual machine around it: call it inside of `manycore::Machine::run`"),
    }
}

impl World {
    pub(crate) fn new(setup: Setup, stack_bytes: usize) -> Self {
        Self {
            free_blocks: RefCell::new(FreeBlocks::new(setup.shape.cpus())),
            state: RefCell::new(State::new(setup)),
            fibers: RefCell::default(),
            locals: RefCell::default(),
            stack_bytes,
        }
    }

    /// Adds a thread.
    pub(crate) fn start(&self, name: String, pin: Option<usize>, at: At, body: Body) -> Result<TaskId, std::io::Error> {
        let stack = DefaultStack::new(self.stack_bytes)?;
        let fiber = Fiber::with_stack(stack, move |suspender, ()| run_body(suspender, body));
        self.fibers.borrow_mut().push(Some(fiber));
        self.locals.borrow_mut().push(Locals::default());
        Ok(self.state.borrow_mut().add_task(name, pin, at))
    }

    /// Runs until all threads have finished, or none can continue.
    pub(crate) fn drive(&self) -> Result<(), Box<Failure>> {
        let before = RUNNING.replace(self);
        let failed = loop {
            let next = self.state.borrow_mut().pick();
            match next {
                Next::Done => break false,
                Next::Failed => break true,
                Next::Run(task) => self.resume(task),
            }
        };
        RUNNING.set(before);
        if failed {
            // W4.
            self.fibers.take().into_iter().for_each(std::mem::forget);
            self.locals.take().into_iter().for_each(std::mem::forget);
            return Err(Box::new(self.failure()));
        }
        Ok(())
    }

    fn resume(&self, task: TaskId) {
        let at = task as usize;
        let mut fiber = self.fibers.borrow_mut()[at].take().expect("a thread that isn't finished has a coroutine");
        match fiber.resume(()) {
            CoroutineResult::Yield(()) => self.fibers.borrow_mut()[at] = Some(fiber),
            CoroutineResult::Return(()) => self.retire(fiber),
        }
    }

    /// Frees a finished thread's stack. A later stack may get the same addresses, so the lines and
    /// blocks at these addresses count as new memory from now on.
    fn retire(&self, fiber: Fiber) {
        use corosensei::stack::Stack;
        let stack = fiber.into_stack();
        let base = stack.base().get();
        let mut state = self.state.borrow_mut();
        state.directory.forget(base - self.stack_bytes, self.stack_bytes);
        state.blocks.forget(base - self.stack_bytes, self.stack_bytes);
    }

    /// Gives the host thread to the scheduler. Returns when the scheduler chooses this thread
    /// again.
    pub(crate) fn suspend(&self) {
        let here = 0_u8;
        let suspender = {
            let mut state = self.state.borrow_mut();
            let task = state.current();
            task.suspended_at = std::ptr::from_ref(&here).addr();
            task.suspender
        };
        // SAFETY: W2.
        unsafe { (*suspender).suspend(()) }
    }

    /// Begins an event. Returns when it is this thread's turn.
    #[inline]
    pub(crate) fn arrive(&self, at: At) {
        self.arrive_after(at, |_| ());
    }

    /// Begins an event like [`arrive`](Self::arrive). The event touches the line at an address. If
    /// the thread must wait for its turn, the host meanwhile prefetches what the access will need.
    #[inline]
    pub(crate) fn arrive_to_touch(&self, at: At, address: usize) {
        self.arrive_after(at, |state| state.will_touch(address));
    }

    /// Begins an event. Calls `before` each time before the thread is suspended.
    #[inline]
    fn arrive_after(&self, at: At, before: impl Fn(&mut State)) {
        while !self.state.borrow_mut().may_go_on(at) {
            if std::thread::panicking() {
                return; // W5
            }
            let mut state = self.state.borrow_mut();
            before(&mut state);
            state.give_way();
            drop(state);
            self.suspend();
        }
    }

    /// Suspends the thread, which is blocked or spins. If the thread is unwinding from a panic, the
    /// run fails (W5).
    pub(crate) fn wait(&self) {
        if std::thread::panicking() {
            let mut state = self.state.borrow_mut();
            let thread = state.current().name.clone();
            let message = "it panicked, and then had to wait for another thread while unwinding".to_owned();
            state.failure.get_or_insert(Cause::Panic { thread, message });
        }
        self.suspend();
    }

    fn failure(&self) -> Failure {
        let state = self.state.borrow();
        let threads = state.tasks.iter().filter(|task| task.doing != Doing::Finished);
        let position = |task: &crate::task::Task| {
            let name = |id: TaskId| &state.tasks[id as usize].name;
            let doing = match task.doing {
                Doing::Running => "running".to_owned(),
                Doing::Spinning => "spinning".to_owned(),
                Doing::Locking(subject) => format!("waiting for {}", state.ledger.subjects[subject as usize].title()),
                Doing::Waiting => "waiting for a condition".to_owned(),
                Doing::Parked => "parked".to_owned(),
                Doing::Joining(other) => format!("waiting for the end of {:?}", name(other)),
                Doing::Sleeping => "sleeping".to_owned(),
                Doing::Finished => "finished".to_owned(),
            };
            let cpu = usize::from(task.cpu);
            let at_ns: Ticks = state.cpus[cpu].clock / NS;
            Position { thread: task.name.clone(), cpu, at_ns, doing, line: task.at.to_string() }
        };
        Failure {
            cause: state.failure.clone().expect("the machine failed"),
            seed: state.setup.seed,
            random_order: state.setup.order == crate::state::Order::Random,
            threads: threads.map(position).collect(),
        }
    }
}

/// Runs a thread from start to end, on its own stack.
fn run_body(suspender: &Suspender, body: Body) {
    let world = current().expect("coroutines run below `drive`");
    let task = {
        let mut state = world.state.borrow_mut();
        state.current().suspender = suspender;
        state.task
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        body();
        locals::drop_all(&world.locals, task);
    }));
    let mut state = world.state.borrow_mut();
    if let Err(payload) = result {
        let thread = state.current().name.clone();
        let message = message_of(&*payload);
        state.failure.get_or_insert(Cause::Panic { thread, message });
        // The payload's destructor is code of the user, and the state is borrowed.
        std::mem::forget(payload);
        return;
    }
    state.finish();
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
