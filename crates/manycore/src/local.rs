//! Values that each virtual thread has for itself.
//!
//! `std::thread_local!` is no use inside a machine: all virtual threads share one host thread.

use crate::task::TaskId;
use crate::world::{self, World};
use std::any::Any;
use std::cell::{Cell, RefCell};

/// A thread's values, by the address of their key, in the order in which they were made.
pub(crate) type Locals = Vec<(usize, Box<dyn Any>)>;

thread_local! {
    /// Those of a host thread, outside of any machine.
    static OUTSIDE: RefCell<Locals> = const { RefCell::new(Vec::new()) };
}

/// A value for each virtual thread; outside of a machine, for each host thread. Made by
/// [`thread_local!`](crate::thread_local), and dropped at the thread's end, latest first.
#[derive(Debug)]
pub struct LocalKey<T: 'static> {
    make: fn() -> T,
    // A zero-sized static might share its address with another one.
    _address: u8,
}

/// The thread is ending, and its values are being dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread's own values are gone")]
pub struct AccessError;

/// Declares values that each virtual thread has for itself.
///
/// ```
/// use std::cell::Cell;
/// manycore::thread_local! { static TURN: Cell<u32> = Cell::new(1); }
/// TURN.with(|turn| turn.set(turn.get() + 1));
/// assert_eq!(TURN.with(Cell::get), 2);
/// ```
#[macro_export]
macro_rules! thread_local {
    ($($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty = $make:expr);+ $(;)?) => {
        $($(#[$attribute])* $visible static $name: $crate::LocalKey<$type> = $crate::LocalKey::new(|| $make);)+
    };
}

impl<T: 'static> LocalKey<T> {
    /// A key whose values are made by `make`. Has to be a static: its address tells it from others.
    #[must_use]
    pub const fn new(make: fn() -> T) -> Self {
        Self { make, _address: 0 }
    }

    /// Calls `use_it` with this thread's value, made now if need be.
    ///
    /// # Panics
    /// If the thread's values are being dropped already.
    pub fn with<R>(&'static self, use_it: impl FnOnce(&T) -> R) -> R {
        self.try_with(use_it).expect("a thread-local value after its thread's end")
    }

    /// As [`with`](Self::with).
    ///
    /// # Errors
    /// [`AccessError`] at the thread's end, when its values are being dropped.
    pub fn try_with<R>(&'static self, use_it: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let key = std::ptr::from_ref(self).addr();
        let found = Self::reach(|locals| find::<T>(locals, key)).ok_or(AccessError)?;
        let value: *const T = match found {
            Some(value) => value,
            None => {
                let made: Box<T> = Box::new((self.make)());
                let value: *const T = &raw const *made;
                Self::reach(|locals| locals.push((key, made))).ok_or(AccessError)?;
                value
            }
        };
        // SAFETY: the box stays where it is until the thread's end, whose destructors run on this thread, after every
        // call of this function has returned; values are only handed out by shared reference, on this thread.
        Ok(use_it(unsafe { &*value }))
    }

    fn reach<R>(visit: impl FnOnce(&mut Locals) -> R) -> Option<R> {
        match world::current() {
            Some(world) => {
                let task = world.state.borrow().task as usize;
                let mut locals = world.locals.borrow_mut();
                // A dropped thread's list has no capacity left to push to: see `drop_all`.
                (!is_closed(&locals[task])).then(|| visit(&mut locals[task]))
            }
            None => OUTSIDE.try_with(|locals| visit(&mut locals.borrow_mut())).ok(),
        }
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// A copy of this thread's value.
    ///
    /// # Panics
    /// As [`with`](Self::with); so do the others.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Replaces this thread's value.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Takes this thread's value, and leaves the default.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Replaces this thread's value; returns the old one.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

fn find<T: 'static>(locals: &Locals, key: usize) -> Option<*const T> {
    let (_, value) = locals.iter().find(|(other, _)| *other == key)?;
    value.downcast_ref::<T>().map(std::ptr::from_ref)
}

/// The key of the entry that closes a list.
const CLOSED: usize = 0;

fn is_closed(locals: &Locals) -> bool {
    locals.first().is_some_and(|(key, _)| *key == CLOSED)
}

/// Drops a thread's values, on that thread.
pub(crate) fn drop_all(world: &World, task: TaskId) {
    let closed: Locals = vec![(CLOSED, Box::new(()))];
    let mut locals = std::mem::replace(&mut world.locals.borrow_mut()[task as usize], closed);
    while let Some((_, value)) = locals.pop() {
        drop(value);
    }
}
