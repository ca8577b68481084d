use std::collections::{BTreeMap, VecDeque};

use sync::random::Random;

use super::*;

/// A cache with first-in, first-out eviction, and its reader.
struct Reader {
    streams: Streams,
    bounds: Bounds,
    /// Pages in memory: whether each is still unused, and whether it is marked.
    pages: BTreeMap<u64, (bool, bool)>,
    order: VecDeque<u64>,
    room: usize,
    accesses: u64,
    misses: u64,
    /// Marks that were reached.
    marks: u64,
    largest: u64,
}

impl Reader {
    fn new(pages: u64, room: usize) -> Self {
        let bounds =
            Bounds { pages, window: 256, eagerness: Eagerness::Normal, read: 0, wasted: 0, evicted: 0, waiting: 768 };
        let (streams, order) = (Streams::default(), VecDeque::new());
        Self { streams, bounds, pages: BTreeMap::new(), order, room, accesses: 0, misses: 0, marks: 0, largest: 0 }
    }

    fn load(&mut self, page: u64, ahead: bool, marked: bool) {
        assert!(page < self.bounds.pages, "page {page} isn't the file's");
        self.pages.insert(page, (ahead, marked));
        self.order.push_back(page);
        if self.order.len() > self.room {
            let gone = self.order.pop_front().and_then(|page| self.pages.remove(&page));
            self.bounds.evicted += 1;
            self.bounds.wasted += u64::from(gone.is_some_and(|(unused, _)| unused));
        }
    }

    fn load_window(&mut self, window: Option<Window>) {
        let Some(window) = window else { return };
        let pages: Vec<_> = window.ascending().filter(|page| !self.pages.contains_key(page)).collect();
        self.largest = self.largest.max(pages.len() as u64);
        assert!(window.ascending().any(|page| page == window.first()));
        let first = pages.iter().copied().min_by_key(|page| page.abs_diff(window.first()));
        for page in pages {
            self.bounds.read += 1;
            self.load(page, true, Some(page) == first);
        }
    }

    fn read(&mut self, pages: Range<u64>) {
        self.accesses += 1;
        if let Some(missing) = pages.clone().find(|page| !self.pages.contains_key(page)) {
            self.misses += 1;
            let is_used = |page: u64| self.pages.get(&page).map(|(unused, _)| !unused);
            let window = self.streams.missed(pages.clone(), missing, &is_used, &self.bounds);
            for page in pages.clone() {
                if !self.pages.contains_key(&page) {
                    self.load(page, false, false);
                }
            }
            self.load_window(window);
        }
        for page in pages {
            let Some(state) = self.pages.get_mut(&page) else { continue };
            let (_, marked) = std::mem::take(state);
            if marked {
                self.marks += 1;
                let followers = (page + 1..).take_while(|page| self.pages.contains_key(page)).count() as u64;
                let is_used = |page: u64| self.pages.get(&page).map(|(unused, _)| !unused);
                let window = self.streams.reached(page, || followers, &is_used, &self.bounds);
                self.load_window(window);
            }
        }
    }

    fn read_all(&mut self, accesses: impl IntoIterator<Item = Range<u64>>) {
        accesses.into_iter().for_each(|pages| self.read(pages));
    }

    /// Returns the number of pages read ahead that were never used, in memory or not.
    fn unused(&self) -> u64 {
        self.bounds.wasted + self.pages.values().filter(|(unused, _)| *unused).count() as u64
    }
}

