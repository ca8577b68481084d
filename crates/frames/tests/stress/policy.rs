//! A minimal policy for these tests: an unordered list of frames, and two maps.

use std::time::Duration;

use pagefold_frames::{
    Config, Detach, FrameId, Frames, IsolatedFrame, OwnedFrame, PageMap, PageMaps, PinError, PinnedFrame,
};
use sync::Arc;
use sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sync::lock::Mutex;
use sync::random::Random;
use sync::thread;

pub(crate) const PAGE: usize = 4096;
/// Words in a page.
pub(crate) const WORDS: usize = PAGE / 8;
pub(crate) const FRAMES: u64 = 64;
/// The number of pages used in each of the two maps. Both maps together have more pages than there
/// are frames. The pages of a map lie in two chunks.
pub(crate) const PAGES: u64 = 60;
/// The first of these pages.
pub(crate) const FAR: u64 = 512 - PAGES / 2;

pub(crate) struct Policy {
    pub(crate) maps: [PageMap; 2],
    /// Access to the maps by their numbers.
    pub(crate) by_number: PageMaps,
    pub(crate) frames: Arc<Frames>,
    listed: Mutex<Vec<FrameId>>,
    stop: AtomicBool,
    /// The number of threads that have taken all their steps. They continue until all threads have.
    done: AtomicUsize,
}

impl Policy {
    pub(crate) fn new() -> Self {
        let memory = FRAMES * (PAGE as u64 + 64) + (64 << 10);
        let config =
            Config { page_words_shift: Some(20), nodes: Some(2), huge_pages: false, ..Config::new(memory, PAGE) };
        let frames = Arc::new(Frames::new(&config).unwrap());
        let maps = [0; 2].map(|_| PageMap::new(Arc::clone(&frames), FAR + PAGES).unwrap());
        let by_number = PageMaps::new(Arc::clone(&frames));
        Self {
            maps,
            by_number,
            frames,
            listed: Mutex::default(),
            stop: AtomicBool::new(false),
            done: AtomicUsize::new(0),
        }
    }

    /// Returns a random page of one of the maps.
    pub(crate) fn page(random: &mut Random) -> (usize, u64) {
        (random.below(2) as usize, FAR + random.below(PAGES))
    }

    /// Iterates over all pages of both maps.
    pub(crate) fn pages() -> impl Iterator<Item = (usize, u64)> {
        (0..2).flat_map(|map| (FAR..FAR + PAGES).map(move |page| (map, page)))
    }

    pub(crate) fn list(&self, frame: IsolatedFrame) {
        let mut listed = self.listed.lock();
        let id = frame.id();
        match self.frames.put_back(frame) {
            Ok(()) => listed.push(id),
            Err(orphan) => drop(orphan),
        }
    }

    pub(crate) fn unlist(&self, frame: FrameId) {
        self.listed.lock().retain(|&listed| listed != frame);
    }

    /// Takes a frame off the list, as reclaim does.
    fn isolate(&self, random: &mut Random) -> Option<IsolatedFrame> {
        let mut listed = self.listed.lock();
        let at = random.below(listed.len() as u64) as usize;
        let isolated = self.frames.isolate(*listed.get(at)?)?;
        listed.swap_remove(at);
        Some(isolated)
    }

    pub(crate) fn reclaim(&self, random: &mut Random) {
        let Some(isolated) = self.isolate(random) else { return };
        if self.frames.take_referenced(isolated.id()) && random.one_in(2) {
            return self.list(isolated);
        }
        match self.frames.evict(isolated, random.below(1 << 20)) {
            Ok(frame) => drop(frame),
            Err(refused) => self.list(refused.frame),
        }
    }

