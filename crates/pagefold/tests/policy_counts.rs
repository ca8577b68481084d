//! The exact number of misses of the policy. With one thread, it depends only on the accesses.
#![cfg(not(pagefold_loom))]

#[path = "../../policies/tests/data/mod.rs"]
mod public;
mod support;

use std::iter;
use std::sync::Once;

use pagefold::{AccessPattern, Advice, GroupStats, Pagefold, Protection, SwapArea};
use policies::{Accesses, Policy};
use support::disk;
use sync::random::{Random, seeds};

const PAGE: u64 = 4096;

/// Makes these accesses in a group of `room` pages without readahead.
fn run(accesses: &[u64], room: u64) -> GroupStats {
    run_with(accesses, room, Advice::Random)
}

fn run_with(accesses: &[u64], room: u64, advice: Advice) -> GroupStats {
    static ONE_CPU: Once = Once::new();
    // Pages wait on their CPU before they are listed, and threads move between CPUs. With one CPU,
    // the result doesn't depend on that.
    ONE_CPU.call_once(|| sync::cpu::pretend(1));
    let pages = accesses.iter().max().map_or(0, |page| page + 1);
    let disk = disk(1, pages * PAGE);
    // What is read ahead arrives before the next access.
    disk.answer_by_hand();
    let mm = Pagefold::builder().memory((64 << 20).max(2 * room * PAGE)).backend(disk.clone()).build().unwrap();
    let group = mm.group("a").max(room * PAGE).build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(0..1, advice).unwrap();
    for page in accesses {
        file.read_exact_at(&mut [0; 8], page * PAGE).unwrap();
        while disk.answer_next() {}
    }
    group.stats()
}

fn misses(accesses: &[u64], room: u64) -> u64 {
    run(accesses, room).misses
}

/// Returns how many of the accesses miss in a cache that keeps the `room` pages used last (LRU).
fn misses_of_lru(accesses: &[u64], room: usize) -> u64 {
    policies::misses(Policy::Lru, &Accesses::of(accesses.iter().copied()).unwrap(), room)
}

/// Returns `count` accesses to `pages` pages. Page n is used in proportion to `weight(n)`.
fn skewed(pages: usize, count: usize, seed: u64, weight: impl Fn(f64) -> f64) -> Vec<u64> {
    let mut sums = Vec::with_capacity(pages);
    for page in 1..=pages {
        sums.push(sums.last().unwrap_or(&0.0) + weight(page as f64));
    }
    let (mut random, all) = (Random::seeded(seed), sums[pages - 1]);
    let unit = |random: &mut Random| random.below(1 << 52) as f64 / (1_u64 << 52) as f64;
    let rank = |random: &mut Random| {
        let at = unit(random) * all;
        sums.partition_point(|&sum| sum <= at).min(pages - 1)
    };
    // Neighbours in rank aren't neighbours in the file.
    iter::repeat_with(|| (rank(&mut random) as u64 * 7_919) % pages as u64).take(count).collect()
}

/// Pages from 0 to `top` and back, again and again.
fn zigzag(top: u64, count: u64) -> Vec<u64> {
    (0..count).map(|at| at % (2 * top)).map(|at| at.min(2 * top - 1 - at)).collect()
}

/// Every other access is to one of `hot` pages; the others scan the rest of the file.
fn hot_beside_scan(hot: u64, count: u64) -> Vec<u64> {
    let mut random = Random::seeded(4);
    (0..count).map(|at| if at % 2 == 0 { random.below(hot) } else { hot + at / 2 }).collect()
}

