//! Returns the current CPU, and the number of CPUs.
//!
//! The number of the current CPU is only a hint: by the time a thread uses the number, the thread
//! may run on another CPU. So several threads may use one CPU's data at the same time. Per-CPU data
//! must therefore be locked or atomic, and any thread may drain it.

/// Returns the number of CPUs for per-CPU values: the highest kernel number of an online CPU, plus
/// one.
#[inline]
#[must_use]
pub fn count() -> usize {
    #[cfg(pagefold_loom)]
    return 2;
    #[cfg(pagefold_manycore)]
    return manycore::cpu::count();
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    real::count()
}

/// Returns the CPU that this thread runs on, below [`count`].
#[inline]
#[must_use]
pub fn current() -> usize {
    #[cfg(pagefold_loom)]
    return model::current();
    #[cfg(pagefold_manycore)]
    return manycore::cpu::current();
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    real::current()
}

/// Returns the socket of each virtual CPU: each socket has memory of its own.
#[cfg(pagefold_manycore)]
#[must_use]
pub fn sockets() -> Vec<usize> {
    manycore::cpu::sockets()
}

/// Makes the process behave as if the machine had `count` CPUs, and assigns them to the process's
/// threads round robin. Tests and benchmarks use this to measure how much memory per-CPU values
/// take on a large machine. The caller must call this before any per-CPU value is created. Does
/// nothing in loom models and on virtual CPUs.
#[doc(hidden)]
pub fn pretend(count: usize) {
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    real::pretend(count);
    #[cfg(any(pagefold_loom, pagefold_manycore))]
    let _ = count;
}

/// A model's threads get its two CPUs round robin.
#[cfg(pagefold_loom)]
mod model {
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use std::cell::Cell;

    loom::lazy_static! {
        static ref NEXT: AtomicUsize = AtomicUsize::new(0);
    }
    loom::thread_local! {
        static MINE: Cell<Option<usize>> = Cell::new(None);
    }

    pub(super) fn current() -> usize {
        MINE.with(|mine| {
            let cpu = mine.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) % 2);
            mine.set(Some(cpu));
            cpu
        })
    }
}

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
mod real {
    use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
    use std::cell::Cell;

    /// The values of [`RSEQ`] that aren't offsets. They mean, in this order: CPUs are only
    /// pretended; the C library hasn't been queried yet; the C library has registered no
    /// restartable sequence.
    const PRETENDED: isize = isize::MIN;
    const UNKNOWN: isize = isize::MIN + 1;
    const ABSENT: isize = isize::MIN + 2;

    /// The offset of this thread's `struct rseq` from the thread pointer. It is the same for all
    /// threads of the process.
    static RSEQ: AtomicIsize = AtomicIsize::new(UNKNOWN);
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn pretend(count: usize) {
        // Relaxed: the caller starts its threads afterwards.
        COUNT.store(count.max(1), Ordering::Relaxed);
        RSEQ.store(PRETENDED, Ordering::Relaxed);
    }

    /// Returns the CPU that this thread was assigned.
    fn pretended() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: Cell<Option<usize>> = const { Cell::new(None) };
        }
        // Relaxed: the numbers only have to differ.
        let cpu = MINE.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        MINE.set(Some(cpu));
        cpu % count()
    }

    #[inline]
    pub(super) fn count() -> usize {
        // Relaxed: all threads compute the same number.
        match COUNT.load(Ordering::Relaxed) {
            0 => find_count(),
            count => count,
        }
    }

    #[cold]
    fn find_count() -> usize {
        let count = possible().max(1);
        COUNT.store(count, Ordering::Relaxed);
        count
    }

    /// Returns the highest number in the kernel's list of online CPUs (such as `0-3,8-11`) plus
    /// one. If the list can't be read, returns the configured number of CPUs.
    fn possible() -> usize {
        let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let highest = list.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
        // SAFETY: sysconf takes no pointers.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        highest.map_or_else(|| usize::try_from(configured).unwrap_or(1), |highest| highest + 1)
    }

    #[inline]
    pub(super) fn current() -> usize {
        // Relaxed: the value is a constant of the process. A thread that finds it unknown queries
        // it.
        let offset = RSEQ.load(Ordering::Relaxed);
        if offset > ABSENT {
            let cpu = rseq_cpu(offset);
            if cpu < count() {
                return cpu;
            }
        }
        slow(offset)
    }

    #[cold]
    fn slow(offset: isize) -> usize {
        if offset == PRETENDED {
            return pretended();
        }
        if offset == UNKNOWN {
            RSEQ.store(registered(), Ordering::Relaxed);
        }
        // SAFETY: sched_getcpu takes no pointers.
        let cpu = unsafe { libc::sched_getcpu() };
        usize::try_from(cpu).unwrap_or(0) % count()
    }

    /// Returns the offset at which glibc (2.35 and later) registered this process's restartable
    /// sequences.
    fn registered() -> isize {
        if cfg!(not(target_arch = "x86_64")) {
            return ABSENT;
        }
        // SAFETY: the names are null-terminated; dlsym returns null for a symbol that doesn't
        // exist.
        let (size, offset) = unsafe {
            (
                libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>(),
                libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>(),
            )
        };
        if size.is_null() || offset.is_null() {
            return ABSENT;
        }
        // SAFETY: both are constants of glibc with these types, initialized before main. A size of
        // 0 means that registration was refused or disabled.
        unsafe { if *size == 0 { ABSENT } else { *offset } }
    }

    /// Reads `cpu_id`, the second word of the thread's `struct rseq`. While the struct is
    /// unregistered, the word is −1 or −2, and not the number of a CPU.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn rseq_cpu(offset: isize) -> usize {
        let cpu: u32;
        // SAFETY: glibc provided `offset`, so this thread's registered `struct rseq` is at
        // fs:[offset]. The struct lives as long as the thread, and only the kernel writes the word.
        unsafe {
            core::arch::asm!(
                "mov {cpu:e}, dword ptr fs:[{offset} + 4]",
                cpu = out(reg) cpu,
                offset = in(reg) offset,
                options(nostack, preserves_flags, readonly)
            );
        }
        cpu as usize
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn rseq_cpu(_offset: isize) -> usize {
        usize::MAX
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    #[test]
    fn current_is_below_count() {
        for _ in 0..1000 {
            assert!(super::current() < super::count());
        }
    }

    #[test]
    fn agrees_with_the_kernel_when_pinned() {
        // SAFETY: `set` is a plain bit mask, valid when zeroed, and outlives the calls.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let before = libc::sched_getcpu();
            libc::CPU_SET(usize::try_from(before).unwrap(), &mut set);
            if libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0 {
                assert_eq!(super::current(), usize::try_from(libc::sched_getcpu()).unwrap());
            }
        }
    }
}