    /// Allocates a frame, and reclaims pages until one is free. Returns `None` once all threads are
    /// to stop: the threads that write pages back may have stopped already, and dirty pages can't
    /// be reclaimed without them.
    pub(crate) fn frame(&self, random: &mut Random) -> Option<OwnedFrame<'_>> {
        loop {
            let frame = self.frames.allocate();
            if frame.is_some() || self.stop.load(Ordering::Relaxed) {
                return frame;
            }
            self.reclaim(random);
            thread::yield_now();
        }
    }

    pub(crate) fn pin(&self, map: usize, page: u64) -> Option<PinnedFrame<'_>> {
        loop {
            match self.maps[map].pin(page) {
                Ok(pin) => return pin,
                // A writer or an evictor has lost its CPU for a long time.
                Err(PinError::Busy) => thread::yield_now(),
                Err(PinError::TooMany) => panic!("a few threads have a billion pins"),
            }
        }
    }

    /// Removes a page from memory if it is clean.
    pub(crate) fn remove(&self, random: &mut Random) {
        let (map, page) = Self::page(random);
        if let Detach::Listed { frame, .. } = self.maps[map].detach(page, 1, false) {
            self.unlist(frame.id());
            drop(frame);
        }
    }

    pub(crate) fn drain(&self) {
        let Some(drain) = self.frames.begin_drain(1, 1, |_| true) else { return };
        for frame in drain.frames(0) {
            let Some(isolated) = self.frames.isolate(frame) else { continue };
            self.unlist(frame);
            match self.frames.evict(isolated, 2) {
                Ok(frame) => drop(frame),
                Err(refused) => self.list(refused.frame),
            }
        }
        let _ = drain.finish(0);
    }

    /// Reclaims a page; sometimes also removes a page, drains an extent, or sweeps the maps.
    pub(crate) fn disturb(&self, random: &mut Random) {
        self.reclaim(random);
        if random.one_in(8) {
            self.remove(random);
        }
        if random.one_in(256) {
            self.drain();
            self.frames.sweep_maps(1, |_| ());
        }
        thread::yield_now();
    }

    /// Removes every page, after all threads have stopped. Checks that this succeeds, that
    /// afterwards every frame is free, and that no page map takes memory any more.
    pub(crate) fn end(self) {
        for (map, page) in Self::pages() {
            match self.maps[map].detach(page, 0, false) {
                Detach::Listed { frame, .. } => drop(frame),
                Detach::Vacant => {}
                other => panic!("somebody is still at page {page}: {other:?}"),
            }
        }
        let stats = self.frames.stats();
        assert_eq!(stats.free_frames, stats.frames);
        let frames = Arc::clone(&self.frames);
        drop(self);
        assert_eq!(frames.stats().map_bytes, 0);
        while frames.begin_drain(1, 1, |_| true).is_some_and(|drain| drain.finish(0)) {}
        assert_eq!(frames.extents(), 0, "with all frames free, every extent can be drained");
    }
}

/// A step that a thread repeats.
pub(crate) type Step<T> = fn(&T, &mut Random);

/// Starts a thread for each of `steps`. The thread takes its step at least the given number of
/// times, and then continues until all other threads have done the same, because the others may
/// need its steps to make progress.
pub(crate) fn run<T>(test: T, steps: &[(u64, Step<T>)]) -> T
where
    T: AsRef<Policy> + Send + Sync + 'static,
{
    let test = Arc::new(test);
    let threads: Vec<_> = (1..)
        .zip(steps)
        .map(|(seed, &(times, step))| {
            let test = Arc::clone(&test);
            let body = move || {
                let mut random = Random::seeded(seed);
                let policy: &Policy = (*test).as_ref();
                for taken in 0.. {
                    if taken == times {
                        policy.done.fetch_add(1, Ordering::Relaxed);
                    }
                    if policy.stop.load(Ordering::Relaxed) {
                        break;
                    }
                    step(&test, &mut random);
                }
            };
            thread::spawn("stress", body).unwrap()
        })
        .collect();
    let policy: &Policy = (*test).as_ref();
    // Doesn't wait for a thread that has panicked.
    while policy.done.load(Ordering::Relaxed) < steps.len() && !threads.iter().any(thread::has_ended) {
        thread::sleep(Duration::from_millis(5));
        assert!(policy.frames.budget().used() <= policy.frames.budget().max());
    }
    policy.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    Arc::into_inner(test).expect("the threads are gone")
}
