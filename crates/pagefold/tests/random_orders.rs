//! Several threads use files and memory, in random orders, on virtual CPUs. There are twice as many
//! threads as CPUs. A thread may be preempted at any point, for as long as the time slices of its
//! CPU's other threads last.
//!
//! Each page has one word for each thread. Only this thread writes the word, and all threads read
//! it. So a thread knows the value of its own word, and that the other words never decrease.
//!
//! In one build, the seed decides everything that happens; in another build, a few orders differ.
//! So the test can require that each of `EVENTS` happens in the gate's orders, because each of them
//! happens thousands of times there. Without this check, the orders might test less than they seem
//! to.
#![cfg(pagefold_manycore)]

mod support;

use std::process::Command;
use std::time::Duration;

use manycore::{Costs, Failure, Machine, Shape};
use pagefold::io::ThreadPool;
use pagefold::{Advice, Error, File, Group, Pagefold, Protection, Space, SwapArea};
use support::bytes_on;
use sync::random::{Random, seeds};
use test_disks::SimulatedDisk;

/// Which values share a cache line affects the order, so it must be the same in each run.
#[global_allocator]
static ALLOCATOR: manycore::Allocator = manycore::Allocator;

const CPUS: usize = 3;
const THREADS: usize = 6;
/// Pages of the file, and pages of the memory that all threads write to. Both are more than the
/// groups may have.
const PAGES: u64 = 24;
const PAGE: u64 = 4096;
const STEPS: u32 = 60;
/// The command that repeats an order. It needs the seed before it.
const REPEAT: &str = "RUSTFLAGS='--cfg pagefold_manycore' CARGO_TARGET_DIR=target-virtual cargo test --release -p \
                      pagefold --test random_orders";
/// The number of orders, unless `PAGEFOLD_SEEDS` is set.
const SEEDS: u64 = 100;

/// What must happen in the gate's orders.
const EVENTS: [&str; 5] = [
    "a page is evicted",
    "a page that was evicted comes back",
    "a thread waits for another thread's load",
    "a thread reclaims for itself",
    "a page comes back from swap",
];
/// The number of orders that must contain each of them: as many as the gate makes.
const ORDERS_WITH_ALL: u64 = 300;
/// What a process prints before the counts of its events.
const HAPPENED: &str = "happened: ";

/// How often each of `EVENTS` happened.
type Counts = [u64; EVENTS.len()];

fn sum(some: Counts, more: Counts) -> Counts {
    std::array::from_fn(|event| some[event] + more[event])
}

/// What the threads share.
struct World {
    fold: Pagefold,
    groups: [Group; 2],
    /// The same file, opened by each group.
    files: [File; 2],
    space: Space,
    base: u64,
}

/// The offset of a thread's word in a page. The words of a page are far apart, and one of them is
/// at the page's end.
fn place(thread: usize, page: u64) -> u64 {
    page * PAGE + (thread as u64 + 1) * (PAGE / THREADS as u64 / 8 * 8) - 8
}

/// A thread's work.
struct Worker<'a> {
    world: &'a World,
    me: usize,
    random: Random,
    /// The last value seen of each thread's words, in the file (0) and in memory (1).
    seen: [[[u64; PAGES as usize]; THREADS]; 2],
}

