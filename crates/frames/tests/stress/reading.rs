//! Pages that are only read. Each word of a page contains the number of the page's load.

use pagefold_frames::{BeginLoad, Labels, LoadFailure};
use sync::atomic::{AtomicU64, Ordering};
use sync::random::Random;
use sync::thread;

use crate::policy::{FRAMES, PAGE, Policy, Step, WORDS, run};

struct Reading {
    policy: Policy,
    loads: AtomicU64,
    hits: AtomicU64,
}

impl AsRef<Policy> for Reading {
    fn as_ref(&self) -> &Policy {
        &self.policy
    }
}

/// Returns word `at` of a page's contents.
fn word(map: usize, page: u64, load: u64, at: usize) -> u64 {
    (map as u64) << 63 | page << 48 | (load & 0xffff_ffff) << 16 | at as u64
}

/// Panics unless `bytes`, which start at word `at`, are from a single load of this page.
fn check(map: usize, page: u64, at: usize, bytes: &[u8]) {
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    let load = words[0] >> 16 & 0xffff_ffff;
    for (i, &found) in words.iter().enumerate() {
        assert_eq!(found, word(map, page, load, at + i), "map {map}, page {page}, word {}: {found:#x}", at + i);
    }
}

impl Reading {
    /// Returns whether the test was meaningful: pages were loaded repeatedly, and were hit.
    fn is_enough(&self) -> bool {
        self.loads.load(Ordering::Relaxed) > 4 * FRAMES && self.hits.load(Ordering::Relaxed) > 0
    }

    /// Loads a page unless it is in memory. Sometimes also pins it.
    fn load(&self, map: usize, page: u64, random: &mut Random) {
        let Some(frame) = self.policy.frame(random) else { return };
        let loading = match self.policy.maps[map].begin_load(page) {
            BeginLoad::Begun(loading) => loading,
            BeginLoad::Resident => return,
            BeginLoad::Busy => {
                let _ = self.policy.maps[map].wait(page);
                return;
            }
            BeginLoad::NoRoom | BeginLoad::NoPlace => {
                self.policy.frames.sweep_maps(4, |_| ());
                return;
            }
        };
        if random.one_in(16) {
            return loading.fail(LoadFailure(5));
        }
        let load = self.loads.fetch_add(1, Ordering::Relaxed);
        frame.fill(|bytes| {
            for at in 0..WORDS {
                bytes.copy_from(at * 8, &word(map, page, load, at).to_ne_bytes());
            }
        });
        let (isolated, pin) = loading.publish(frame, Labels::default(), random.one_in(4));
        self.policy.list(isolated);
        if let Some(pin) = pin {
            check(map, page, 0, pin.bytes());
        }
    }

    /// Only reads, so that a thread that loses its CPU is most likely in the middle of a read.
    fn read(&self, random: &mut Random) {
        let (map, page) = Policy::page(random);
        let at = if random.one_in(2) { 0 } else { random.below(WORDS as u64) as usize };
        let mut bytes = [0; PAGE];
        let bytes = &mut bytes[at * 8..];
        let (map_read, start) = (&self.policy.maps[map], page * PAGE as u64 + (at * 8) as u64);
        if map_read.read_hot(start, bytes) || map_read.read(start, bytes) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            check(map, page, at, bytes);
        }
    }

    fn pin(&self, random: &mut Random) {
        let (map, page) = Policy::page(random);
        match self.policy.pin(map, page) {
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
}

/// The minimum number of steps of a thread whose step never yields the CPU.
const STEPS: u64 = 50_000;
/// The same for a step that yields the CPU while it waits for other threads.
const PINS: u64 = if cfg!(pagefold_tsan) { 1_000 } else { 2_000 };
/// The same for a step that always yields the CPU.
const DISTURBANCES: u64 = 200;

/// Loads, reads, pins and reclaims pages, and checks that nothing is left. Returns whether the test
/// was meaningful.
fn everything() -> bool {
    let test = Reading { policy: Policy::new(), loads: AtomicU64::new(0), hits: AtomicU64::new(0) };
    let disturb = |test: &Reading, random: &mut Random| test.policy.disturb(random);
    let steps: [(u64, Step<Reading>); 6] = [
        (STEPS, Reading::read),
        (STEPS, Reading::read),
        (STEPS, Reading::read),
        (PINS, Reading::pin),
        (PINS, Reading::pin),
        (DISTURBANCES, disturb),
    ];
    let test = run(test, &steps);
    println!("{:?} loads, {:?} hits", test.loads, test.hits);
    let is_enough = test.is_enough();
    test.policy.end();
    is_enough
}

#[test]
fn no_byte_is_foreign_and_no_frame_is_lost() {
    everything();
}

#[test]
#[ignore = "chance: cargo xtask prove times"]
fn chance_pages_come_again_and_are_hit() {
    assert!(everything(), "what was done tries nothing");
}
