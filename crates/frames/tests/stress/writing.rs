//! Pages that are written to, and written back to a file that loses everything that isn't synced.
//!
//! Every word of a page contains the page's version. A read must return a single version, at least
//! as new as the last one written before the read began. No write may be lost, unless a removal
//! discards it.

use pagefold_frames::{BeginLoad, BeginWrite, Detach, HeldPage, HeldRun, Hold, Labels, LoadFailure, Unclean};
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::random::Random;
use sync::thread;

use crate::policy::{FAR, PAGE, PAGES, Policy, Step, WORDS, run};

/// A page's bytes, as a file has them.
type Page = Box<[u8]>;

/// What the test knows about a page.
struct Story {
    /// The last version written, changed only by the thread that may write to the page.
    version: AtomicU64,
    /// The bytes that were written to the file, and the bytes that were synced.
    given: Mutex<Page>,
    stable: Mutex<Page>,
}

struct Writing {
    policy: Policy,
    stories: [Vec<Story>; 2],
    /// Held by the thread that writes a file back, or removes one of its dirty pages.
    write_back: [Mutex<()>; 2],
    unclean: AtomicU64,
    reads: AtomicU64,
    settled: AtomicU64,
}

impl AsRef<Policy> for Writing {
    fn as_ref(&self) -> &Policy {
        &self.policy
    }
}

/// Returns the contents of a page in a given version.
fn contents(map: usize, page: u64, version: u64) -> Page {
    let word = |at: usize| (map as u64) << 63 | page << 48 | (version & 0xffff_ffff) << 16 | at as u64;
    (0..WORDS).flat_map(|at| word(at).to_ne_bytes()).collect()
}

/// Returns the version that `bytes` contain. Panics if they are torn, or another page's.
fn version_of(map: usize, page: u64, bytes: &[u8]) -> u64 {
    let first = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
    let version = first >> 16 & 0xffff_ffff;
    assert!(bytes == &*contents(map, page, version), "map {map}, page {page} is torn, or another: {first:#x}");
    version
}

/// Returns whether changes of the page may be discarded.
fn is_cut(page: u64) -> bool {
    page.is_multiple_of(4)
}

impl Writing {
    /// Returns whether the test was meaningful: pages were written back repeatedly, and read.
    fn is_enough(&self) -> bool {
        self.reads.load(Ordering::Relaxed) > 0 && self.settled.load(Ordering::Relaxed) > 4 * PAGES
    }

    fn new() -> Self {
        let story = |map, page| Story {
            version: AtomicU64::new(0),
            given: Mutex::new(contents(map, page, 0)),
            stable: Mutex::new(contents(map, page, 0)),
        };
        Self {
            policy: Policy::new(),
            stories: [0, 1].map(|map| (FAR..FAR + PAGES).map(|page| story(map, page)).collect()),
            write_back: Default::default(),
            unclean: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            settled: AtomicU64::new(0),
        }
    }

    fn story(&self, map: usize, page: u64) -> &Story {
        &self.stories[map][(page - FAR) as usize]
    }

    /// Returns the oldest version that a read may return if it begins now.
    fn floor(&self, map: usize, page: u64) -> u64 {
        if is_cut(page) { 0 } else { self.story(map, page).version.load(Ordering::Acquire) }
    }

    fn count_unclean(&self, change: i64) {
        self.unclean.fetch_add(change as u64, Ordering::Relaxed);
    }

    fn read(&self, random: &mut Random) {
        let (map, page) = Policy::page(random);
        let floor = self.floor(map, page);
        let mut bytes = [0; PAGE];
        let (map_read, start) = (&self.policy.maps[map], page * PAGE as u64);
        let short_way = match random.one_in(2) {
            true => map_read.read_hot(start, &mut bytes),
            false => self.policy.by_number.read_hot(map_read.number(), start, &mut bytes, || true),
        };
        if short_way || map_read.read(start, &mut bytes) {
            self.reads.fetch_add(1, Ordering::Relaxed);
            assert!(version_of(map, page, &bytes) >= floor, "map {map}, page {page}: older than {floor}");
        }
    }

    fn pin(&self, random: &mut Random) {
        let (map, page) = Policy::page(random);
        let floor = self.floor(map, page);
        let Some(pin) = self.policy.pin(map, page) else { return self.load(map, page, random) };
        let version = version_of(map, page, pin.bytes());
        if random.one_in(8) {
            thread::yield_now();
        }
        assert!(version >= floor && version_of(map, page, pin.bytes()) == version, "changed under the pin");
    }

    fn write(&self, random: &mut Random) {
        let (map, page) = Policy::page(random);
        let mut writing = match self.policy.maps[map].begin_write(page) {
            BeginWrite::Begun(writing) => writing,
            BeginWrite::Absent => return self.load(map, page, random),
            BeginWrite::Pinned | BeginWrite::Busy => return thread::yield_now(),
        };
        let mut bytes = [0; PAGE];
        writing.copy_to(0, &mut bytes);
        let version = &self.story(map, page).version;
        // Relaxed: this thread alone may write to the page.
        let last = version.load(Ordering::Relaxed);
        let found = version_of(map, page, &bytes);
        assert!(found == last || is_cut(page), "map {map}, page {page}: {found} isn't the last version, {last}");
        if random.one_in(16) {
            return; // Which leaves the page as it was.
        }
        if writing.write(0, &contents(map, page, last + 1)) {
            self.count_unclean(1);
        }
        // Release pairs with `floor`.
        version.store(last + 1, Ordering::Release);
    }

