//! Random operations on the whole library against a plain model, on a simulated disk that fails now and then.
//!
//! Every byte read is compared with the one that belongs there, and after every step the limits are looked at. A
//! failure prints the command that repeats it. `PAGEFOLD_SEEDS` says how many seeds to try.
#![cfg(not(pagefold_loom))]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pagefold::io::{Fault, FaultKind, FaultyBackend, Schedule};
use pagefold::{Advice, Error, File, Group, Pagefold};
use support::{check, disk, manager, read, within_limit};
use sync::random::Random;

const FILES: u64 = 3;
const FILE_PAGES: u64 = 600;
/// Not a whole number of pages.
const FILE_LEN: u64 = FILE_PAGES * 4096 - 1234;
const STEPS: u64 = 400;

/// Rare things that have to have happened somewhere in a run over many seeds.
#[derive(Debug, Default)]
struct Sometimes {
    evictions: u64,
    refaults: u64,
    errors: u64,
    short_reads: u64,
    interrupts: u64,
    limit_reached: u64,
    direct_reclaims: u64,
    shrinks: u64,
    shrinks_refused: u64,
}

struct World {
    random: Random,
    mm: Pagefold,
    faulty: FaultyBackend,
    groups: Vec<Group>,
    /// Open handles: file number, group number, handle.
    open: Vec<(u64, usize, File)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let rate = [0, 1000, 200, 32][random.below(4) as usize];
        let faults = vec![
            Fault::Errno(5),
            Fault::Interrupted,
            Fault::Again,
            Fault::Short(512),
            Fault::Short(4095),
            Fault::ShortThenErrno(100, 5),
            Fault::Errno(12),
        ];
        let faulty = FaultyBackend::new(disk(FILES, FILE_LEN), Schedule::OneIn { n: rate, seed, faults });
        let mm = manager(64 + random.below(400), faulty.clone());
        let groups = (0..1 + random.below(3))
            .map(|i| {
                let group = mm.group(&format!("g{i}"));
                let group = if random.one_in(3) { group } else { group.max((16 + random.below(200)) * 4096) };
                group.build().unwrap()
            })
            .collect();
        Self { random, mm, faulty, groups, open: Vec::new() }
    }

    fn step(&mut self, seen: &mut Sometimes) {
        match self.random.below(100) {
            0..8 => self.open(),
            8..12 if !self.open.is_empty() => {
                let at = self.random.below(self.open.len() as u64) as usize;
                self.open.swap_remove(at).2.close().unwrap();
            }
            12..16 => self.advise(),
            16..18 => self.resize(seen),
            18..20 => self.set_max(),
            20..35 => self.pin_some(seen),
            _ => self.read(seen),
        }
        for group in &self.groups {
            assert!(within_limit(group), "{} has {} of {}", group.name(), group.charged(), group.max());
        }
        let stats = self.mm.stats();
        assert!(stats.used_bytes <= stats.budget_bytes, "{stats}");
    }

    fn open(&mut self) {
        let number = self.random.below(FILES);
        let group = self.random.below(self.groups.len() as u64) as usize;
        match self.groups[group].open(format!("f{number}")) {
            Ok(file) => {
                assert_eq!(file.len(), FILE_LEN);
                self.open.push((number, group, file));
            }
            Err(Error::OpenFailed { .. }) => assert!(self.faulty.fired_total() > 0),
            Err(error) => panic!("{error}"),
        }
    }

    fn pick(&mut self) -> Option<(u64, File)> {
        let n = self.open.len() as u64;
        (n > 0).then(|| {
            let (number, _, file) = &self.open[self.random.below(n) as usize];
            (*number, file.clone())
        })
    }

    /// Skewed, so that there are hits.
    fn offset(&mut self) -> u64 {
        let reach = if self.random.one_in(3) { FILE_LEN + 5000 } else { FILE_LEN / 8 };
        self.random.below(reach)
    }

    fn read(&mut self, seen: &mut Sometimes) {
        let Some((number, file)) = self.pick() else { return };
        let offset = self.offset();
        let len = match self.random.below(4) {
            0 => self.random.below(20),
            1 => 4096,
            2 => self.random.below(4096),
            _ => self.random.below(40_000),
        };
        let expected = FILE_LEN.saturating_sub(offset).min(len);
        match read(&file, number, offset, len as usize) {
            Ok(n) => assert_eq!(n as u64, expected),
            Err(error) => self.tolerate(&error, 0, seen),
        }
    }

    fn pin_some(&mut self, seen: &mut Sometimes) {
        let Some((number, file)) = self.pick() else { return };
        let mut pins = Vec::new();
        for _ in 0..self.random.below(60) {
            let page = self.offset() / 4096;
            match file.page(page) {
                Ok(pin) => pins.push((page, pin)),
                Err(Error::PastEnd { .. }) => assert!(page >= FILE_PAGES),
                Err(error) => {
                    self.tolerate(&error, pins.len(), seen);
                    break;
                }
            }
        }
        for (page, pin) in pins {
            assert_eq!(pin.len() as u64, FILE_LEN.saturating_sub(page * 4096).min(4096));
            check(number, page * 4096, &pin);
        }
    }

    /// An error is fine if a fault fired, or if pins stand in the way.
    fn tolerate(&self, error: &Error, pins: usize, seen: &mut Sometimes) {
        match error {
            Error::ReadFailed { .. } => assert!(self.faulty.fired_total() > 0, "{error}"),
            Error::LimitReached { .. } => {
                assert!(pins > 0, "{error}");
                seen.limit_reached += 1;
            }
            error => panic!("{error}"),
        }
    }

    fn advise(&mut self) {
        let Some((_, file)) = self.pick() else { return };
        let start = self.offset();
        let range = start..start.saturating_add(self.random.below(200_000));
        let advice =
            [Advice::DontNeed, Advice::WillNeed, Advice::Sequential, Advice::Normal][self.random.below(4) as usize];
        match file.advise(advice, range) {
            Ok(()) | Err(Error::ReadFailed { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn resize(&mut self, seen: &mut Sometimes) {
        let pages = 64 + self.random.below(500);
        let before = self.mm.budget();
        match self.mm.resize(pages * 4096 + (256 << 10)) {
            Ok(()) => seen.shrinks += u64::from(self.mm.budget() < before),
            Err(Error::BudgetBusy { .. }) => {
                seen.shrinks_refused += 1;
                assert_eq!(self.mm.budget(), before);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn set_max(&mut self) {
        let at = self.random.below(self.groups.len() as u64) as usize;
        self.groups[at].set_max((16 + self.random.below(300)) * 4096).unwrap();
    }

    fn end(self, seen: &mut Sometimes) {
        for group in &self.groups {
            let stats = group.stats();
            seen.evictions += stats.evictions;
            seen.refaults += stats.refaults;
            seen.errors += stats.errors;
            seen.direct_reclaims += stats.direct_reclaims;
        }
        seen.short_reads += self.faulty.fired(FaultKind::Short);
        seen.interrupts += self.faulty.fired(FaultKind::Interrupted);
        drop(self.open);
        for group in &self.groups {
            assert_eq!(group.charged(), 0, "a page outlived its file");
        }
        drop(self.groups);
        let stats = self.mm.stats();
        assert_eq!(stats.map_bytes, 0, "a page map outlived its file: {stats}");
        assert!(stats.groups.is_empty() && stats.files.is_empty());
    }
}

fn run(seed: u64, seen: &mut Sometimes) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step(seen);
    }
    world.end(seen);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn random_operations_agree_with_the_model() {
    let mut seen = Sometimes::default();
    let seeds = match number("PAGEFOLD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PAGEFOLD_SEEDS").unwrap_or(150),
    };
    let many = seeds.end - seeds.start >= 100;
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, &mut seen))) {
            eprintln!("repeat with: PAGEFOLD_SEED={seed} cargo test -p pagefold --test model");
            resume_unwind(panic);
        }
    }
    println!("{seen:?}");
    if many {
        let Sometimes {
            evictions,
            refaults,
            errors,
            short_reads,
            interrupts,
            limit_reached,
            direct_reclaims,
            shrinks,
            ..
        } = seen;
        let all = [evictions, refaults, errors, short_reads, interrupts, limit_reached, direct_reclaims, shrinks];
        assert!(all.iter().all(|&n| n > 0), "something never happened: {seen:?}");
    }
}
