//! Atomics, fences and spin hints that cost virtual time.
//!
//! Each type has the layout of its counterpart in `core`, so it can be placed in memory that was
//! mapped or laid out by hand. Inside a machine an access is an event: the thread waits for its
//! turn, the cost of the access is added to its virtual time, and then the access takes effect in a
//! single step. So all threads see the accesses in one total order, whatever orderings were
//! requested. Outside a machine each type behaves like its counterpart.

use crate::access::Kind;
use crate::state::Order;
use crate::task::here;
use crate::world;
use core::fmt;
use core::sync::atomic as real;
pub use core::sync::atomic::{Ordering, compiler_fence};

/// Charges an access and executes it. `op` also returns whether it changed the value.
#[inline]
#[track_caller]
fn access<R>(kind: Kind, address: usize, op: impl FnOnce() -> (R, bool)) -> R {
    let Some(world) = world::current() else { return op().0 };
    let at = here();
    world.arrive_to_touch(at, address);
    let (line, comes) = world.state.borrow_mut().touch(kind, address);
    if comes {
        // Before the line arrives, the core that still has it may use it.
        world.arrive_to_touch(at, address);
    }
    let mut state = world.state.borrow_mut();
    let (result, changed) = op();
    if changed {
        state.changed(line);
    }
    result
}

/// Returns whether a weak compare-and-swap must fail spuriously: only sometimes, and only in random
/// order.
fn fails_at_random() -> bool {
    world::current().is_some_and(|world| {
        let mut state = world.state.borrow_mut();
        let fails = state.setup.order == crate::state::Order::Random && state.random.below(16) == 0;
        // A spin hint after this failure must not wait for a change, because no value caused the
        // failure.
        state.current().watched_over |= fails;
        fails
    })
}

macro_rules! atomic {
    ($name:ident $(<$generic:ident>)?, $value:ty, $([$($update:ident)*])?) => {
        #[doc = concat!("`core`'s [`", stringify!($name), "`](core::sync::atomic::", stringify!($name), "),")]
        #[doc = "in virtual time."]
        #[repr(transparent)]
        pub struct $name $(<$generic>)? (real::$name $(<$generic>)?);

        impl $(<$generic>)? $name $(<$generic>)? {
            /// Creates an atomic with `value`.
            #[inline]
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }

            #[inline]
            fn address(&self) -> usize {
                core::ptr::from_ref(self).addr()
            }

            /// Loads the value.
            #[inline]
            #[must_use]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                access(Kind::Load, self.address(), || (self.0.load(order), false))
            }

            /// Stores a value.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                let kind = if order == Ordering::SeqCst { Kind::Update } else { Kind::Store };
                access(kind, self.address(), || {
                    let changed = self.0.load(Ordering::Relaxed) != value;
                    (self.0.store(value, order), changed)
                });
            }

            /// Replaces the value, and returns the old one.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                access(Kind::Update, self.address(), || {
                    let old = self.0.swap(value, order);
                    (old, old != value)
                })
            }

            /// Replaces the value if it is `current`, and returns the old one.
            ///
            /// # Errors
            /// The value, if it isn't `current`.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                access(Kind::Update, self.address(), || {
                    let result = self.0.compare_exchange(current, new, success, failure);
                    (result, result.is_ok() && current != new)
                })
            }

            /// Replaces the value like [`compare_exchange`](Self::compare_exchange). In random
            /// order it sometimes fails spuriously, as a weak compare-and-swap may.
            ///
            /// # Errors
            /// The value, if nothing was replaced.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if fails_at_random() {
                    return Err(self.load(failure));
                }
                self.compare_exchange(current, new, success, failure)
            }

            /// Replaces the value by the result of `update`, and retries while other threads change
            /// it meanwhile.
            ///
            /// # Errors
            /// The value, if `update` returned `None`.
            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(fetch_order);
                while let Some(new) = update(old) {
                    match self.compare_exchange_weak(old, new, set_order, fetch_order) {
                        Ok(old) => return Ok(old),
                        Err(other) => old = other,
                    }
                }
                Err(old)
            }

            $($(
                #[doc = concat!("See `core`'s `", stringify!($update), "`; returns the old value.")]
                #[inline]
                #[track_caller]
                pub fn $update(&self, value: $value, order: Ordering) -> $value {
                    access(Kind::Update, self.address(), || {
                        let old = self.0.$update(value, order);
                        (old, old != self.0.load(Ordering::Relaxed))
                    })
                }
            )*)?

            /// Returns the value, which no other thread can be using, free of charge.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// Returns the value.
            #[inline]
            #[must_use]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// Returns the address of the value. The machine doesn't see accesses through this
            /// pointer, so they are free of charge.
            #[inline]
            #[must_use]
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }
        }

        impl $(<$generic>)? fmt::Debug for $name $(<$generic>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $(<$generic>)? From<$value> for $name $(<$generic>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! number {
    ($($name:ident $value:ty;)+) => {
        $(atomic!($name, $value, [fetch_add fetch_sub fetch_and fetch_nand fetch_or fetch_xor fetch_max fetch_min]);

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        })+
    };
}

number! {
    AtomicU8 u8;
    AtomicU16 u16;
    AtomicU32 u32;
    AtomicU64 u64;
    AtomicUsize usize;
    AtomicI8 i8;
    AtomicI16 i16;
    AtomicI32 i32;
    AtomicI64 i64;
    AtomicIsize isize;
}
atomic!(AtomicBool, bool, [fetch_and fetch_nand fetch_or fetch_xor]);
atomic!(AtomicPtr<T>, *mut T,);

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(core::ptr::null_mut())
    }
}

/// A fence. Inside a machine the order is total anyway, but a sequentially consistent fence costs
/// time.
#[inline]
#[track_caller]
pub fn fence(order: Ordering) {
    let Some(world) = world::current() else { return real::fence(order) };
    if order == Ordering::SeqCst {
        world.arrive(here());
        let mut state = world.state.borrow_mut();
        state.drain_stores();
        let cost = state.times.fence;
        state.work(cost);
        state.foresee_nothing();
    }
}

/// Requests the cache line at an address, for reading or for `writes`, without waiting for it. In
/// random order, where times mean nothing, it does nothing.
#[inline]
#[track_caller]
pub fn prefetch(address: usize, writes: bool) {
    let Some(world) = world::current() else { return };
    if world.state.borrow().setup.order == Order::Random {
        return;
    }
    world.arrive_to_touch(here(), address);
    let mut state = world.state.borrow_mut();
    state.prefetch(address, writes);
    let cost = state.times.residual;
    state.work(cost);
}

/// Executes one round of a spin. Inside a machine, suspends the CPU until a value changes in one of
/// the lines that this thread has read since its previous hint. If a value in one of these lines
/// has changed already, or if the thread has read no line or too many, it isn't suspended, and the
/// hint costs one pause.
#[inline]
#[track_caller]
pub fn spin_hint() {
    let Some(world) = world::current() else { return core::hint::spin_loop() };
    world.arrive(here());
    let suspended = {
        let mut state = world.state.borrow_mut();
        let cost = state.times.pause;
        state.spin(cost)
    };
    if suspended {
        world.wait();
    }
}
