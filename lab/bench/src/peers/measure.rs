//! One timed round: some threads, one subject, wall time and the CPU time of the whole process.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use rustix::time::{ClockId, clock_gettime};

use crate::peers::subject::{Operation, Subject};

/// How long a round is, for each of its threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effort {
    /// Until so much time has passed.
    Time(Duration),
    /// A number of operations.
    Ops(u64),
}

/// The minimum number of operations of a round, even after its time has passed. So every figure
/// comes from some operations.
pub(crate) const OPERATIONS_MIN: u64 = 64;

/// What a round cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Operations of all threads.
    pub(crate) ops: u64,
    /// How long an operation took as its thread saw it.
    pub(crate) wall_ns: f64,
    /// CPU time of the process, helper threads and kernel included, over all operations.
    pub(crate) cpu_ns: f64,
}

/// Operations between two looks at the clock.
const CHUNK: usize = 4096;

/// The accesses of one thread, and its position in them. A round continues where the last one
/// ended, so that short rounds don't read the same few pages again. After the end, it starts again
/// at the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    sequence: &'a [u32],
    position: usize,
}

impl<'a> Walk<'a> {
    /// From the start of `sequence`, which isn't empty.
    pub(crate) fn new(sequence: &'a [u32]) -> Self {
        Self { sequence, position: 0 }
    }

    /// The next accesses: at least one, and at most `most` or `CHUNK` of them.
    fn next(&mut self, most: u64) -> &'a [u32] {
        let rest = &self.sequence[self.position..];
        let len = rest.len().min(CHUNK).min(usize::try_from(most).unwrap_or(CHUNK));
        self.position = (self.position + len) % self.sequence.len();
        &rest[..len]
    }
}

/// Runs `subject` in as many threads as there are walks.
pub(crate) fn round(
    subject: &dyn Subject,
    operation: Operation,
    walks: &mut [Walk<'_>],
    effort: Effort,
) -> Result<Timing> {
    let threads = walks.len();
    let ready = AtomicUsize::new(0);
    let gate = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let workers: Vec<_> = walks
            .iter_mut()
            .map(|walk| {
                let (ready, gate) = (&ready, &gate);
                scope.spawn(move || {
                    // Relaxed: the count only tells when to look at the clock.
                    ready.fetch_add(1, Ordering::Relaxed);
                    gate.wait();
                    work(subject, operation, walk, effort)
                })
            })
            .collect();
        // Threads are started before the clock is; they wait asleep.
        while ready.load(Ordering::Relaxed) < threads {
            thread::sleep(Duration::from_micros(50));
        }
        let cpu_before = process_cpu();
        gate.wait();
        let (mut ops, mut wall) = (0, Duration::ZERO);
        for worker in workers {
            let (done, elapsed) = worker.join().map_err(|_| anyhow!("a worker panicked"))??;
            ops += done;
            wall += elapsed;
        }
        let cpu = process_cpu().saturating_sub(cpu_before);
        let per_op = |time: Duration| time.as_secs_f64() * 1e9 / ops as f64;
        Ok(Timing { ops, wall_ns: per_op(wall), cpu_ns: per_op(cpu) })
    })
}

fn work(subject: &dyn Subject, operation: Operation, walk: &mut Walk<'_>, effort: Effort) -> Result<(u64, Duration)> {
    let began = Instant::now();
    let mut ops = 0;
    loop {
        let left = match effort {
            Effort::Ops(limit) => limit - ops,
            Effort::Time(_) => u64::MAX,
        };
        let accesses = walk.next(left);
        subject.run(operation, accesses)?;
        ops += accesses.len() as u64;
        let elapsed = began.elapsed();
        let done = match effort {
            Effort::Time(limit) => elapsed >= limit,
            Effort::Ops(limit) => ops >= limit,
        };
        if done {
            return Ok((ops, elapsed));
        }
    }
}

/// The CPU time of all threads of this process. Unlike `getrusage(RUSAGE_SELF)`, it includes the
/// time since the last tick of running threads.
pub(crate) fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// CPU time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below a second"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::subject::Pages;

    struct Counter(AtomicUsize);

    impl Pages for Counter {
        fn read(&self, _page: u32, _offset: usize, _into: &mut [u8]) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_round_does_what_was_asked_for_in_every_thread() {
        let counter = Counter(AtomicUsize::new(0));
        let sequence = vec![0; 40_000];
        let mut walks = vec![Walk::new(&sequence); 2];
        let timing = round(&counter, Operation::Read8, &mut walks, Effort::Ops(100_001)).unwrap();
        assert_eq!(walks[1].position, 20_001);
        assert_eq!(timing.ops, 200_002);
        assert_eq!(counter.0.load(Ordering::Relaxed), 200_002);
        assert!(timing.wall_ns > 0.0 && timing.cpu_ns > 0.0);
    }
}
