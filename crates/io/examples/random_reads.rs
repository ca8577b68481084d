//! Reads 4 KiB at a time from random positions, in one thread that keeps DEPTH reads in flight:
//! `random_reads FILE BACKEND DEPTH SECONDS`, with BACKEND one of uring, threads and posix. Prints
//! the number of reads per second, and the CPU time per read.
//!
//! Compare this with `fio --ioengine=io_uring --direct=1 --bs=4k --rw=randread` on the same file;
//! run the two alternately.

use std::path::Path;
use std::process::ExitCode;

use pagefold_io::{Access, Backend, DirectIo, IoError, Posix, Request, ThreadPool, Uring};
use sync::atomic::{AtomicU64, Ordering::Relaxed};
use sync::lock::Mutex;
use sync::random::Random;
use sync::time::{Duration, Instant};
use sync::{Arc, SharedBytes, StableBytes};

/// A page of memory, aligned as direct I/O wants it.
#[repr(align(4096))]
struct Page([AtomicU64; 512]);

struct Memory(Box<Page>);

// SAFETY: the page is on the heap, where it stays.
unsafe impl StableBytes for Memory {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        f(SharedBytes::new(&self.0.0));
    }
}

#[derive(Default)]
struct Done {
    memory: Mutex<Vec<Memory>>,
    under_way: AtomicU64,
    reads: AtomicU64,
    failures: AtomicU64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, backend, depth, seconds] = &arguments[..] else {
        eprintln!("usage: random_reads FILE uring|threads[:N]|posix DEPTH SECONDS");
        return ExitCode::from(2);
    };
    match run(path, backend, depth.parse().unwrap_or(1), seconds.parse().unwrap_or(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str, name: &str, depth: u64, seconds: u64) -> Result<(), IoError> {
    let backend: Box<dyn Backend> = match name.split_once(':').unwrap_or((name, "64")) {
        ("uring", _) => Box::new(Uring::new(DirectIo::Always)?),
        ("threads", threads) => Box::new(ThreadPool::new(Posix::new(DirectIo::Always), threads.parse().unwrap_or(64))?),
        _ => Box::new(Posix::new(DirectIo::Always)),
    };
    let file = backend.open(Path::new(path), Access::Read)?;
    let pages = file.len()? / 4096;
    let mut random = Random::seeded(u64::from(std::process::id()));
    let done = Arc::new(Done::default());
    done.memory.lock().extend((0..depth).map(|_| Memory(Box::new(Page([const { AtomicU64::new(0) }; 512])))));
    let (start, cpu) = (Instant::now(), cpu_time());
    let requests = std::cell::RefCell::new(Vec::new());
    let offsets = std::cell::RefCell::new(|| random.below(pages) * 4096);
    file.help(file.queue(), &|| {
        if start.elapsed() >= Duration::from_secs(seconds) {
            return done.under_way.load(Relaxed) == 0;
        }
        let mut requests = requests.borrow_mut();
        for memory in done.memory.lock().drain(..) {
            let done = Arc::clone(&done);
            let then = move |memory, result| {
                done.memory.lock().push(memory);
                done.under_way.fetch_sub(1, Relaxed);
                done.reads.fetch_add(1, Relaxed);
                done.failures.fetch_add(u64::from(result != Ok(4096)), Relaxed);
            };
            requests.extend(Request::read((offsets.borrow_mut())(), memory, then).ok());
        }
        done.under_way.fetch_add(requests.len() as u64, Relaxed);
        file.submit(&mut requests);
        false
    });
    let (reads, time) = (done.reads.load(Relaxed) as f64, start.elapsed().as_secs_f64());
    println!(
        "{name} depth {depth}: {:.0} reads/s, {:.2} us of CPU each, {} failed",
        reads / time,
        (cpu_time() - cpu) * 1e6 / reads,
        done.failures.load(Relaxed)
    );
    Ok(())
}

/// Seconds of CPU that this process has used.
fn cpu_time() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