    fn load(&self, map: usize, page: u64, random: &mut Random) {
        let Some(frame) = self.policy.frame(random) else { return };
        let floor = self.floor(map, page);
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
        let story = self.story(map, page);
        let bytes = story.stable.lock().clone();
        assert!(version_of(map, page, &bytes) >= floor, "map {map}, page {page}: the file lost version {floor}");
        if random.one_in(4) {
            let version = story.version.load(Ordering::Relaxed) + 1;
            story.version.store(version, Ordering::Release);
            frame.fill(|to| to.copy_from(0, &contents(map, page, version)));
            self.count_unclean(1);
            self.policy.list(loading.publish_dirty(frame, Labels::default()));
        } else {
            frame.fill(|to| to.copy_from(0, &bytes));
            self.policy.list(loading.publish(frame, Labels::default(), false).0);
        }
    }

    /// Holds each page of a file that is in the state `wanted`, and passes it to `then`.
    fn hold_each(&self, map: usize, wanted: Unclean, then: impl Fn(u64, HeldPage<'_>)) {
        let mut from = 0;
        while let Some(page) = self.policy.maps[map].next_written(from..FAR + PAGES) {
            from = page + 1;
            loop {
                match self.policy.maps[map].hold(page, wanted) {
                    Hold::Held(held) => then(page, held),
                    Hold::Busy => {
                        thread::yield_now();
                        continue;
                    }
                    Hold::Other => {}
                }
                break;
            }
        }
    }

    fn flush(&self, map: usize, random: &mut Random) {
        let _turn = self.write_back[map].lock();
        let failing = random.below(16);
        self.hold_each(map, Unclean::Dirty, |page, held| {
            if page % 16 == failing {
                return; // The device fails, and the page is dirty again.
            }
            let mut run = HeldRun::new(&self.policy.maps[map], held);
            run.bytes().for_each(|bytes| bytes.copy_to(0, &mut self.story(map, page).given.lock()));
            run.end(1, Unclean::Unstable);
        });
        if random.one_in(8) {
            return self.hold_each(map, Unclean::Unstable, |_, held| held.end(Unclean::Dirty));
        }
        for story in &self.stories[map] {
            let given = story.given.lock().clone();
            *story.stable.lock() = given;
        }
        self.hold_each(map, Unclean::Unstable, |_, held| {
            if held.settle() {
                self.count_unclean(-1);
                self.settled.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    fn cut(&self, random: &mut Random) {
        let (map, page) = Policy::page(random);
        let _turn = self.write_back[map].lock();
        if !is_cut(page) {
            return;
        }
        let discarded = match self.policy.maps[map].detach(page, 1, true) {
            Detach::Listed { frame, discarded, .. } => {
                self.policy.unlist(frame.id());
                discarded
            }
            Detach::Orphaned { discarded, .. } => discarded,
            _ => false,
        };
        if discarded {
            self.count_unclean(-1);
        }
    }
}

/// The minimum number of steps of a thread whose step never yields the CPU.
const STEPS: u64 = 20_000;
/// The same for a step that yields the CPU while it waits for other threads.
const WRITES: u64 = if cfg!(pagefold_tsan) { 1_000 } else { 1_500 };
/// The same for a step that always yields the CPU.
const FLUSHES: u64 = 100;
const DISTURBANCES: u64 = 200;

/// Loads, reads, writes, writes back and reclaims pages, and checks that nothing is lost. Returns
/// whether the test was meaningful.
fn everything() -> bool {
    let flush = |test: &Writing, random: &mut Random| {
        test.flush(random.below(2) as usize, random);
        if random.one_in(2) {
            test.cut(random);
        }
        thread::yield_now();
    };
    let disturb = |test: &Writing, random: &mut Random| test.policy.disturb(random);
    let steps: [(u64, Step<Writing>); 8] = [
        (STEPS, Writing::read),
        (STEPS, Writing::read),
        (WRITES, Writing::write),
        (WRITES, Writing::write),
        (WRITES, Writing::pin),
        (FLUSHES, flush),
        (FLUSHES, flush),
        (DISTURBANCES, disturb),
    ];
    let test = run(Writing::new(), &steps);
    println!("{:?} reads, {:?} pages settled", test.reads, test.settled);
    let is_enough = test.is_enough();
    // No thread runs any more, so all pages can be written back. Then the files have the last
    // versions.
    let mut random = Random::seeded(9);
    for map in 0..2 {
        while test.policy.maps[map].next_written(0..FAR + PAGES).is_some() {
            test.flush(map, &mut random);
        }
    }
    assert_eq!(test.unclean.load(Ordering::Relaxed), 0);
    for (map, page) in Policy::pages() {
        let in_file = version_of(map, page, &test.story(map, page).stable.lock());
        assert!(in_file == test.story(map, page).version.load(Ordering::Relaxed) || is_cut(page));
        if let Some(pin) = test.policy.pin(map, page) {
            assert_eq!(version_of(map, page, pin.bytes()), in_file);
        }
    }
    test.policy.end();
    is_enough
}

#[test]
fn nothing_that_was_written_is_lost() {
    everything();
}

#[test]
#[ignore = "chance: cargo xtask prove times"]
fn chance_pages_are_written_back_again_and_again() {
    assert!(everything(), "what was done tries nothing");
}
