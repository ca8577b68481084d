//! Reference counting for objects (*things*) that many CPUs use. For each thing that a CPU used
//! recently, the CPU has a count of its own, on a cache line of its own.
//!
//! A thing is stored at its *home* ([`Home`]). Each CPU has a few *handles*, for the things that it
//! used recently ([`Nearby`]). A handle holds one reference to its thing, and has a reference count
//! of its own. A CPU's handles are divided into *sets*, each with a lock.
//!
//! A thread that asks for a thing gets a clone of its CPU's handle. The thread writes only to the
//! lock of the handle's set, and to the handle's count. So CPUs share no cache line while they use
//! the same things repeatedly.
//!
//! The number of handles per CPU is fixed. So memory grows with the number of things and with the
//! number of CPUs, but not with their product.
//!
//! # Invariants
//! - NEARBY-1. Once `take` has returned, no CPU keeps a handle of the thing that was taken. A
//!   *user* is a thread that asks for the thing while its CPU has no handle of it. The user locks
//!   the set in which its CPU stores handles of this thing. While it holds this lock, the user gets
//!   the thing from the home, notes its CPU there, and stores a new handle in the set. A thread
//!   that [takes](Nearby::take) the thing first empties the home. Then, for each noted CPU, the
//!   taking thread locks and searches the set in which that CPU stores handles of this thing. So
//!   either the user finds the home empty, or the user's CPU is noted and the search finds the new
//!   handle:
//!   ```text
//!     user: locks its set                     take: locks home: the thing goes; which CPUs?
//!           locks home: the thing, or none          locks the set of each: waits for the user, and finds its handle
//!           notes the CPU
//!           a handle in the set
//!   ```
//! - NEARBY-2. A thread that asks for one thing never drops the last reference to another thing. To
//!   make room for a new handle, the thread replaces a handle of another thing, while it holds the
//!   lock of the set. At that moment, either the home of the other thing still holds a reference to
//!   it, or a thread in `take` owns a reference and hasn't searched this set yet. So the replaced
//!   handle doesn't hold the last reference. The last reference to a thing is dropped by the thread
//!   that took it, or by a thread that asked for it and still uses it after `take` has returned.
//!
//! Lock order: a set → a home.

use std::ops::Deref;
use std::ptr;

use crate::lock::{Mutex, OnceBox};
use crate::{Arc, CachePadded, PerCpu};

/// The number of sets per CPU, and of handles per set.
const SETS: usize = if cfg!(pagefold_loom) { 1 } else { 8 };
const WAYS: usize = if cfg!(pagefold_loom) { 1 } else { 4 };
/// The overhead of an allocation.
const ALLOCATION: usize = 16;

/// A CPU's handle of a thing, on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
pub struct Handle<T>(Arc<T>);

impl<T> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A place for one thing, which may be empty.
#[derive(Debug)]
pub struct Home<T> {
    state: Mutex<AtHome<T>>,
}

#[derive(Debug)]
struct AtHome<T> {
    thing: Option<Arc<T>>,
    /// The CPUs that may have a handle: CPU `n` has bit `n % 64`.
    cpus: u64,
}

impl<T> Default for Home<T> {
    fn default() -> Self {
        Self { state: Mutex::new(AtHome { thing: None, cpus: 0 }) }
    }
}

impl<T> Home<T> {
    /// Puts a thing here. There must be none.
    pub fn put(&self, thing: Arc<T>) {
        let before = self.state.lock().thing.replace(thing);
        debug_assert!(before.is_none(), "two things in one home");
    }

    /// Returns the thing that is here.
    pub fn thing(&self) -> Option<Arc<T>> {
        self.state.lock().thing.clone()
    }

    /// Returns the thing for a handle of `cpu`, and notes the CPU.
    fn thing_for(&self, cpu: usize) -> Option<Arc<T>> {
        let mut state = self.state.lock();
        let thing = state.thing.clone()?;
        state.cpus |= bit(cpu);
        Some(thing)
    }
}

