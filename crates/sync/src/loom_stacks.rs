//! Keeps the stacks of loom's threads from one interleaving to the next.
//!
//! loom maps a stack for each thread of each interleaving, protects the stack's lowest page (the
//! guard page), and unmaps the stack at the end of the interleaving. These system calls, and the
//! page faults of a new stack, take two fifths of the time of a small model. loom has no setting
//! for this, so in builds for loom the functions below replace those of libc. `munmap` keeps a
//! stack, and a later `mmap` of a stack of the same size returns it.
//!
//! - ST1. Only a mapping that was made here, with `MAP_STACK`, is ever kept: `munmap` looks for the
//!   given address among the thread's [`Stack`]s. All other calls go to the kernel.
//! - ST2. The operating-system thread that explores a model creates and drops all loom threads of
//!   the model. So each operating-system thread has its own list of stacks, without a lock.

use std::cell::RefCell;
use std::ptr;

use libc::{c_int, c_void, off_t, size_t};

/// The most stacks that a thread keeps.
const STACKS_MAX: usize = 16;

/// A mapping for a stack of loom's.
struct Stack {
    address: usize,
    size: size_t,
    is_free: bool,
    /// The stack's guard page (its lowest page) is protected, and stays protected.
    is_guarded: bool,
}

/// A thread's stacks. They have no destructor, because the functions below are called until the
/// very end of the thread. So the stacks are leaked when the thread ends.
type Stacks = [Option<Stack>; STACKS_MAX];

thread_local! {
    static STACKS: RefCell<Stacks> = const { RefCell::new([const { None }; STACKS_MAX]) };
}

/// Calls `f` with the first stack for which `is_it` is true.
fn with_stack<R>(is_it: impl Fn(&Stack) -> bool, f: impl FnOnce(&mut Stack) -> R) -> Option<R> {
    STACKS.with_borrow_mut(|stacks| stacks.iter_mut().flatten().find(|stack| is_it(stack)).map(f))
}

/// Records a stack that is in use from now on. A thread that already has `STACKS_MAX` stacks
/// records no more: the stack is then unmapped after use.
fn note(address: usize, size: size_t) {
    let stack = Stack { address, size, is_free: false, is_guarded: false };
    STACKS.with_borrow_mut(|stacks| {
        if let Some(place) = stacks.iter_mut().find(|place| place.is_none()) {
            *place = Some(stack);
        }
    });
}

/// Maps memory.
///
/// # Safety
/// The contract of libc's `mmap`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    size: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_stack = flags & libc::MAP_STACK != 0 && address.is_null();
    let take = |stack: &mut Stack| {
        stack.is_free = false;
        stack.address
    };
    if is_stack && let Some(kept) = with_stack(|stack| stack.is_free && stack.size == size, take) {
        return ptr::with_exposed_provenance_mut(kept);
    }
    // SAFETY: the caller's.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, address, size, protection, flags, file, offset) };
    if is_stack && mapped != -1 {
        note(mapped as usize, size);
    }
    ptr::with_exposed_provenance_mut(mapped as usize)
}

/// Changes the protection of memory.
///
/// # Safety
/// The contract of libc's `mprotect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(address: *mut c_void, size: size_t, protection: c_int) -> c_int {
    let is_its = |stack: &Stack| stack.address == address as usize && protection == libc::PROT_NONE;
    if with_stack(is_its, |stack| stack.is_guarded) == Some(true) {
        return 0;
    }
    // SAFETY: the caller's.
    let result = unsafe { libc::syscall(libc::SYS_mprotect, address, size, protection) };
    if result == 0 {
        with_stack(is_its, |stack| stack.is_guarded = true);
    }
    result as c_int
}

/// Unmaps memory.
///
/// # Safety
/// The contract of libc's `munmap`.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, size: size_t) -> c_int {
    let is_it = |stack: &Stack| (stack.address, stack.size) == (address as usize, size);
    if with_stack(is_it, |stack| stack.is_free = true).is_some() {
        return 0;
    }
    // SAFETY: the caller's.
    let result = unsafe { libc::syscall(libc::SYS_munmap, address, size) };
    result as c_int
}
