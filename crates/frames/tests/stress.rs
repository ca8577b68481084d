//! Loaders, readers without a trace, pinners, removers and drains over a few frames, for ThreadSanitizer.
//!
//! Every word of a page says whose it is: the map, the page, and how often it was loaded. One foreign or torn byte, or
//! one that changes under a pin, fails at once. Pinned pages are read as plain memory, so that ThreadSanitizer sees
//! whether the loader's and the next owner's writes are ordered with them.
#![cfg(not(pagefold_loom))]

use std::time::{Duration, Instant};

use frames::{BeginLoad, Config, Detach, FrameId, Frames, IsolatedFrame, Labels, LoadFailure, OwnedFrame, PageMap};
use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::random::Random;
use sync::thread;

const PAGE: usize = 4096;
const FRAMES: u64 = 64;
/// Pages of each of the two maps: more than there are frames, in two chunks.
const PAGES: u64 = 60;
const FAR: u64 = 512 - PAGES / 2;

struct Stress {
    maps: [PageMap; 2],
    frames: Arc<Frames>,
    /// Frames that are listed, in no order: the policy's list, of which these tests need no more.
    listed: Mutex<Vec<FrameId>>,
    loads: AtomicU64,
    hits: AtomicU64,
    stop: AtomicBool,
}

/// The word at `at` of a page of that name.
fn word(map: usize, page: u64, load: u64, at: usize) -> u64 {
    (map as u64) << 63 | page << 48 | (load & 0xffff_ffff) << 16 | at as u64
}

/// Fails unless `bytes`, from word `at` on, are of one load of this page.
fn check(map: usize, page: u64, at: usize, bytes: &[u8]) {
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    let load = words[0] >> 16 & 0xffff_ffff;
    for (i, &found) in words.iter().enumerate() {
        assert_eq!(found, word(map, page, load, at + i), "map {map}, page {page}, word {}: {found:#x}", at + i);
    }
}

