//! The thread-local values of virtual threads, as the machine stores them.

use crate::task::TaskId;
use std::any::Any;
use std::cell::RefCell;

/// A thread's values, in the order of their creation.
pub(crate) type Locals = Vec<Local>;

/// A thread-local value.
pub(crate) struct Local {
    /// The address of its key.
    pub(crate) key: usize,
    /// `None` once it was dropped.
    pub(crate) value: Option<Box<dyn Any>>,
    /// It has no destructor, so it remains available to the destructors of other values.
    pub(crate) is_plain: bool,
}

/// The result of looking up a key.
pub(crate) enum Found<T> {
    Nothing,
    Value(*const T),
    Dropped,
}

pub(crate) fn find<T: 'static>(locals: &Locals, key: usize) -> Found<T> {
    match locals.iter().find(|local| local.key == key).map(|local| &local.value) {
        None => Found::Nothing,
        Some(None) => Found::Dropped,
        Some(Some(value)) => value.downcast_ref::<T>().map_or(Found::Dropped, |value| Found::Value(value)),
    }
}

/// Drops a thread's values on that thread, latest first, including values that destructors create
/// meanwhile.
pub(crate) fn drop_all(locals: &RefCell<Vec<Locals>>, task: TaskId) {
    let next = || {
        let mut locals = locals.borrow_mut();
        let left = locals[task as usize].iter_mut().rev().find(|local| local.value.is_some() && !local.is_plain);
        left.and_then(|local| local.value.take())
    };
    while let Some(value) = next() {
        drop(value);
    }
}
