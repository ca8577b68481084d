//! Tasks that are processes. They share only the kernel, and a few words in which they report their
//! results.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Pid, WaitOptions, waitpid};
use sync::atomic::{AtomicU64, Ordering};

use super::sample::Sample;
use super::stage::{Share, pin_task, process_cpu, repeat, sample};

/// How long a process waits for the others to be there.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures like [`Job::measure`](super::job::Job::measure), with a process for each task, which
/// sets up a subject of its own. Only for subjects that consist of system calls, because a forked
/// child has no other threads.
pub(crate) fn measure<S, T>(
    time: Duration,
    tasks: usize,
    set_up: impl Fn() -> S,
    begin: impl Fn(&S, usize) -> T,
    operation: impl Fn(&S, &mut T),
) -> Result<Sample> {
    let board = Board::new(tasks)?;
    let run = |task: usize| {
        pin_task(task);
        let subject = set_up();
        let mut state = begin(&subject, task);
        if board.meet() {
            let before = process_cpu();
            let share = repeat(time, || operation(&subject, &mut state));
            board.tell(task, &share, process_cpu().saturating_sub(before));
        }
    };
    let children = (0..tasks).map(|task| fork(|| run(task))).collect::<Vec<_>>();
    for child in children {
        let status = waitpid(Some(child?), WaitOptions::empty())?.context("a task's process is gone")?.1;
        ensure!(status.exit_status() == Some(0), "a task's process failed");
    }
    let told = (0..tasks).map(|task| board.told(task)).collect::<Result<Vec<_>>>()?;
    let (shares, cpu): (Vec<_>, Vec<_>) = told.into_iter().unzip();
    Ok(sample(&shares, cpu.into_iter().sum()))
}

/// Runs `child` in a process of its own.
fn fork(child: impl FnOnce()) -> Result<Pid> {
    // SAFETY: the child does what needs no other thread, and ends in `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = i32::from(catch_unwind(AssertUnwindSafe(child)).is_err());
        // SAFETY: always; destructors of the parent aren't the child's to run.
        unsafe { libc::_exit(code) }
    }
    Pid::from_raw(pid.max(0)).ok_or_else(io::Error::last_os_error).context("no process for a task")
}

/// Words that all processes share: the number of processes that are ready, and then three words for
/// the results of each process.
struct Board {
    words: &'static [AtomicU64],
    tasks: usize,
}

impl Board {
    fn new(tasks: usize) -> Result<Self> {
        let (count, access) = (1 + 3 * tasks, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping of zeros, which stays until the board is dropped.
        let words = unsafe {
            let words = mmap_anonymous(null_mut(), count * size_of::<AtomicU64>(), access, MapFlags::SHARED)?;
            std::slice::from_raw_parts(words.cast(), count)
        };
        Ok(Self { words, tasks })
    }

    /// Waits until all processes are there; false if some never come.
    fn meet(&self) -> bool {
        let start = Instant::now();
        // AcqRel: no process begins before the others are ready.
        self.words[0].fetch_add(1, Ordering::AcqRel);
        while self.words[0].load(Ordering::Acquire) < self.tasks as u64 {
            if start.elapsed() > PATIENCE {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    // Relaxed, in both: the parent looks once the child is gone.
    fn tell(&self, task: usize, share: &Share, cpu: Duration) {
        let told = [share.operations, share.wall.as_nanos() as u64, cpu.as_nanos() as u64];
        self.words[1 + 3 * task..].iter().zip(told).for_each(|(word, told)| word.store(told, Ordering::Relaxed));
    }

    fn told(&self, task: usize) -> Result<(Share, Duration)> {
        let [operations, wall, cpu] = [1, 2, 3].map(|at| self.words[3 * task + at].load(Ordering::Relaxed));
        ensure!(operations > 0, "a task's process waited in vain for the others");
        Ok((Share { operations, wall: Duration::from_nanos(wall) }, Duration::from_nanos(cpu)))
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the board's own mapping; no reference into it is left.
        let _ = unsafe { munmap(self.words.as_ptr().cast_mut().cast(), size_of_val(self.words)) };
    }
}