/// These counts depend only on the code. A change of the policy is meant to change them; its reason
/// is then in the policy's log.
#[test]
fn the_misses_are_exactly_these() {
    const ROOM: u64 = 1000;
    let count = 60 * ROOM;
    let round = |pages: u64| (0..count).map(|at| at % pages).collect::<Vec<u64>>();
    let traces = [
        ("a loop of 1.1 times the room", round(1100)),
        ("a loop of twice the room", round(2000)),
        ("zigzag over twice the room", zigzag(2000, count)),
        ("a hot half beside a scan", hot_beside_scan(500, count)),
        ("zipf 1", skewed(10_000, count as usize, 1, |rank| 1.0 / rank)),
        ("zipf 0.75", skewed(10_000, count as usize, 2, |rank| 1.0 / (rank.sqrt() * rank.sqrt().sqrt()))),
    ];
    let counts = traces.map(|(name, accesses)| (name, misses(&accesses, ROOM)));
    let expected = [
        ("a loop of 1.1 times the room", 7_371),
        ("a loop of twice the room", 31_535),
        ("zigzag over twice the room", 32_458),
        ("a hot half beside a scan", 30_677),
        ("zipf 1", 16_830),
        ("zipf 0.75", 33_194),
    ];
    assert_eq!(counts.as_slice(), expected.as_slice());
}

/// As above, for public traces, in rooms for which the known policies differ most.
#[test]
fn the_misses_on_public_traces_are_exactly_these() {
    let counts = [(public::CS, 500), (public::LOOP, 900), (public::ZIGZAG, 1000)]
        .map(|(runs, room)| misses(&public::pages(runs), room));
    assert_eq!(counts, [4985, 64_893, 28_454]);
}

/// As above, with readahead: misses, pages read ahead, and those of them that left memory unused.
/// The disk answers each request before the next access, so no count depends on threads.
#[test]
fn the_loads_with_readahead_are_exactly_these() {
    let counts = [(public::CS, 500), (public::LOOP, 900), (public::ZIGZAG, 1000)].map(|(runs, room)| {
        let stats = run_with(&public::pages(runs), room, Advice::Normal);
        [stats.misses, stats.read_ahead, stats.read_ahead_wasted]
    });
    assert_eq!(counts, [[87, 5132, 178], [12_137, 56_422, 172], [172, 28_260, 0]]);
}

/// Prints a table of traces that aren't kept here. The folder `PAGEFOLD_TRACES` has a file
/// `NAME.trace` for each, with a page number in each line.
fn print_table(traces: &[(&str, &[usize])]) {
    let folder = std::env::var("PAGEFOLD_TRACES").expect("PAGEFOLD_TRACES: the folder with the traces");
    println!("trace, room: loads / best of five; with readahead: loads / without, misses, read ahead, wasted");
    let mut rows = Vec::new();
    for (name, rooms) in traces {
        let path = format!("{folder}/{name}.trace");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let accesses: Vec<u64> = text.lines().map(|line| line.trim().parse().expect(&path)).collect();
        let pages = Accesses::of(accesses.iter().copied()).unwrap();
        for &room in *rooms {
            let known = Policy::ALL.into_iter().filter(|&policy| policy != Policy::Opt);
            let best = known.map(|policy| policies::misses(policy, &pages, room)).min().unwrap();
            let (loads, ahead) = (misses(&accesses, room as u64), run_with(&accesses, room as u64, Advice::Normal));
            let over_best = loads as f64 / best as f64;
            let over_without = (ahead.misses + ahead.read_ahead) as f64 / loads as f64;
            let counts = [ahead.misses, ahead.read_ahead, ahead.read_ahead_wasted];
            println!("{name} {room}: {loads}, {over_best:.3}; {over_without:.3}, {counts:?}");
            rows.push((over_best, over_without, counts));
        }
    }
    let (mean, count) = (|of: fn(&(f64, f64, [u64; 3])) -> f64| rows.iter().map(of).sum::<f64>(), rows.len() as f64);
    println!("mean {:.4}; with readahead {:.4}", mean(|row| row.0) / count, mean(|row| row.1) / count);
    let [misses, _, wasted] = [0, 1, 2].map(|at| rows.iter().map(|row| row.2[at]).sum::<u64>());
    println!("with readahead: {misses} misses, {wasted} wasted");
}