impl Stress {
    fn new() -> Arc<Self> {
        let memory = FRAMES * (PAGE as u64 + 64) + (64 << 10);
        let config =
            Config { page_words_shift: Some(20), nodes: Some(2), huge_pages: false, ..Config::new(memory, PAGE) };
        let frames = Arc::new(Frames::new(&config).unwrap());
        let maps = [0; 2].map(|_| PageMap::new(Arc::clone(&frames), FAR + PAGES).unwrap());
        Arc::new(Self {
            maps,
            frames,
            listed: Mutex::default(),
            loads: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    fn run(self: &Arc<Self>, seed: u64, step: impl Fn(&Self, &mut Random) + Send + 'static) -> thread::JoinHandle<()> {
        let stress = Arc::clone(self);
        let body = move || {
            let mut random = Random::seeded(seed);
            while !stress.stop.load(Ordering::Relaxed) {
                step(&stress, &mut random);
            }
        };
        thread::spawn("stress", body).unwrap()
    }

    fn list(&self, frame: IsolatedFrame) {
        let mut listed = self.listed.lock();
        let id = frame.id();
        match self.frames.put_back(frame) {
            Ok(()) => listed.push(id),
            Err(orphan) => drop(orphan),
        }
    }

    fn unlist(&self, frame: FrameId) {
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

    fn reclaim(&self, random: &mut Random) {
        let Some(isolated) = self.isolate(random) else { return };
        if self.frames.take_referenced(isolated.id()) && random.one_in(2) {
            return self.list(isolated);
        }
        match self.frames.evict(isolated, random.below(1 << 20)) {
            Ok(frame) => drop(frame),
            Err(isolated) => self.list(isolated),
        }
    }

    fn frame(&self, random: &mut Random) -> OwnedFrame<'_> {
        loop {
            if let Some(frame) = self.frames.allocate() {
                return frame;
            }
            self.reclaim(random);
            thread::yield_now();
        }
    }

    /// Has a page in memory, with or without a pin of the loader's.
    fn load(&self, map: usize, page: u64, random: &mut Random) {
        let frame = self.frame(random);
        let loading = match self.maps[map].begin_load(page) {
            BeginLoad::Begun(loading) => loading,
            BeginLoad::Resident => return,
            BeginLoad::Busy => {
                let _ = self.maps[map].wait(page);
                return;
            }
            BeginLoad::NoRoom => {
                self.frames.sweep_maps(4);
                return;
            }
        };
        if random.one_in(16) {
            return loading.fail(LoadFailure(5));
        }
        let load = self.loads.fetch_add(1, Ordering::Relaxed);
        frame.fill(|bytes| {
            for at in 0..PAGE / 8 {
                bytes.copy_from(at * 8, &word(map, page, load, at).to_ne_bytes());
            }
        });
        let (isolated, pin) = loading.publish(frame, Labels::default(), random.one_in(4));
        self.list(isolated);
        if let Some(pin) = pin {
            check(map, page, 0, pin.bytes());
        }
    }

    fn page(random: &mut Random) -> (usize, u64) {
        (random.below(2) as usize, FAR + random.below(PAGES))
    }

    /// Reads and does nothing else, so that this is where a thread is most likely stopped.
    fn read(&self, random: &mut Random) {
        let (map, page) = Self::page(random);
        let at = if random.one_in(2) { 0 } else { random.below(PAGE as u64 / 8) as usize };
        let mut bytes = [0; PAGE];
        let bytes = &mut bytes[at * 8..];
        let (map_read, start) = (&self.maps[map], page * PAGE as u64 + (at * 8) as u64);
        if map_read.read_hot(start, bytes) || map_read.read(start, bytes) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            check(map, page, at, bytes);
        }
    }

    fn pin(&self, random: &mut Random) {
        let (map, page) = Self::page(random);
        match self.maps[map].pin(page).unwrap() {
            Some(pin) => {
                check(map, page, 0, pin.bytes());
                if random.one_in(8) {
                    thread::yield_now();
                }
                check(map, page, 0, pin.bytes());
            }
            None => self.load(map, page, random),
        }
    }

    fn remove(&self, random: &mut Random) {
        let (map, page) = Self::page(random);
        if let Detach::Listed(frame) = self.maps[map].detach(page, 1) {
            self.unlist(frame.id());
            drop(frame);
        }
    }

    fn drain(&self) {
        let Some(drain) = self.frames.begin_drain() else { return };
        for frame in drain.frames() {
            let Some(isolated) = self.frames.isolate(frame) else { continue };
            self.unlist(frame);
            match self.frames.evict(isolated, 2) {
                Ok(frame) => drop(frame),
                Err(isolated) => self.list(isolated),
            }
        }
        let _ = drain.finish();
    }
}

#[test]
fn no_byte_is_foreign_and_no_frame_is_lost() {
    let stress = Stress::new();
    let threads = [
        stress.run(1, Stress::read),
        stress.run(2, Stress::read),
        stress.run(3, Stress::read),
        stress.run(4, Stress::pin),
        stress.run(6, Stress::pin),
        stress.run(5, |stress, random| {
            stress.reclaim(random);
            if random.one_in(8) {
                stress.remove(random);
            }
            if random.one_in(256) {
                stress.drain();
                stress.frames.sweep_maps(1);
            }
            thread::yield_now();
        }),
    ];
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2500) {
        thread::sleep(Duration::from_millis(50));
        assert!(stress.frames.budget().used() <= stress.frames.budget().max());
    }
    stress.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }

    let (loads, hits) = (stress.loads.load(Ordering::Relaxed), stress.hits.load(Ordering::Relaxed));
    assert!(loads > 4 * FRAMES && hits > 0, "{loads} loads and {hits} hits try nothing");
    // All at rest: every page can be removed, and then every frame is free and nothing but frames is charged.
    for (map, page) in (0..2).flat_map(|map| (FAR..FAR + PAGES).map(move |page| (map, page))) {
        match stress.maps[map].detach(page, 0) {
            Detach::Listed(frame) => drop(frame),
            Detach::Vacant => {}
            other => panic!("somebody is still at page {page}: {other:?}"),
        }
    }
    let stats = stress.frames.stats();
    assert_eq!(stats.free_frames, stats.frames);
    let frames = Arc::clone(&stress.frames);
    drop(Arc::into_inner(stress));
    assert_eq!(frames.stats().map_bytes, 0);
    while frames.begin_drain().is_some_and(|drain| drain.finish()) {}
    assert_eq!(frames.extents(), 0, "with all frames free, every extent can be drained");
}
