//! Threads that keep working while a test checks something.

use std::time::Duration;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pagefold::{Advice, File};

use crate::support::{eventually, stop_at_end};

/// The CPU time that `work` takes on this thread. Other threads and processes don't add to it.
pub(crate) fn cpu_time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let now = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to `time` alone.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let start = now();
    let result = work();
    (now() - start, result)
}

/// The number of CPUs that this thread may use. `available_parallelism` isn't used, because it
/// returns less if a control group limits their time.
pub(crate) fn cpus() -> u64 {
    // SAFETY: a CPU set is plain bits, and the call gets its size; it writes nothing else.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed), 0);
        libc::CPU_COUNT(&allowed) as u64
    }
}

/// Restricts this thread to the first CPU that it may use. All threads that call this share this
/// CPU.
pub(crate) fn share_a_cpu() {
    // SAFETY: a CPU set is plain bits, and both calls get its size; they read and write nothing
    // else.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &allowed)).expect("a CPU");
        libc::CPU_ZERO(&mut allowed);
        libc::CPU_SET(first, &mut allowed);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&allowed), &raw const allowed), 0);
    }
}

/// Does `work(thread)` again and again in `threads` threads, while `body` runs in this one.
pub(crate) fn meanwhile<T>(threads: u64, work: impl Fn(u64) + Sync, body: impl FnOnce() -> T) -> T {
    meanwhile_in_rounds(threads, work, |_| body())
}

/// As [`meanwhile`]. A call of `work` is a round, and `body` can wait for rounds.
pub(crate) fn meanwhile_in_rounds<T>(threads: u64, work: impl Fn(u64) + Sync, body: impl FnOnce(&Rounds) -> T) -> T {
    let (stop, work) = (&AtomicBool::new(false), &work);
    let rounds = &Rounds((0..threads).map(|_| AtomicU64::new(0)).collect());
    std::thread::scope(|scope| {
        let _ends = stop_at_end(stop);
        for (thread, ended) in (0..threads).zip(&rounds.0) {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    work(thread);
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        body(rounds)
    })
}

/// The number of rounds that each thread has ended.
pub(crate) struct Rounds(Vec<AtomicU64>);

impl Rounds {
    /// Waits until each thread has ended a round since this call. By then, each round that was
    /// under way at the call has ended, too.
    pub(crate) fn await_one_of_each(&self) {
        let ended = || self.0.iter().map(|ended| ended.load(Ordering::SeqCst));
        let before: Vec<u64> = ended().collect();
        eventually("a thread ends no round", || ended().zip(&before).all(|(now, before)| now > *before));
    }
}

/// Reads a little of each of the first `pages` pages.
pub(crate) fn touch(file: &File, pages: u64) {
    // Without readahead, so that no further pages are read.
    file.advise(0..u64::MAX, Advice::Random).unwrap();
    for page in 0..pages {
        // A read may fail because the group is at its limit; these tests don't check that.
        let _ = file.read_at(&mut [0; 8], page * 4096);
    }
}