fn singles(pages: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Range<u64>> {
    pages.into_iter().map(|page| page..page + 1)
}

#[test]
fn a_sequential_reader_misses_at_the_start_alone() {
    let mut reader = Reader::new(10_000, 2_000);
    reader.read_all(singles(0..10_000));
    assert_eq!((reader.misses, reader.unused()), (3, 0));
    assert_eq!(reader.largest, 256, "grows to a MiB");
    assert_eq!(reader.bounds.read, 10_000 - 3, "up to the end of the file, and no further");
}

#[test]
fn a_backward_reader_too() {
    let mut reader = Reader::new(10_000, 2_000);
    reader.read_all(singles((0..10_000).rev()));
    assert_eq!((reader.misses, reader.unused(), reader.largest), (3, 0, 256));
}

#[test]
fn accesses_may_have_any_size_and_neednt_be_to_whole_pages() {
    for len in [2, 3, 16, 300] {
        let mut reader = Reader::new(30_000, 4_000);
        reader.read_all((0..30_000 / len).map(|i| i * len..(i + 1) * len));
        assert!(reader.misses <= 4 && reader.unused() == 0, "{len}: {} misses", reader.misses);
        let mut reader = Reader::new(30_001, 4_000);
        // Each access shares its first page with the one before.
        reader.read_all((0..30_000 / len).map(|i| i * len..(i + 1) * len + 1));
        assert!(reader.misses <= 4 && reader.unused() <= len, "{len}, shared: {} misses", reader.misses);
    }
}

#[test]
fn strides_are_found_in_both_directions() {
    for (stride, len) in [(2, 1), (7, 1), (64, 1), (1000, 1), (16, 4)] {
        let pages = 1_000_000;
        let starts: Vec<_> = (0..pages / stride).map(|i| i * stride).take(900).collect();
        for backwards in [false, true] {
            let mut reader = Reader::new(pages, 2_000);
            let access = |&start: &u64| start..start + len;
            if backwards {
                reader.read_all(starts.iter().rev().map(access));
            } else {
                reader.read_all(starts.iter().map(access));
            }
            assert_eq!(reader.misses, 4, "stride {stride}");
            assert!(reader.unused() <= 512, "stride {stride}: {} unused", reader.unused());
        }
    }
}

#[test]
fn many_readers_of_one_handle_are_told_apart() {
    let starts: Vec<_> = (0..10_u64).map(|reader| reader * 20_011).collect();
    let mut reader = Reader::new(300_000, 20_000);
    for step in 0..3_000 {
        reader.read_all(singles(starts.iter().map(|start| start + step)));
    }
    assert!((30..60).contains(&reader.misses), "{}", reader.misses);
    assert!(reader.unused() <= 10 * 2 * 256, "{}", reader.unused());
    // Out of order, and mixed with random accesses.
    let mut random = Random::seeded(1);
    let mut reader = Reader::new(300_000, 20_000);
    let mut at = starts;
    let mut randoms = 0;
    for _ in 0..30_000 {
        if random.one_in(4) {
            randoms += 1;
            let page = 250_000 + random.below(50_000);
            reader.read(page..page + 1);
        } else {
            let place = &mut at[random.below(10) as usize];
            *place += 1;
            let page = *place;
            reader.read(page..page + 1);
        }
    }
    assert!(reader.misses < randoms + 200, "{} misses beside {randoms} random accesses", reader.misses);
}

/// Regression: one handle had read a part of a file, and its readahead had loaded pages after that
/// part. A reader with a stride then began just after the part, through another handle. The stride
/// reader reached one mark after the other and was taken for a sequential reader. So five of six
/// pages that were read from the disk were never used.
#[test]
fn a_reader_in_strides_is_not_led_on_by_the_marks_of_another() {
    for (stride, room) in [(8, 2_000), (8, 100_000), (3, 2_000), (64, 2_000)] {
        let mut reader = Reader::new(200_000, room);
        reader.read_all(singles(0..10_000));
        reader.streams = Streams::default();
        let before = (reader.bounds.read, reader.misses);
        reader.read_all(singles((0..20_000 / stride).map(|at| 10_000 + at * stride)));
        let (unused, misses) = (reader.unused(), reader.misses - before.1);
        assert!(unused <= 1_100, "stride {stride}: {unused} of {} pages", reader.bounds.read - before.0);
        assert!(misses <= 12, "stride {stride}: {misses} misses");
    }
}

#[test]
fn random_accesses_read_nothing_ahead() {
    for (pages, len) in [(100_000, 1), (10_000, 1), (2_000, 1), (100_000, 16)] {
        let mut reader = Reader::new(pages, pages as usize / 10);
        let mut random = Random::seeded(pages);
        for _ in 0..50_000 {
            let start = random.below(pages / len) * len;
            reader.read(start..start + len);
        }
        let share = reader.unused() as f64 / (reader.misses * len) as f64;
        assert!(share < 0.005, "{pages} pages, {len} each: {share}");
    }
}

#[test]
fn skewed_accesses_read_nothing_ahead() {
    let mut reader = Reader::new(100_000, 10_000);
    let mut random = Random::seeded(5);
    for _ in 0..100_000 {
        let reach = 1 << random.below(17);
        let page = sync::random::mix(random.below(reach)) % 100_000;
        reader.read(page..page + 1);
    }
    assert!(reader.unused() * 200 < reader.misses, "{} of {}", reader.unused(), reader.misses);
}

#[test]
fn a_reader_that_starts_again_elsewhere_is_followed() {
    let mut reader = Reader::new(100_000, 2_000);
    for start in [0, 50_000, 20_000, 90_000] {
        reader.read_all(singles(start..start + 3_000));
    }
    assert_eq!(reader.misses, 12, "three each");
    assert!(reader.unused() <= 4 * 512, "{}", reader.unused());
}

#[test]
fn pages_that_were_there_already_are_no_reason_to_stop() {
    let mut reader = Reader::new(100_000, 10_000);
    (1_000..1_100).for_each(|page| reader.load(page, false, false));
    (3_000..3_010).for_each(|page| reader.load(page, false, false));
    reader.read_all(singles(0..6_000));
    assert!(reader.misses <= 6, "{}", reader.misses);
}

#[test]
fn windows_shrink_where_they_are_wasted() {
    // Runs of eight pages, each elsewhere: pages read ahead beyond a run are never used.
    let mut reader = Reader::new(1 << 24, 1_000);
    let mut random = Random::seeded(9);
    let mut late = (0, 0);
    for run in 0..4_000 {
        if run == 2_000 {
            late = (reader.unused(), reader.misses);
        }
        let start = random.below((1 << 24) - 8);
        reader.read_all(singles(start..start + 8));
    }
    let share = (reader.unused() - late.0) as f64 / (8 * 2_000) as f64;
    assert!(share < 0.15, "{share} of what is used");
    // A long stream is believed again.
    let misses = reader.misses;
    reader.read_all(singles(0..20_000));
    assert!(reader.misses - misses < 20 && reader.largest >= 128, "{} {}", reader.misses - misses, reader.largest);
}

/// Each run is elsewhere. After some runs, nothing is read ahead beyond the lengths at which they
/// usually end. If a run goes on beyond such a length, pages are read ahead for it again. A run of
/// a known length misses only until its stream is believed.
#[test]
fn nothing_is_read_ahead_beyond_the_usual_ends_of_runs() {
    let long_stay = [([8, 8], 3.0), ([32, 32], 3.0), ([128, 128], 3.1), ([5, 40], 3.8), ([4, 700], 3.9)];
    // A run's pages leave memory long before its stream loses its place.
    let short_stay = [([32, 32], 3.0), ([128, 128], 3.1), ([100, 300], 3.8)];
    let rooms = [(4_000, &long_stay[..]), (1_000, &short_stay[..])];
    for (room, (lengths, most)) in rooms.into_iter().flat_map(|(room, cases)| cases.iter().map(move |&it| (room, it))) {
        for backwards in [false, true] {
            let mut reader = Reader::new(1 << 24, room);
            let mut random = Random::seeded(9);
            let (mut used, mut before) = (0, (0, 0));
            for number in 0..400 {
                if number == 100 {
                    (used, before) = (0, (reader.unused(), reader.misses));
                }
                let length = lengths[number % 2];
                let start = random.below((1 << 24) - length);
                let page = |at| start + if backwards { length - 1 - at } else { at };
                reader.read_all(singles((0..length).map(page)));
                used += length;
            }
            let (unused, misses) = (reader.unused() - before.0, reader.misses - before.1);
            // Lengths of 64 and more are counted in steps.
            let share = if lengths[0] < 64 { 50 } else { 16 };
            assert!(unused * share <= used, "{lengths:?}: {unused} pages read in vain, {used} used");
            let misses = misses as f64 / 300.0;
            assert!(misses <= most, "{lengths:?}: {misses} misses a run");
        }
    }
}

/// A regression: short runs replaced a reader's stream. The reader came back at a mark. From then
/// on, its run was assumed to have the same length, however far it went. So nothing was read ahead
/// for it beyond the length at which the short runs had ended.
#[test]
fn short_runs_dont_stop_a_reader_that_comes_back_at_a_mark() {
    for length in [32, 40, 64] {
        let mut reader = Reader::new(1 << 24, 100_000);
        let mut random = Random::seeded(9);
        reader.read_all(singles(0..1_000));
        for _ in 0..60 {
            let start = (1 << 20) + random.below(1 << 23);
            reader.read_all((0..length / 8).map(|access| start + 8 * access..start + 8 * access + 8));
        }
        let (misses, marks) = (reader.misses, reader.marks);
        reader.read_all(singles(1_000..9_000));
        let (misses, windows) = (reader.misses - misses, reader.marks - marks);
        assert!(misses <= 4 && windows <= 60, "runs of {length}: {misses} misses, {windows} windows");
    }
}

/// A regression: with more readers than streams, if a reader's stream was replaced, its run counted
/// as ended. So nothing was read ahead beyond the length that the run had.
#[test]
fn more_readers_than_streams_are_not_taken_for_short_runs() {
    let in_turn = |turn: u64, readers: u64, _: &mut Random| turn % readers;
    let by_chance = |_: u64, readers: u64, random: &mut Random| random.below(readers);
    type Order = fn(u64, u64, &mut Random) -> u64;
    let cases: [(u64, i64, u64, Order, u64); 11] = [
        (20, 1, 1, by_chance, 160),
        (32, 1, 1, by_chance, 530),
        (64, 1, 1, by_chance, 4_800),
        (20, 1, 16, in_turn, 80),
        (32, 1, 16, in_turn, 140),
        (64, 1, 4, in_turn, 320),
        (64, 1, 16, by_chance, 370),
        (20, -1, 1, by_chance, 320),
        (32, -1, 1, by_chance, 940),
        (20, 7, 1, by_chance, 720),
        (32, 7, 1, by_chance, 3_600),
    ];
    for (readers, stride, pages, order, most) in cases {
        let mut reader = Reader::new(1 << 24, 200_000);
        reader.bounds.waiting = 50_000;
        let mut random = Random::seeded(4);
        let mut at: Vec<u64> = (1..=readers).map(|number| number * 100_000).collect();
        for turn in 0..700 * readers / pages {
            let next = &mut at[order(turn, readers, &mut random) as usize];
            for _ in 0..pages {
                reader.read(*next..*next + 1);
                *next = next.wrapping_add_signed(stride);
            }
        }
        let misses = reader.misses;
        assert!(misses <= most, "{readers} readers, stride {stride}, {pages} pages a turn: {misses} misses");
    }
}

/// A regression: many threads shared a sequence: each took the next page, and read it later. The
/// pages that were taken but not read yet made the reader seem to skip pages.
#[test]
fn many_threads_that_share_a_sequence_are_followed() {
    for threads in [16, 32, 64] {
        let mut reader = Reader::new(1 << 24, 200_000);
        reader.bounds.waiting = 50_000;
        let mut random = Random::seeded(5);
        // Half of the threads hold a page that they haven't read yet.
        let mut held: VecDeque<u64> = (0..threads / 2).collect();
        for next in threads / 2..8_000 {
            let at = random.below(held.len() as u64) as usize;
            let page = held.remove(at).unwrap();
            reader.read(page..page + 1);
            held.push_back(next);
        }
        assert!(reader.misses <= 2 * threads + 10, "{threads} threads: {} misses", reader.misses);
    }
}

/// A regression: in swap readahead, a window ended early because the next page couldn't be swapped
/// in together with the others. The run counted as if its reader had ended it there.
#[test]
fn windows_that_end_early_tell_nothing_of_where_runs_end() {
    let mut reader = Reader::new(1 << 24, 4_000);
    let is_used = |_| None;
    let mut largest = 0;
    for run in 0..100 {
        let start = run * 10_000;
        for page in start..start + 40 {
            let window = reader.streams.missed(page..page + 1, page, &is_used, &reader.bounds);
            if let Some(window) = window {
                let came = window.ascending().filter(|&page| page < start + 20).count() as u64;
                reader.streams.ends_early(window.blocks - came);
                largest = window.blocks;
            }
        }
    }
    assert!(largest >= 16, "{largest}");
}

/// Readers with all kinds of steps, close to each other, in too little memory. No number overflows
/// (in a build with checks), and no page beyond the file is requested.
#[test]
fn any_mixture_of_readers_is_no_trouble() {
    for seed in sync::random::seeds(4) {
        let mut random = Random::seeded(seed);
        let pages = 2_000 << (4 * random.below(3));
        let mut reader = Reader::new(pages, 100 + random.below(2_000) as usize);
        reader.bounds.window = 2 + random.below(256);
        let mut at = vec![(0_u64, 1_i64, 1_u64); 24];
        for _ in 0..30_000 {
            let (next, stride, len) = &mut at[random.below(24) as usize];
            if random.below(40) == 0 {
                let steps = [1, -1, 1, -1, 2, -2, 7, -7, 3, 64];
                (*next, *stride) = (random.below(pages), steps[random.below(10) as usize]);
                *len = [1, 1, 1, 2, 5][random.below(5) as usize];
            }
            let start = (*next).min(pages - 1);
            reader.read(start..(start + *len).min(pages));
            let step = *stride * (*len).cast_signed();
            *next = next.checked_add_signed(step).filter(|&page| page < pages).unwrap_or(random.below(pages));
        }
        let longest = reader.streams.streams.iter().map(|stream| stream.length).max();
        assert!(longest.is_some_and(|length| length <= 2 * pages), "seed {seed}: {longest:?} of {pages}");
    }
}

/// A regression: a reader with a stride used pages that were read ahead for it. Such hits aren't
/// reported. The next access was to the page after the last reported one. These two accesses began
/// a sequence, but its length was counted from the place that the reader had reached by its hits.
#[test]
fn a_sequence_is_counted_from_its_first_access() {
    for at in 0..40 {
        let mut reader = Reader::new(1 << 24, 4_000);
        reader.read_all(singles((0..40).map(|at| 100_000 + 7 * at)));
        reader.read_all(singles([100_000 + 7 * at + 1]));
        assert!(reader.streams.streams.iter().all(|stream| stream.length <= 60), "after access {at}");
    }
}

/// A regression: a reader's stream was replaced. The reader used the pages that were read ahead for
/// it, and came back by a miss. The pages that it had used weren't counted in its length.
#[test]
fn a_reader_that_comes_back_by_a_miss_has_used_what_was_read_ahead() {
    for (start, stride) in [(100_000, 1), (100_000, -1)] {
        let mut reader = Reader::new(1 << 24, 4_000);
        let page = |at: i64| (start as u64).wrapping_add_signed(stride * at);
        reader.read_all(singles((0..20).map(page)));
        // Other readers take the stream's place.
        let mut random = Random::seeded(2);
        reader.read_all(singles((0..2_000).map(|_| (1 << 20) + random.below(1 << 23))));
        assert!(reader.streams.streams.iter().all(|stream| stream.last.start >= 1 << 20));
        // The mark is gone, too.
        let next = (20..).find(|at| !reader.pages.contains_key(&page(*at))).unwrap();
        reader.read_all(singles([page(next)]));
        let is_back = |stream: &&Stream| stream.last.start == page(next);
        let stream = reader.streams.streams.iter().find(is_back).unwrap();
        assert_eq!((stream.length, stream.stride), (next.cast_unsigned() + 1, stride), "stride {stride}");
    }
}

/// A regression: a stream with a stride that became a sequence wasn't counted.
#[test]
fn a_stride_that_becomes_a_sequence_has_ended() {
    let mut reader = Reader::new(1 << 24, 4_000);
    for run in 0..120 {
        let start = run * 10_000;
        reader.read_all(singles((0..20).map(|at| start + 7 * at)));
        reader.read_all(singles(start + 7 * 19 + 1..start + 7 * 19 + 3));
    }
    let unused = reader.unused();
    reader.read_all(singles((0..20).map(|at| 2_000_000 + 7 * at)));
    assert!(reader.unused() <= unused + 1, "{} pages", reader.unused() - unused);
}

/// A regression: pages were read ahead for a reader, and evicted long ago. A miss near these pages
/// was taken for an access of that reader. So a window was read ahead for it.
#[test]
fn a_miss_near_the_pages_of_a_reader_of_long_ago_reads_nothing_ahead() {
    let mut reader = Reader::new(100_000, 1_000);
    reader.read_all(singles(0..100));
    reader.bounds.evicted += 2 * reader.bounds.waiting;
    let (misses, read) = (reader.misses, reader.bounds.read);
    reader.read_all(singles(100..300));
    assert!(reader.misses == misses && reader.bounds.read > read, "a slow reader is followed");
    reader.pages.clear();
    reader.bounds.evicted += 5 * reader.bounds.waiting;
    let (misses, read) = (reader.misses, reader.bounds.read);
    reader.read_all(singles([400, 310, 320]));
    assert_eq!((reader.misses, reader.bounds.read), (misses + 3, read));
}

/// A regression: if the largest window had no more than 16 pages, windows didn't shrink, however
/// many other readers there were.
#[test]
fn windows_shrink_where_they_are_small_too() {
    let mut reader = Reader::new(1 << 20, 1 << 12);
    (reader.bounds.window, reader.bounds.waiting) = (16, 250);
    for page in 0..2_000 {
        reader.bounds.evicted += 100;
        if page == 1_000 {
            reader.largest = 0;
        }
        reader.read(page..page + 1);
    }
    assert_eq!(reader.largest, 4);
}

/// A regression: if the largest window is small, doubt halved it to less than two pages. Then
/// nothing was read ahead any more, so nothing could lessen the doubt.
#[test]
fn doubt_ends_where_windows_are_small() {
    for stride in [1, 5] {
        let mut reader = Reader::new(1 << 24, 1_000);
        reader.bounds.window = 15;
        let run = |reader: &mut Reader, start: u64, accesses: u64| {
            reader.read_all(singles((0..accesses).map(|at| start + at * stride)));
        };
        for start in (0..20).map(|run| run << 12) {
            reader.bounds.wasted += 4_096; // Through another handle.
            run(&mut reader, start, 20);
        }
        assert_eq!(reader.streams.trust.doubt, 6);
        run(&mut reader, 1 << 20, 20_000);
        assert_eq!((reader.streams.trust.doubt, reader.largest), (0, 15), "stride {stride}");
    }
}

#[test]
fn too_little_room_makes_windows_small() {
    let mut reader = Reader::new(100_000, 100);
    // This stream isn't told how little room there is.
    reader.read_all(singles(0..20_000));
    assert!(reader.unused() < 8_000 && reader.misses < 1_000, "{} {}", reader.unused(), reader.misses);
    let mut small = Reader::new(100_000, 128);
    small.bounds.window = 2;
    small.read_all(singles(0..1_000));
    assert!(small.largest == 2 && small.unused() <= 4, "no more than is allowed");
    small.bounds.window = 1;
    small.read_all(singles(50_000..50_100));
    assert_eq!(small.largest, 2, "none at all in so little");
}

#[test]
fn a_user_who_says_so_is_believed_at_once() {
    let mut reader = Reader::new(10_000, 3_000);
    reader.bounds.eagerness = Eagerness::Sequential;
    reader.read_all(singles(0..10_000));
    assert_eq!((reader.misses, reader.unused(), reader.largest), (1, 0, 512));
}

#[test]
fn hostile_pages_are_no_trouble() {
    let mut streams = Streams::default();
    let mut bounds = Reader::new(u64::MAX >> 12, 1).bounds;
    let mut random = Random::seeded(3);
    for step in 0..200_000 {
        let page = match random.below(4) {
            0 => random.next_u64() >> 12,
            1 => (u64::MAX >> 12) - 1 - random.below(5),
            _ => random.below(6),
        };
        bounds.pages = if step % 3 == 0 { 4 } else { u64::MAX >> 12 };
        let window = if random.one_in(3) {
            let followers = random.next_u64() >> 20;
            streams.reached(page, || followers, &|page| Some(page % 5 > 0), &bounds)
        } else {
            streams.missed(page..page + random.below(4), page, &|page| Some(page % 3 > 0), &bounds)
        };
        for page in window.into_iter().flat_map(Window::ascending) {
            assert!(page < bounds.pages);
        }
    }
}

#[test]
fn windows_shrink_while_others_load_more_and_grow_again() {
    let mut reader = Reader::new(1 << 20, 1 << 12);
    let mut largest = |others: u64, pages: Range<u64>| {
        reader.largest = 0;
        for page in pages {
            reader.bounds.evicted += others;
            reader.read(page..page + 1);
        }
        reader.largest
    };
    assert_eq!(largest(0, 0..5000), 256, "alone");
    largest(3, 5000..8000);
    // While a window of 48 pages is used, four readers load 192 pages, a quarter of those that can
    // wait.
    assert_eq!(largest(3, 8000..9000), 48);
    largest(1000, 9000..12_000);
    assert_eq!(largest(1000, 12_000..13_000), 16);
    assert_eq!(largest(0, 13_000..18_000), 192, "of the pages that it evicts itself no more can wait");
}

/// Only the first ten pages of each window can be loaded. If the streams are told so (`told`),
/// later windows grow to their full size all the same.
#[test]
fn a_window_that_ends_early_doesnt_shrink_the_next_ones() {
    for (told, largest) in [(true, 256), (false, 64)] {
        let mut reader = Reader::new(10_000, 1_000);
        let (mut page, mut window_max) = (0, 0);
        while page < 5_000 {
            let window = reader.streams.missed(page..page + 1, page, &|_| None, &reader.bounds);
            let asked = window.map_or(0, |window| window.ascending().count() as u64);
            let came = asked.min(10);
            if told {
                reader.streams.ends_early(asked - came);
            }
            window_max = window_max.max(asked);
            page += 1 + came;
        }
        assert!(window_max <= largest && (window_max == 256) == told, "{window_max} pages, told: {told}");
    }
}
