//! Memory that moves and grows while other threads use it. No write that returned `Ok` may be lost.

use std::ops::Range;

use pagefold::{Error, Group, Pagefold, Protection, Space};
use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::random::Random;

use crate::world::{PAGE, join, threads};

const PAGES: u64 = 24;
const WRITERS: u64 = 3;
/// The addresses of page 0 in the two places where pages may be. In both, there is room to grow
/// behind the last page.
const PLACES: [u64; 2] = [64 << 20, 3 << 30];
const MOVES: u64 = if cfg!(pagefold_tsan) { 1_500 } else { 20_000 };
/// Each of the other threads makes at least this many steps. Otherwise the moves could be over
/// before such a thread has begun.
const STEPS_MIN: u64 = 200;

fn address(place: usize, page: u64) -> u64 {
    PLACES[place] + page * PAGE
}

/// A thread that has a word of its own in each page, and the values that it wrote there last.
struct Writer {
    space: Space,
    word: u64,
    wrote: [u64; PAGES as usize],
    random: Random,
}

impl Writer {
    fn new(space: &Space, seed: u64) -> Self {
        let (word, random) = (seed * 8 + 4000, Random::seeded(seed));
        Self { space: space.clone(), word, wrote: [0; PAGES as usize], random }
    }

    /// Makes an access at each of the page's two places in turn, until it finds the page.
    fn at<R>(&self, page: u64, mut access: impl FnMut(u64) -> Result<R, Error>) -> R {
        for place in [0, 1].into_iter().cycle() {
            match access(address(place, page) + self.word) {
                Ok(result) => return result,
                Err(error) if matches!(error.cause(), Error::NotMapped { .. }) => sync::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!("it goes on until it is found")
    }

    fn check(&self, page: u64) {
        let mut bytes = [0; 8];
        self.at(page, |address| self.space.read_at(&mut bytes, address));
        assert_eq!(u64::from_ne_bytes(bytes), self.wrote[page as usize], "page {page}");
    }

    fn step(&mut self) {
        let page = self.random.below(PAGES);
        let next = self.wrote[page as usize] + 1;
        match self.random.below(4) {
            0 => self.at(page, |address| self.space.write_at(&next.to_ne_bytes(), address)),
            1 => assert_eq!(self.at(page, |address| self.space.update_u64(address, |_| Some(next))), next - 1),
            2 => {
                let held =
                    self.at(page, |address| Ok(self.space.page_at(address)?[self.word as usize..][..8].to_vec()));
                assert_eq!(held, (next - 1).to_ne_bytes());
                return;
            }
            _ => return self.check(page),
        }
        self.wrote[page as usize] = next;
    }
}

/// The thread that moves pages, and where they are.
struct Mover {
    space: Space,
    places: [usize; PAGES as usize],
    random: Random,
}

impl Mover {
    /// Neighbours in one place.
    fn run(&mut self) -> Range<u64> {
        let first = self.random.below(PAGES);
        let place = self.places[first as usize];
        let longest = 1 + self.random.below(PAGES - first);
        let end = (first..first + longest).find(|&page| self.places[page as usize] != place);
        first..end.unwrap_or(first + longest)
    }

    fn step(&mut self) {
        let run = self.run();
        let (from, to) = (self.places[run.start as usize], 1 - self.places[run.start as usize]);
        move_in_the_end(&self.space, address(from, run.start)..address(from, run.end), address(to, run.start));
        self.places[run.start as usize..run.end as usize].fill(to);
        if run.end == PAGES {
            self.grow_and_shrink(address(to, run.start)..address(to, run.end));
        }
    }

    /// Grows the range by a page, which must read as zeros, and unmaps this page again.
    fn grow_and_shrink(&self, range: Range<u64>) {
        let longer = self.space.grow(range.clone(), range.end - range.start + PAGE).unwrap();
        let mut bytes = [1; 16];
        self.space.read_at(&mut bytes, range.end).unwrap();
        assert_eq!(bytes, [0; 16]);
        self.space.write_at(&[7; 16], range.end).unwrap();
        self.space.unmap(range.end..longer.end).unwrap();
    }
}

/// Moves a range. Retries while another thread has a page of it pinned, which takes only moments if
/// this thread gets CPU.
fn move_in_the_end(space: &Space, range: Range<u64>, to: u64) {
    while let Err(error) = space.move_to(range.clone(), to) {
        assert!(matches!(error, Error::AddressBusy { .. }), "{error}");
    }
}

fn group() -> (Pagefold, Group) {
    let mm = Pagefold::builder().memory("64MiB").build().unwrap();
    let group = mm.group("movers").build().unwrap();
    (mm, group)
}

#[test]
fn what_is_written_while_memory_moves_moves_with_it() {
    let (_mm, group) = group();
    let space = group.space().unwrap();
    space.map_at(address(0, 0)..address(0, PAGES), Protection::ReadWrite).unwrap();
    // All pages are in memory, whichever writer runs.
    (0..PAGES).for_each(|page| space.write_at(&[0], address(0, page)).unwrap());
    let moves = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| {
            let (mut writer, moves) = (Writer::new(&space, seed), Arc::clone(&moves));
            let body = move || {
                let mut steps = 0;
                // Relaxed: a hint that it is time to end.
                while moves.load(Ordering::Relaxed) < MOVES || steps < STEPS_MIN {
                    writer.step();
                    steps += 1;
                }
                (0..PAGES).for_each(|page| writer.check(page));
                writer.wrote.iter().sum::<u64>()
            };
            sync::thread::spawn("writer", body).unwrap()
        })
        .collect();
    let mut mover = Mover { space: space.clone(), places: [0; PAGES as usize], random: Random::seeded(99) };
    for _ in 0..MOVES {
        mover.step();
        moves.fetch_add(1, Ordering::Relaxed);
    }
    let wrote: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert!(wrote > 0, "nobody came to write");
    let resident: u64 = space.areas().iter().map(|area| area.resident).sum();
    assert_eq!(resident, PAGES * PAGE, "a page was lost, or is there twice");
    drop((mover, space));
    assert_eq!(group.charged(), 0, "something was left in memory");
}

/// How often the page goes and comes back.
const ROUNDS: u64 = if cfg!(pagefold_tsan) { 10_000 } else { 100_000 };

/// Two threads call `look` for both places of a page that moves back and forth. All bytes of the
/// page are 7.
fn look_at_a_page_that_moves(look: fn(&Space, u64) -> Result<(), Error>) {
    let (_mm, group) = group();
    let space = group.space().unwrap();
    let [here, there] = PLACES.map(|start| start..start + PAGE);
    space.map_at(here.clone(), Protection::ReadWrite).unwrap();
    space.write_at(&[7; PAGE as usize], here.start).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let looks = Arc::new([0; 2].map(AtomicU64::new));
    let (theirs, stopped, theirs_looked) = (space.clone(), Arc::clone(&stop), Arc::clone(&looks));
    let lookers = threads(2, move |looker| {
        let mut found = 0;
        // Looks once more after the page has come to rest.
        let mut is_over = false;
        while !std::mem::replace(&mut is_over, stopped.load(Ordering::Acquire)) {
            theirs_looked[looker as usize].fetch_add(1, Ordering::Relaxed);
            for place in PLACES {
                match look(&theirs, place) {
                    Ok(()) => found += 1,
                    Err(error) if matches!(error.cause(), Error::NotMapped { .. } | Error::AddressBusy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(found > 0, "the page was nowhere");
    });
    // Moves at least this often, and until both threads have looked while the page moved.
    let has_looked = |looks: &AtomicU64| looks.load(Ordering::Relaxed) >= STEPS_MIN;
    let mut rounds = 0;
    while rounds < ROUNDS || !(looks.iter().all(has_looked) || lookers.iter().any(|looker| looker.is_finished())) {
        move_in_the_end(&space, here.clone(), there.start);
        move_in_the_end(&space, there.clone(), here.start);
        rounds += 1;
    }
    stop.store(true, Ordering::Release);
    join(lookers);
}

/// A reader that finds the page word vacant must check the entry again, because the page may have
/// moved away after the first check.
#[test]
fn a_page_that_moves_is_not_read_as_zeros() {
    look_at_a_page_that_moves(|space, address| {
        let mut bytes = [1; 16];
        space.read_at(&mut bytes, address)?;
        assert_eq!(bytes, [7; 16]);
        Ok(())
    });
}

/// As above, for a thread that wants to pin the page.
#[test]
fn a_page_that_moves_is_not_pinned_as_zeros() {
    look_at_a_page_that_moves(|space, address| {
        assert_eq!(space.page_at(address)?[..16], [7; 16]);
        Ok(())
    });
}

#[test]
fn what_is_protected_within_moves_also_where_the_new_place_is_cut_nowhere_else() {
    const PART: u64 = 2 << 20;
    let (_mm, group) = group();
    let space = group.space().unwrap();
    let (old, new) = (32 * PART..33 * PART, 64 * PART..65 * PART);
    space.map_at(old.clone(), Protection::ReadWrite).unwrap();
    space.write_at(b"first", old.start).unwrap();
    space.protect(old.start..old.start + PAGE, Protection::Read).unwrap();
    space.move_to(old, new.start).unwrap();
    let mut bytes = [0; 5];
    space.read_at(&mut bytes, new.start).unwrap();
    assert_eq!(&bytes, b"first");
    assert!(matches!(space.write_at(b"x", new.start).unwrap_err().cause(), Error::NotPermitted { .. }));
    space.write_at(b"x", new.start + PAGE).unwrap();
    space.unmap(new.clone()).unwrap();
    space.map_at(new.clone(), Protection::ReadWrite).unwrap();
    space.read_at(&mut bytes, new.start).unwrap();
    assert_eq!(bytes, [0; 5]);
}

#[test]
fn a_guard_that_was_leaked_keeps_its_page_and_the_pages_words_and_nothing_else() {
    let (mm, group) = group();
    let space = group.space().unwrap();
    let range = space.map(16 * PAGE, Protection::ReadWrite).unwrap();
    space.write_at(&[1; 16 * PAGE as usize], range.start).unwrap();
    std::mem::forget(space.page_at(range.start + 3 * PAGE).unwrap());
    let refused = space.discard(range.clone()).unwrap_err();
    assert!(matches!(refused, Error::AddressBusy { address } if address == range.start + 3 * PAGE), "{refused}");
    drop(space);
    assert_eq!(group.charged(), 2 * PAGE, "{}", mm.stats());
}

#[test]
fn memory_moves_beside_who_looks_at_all_of_the_space() {
    let (_mm, group) = group();
    let space = group.space().unwrap();
    let (here, there) = (64 << 20..(64 << 20) + 4 * PAGE, 3 << 30);
    space.map_at(here.clone(), Protection::ReadWrite).unwrap();
    let (moved, done) = (Arc::new(AtomicU64::new(0)), MOVES / 10);
    let mover = {
        let (space, moved) = (space.clone(), Arc::clone(&moved));
        sync::thread::spawn("mover", move || {
            let back = there..there + (here.end - here.start);
            while moved.fetch_add(1, Ordering::Relaxed) < done {
                space.move_to(here.clone(), back.start).unwrap();
                space.move_to(back.clone(), here.start).unwrap();
            }
        })
    };
    while moved.load(Ordering::Relaxed) < done {
        assert_eq!(space.areas().len(), 1);
    }
    mover.unwrap().join().unwrap();
}

/// Regression: A move failed because there was no memory for the index, but it still cleared the
/// entries at the new addresses. In the meantime another thread could have mapped pages in the same
/// part of the index: their entries were lost, and so were the pages. A debug assertion detects
/// this.
#[test]
fn a_move_without_room_for_the_index_changes_nothing() {
    let mm = Pagefold::builder().memory("8MiB").build().unwrap();
    let group = mm.group("small").max("256KiB").build().unwrap();
    let space = group.space().unwrap();
    let area = 1 << 30..(1 << 30) + (1 << 20);
    space.map_at(area.clone(), Protection::ReadWrite).unwrap();
    let last = area.end - 8 * PAGE..area.end;
    space.write_at(&[7], last.start).unwrap();
    let filled = (0..).take_while(|page| space.write_at(&[7], area.start + page * PAGE).is_ok()).count();
    assert!((30..248).contains(&filled), "{filled}");
    let error = space.move_to(last.clone(), (1 << 30) + (8 << 20) + 5 * PAGE).unwrap_err();
    assert!(matches!(error.cause(), Error::LimitReached { .. }), "{error}");
    space.discard(area.start..area.start + 8 * PAGE).unwrap();
    let mut bytes = [0];
    space.read_at(&mut bytes, last.start).unwrap();
    assert_eq!(bytes, [7]);
    space.move_to(last, (1 << 30) + (8 << 20) + 5 * PAGE).unwrap();
    space.read_at(&mut bytes, (1 << 30) + (8 << 20) + 5 * PAGE).unwrap();
    assert_eq!(bytes, [7]);
}