/// Makes the tables of recorded traces in `docs/log/policy.md`.
#[test]
#[ignore = "for measuring: needs traces"]
fn recorded_traces_with_and_without_readahead() {
    print_table(&[
        ("cs", &[500, 1000]),
        ("ps", &[1000, 2000]),
        ("gli", &[1000, 2000]),
        ("cpp", &[500, 900]),
        ("multi1", &[1000, 1800]),
        ("multi2", &[1000, 2000, 3000]),
        ("zigzag", &[1000]),
        ("scan", &[1000]),
        ("loop", &[900]),
        ("web07", &[1024, 4096]),
        ("vault", &[10_000]),
        ("orm-night", &[5000, 20_000]),
    ]);
}

/// The same with the traces that `lab/bench/traces/sqlite.py` makes.
#[test]
#[ignore = "for measuring: needs traces"]
fn traces_of_sqlite_with_and_without_readahead() {
    print_table(&[("tpcc", &[1000, 2000, 5000]), ("tpch", &[500, 1000, 2000])]);
}

/// On skewed accesses, the best policy is one that counts every use. `PAGEFOLD_SEEDS=5` tries five
/// traces of each kind.
#[test]
fn skewed_accesses_miss_at_most_four_percent_more_often_than_with_the_best_of_five() {
    const PAGES: usize = 10_000;
    let mut ratios = Vec::new();
    let exponents = [0.7, 0.9, 0.99, 1.1];
    for (seed, exponent) in seeds(1).flat_map(|seed| exponents.map(|exponent| (seed, exponent))) {
        let accesses = skewed(PAGES, 30 * PAGES, 5 + seed, |rank| rank.powf(-exponent));
        let pages = Accesses::of(accesses.iter().copied()).unwrap();
        for room in [PAGES / 100, PAGES / 10, PAGES / 4] {
            let known = Policy::ALL.into_iter().filter(|&policy| policy != Policy::Opt);
            let best = known.map(|policy| policies::misses(policy, &pages, room)).min().unwrap();
            let ratio = misses(&accesses, room as u64) as f64 / best as f64;
            assert!(ratio <= 1.04, "seed {seed}: zipf {exponent}, room for {room} pages: {ratio}");
            ratios.push(ratio);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    println!("mean {mean:.4}, worst {:.4}", ratios.iter().copied().fold(0.0, f64::max));
    assert!(mean <= 1.03, "{mean}: {ratios:?}");
}

/// Checks what `stats()` reports against what is so.
#[test]
fn stats_tell_the_pattern_and_what_a_tenth_of_the_memory_would_change() {
    const ROOM: u64 = 1000;
    let count = 40 * ROOM;
    let traces = [
        ("loop", (0..count).map(|at| at % 1500).collect(), AccessPattern::Loop),
        ("scan", (0..count).collect(), AccessPattern::Scan),
        ("fits", (0..count).map(|at| at % 900).collect(), AccessPattern::Fits),
        ("zipf", skewed(10_000, count as usize, 3, |rank| 1.0 / rank), AccessPattern::Skew),
        ("drift", drift(count, 900), AccessPattern::Recency),
    ];
    for (name, accesses, pattern) in traces {
        let stats = run(&accesses, ROOM);
        assert_eq!(stats.pattern, pattern, "{name}: {stats:?}");
        let [more, less] = [ROOM * 11 / 10, ROOM * 9 / 10].map(|room| misses(&accesses, room) as f64);
        let (saved, cost) = (1.0 - more / stats.misses as f64, less / stats.misses as f64 - 1.0);
        if pattern != AccessPattern::Fits {
            assert!((stats.more_memory_saves - saved).abs() < 0.1, "{name}: {saved}, {stats:?}");
            assert!((stats.less_memory_costs - cost).abs() < 0.2, "{name}: {cost}, {stats:?}");
        }
    }
}

/// Random pages within a window of `width` pages, which moves on by one page every ten accesses.
fn drift(count: u64, width: u64) -> Vec<u64> {
    let mut random = Random::seeded(9);
    (0..count).map(|at| at / 10 + random.below(width)).collect()
}

/// A part of a program: a loop, a scan, random pages, a zigzag, or pages that are used twice. Its
/// kind, first page, number of pages, and number of accesses.
type Part = [u64; 4];

fn part(random: &mut Random, room: u64) -> Part {
    let size = [room / 4, room, 2 * room, 4 * room][random.below(4) as usize];
    let steps = [room / 2, 2 * room, 8 * room][random.below(3) as usize];
    [random.below(5), random.below(4 * room), 1 + random.below(size), 1 + random.below(steps)]
}

/// Repeats a program of up to six parts.
fn program(seed: u64, room: u64, len: usize) -> Vec<u64> {
    let mut random = Random::seeded(seed);
    let parts: Vec<Part> = (0..=random.below(6)).map(|_| part(&mut random, room)).collect();
    repeat(&parts, &mut random, room, len)
}

fn repeat(parts: &[Part], random: &mut Random, room: u64, len: usize) -> Vec<u64> {
    let (mut accesses, mut fresh) = (Vec::with_capacity(len), 10 * room);
    for &[kind, base, size, steps] in parts.iter().cycle() {
        for step in 0..steps.min((len - accesses.len()) as u64) {
            accesses.push(match kind {
                0 => base + step % size,
                1 => base + random.below(size),
                2 => base + (step % (2 * size)).min(2 * size - 1 - step % (2 * size)),
                // Each page is used once more, a while later.
                3 if step % 2 == 1 => fresh.saturating_sub(size),
                _ => {
                    fresh += 1;
                    fresh - 1
                }
            });
        }
        if accesses.len() == len {
            return accesses;
        }
    }
    accesses
}

/// `docs/decisions/what-stays.md` argues for the bound.
#[test]
fn misses_are_at_most_two_and_a_half_times_those_of_lru_with_half_the_memory() {
    const ROOM: u64 = 128;
    for seed in 0..150 {
        let accesses = program(seed, ROOM, 50 * ROOM as usize);
        let (ours, half) = (misses(&accesses, ROOM), misses_of_lru(&accesses, ROOM as usize / 2));
        assert!(2 * ours <= 5 * half, "program {seed}: {ours} misses, LRU with half the memory {half}");
    }
}

/// How many more misses a program has than LRU has with the same memory, for each part that begins
/// after the first one, in units of the room.
fn more_than_lru(parts: &[Part], room: u64) -> (f64, [u64; 2]) {
    let len = 50 * room as usize;
    let accesses = repeat(parts, &mut Random::seeded(3), room, len);
    let round: u64 = parts.iter().map(|[.., steps]| steps).sum();
    let (mut begun, mut left) = (len as u64 / round * parts.len() as u64, len as u64 % round);
    for [.., steps] in parts {
        begun += u64::from(left > 0);
        left = left.saturating_sub(*steps);
    }
    let changes = begun.saturating_sub(1);
    let counts = [misses(&accesses, room), misses_of_lru(&accesses, room as usize)];
    (counts[0].saturating_sub(counts[1]) as f64 / (changes.max(1) * room) as f64, counts)
}

/// Searches for the worst programs beside LRU with the same memory: begins with random ones, and
/// keeps random changes that make them worse. `PAGEFOLD_SEEDS` is the number of such searches.
#[test]
#[ignore = "for measuring: takes minutes"]
fn the_worst_programs_beside_lru() {
    const ROOM: u64 = 512;
    const IDLE_MAX: u32 = 100;
    for seed in seeds(3) {
        let mut random = Random::seeded(seed);
        let mut program: Vec<Part> = (0..=random.below(6)).map(|_| part(&mut random, ROOM)).collect();
        let (mut worst, mut idle, mut tries) = (more_than_lru(&program, ROOM), 0, 0);
        while idle < IDLE_MAX {
            let (mut other, at) = (program.clone(), random.below(program.len() as u64) as usize);
            match random.below(6) {
                0 => other[at] = part(&mut random, ROOM),
                1 if other.len() < 10 => other.insert(at, part(&mut random, ROOM)),
                2 if other.len() > 1 => _ = other.remove(at),
                3 => other[at][3] = (1 + other[at][3] * (50 + random.below(150)) / 100).min(8 * ROOM),
                4 => other[at][2] = 1 + other[at][2] * (60 + random.below(100)) / 100,
                _ => other[at][1] = random.below(4 * ROOM),
            }
            let found = more_than_lru(&other, ROOM);
            (idle, tries) = (if found.0 > worst.0 + 0.002 { 0 } else { idle + 1 }, tries + 1);
            if found.0 >= worst.0 {
                (worst, program) = (found, other);
            }
        }
        let (more, counts) = worst;
        println!("seed {seed}, {tries} programs: {more:.3} of the room for each change ({counts:?}), {program:?}");
    }
}

/// Prints how often pages that are used twice miss, over LRU's misses.
#[test]
#[ignore = "for measuring"]
fn pages_used_twice_beside_lru() {
    let percent = [50, 62, 74, 86, 88, 90, 92, 94, 96];
    println!("| room | after {} |", percent.map(|after| format!("{after} %")).join(" | "));
    for room in [128, 256, 512, 1000] {
        let ratio = |after: u64| {
            let twice = [3, 0, after * room / 200, 100 * room];
            let accesses = repeat(&[twice], &mut Random::seeded(3), room, 100 * room as usize);
            misses(&accesses, room) as f64 / misses_of_lru(&accesses, room as usize) as f64
        };
        println!("| {room} | {} |", percent.map(|after| format!("{:.3}", ratio(after))).join(" | "));
    }
}

#[test]
fn the_same_accesses_miss_equally_often() {
    let accesses = program(7, 300, 20_000);
    assert_eq!(misses(&accesses, 300), misses(&accesses, 300));
}

/// A group has at least four pages.
#[test]
fn the_smallest_group_keeps_what_fits() {
    let round = |pages: u64| (0..300).map(|at| at % pages).collect::<Vec<u64>>();
    assert_eq!([3, 4].map(|pages| misses(&round(pages), 4)), [3, 4]);
    let missed = misses(&round(6), 4);
    assert!((100..=300).contains(&missed), "{missed}, and 104 are the least");
}

/// Readahead's largest window has 256 pages. Each page is loaded once, although there is room for
/// fewer pages.
#[test]
fn a_group_smaller_than_readaheads_largest_window_loads_nothing_in_vain() {
    const PAGES: u64 = 2_000;
    sync::cpu::pretend(1);
    for room in [4, 16, 100, 200] {
        for advice in [Advice::Normal, Advice::Sequential] {
            let mm = Pagefold::builder().memory(64 << 20).backend(disk(1, PAGES * PAGE)).build().unwrap();
            let group = mm.group("a").max(room * PAGE).build().unwrap();
            let file = group.open("f0").unwrap();
            file.advise(0..1, advice).unwrap();
            for page in 0..PAGES {
                assert_eq!(support::read(&file, 0, page * PAGE, PAGE as usize).unwrap() as u64, PAGE);
                assert!(support::within_limit(&group), "room for {room} pages: {}", group.charged());
            }
            let stats = group.stats();
            let loaded = (stats.bytes_in / PAGE, stats.read_ahead_wasted);
            assert_eq!(loaded, (PAGES, 0), "room for {room} pages, {advice:?}: {stats:?}");
        }
    }
}

/// A frame keeps the time of a page's last use modulo 16,384 loads in a small group, and a page's
/// shadow keeps it modulo 32,768, and another time modulo 65,536. In this trace, every other access
/// loads a page that is used once. The others use one of a few pages; after 12,000 such uses they
/// use other ones. If times that have wrapped were taken for recent or for old ones, pages of the
/// last set would stay, or pages of the current set would go.
#[test]
fn times_that_wrap_mislead_nobody() {
    const ROOM: u64 = 100;
    const HOT: u64 = 50;
    const USES: u64 = 12_000;
    const SETS: u64 = 18;
    let scanned = SETS * HOT;
    let mm = Pagefold::builder().memory(64 << 20).backend(disk(1, (scanned + SETS * USES) * PAGE)).build().unwrap();
    sync::cpu::pretend(1);
    let group = mm.group("a").max(ROOM * PAGE).build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    let mut random = Random::seeded(6);
    let mut missed = Vec::new();
    for set in 0..SETS {
        let before = group.stats().misses;
        for at in 0..USES {
            for page in [set * HOT + random.below(HOT), scanned + set * USES + at] {
                file.read_exact_at(&mut [0; 8], page * PAGE).unwrap();
            }
        }
        missed.push(group.stats().misses - before - USES);
    }
    assert!(missed.iter().all(|&missed| missed < USES / 80), "of {USES} uses of each set, these missed: {missed:?}");
}

/// The limit falls and rises all the time.
#[test]
fn a_limit_that_changes_keeps_what_it_allows() {
    let mm = Pagefold::builder().memory(64 << 20).backend(disk(1, 4_000 * PAGE)).build().unwrap();
    let group = mm.group("a").max(1_000 * PAGE).build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    let mut random = Random::seeded(5);
    let mut missed = 0;
    for at in 0..100_000_u64 {
        if at % 1_000 == 0 {
            group.set_max([100, 1_000, 500][(at / 1_000 % 3) as usize] * PAGE).unwrap();
        }
        let before = group.stats().misses;
        file.read_exact_at(&mut [0; 8], if at % 2 == 0 { random.below(80) } else { 100 + at % 3_900 } * PAGE).unwrap();
        missed += if at % 2 == 0 { group.stats().misses - before } else { 0 };
        assert!(group.charged() <= group.max());
    }
    assert!(missed < 5_000, "{missed} of 50,000 accesses to 80 pages");
}

/// Two loops of the same length alternate, one over pages of a file, the other over anonymous
/// pages. Both fit only in part. Which pages are kept depends on the cost of a load. A page in a
/// slot on a device costs as much as a page of the file, so the pages that were loaded first stay.
/// A page in compressed memory costs less, so pages of the file stay.
#[test]
fn pages_that_cost_more_are_kept() {
    const ROOM: u64 = 1_000;
    const LOOP: u64 = 900;
    let loads = |area: SwapArea| {
        sync::cpu::pretend(1);
        let devices = disk(1, LOOP * PAGE);
        devices.add_bytes("/swap", vec![0; (4 * LOOP * PAGE) as usize]);
        let mm = Pagefold::builder().memory(64 << 20).backend(devices).swap_area(area).build().unwrap();
        let group = mm.group("a").max(ROOM * PAGE).build().unwrap();
        let (file, space) = (group.open("f0").unwrap(), group.space().unwrap());
        file.advise(0..1, Advice::Random).unwrap();
        let base = space.map(LOOP * PAGE, Protection::ReadWrite).unwrap().start;
        space.advise(base..base + LOOP * PAGE, Advice::Random).unwrap();
        (0..LOOP).for_each(|page| space.write_at(&[page as u8 | 1, 2, 3], base + page * PAGE).unwrap());
        let mut before = group.stats();
        for round in 0..40 {
            if round == 20 {
                before = group.stats();
            }
            for page in 0..LOOP {
                file.read_exact_at(&mut [0; 8], page * PAGE).unwrap();
                space.read_at(&mut [0; 8], base + page * PAGE).unwrap();
            }
        }
        let stats = group.stats();
        (stats.misses - before.misses, stats.swap_ins - before.swap_ins)
    };
    let (of_file, of_space) = loads(SwapArea::compressed("16MiB"));
    assert!(of_file < of_space / 8, "compressed: {of_file} loads of the file, {of_space} of the space");
    let (of_file, of_space) = loads(SwapArea::path("/swap").overwrite(true));
    assert!(of_space < of_file / 8, "on a device: {of_file}, {of_space}");
}
