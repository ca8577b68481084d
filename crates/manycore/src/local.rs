//! Thread-local values of virtual threads.
//!
//! `std::thread_local!` doesn't work inside a machine, because all virtual threads share one host
//! thread.

use crate::locals::{Found, Local, Locals, find};
use crate::world;
use std::cell::{Cell, RefCell};

thread_local! {
    /// The values of a host thread, outside of any machine.
    static OUTSIDE: RefCell<Locals> = const { RefCell::new(Vec::new()) };
}

/// A key with one value for each virtual thread, or for each host thread outside of a machine. Keys
/// are declared by [`thread_local!`](crate::thread_local). When a thread ends, its values are
/// dropped in reverse order of their creation.
#[derive(Debug)]
pub struct LocalKey<T: 'static> {
    make: fn() -> T,
    // A zero-sized static could share its address with another one. (`make` alone prevents this,
    // too.)
    _address: u8,
}

/// The error if the thread is ending and its values are being dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread's own values are gone")]
pub struct AccessError;

/// Declares thread-local values of virtual threads.
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
    /// Creates a key whose values are made by `make`. It must be a static: its address identifies
    /// it.
    #[must_use]
    pub const fn new(make: fn() -> T) -> Self {
        Self { make, _address: 0 }
    }

    /// Calls `use_it` with this thread's value, which is created first if necessary.
    ///
    /// # Panics
    /// If the thread's values are being dropped already.
    pub fn with<R>(&'static self, use_it: impl FnOnce(&T) -> R) -> R {
        self.try_with(use_it).expect("a thread-local value after its thread's end")
    }

    /// Calls `use_it` with this thread's value, like [`with`](Self::with).
    ///
    /// # Errors
    /// [`AccessError`] at the thread's end, when its values are being dropped.
    pub fn try_with<R>(&'static self, use_it: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let key = std::ptr::from_ref(self).addr();
        let value: *const T = match Self::reach(|locals| find::<T>(locals, key)).ok_or(AccessError)? {
            Found::Value(value) => value,
            Found::Dropped => return Err(AccessError),
            Found::Nothing => {
                let made: Box<T> = Box::new((self.make)());
                let value: *const T = &raw const *made;
                let is_plain = !std::mem::needs_drop::<T>();
                Self::reach(|locals| locals.push(Local { key, value: Some(made), is_plain })).ok_or(AccessError)?;
                value
            }
        };
        // SAFETY: the value stays in its box until the thread ends, and is only handed out by
        // shared reference, on this thread. At the thread's end, `drop_all` takes the box out of
        // the list and drops it, on this thread. `drop_all` is never called from within `use_it`,
        // so no call that found the box is still running by then.
        Ok(use_it(unsafe { &*value }))
    }

    fn reach<R>(visit: impl FnOnce(&mut Locals) -> R) -> Option<R> {
        match world::current() {
            Some(world) => {
                let task = world.state.borrow().task as usize;
                let mut locals = world.locals.borrow_mut();
                Some(visit(&mut locals[task]))
            }
            None => OUTSIDE.try_with(|locals| visit(&mut locals.borrow_mut())).ok(),
        }
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// Returns a copy of this thread's value.
    ///
    /// # Panics
    /// Same as for [`with`](Self::with); this holds for the following functions as well.
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

    /// Takes this thread's value, and leaves the default in its place.
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