impl Worker<'_> {
    fn file(&mut self) -> &File {
        &self.world.files[self.random.below(2) as usize]
    }

    /// Returns whether the call succeeded. A call that needs a frame may be refused, because other
    /// threads' pins and loads may use all pages of the group.
    fn was_done(result: Result<(), Error>) -> bool {
        match result {
            Ok(()) => true,
            Err(error) if Self::is_full(&error) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn is_full(error: &Error) -> bool {
        match error {
            Error::AtAddress { error, .. } => Self::is_full(error),
            error => matches!(error, Error::LimitReached { .. } | Error::TooManyPins { .. }),
        }
    }

    fn look(&mut self, memory: bool, thread: usize, page: u64, found: u64) {
        let seen = &mut self.seen[usize::from(memory)][thread][page as usize];
        let is_right = if thread == self.me { found == *seen } else { found >= *seen };
        let what = if memory { "memory" } else { "file" };
        assert!(is_right, "{what}, page {page}: thread {} sees {found} of {thread}, not {seen}", self.me);
        *seen = found;
    }

    fn read(&mut self, memory: bool, page: u64) {
        let thread = self.random.below(THREADS as u64) as usize;
        let (mut word, at) = ([0; 8], place(thread, page));
        let done = match memory {
            true => self.world.space.read_at(&mut word, self.world.base + at),
            false => self.file().read_exact_at(&mut word, at),
        };
        if Self::was_done(done) {
            self.look(memory, thread, page, u64::from_le_bytes(word));
        }
    }

    fn write(&mut self, memory: bool, page: u64) {
        let me = self.me;
        let (number, at) = (self.seen[usize::from(memory)][me][page as usize] + 1, place(me, page));
        let done = match (memory, self.random.one_in(3)) {
            (true, false) => self.world.space.write_at(&number.to_le_bytes(), self.world.base + at),
            (true, true) => self.world.space.update_u64(self.world.base + at, |word| Some(word + 1)).map(|word| {
                assert_eq!(word + 1, number, "an update found another word");
            }),
            (false, false) => self.file().write_at(&number.to_le_bytes(), at),
            (false, true) => self.file().page_mut_at(page * PAGE).map(|mut bytes| {
                bytes[(at % PAGE) as usize..][..8].copy_from_slice(&number.to_le_bytes());
            }),
        };
        if Self::was_done(done) {
            self.seen[usize::from(memory)][me][page as usize] = number;
        }
    }

    /// A pinned page must not change, whatever other threads do.
    fn pin(&mut self, page: u64) {
        let file = &self.world.files[self.random.below(2) as usize];
        let pinned = match file.page_at(page * PAGE) {
            Ok(pinned) => pinned,
            Err(Error::LimitReached { .. } | Error::TooManyPins { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let before = pinned.to_vec();
        sync::thread::sleep(Duration::from_micros(2));
        assert!(pinned[..] == before[..], "a pinned page changed");
        drop(pinned);
        for thread in 0..THREADS {
            let at = (place(thread, page) % PAGE) as usize;
            self.look(false, thread, page, u64::from_le_bytes(before[at..][..8].try_into().unwrap()));
        }
    }

    /// Maps memory that only this thread uses, moves it, and unmaps it.
    fn come_and_go(&mut self) -> Result<(), Error> {
        let space = &self.world.space;
        let mut range = space.map(3 * PAGE, Protection::ReadWrite)?;
        let number = self.random.next_u64();
        space.write_at(&number.to_le_bytes(), range.start + PAGE)?;
        if self.random.one_in(2) {
            range = space.move_anywhere(range)?;
        }
        let mut words = [0; 16];
        space.read_at(&mut words, range.start + PAGE)?;
        assert_eq!(words[..8], number.to_le_bytes());
        assert_eq!(words[8..], [0; 8]);
        space.unmap(range)
    }

    fn step(&mut self) {
        let page = self.random.below(PAGES);
        match self.random.below(24) {
            0..6 => self.read(false, page),
            6..10 => self.write(false, page),
            10..14 => self.read(true, page),
            14..18 => self.write(true, page),
            18 => self.pin(page),
            19 => _ = Self::was_done(self.come_and_go()),
            20 => _ = Self::was_done(self.file().sync()),
            21 => self.file().advise(page * PAGE..(page + 6) * PAGE, Advice::DontNeed).unwrap(),
            22 => self.file().prefetch(page * PAGE..(page + 3) * PAGE),
            _ => {
                let pages = 12 + self.random.below(8);
                let group = &self.world.groups[self.random.below(2) as usize];
                _ = Self::was_done(group.set_max(pages * PAGE));
            }
        }
    }
}

/// A Pagefold with two groups that open the same file, and with a space that can be swapped out.
fn world(disk: &SimulatedDisk) -> World {
    let pool = ThreadPool::new(disk.clone(), 2).unwrap();
    let builder = Pagefold::builder().memory("1MiB").backend(pool).swap_area(SwapArea::memory("256KiB"));
    let fold = builder.build().unwrap();
    let groups = ["a", "b"].map(|name| fold.group(name).max(16 * PAGE).build().unwrap());
    let files = [0, 1].map(|group: usize| groups[group].open_options().write(true).open("f").unwrap());
    let space = groups[0].space().unwrap();
    let base = space.map(PAGES * PAGE, Protection::ReadWrite).unwrap().start;
    World { fold, groups, files, space, base }
}

/// How often each of `EVENTS` happened to a group.
fn counts(group: &Group) -> Counts {
    let stats = group.stats();
    [stats.evictions, stats.refaults, stats.waits, stats.direct_reclaims, stats.swap_ins]
}

fn run(machine: &Machine, seed: u64) -> Result<Counts, Box<Failure>> {
    let run = machine.run(|| {
        let disk = SimulatedDisk::default();
        disk.add_bytes("f", vec![0; (PAGES * PAGE) as usize]);
        let world = world(&disk);
        let mut last = [[0; PAGES as usize]; THREADS];
        manycore::thread::scope(|scope| {
            for (me, last) in last.iter_mut().enumerate() {
                let world = &world;
                scope.spawn(None, move || {
                    let random = Random::seeded(seed << 8 | me as u64);
                    let mut worker = Worker { world, me, random, seen: [[[0; _]; _]; 2] };
                    for _ in 0..STEPS {
                        worker.step();
                    }
                    *last = worker.seen[0][me];
                });
            }
        });
        for group in &world.groups {
            assert!(group.charged() <= group.max(), "{} bytes are charged", group.charged());
        }
        world.files[0].sync().unwrap();
        assert!(world.fold.used() <= world.fold.budget());
        let swap_outs = world.groups[0].stats().swap_outs;
        let counts = world.groups.iter().map(counts).fold(Counts::default(), sum);
        let World { fold, groups, files, space, .. } = world;
        drop((files, space));
        for group in &groups {
            // Charges in the CPUs' stocks count until a thread takes them back, and the flusher may
            // still use a file that was closed.
            for _ in 0..50 {
                if group.set_max(0_u64).is_ok() && group.charged() == 0 {
                    break;
                }
                sync::thread::sleep(Duration::from_micros(200));
            }
            assert_eq!(group.charged(), 0, "of group {}, of which nothing is there any more", group.name());
        }
        drop((fold, groups));
        let written = bytes_on(&disk, "f");
        for (thread, pages) in last.iter().enumerate() {
            for (page, &number) in pages.iter().enumerate() {
                let at = place(thread, page as u64) as usize;
                let found = u64::from_le_bytes(written[at..][..8].try_into().unwrap());
                assert_eq!(found, number, "page {page} on the disk, thread {thread}'s word");
            }
        }
        (swap_outs, counts)
    });
    run.map(|run| {
        let (swap_outs, counts) = run.value;
        assert!(swap_outs > 0, "nothing went to swap");
        counts
    })
}

/// The order depends only on the seed if the process hasn't done anything before, so each seed runs
/// in a process of its own.
#[test]
fn threads_that_are_stopped_anywhere_lose_nothing() {
    let seeds = seeds(SEEDS);
    if seeds.end - seeds.start != 1 {
        let counts = seeds.clone().map(in_a_process).fold(Counts::default(), sum);
        for (event, count) in EVENTS.iter().zip(counts) {
            println!("{count} times: {event}");
            assert!(count > 0 || seeds.end - seeds.start < ORDERS_WITH_ALL, "never in all orders: {event}");
        }
        return;
    }
    let costs = Costs { time_slice: 5_000.0, ..Costs::default() };
    let machine = Machine::new(Shape::new(1, CPUS, 1).unwrap(), costs).unwrap().events_max(20_000_000).random_order();
    let seed = seeds.start;
    match run(&machine.seed(seed), seed) {
        Ok(counts) => println!("{HAPPENED}{}", counts.map(|count| count.to_string()).join(" ")),
        Err(failure) => panic!("seed {seed}: {failure}\nrepeat with: PAGEFOLD_SEED={seed} {REPEAT}"),
    }
}

fn in_a_process(seed: u64) -> Counts {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "threads_that_are_stopped_anywhere_lose_nothing", "--nocapture"]);
    let output = child.env_remove("PAGEFOLD_SEEDS").env("PAGEFOLD_SEED", seed.to_string()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "PAGEFOLD_SEED={seed}: {}\n{said}", output.status);
    let numbers = said.split(HAPPENED).nth(1).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let counts: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    counts.try_into().unwrap()
}