/// The address of a home, which doesn't move while it contains a thing.
type Address = usize;

fn address<T>(home: &Home<T>) -> Address {
    ptr::from_ref(home).addr()
}

fn bit(cpu: usize) -> u64 {
    1 << (cpu % u64::BITS as usize)
}

/// Some handles of a CPU, for things from different homes.
#[derive(Debug)]
struct Set<T> {
    handles: [Option<(Address, Arc<Handle<T>>)>; WAYS],
    /// The index of the handle to replace next.
    next: usize,
}

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self { handles: [const { None }; WAYS], next: 0 }
    }
}

/// A CPU's handles.
type Sets<T> = Box<[Mutex<Set<T>>]>;

/// The handles of each CPU; see the module head. There are none before [`prepare`](Self::prepare).
#[derive(Debug)]
pub struct Nearby<T> {
    cpus: OnceBox<PerCpu<Sets<T>>>,
}

impl<T> Default for Nearby<T> {
    fn default() -> Self {
        Self { cpus: OnceBox::new() }
    }
}

impl<T> Nearby<T> {
    /// Returns the number of bytes that the maximum number of handles takes.
    fn bytes() -> u64 {
        let handle = size_of::<Handle<T>>() + align_of::<Handle<T>>() + ALLOCATION;
        let cpu = SETS * (size_of::<Mutex<Set<T>>>() + WAYS * handle) + ALLOCATION;
        (crate::cpu::count() * (cpu + size_of::<CachePadded<Box<()>>>())) as u64
    }

    /// Allocates the sets of handles, unless they exist already, or `try_charge` refuses the
    /// memory. Without handles, CPUs share the reference counts of things.
    pub fn prepare(&self, try_charge: impl FnOnce(u64) -> bool, uncharge: impl FnOnce(u64)) {
        if self.cpus.get().is_some() || !try_charge(Self::bytes()) {
            return;
        }
        let cpus = PerCpu::new(|| (0..SETS).map(|_| Mutex::default()).collect());
        if self.cpus.set(Box::new(cpus)).is_err() {
            uncharge(Self::bytes()); // Another thread was faster.
        }
    }

    fn set_of<'a>(cpu: &'a [Mutex<Set<T>>], home: &Home<T>) -> &'a Mutex<Set<T>> {
        let hash = (address(home) as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &cpu[(hash >> 32) as usize % SETS]
    }

    /// Returns this CPU's handle of the thing at `home`, if there is one.
    pub fn get(&self, home: &Home<T>) -> Option<Arc<Handle<T>>> {
        let Some(cpus) = self.cpus.get() else { return home.thing().map(|thing| Arc::new(Handle(thing))) };
        let cpu = crate::cpu::current();
        let mut set = Self::set_of(cpus.of(cpu), home).lock();
        if let Some((_, handle)) = set.handles.iter().flatten().find(|it| it.0 == address(home)) {
            return Some(Arc::clone(handle));
        }
        let handle = Arc::new(Handle(home.thing_for(cpu)?)); // NEARBY-1
        let next = set.next;
        set.next = (next + 1) % WAYS;
        // NEARBY-2: the previous handle is dropped while the lock is held.
        set.handles[next] = Some((address(home), Arc::clone(&handle)));
        Some(handle)
    }

    /// Takes away the thing at `home`. The caller must drop the result without holding a lock,
    /// because this drop may destroy the thing.
    pub fn take(&self, home: &Home<T>) -> Option<Arc<T>> {
        let (thing, noted) = {
            let mut state = home.state.lock();
            (state.thing.take(), std::mem::take(&mut state.cpus))
        };
        // `cpus` is loaded only after the home was read. A CPU is noted only once the sets exist,
        // so this load finds the sets of every noted CPU.
        let cpus = self.cpus.get().into_iter().flat_map(PerCpu::iter).enumerate();
        for (_, cpu) in cpus.filter(|&(cpu, _)| noted & bit(cpu) != 0) {
            let mut set = Self::set_of(cpu, home).lock();
            set.handles.iter_mut().for_each(|it| _ = it.take_if(|it| it.0 == address(home)));
        }
        thing
    }
}

