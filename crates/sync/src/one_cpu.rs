//! Keeps a test on one CPU.

/// Keeps the calling thread on the CPU that it is on, until the returned value is dropped. Threads
/// that it starts meanwhile stay there, too. This is for tests whose result depends on per-CPU
/// state: a stock of frames or charges, a batch of loaded pages, a part of a swap area. A thread
/// doesn't search the stocks of all other CPUs. So a thread that has moved to another CPU may not
/// find the frames or charges that it gave back before the move.
///
/// # Panics
/// If the system refuses.
#[must_use]
pub fn stay_on_this_cpu() -> impl Drop {
    struct Before(libc::cpu_set_t);
    impl Drop for Before {
        fn drop(&mut self) {
            set(&self.0);
        }
    }
    fn set(cpus: &libc::cpu_set_t) {
        // SAFETY: the call reads the set, whose size it gets, and nothing else.
        assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(cpus), cpus) }, 0);
    }
    // SAFETY: a CPU set is plain bits, for which zeros are valid.
    let (mut before, mut here) = unsafe { std::mem::zeroed::<(libc::cpu_set_t, libc::cpu_set_t)>() };
    // SAFETY: the call writes to the set, whose size it gets, and to nothing else.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&before), &raw mut before) }, 0);
    // SAFETY: the call takes no pointer.
    let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).expect("the system knows the CPU");
    // SAFETY: changes a set of our own; the number is one of a CPU.
    unsafe { libc::CPU_SET(cpu, &mut here) };
    set(&here);
    Before(before)
}
