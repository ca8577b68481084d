//! A cell that is written once.

use super::Mutex;
use crate::atomic::{AtomicBool, Ordering};
use std::cell::UnsafeCell;
use std::convert::Infallible;
use std::fmt;

/// See `once_cell::sync::OnceCell`. The function that makes the value may access the machine, and
/// wait.
pub struct OnceCell<T> {
    ready: AtomicBool,
    /// Held by the thread that makes the value.
    making: Mutex<()>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value may be made on one thread and dropped on another.
unsafe impl<T: Send> Send for OnceCell<T> {}
// SAFETY: the thread that holds `making` writes the value before it sets `ready`. From then on,
// threads share the value, and only read it.
unsafe impl<T: Send + Sync> Sync for OnceCell<T> {}

impl<T> OnceCell<T> {
    /// Creates an empty cell.
    #[must_use]
    #[track_caller]
    pub const fn new() -> Self {
        Self { ready: AtomicBool::new(false), making: Mutex::new(()), value: UnsafeCell::new(None) }
    }

    /// Returns the value, if it was made.
    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        // Acquire pairs with the Release in `get_or_try_init`: the value is visible.
        if !self.ready.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: once ready, the value isn't written until the cell is borrowed exclusively.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// Returns the value, and makes it by `make` if necessary.
    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(|| Ok::<T, Infallible>(make())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Returns the value, and makes it by `make` if necessary.
    ///
    /// # Errors
    /// The error of `make`.
    #[track_caller]
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let making = self.making.lock();
        if self.get().is_none() {
            let value = make()?;
            // SAFETY: not ready, so no thread reads; the lock is held, so no other thread writes.
            unsafe { *self.value.get() = Some(value) };
            // Release pairs with the Acquire in `get`.
            self.ready.store(true, Ordering::Release);
        }
        drop(making);
        Ok(self.get().expect("ready"))
    }

    /// Sets the value of the cell.
    ///
    /// # Errors
    /// The value, if there is one already.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// Returns the value, if it was made.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Takes the value out, if it was made. The cell is empty then.
    #[track_caller]
    pub fn take(&mut self) -> Option<T> {
        std::mem::take(self).into_inner()
    }

    /// Returns the value, if it was made.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceCell<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for OnceCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceCell").finish_non_exhaustive()
    }
}
