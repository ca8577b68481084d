//! One run: a quiet tenant, with or without a hog beside it.

use pagefold::io::ThreadPool;
use pagefold::{File, Pagefold, SwapArea};
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::thread;
use sync::time::{Duration, Instant};

use super::devices::{Device, Devices};
use super::hog::Hog;
use crate::random::Random;

const PAGE: u64 = 4096;
/// The quiet tenant rests so long after each access.
const REST: Duration = Duration::from_micros(20);
/// One in this many accesses is to a page that has hardly ever been used before.
const ONE_COLD_IN: u32 = 20;
/// And one is a small overwrite of a hot page.
const ONE_WRITES_IN: u32 = 32;
/// Its cold file, in budgets.
const COLD_BUDGETS: u64 = 16;
/// Threads for requests.
const THREADS: usize = 8;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// Pages of the budget.
    pub(super) pages: u64,
    /// How long the quiet tenant is watched.
    pub(super) time: Duration,
    /// Its neighbour.
    pub(super) hog: Option<Hog>,
    /// Whether the hog has a limit: the budget without the quiet tenant's limit.
    pub(super) limited: bool,
}

/// What the quiet tenant saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Nanoseconds of its reads, sorted.
    reads: Vec<u64>,
    /// And of its writes.
    writes: Vec<u64>,
    /// Percent of its hot pages that never left memory.
    pub(super) stayed: f64,
    /// Its calls that were refused.
    pub(super) refused: u64,
    /// Steps of the hog in a second.
    pub(super) hog_steps: f64,
}

impl Seen {
    /// Microseconds that `percent` of the reads took at most.
    pub(super) fn reads_us(&self, percent: f64) -> f64 {
        percentile_us(&self.reads, percent)
    }

    /// The same of writes.
    pub(super) fn writes_us(&self, percent: f64) -> f64 {
        percentile_us(&self.writes, percent)
    }
}

fn percentile_us(sorted: &[u64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).map_or(0.0, |&ns| ns as f64 / 1e3)
}

impl Scene {
    /// Pages that the quiet tenant uses all the time.
    fn hot(&self) -> u32 {
        u32::try_from(self.pages / 16).unwrap_or(u32::MAX)
    }

    /// Runs it, on the CPUs that this thread finds itself on.
    pub(super) fn run(self) -> Result<Seen, pagefold::Error> {
        let devices = Devices::default();
        let pool = ThreadPool::new(devices.clone(), THREADS)
            .map_err(|error| pagefold::Error::System { what: "start threads".to_owned(), error })?;
        let budget = self.pages * PAGE;
        let builder = Pagefold::builder().memory(budget).memory_max(budget).backend(pool);
        let builder = match self.hog {
            Some(hog) if hog.swaps() => builder.swap_area(SwapArea::memory(4 * budget)),
            _ => builder,
        };
        let fold = builder.build()?;
        let quiet = fold.group("quiet").max(budget / 4).build()?;
        let hogs = if self.limited { fold.group("hog").max(budget / 4 * 3) } else { fold.group("hog") };
        let hogs = hogs.build()?;
        let open =
            |number: u32| quiet.open_options().write(true).open(format!("/{}/{number}", Device::Quiet.directory()));
        let (hot, cold) = (open(0)?, open(1)?);
        let mut page = vec![0; PAGE as usize];
        // Twice, so that they count as used.
        for number in (0..self.hot()).chain(0..self.hot()) {
            hot.read_at(&mut page, u64::from(number) * PAGE)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let neighbour = self.hog.map(|hog| {
            let (stop, fold) = (Arc::clone(&stop), fold.clone());
            let (pages, limited) = (self.pages, self.limited);
            thread::spawn("hog", move || {
                let make = |number| {
                    let group = fold.group(&format!("hog {number}"));
                    let group = if limited { group.max(pages * PAGE / 16) } else { group };
                    group.build().ok()
                };
                hog.run(&hogs, &make, pages, &stop)
            })
        });
        let start = Instant::now();
        // The hog has time to fill what it can before anything is watched.
        self.watch(&hot, &cold, self.time / 2, 1);
        let misses = hot.stats().misses;
        let mut seen = self.watch(&hot, &cold, self.time, 2);
        let lost = (hot.stats().misses - misses) as f64 / f64::from(self.hot());
        seen.stayed = (1.0 - lost).max(0.0) * 100.0;
        // Relaxed: the flag alone; `join` orders the rest.
        stop.store(true, Ordering::Relaxed);
        devices.release();
        if let Some(Ok(neighbour)) = neighbour {
            let steps = neighbour.join().unwrap_or(0);
            seen.hog_steps = steps as f64 / start.elapsed().as_secs_f64();
        }
        Ok(seen)
    }

    fn watch(&self, hot: &File, cold: &File, time: Duration, seed: u64) -> Seen {
        let cold_pages = u32::try_from(COLD_BUDGETS * self.pages).unwrap_or(u32::MAX);
        let (mut seen, mut random) = (Seen::default(), Random::new(seed));
        let mut page = vec![0; PAGE as usize];
        let start = Instant::now();
        while start.elapsed() < time {
            let (file, number) = match random.below(ONE_COLD_IN) {
                0 => (cold, random.below(cold_pages)),
                _ => (hot, random.below(self.hot())),
            };
            let at = u64::from(number) * PAGE;
            let writes = random.below(ONE_WRITES_IN) == 0;
            let begun = Instant::now();
            let done = if writes {
                hot.write_at(&[1; 8], u64::from(random.below(self.hot())) * PAGE)
            } else {
                file.read_at(&mut page, at).map(drop)
            };
            let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let times = if writes { &mut seen.writes } else { &mut seen.reads };
            times.push(ns);
            seen.refused += u64::from(done.is_err());
            thread::sleep(REST);
        }
        seen.reads.sort_unstable();
        seen.writes.sort_unstable();
        seen
    }
}