#[cfg(all(test, pagefold_loom))]
mod models {
    use super::*;
    use crate::atomic::{AtomicBool, Ordering};
    use crate::thread::spawn;

    struct Thing(Arc<AtomicBool>);

    impl Drop for Thing {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    struct Model {
        nearby: Nearby<Thing>,
        homes: [Home<Thing>; 2],
        ended: [Arc<AtomicBool>; 2],
    }

    impl Model {
        fn new() -> Arc<Self> {
            let ended = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            let homes = [Home::default(), Home::default()];
            for (home, ended) in homes.iter().zip(&ended) {
                home.put(Arc::new(Thing(Arc::clone(ended))));
            }
            let nearby = Nearby::default();
            nearby.prepare(|_| true, |_| ());
            Arc::new(Self { nearby, homes, ended })
        }

        fn has_ended(&self, thing: usize) -> bool {
            self.ended[thing].load(Ordering::Relaxed)
        }
    }

    #[test]
    fn no_cpu_keeps_a_handle_of_what_was_taken() {
        crate::model(|| {
            let model = Model::new();
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let model = Arc::clone(&model);
                    spawn("user", move || {
                        let handle = model.nearby.get(&model.homes[0]);
                        assert!(handle.is_none() || !model.has_ended(0));
                    })
                    .unwrap()
                })
                .collect();
            drop(model.nearby.take(&model.homes[0]));
            users.into_iter().for_each(|user| user.join().unwrap());
            assert!(model.has_ended(0));
            assert!(model.nearby.get(&model.homes[0]).is_none());
        });
    }

    #[test]
    fn no_thing_ends_because_another_one_was_looked_for() {
        crate::model(|| {
            let model = Model::new();
            drop(model.nearby.get(&model.homes[0]));
            let taker = {
                let model = Arc::clone(&model);
                let take = move || {
                    let taken = model.nearby.take(&model.homes[0]).unwrap();
                    assert_eq!(Arc::strong_count(&taken), 1, "a thread that doesn't use it could end it");
                };
                spawn("taker", take).unwrap()
            };
            drop(model.nearby.get(&model.homes[1])); // The first one's handle makes way.
            taker.join().unwrap();
            assert!(model.has_ended(0));
        });
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_found_until_it_is_taken_however_many_are_used() {
        let (nearby, shared) = (Nearby::<usize>::default(), Nearby::default());
        nearby.prepare(|bytes| bytes > 0, |_| ());
        shared.prepare(|_| false, |_| ());
        let homes: Vec<Home<usize>> = (0..1000).map(|_| Home::default()).collect();
        homes.iter().enumerate().for_each(|(number, home)| home.put(Arc::new(number)));
        for _ in 0..3 {
            for (number, home) in homes.iter().enumerate() {
                let handles = [nearby.get(home).unwrap(), nearby.get(home).unwrap(), shared.get(home).unwrap()];
                assert_eq!(handles.map(|handle| **handle), [number; 3]);
            }
        }
        let handle = nearby.get(&homes[7]).unwrap();
        let taken = nearby.take(&homes[7]).unwrap();
        assert_eq!((Arc::strong_count(&taken), Arc::strong_count(&handle)), (2, 1));
        assert!(nearby.get(&homes[7]).is_none());
        homes[7].put(Arc::new(7000));
        assert_eq!(nearby.get(&homes[7]).map(|handle| **handle), Some(7000));
        assert!(homes.iter().all(|home| nearby.take(home).is_some_and(|thing| Arc::strong_count(&thing) == 1)));
    }
}
