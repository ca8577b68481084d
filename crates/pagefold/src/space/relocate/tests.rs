use super::super::for_tests::{PAGE, Tenant};
use super::*;
use crate::{Pagefold, Protection, SwapArea};
use test_disks::{Fault as DiskFault, FaultyBackend, Schedule, SimulatedDisk};

const GIB: u64 = 1 << 30;

/// A regression: a page that was moved away and back had the same entry as before. A reader
/// loaded the entry before the first move, found the page's word vacant while the page was
/// away, and loaded the same entry after the second move. From the equal entries, the reader
/// concluded that the page had been mapped all the time and was never written, and returned
/// zeros (ENTRY-1).
#[test]
fn memory_that_moved_away_and_back_has_another_entry() {
    let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
    let space = mm.group("tenant").build().unwrap().space().unwrap();
    let (here, there) = (GIB..GIB + 4 * PAGE, 3 * GIB..3 * GIB + 4 * PAGE);
    let mut seen = Vec::new();
    let mut look = |address: u64| {
        let entry = space.state.index.entry(address / PAGE);
        assert!(entry.may_read() && !seen.contains(&entry), "{entry:?} was there before");
        seen.push(entry);
    };
    for _ in 0..2 {
        space.map_at(here.clone(), Protection::ReadWrite).unwrap();
        space.write_at(&[7], here.start).unwrap();
        look(here.start);
        space.move_to(here.clone(), there.start).unwrap();
        space.move_to(there.clone(), here.start).unwrap();
        look(here.start);
        // The pages that memory grows by may have been somewhere else before, too.
        space.grow(here.clone(), 5 * PAGE).unwrap();
        look(here.end);
        space.unmap(here.start..here.end + PAGE).unwrap();
    }
}

/// The address of the page that a range of `pages` pages moves to, in the same table.
fn beside(pages: u64) -> Pages {
    let first = Tenant::at(0) / PAGE + 512 - pages;
    Pages { first, end: first + pages }
}

/// Regression: pages that were being moved while the first swap area was added stayed off the
/// lists, so they could never be swapped out. This happened whether the move succeeded or failed.
#[test]
fn pages_that_move_while_the_first_swap_area_is_added_are_listed() {
    for succeeds in [true, false] {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 100);
        it.space.map_at(Tenant::at(100)..Tenant::at(200), Protection::ReadWrite).unwrap();
        let written = (0..100).take_while(|&page| it.write(page).is_ok()).count() as u64;
        assert!(written > 20);
        let state = it.state();
        let old = state.pages(&(Tenant::at(0)..Tenant::at(100))).unwrap();
        let (new, by) = (beside(100), beside(100).first - old.first);
        let guards = state.lock_both(old, new);
        state.prepare(new).unwrap();
        state.vacate(old).unwrap();
        state.enter_new(old, by).unwrap();
        let moving = state.reserve(old, by, Vec::new()).unwrap();
        it.mm.add_swap(SwapArea::memory(801 * PAGE)).unwrap();
        let of = if succeeds {
            moving.into_iter().for_each(|page| state.move_page(page));
            state.restore(new);
            drop(state.forget_pages(old));
            by
        } else {
            moving.into_iter().for_each(|page| it.manager().memory.list_again(page.frame));
            drop(state.forget_pages(new));
            state.restore(old);
            0
        };
        drop(guards);
        it.check_listed(of..of + written);
        (100..200).for_each(|page| it.write(page).unwrap());
    }
}

/// Returns a tenant with 200 pages, of which some are in swap. The others fill its memory.
fn swapping() -> Tenant {
    let mm = Pagefold::builder().backend(SimulatedDisk::default()).swap_area(SwapArea::memory(801 * PAGE));
    let it = Tenant::new(mm, 64, 200);
    (0..200).for_each(|page| it.write(page).unwrap());
    it
}

/// Checks that a move of the first `pages` pages fails without a long wait for memory, and changes
/// nothing.
fn fails_soon(it: &Tenant, pages: u64) {
    let before = it.direct_reclaims();
    let moved = it.space.move_to(Tenant::at(0)..Tenant::at(pages), beside(pages).first * PAGE);
    assert!(matches!(&moved, Err(error) if matches!(error.cause(), Error::LimitReached { .. })), "{moved:?}");
    let reclaims = it.direct_reclaims() - before;
    assert!(reclaims < 200, "{reclaims}, so it waited for its own pages");
    it.write(0).unwrap();
}

/// Regression: a move of more pages than may be in memory took pages off the lists until memory was
/// full. Then it waited four seconds for these very pages to be evicted. Meanwhile accesses to the
/// range failed.
#[test]
fn a_move_of_more_pages_than_may_be_in_memory_fails_at_once() {
    let it = swapping();
    fails_soon(&it, 200);
    let room = || it.group_state().room_for_pages(it.manager().memory.budget_pages());
    let before = room();
    let there = (Tenant::at(0) + 2 * GIB)..(Tenant::at(200) + 2 * GIB);
    assert!(it.space.move_to(Tenant::at(0)..Tenant::at(200), there.start).is_err());
    assert_eq!(room(), before, "tables were made for the target");
}

/// Regression: a move to a region without a record took pages off the lists, and then needed memory
/// for the record. So the move waited for these very pages to be evicted.
#[test]
fn a_move_to_another_region_makes_its_record_before_it_takes_pages_off_the_lists() {
    for less in 0..6 {
        let mm = Pagefold::builder().backend(SimulatedDisk::default()).swap_area(SwapArea::memory(801 * PAGE));
        let it = Tenant::new(mm, 64, 2 * REGION_PAGES);
        [0, REGION_PAGES].into_iter().for_each(|page| it.write(page).unwrap());
        let room = it.group_state().room_for_pages(it.manager().memory.budget_pages());
        (0..room - less).for_each(|page| it.write(page).unwrap());
        let before = it.direct_reclaims();
        // When the page of the second region is moved, all others have been taken off the
        // lists.
        let _ = it.space.move_to(Tenant::at(0)..Tenant::at(2 * REGION_PAGES), Tenant::at(4 * REGION_PAGES));
        let reclaims = it.direct_reclaims() - before;
        assert!(reclaims < 200, "{reclaims}, so it waited for its own pages");
    }
}

/// As above, for pages that would fit into memory if others weren't pinned.
#[test]
fn a_move_that_gets_no_memory_beside_pinned_pages_fails_at_once() {
    let it = swapping();
    let pins: Vec<_> = (100..130).map(|page| it.space.page_at(Tenant::at(page)).unwrap()).collect();
    fails_soon(&it, 40);
    drop(pins);
    it.space.move_to(Tenant::at(0)..Tenant::at(40), beside(40).first * PAGE).unwrap();
    let by = beside(40).first - Tenant::at(0) / PAGE;
    for page in 0..40 {
        let mut bytes = vec![0; PAGE as usize];
        it.space.read_at(&mut bytes, Tenant::at(by + page)).unwrap();
        assert!(bytes == Tenant::contents(page), "page {page}");
    }
}

/// The pages whose words are in one part of a page map.
const PART: u64 = 512;

/// Returns a tenant with memory for the pages of 40 parts, whose pages can be swapped out.
fn sparse() -> Tenant {
    let mm = Pagefold::builder().backend(SimulatedDisk::default()).swap_area(SwapArea::memory(801 * PAGE));
    Tenant::new(mm, 64, 40 * PART)
}

/// Regression: idle parts of page maps counted as memory that the pages of a move couldn't have. So
/// the move failed, although these parts could have been given back.
#[test]
fn a_move_that_fits_once_idle_parts_are_given_back_succeeds() {
    let it = sparse();
    let pages = 40;
    it.space.unmap(Tenant::at(PART - pages)..Tenant::at(PART)).unwrap();
    (0..pages).for_each(|page| it.write(page).unwrap());
    drop(it.take_all());
    (1..27).for_each(|part| it.write(part * PART).unwrap());
    it.space.discard(Tenant::at(PART)..Tenant::at(40 * PART)).unwrap();
    assert!(it.group_state().room_for_pages(it.manager().memory.budget_pages()) < pages);
    assert!((0..pages).all(|page| matches!(it.page(page), PageState::Swapped { .. })));
    it.space.move_to(Tenant::at(0)..Tenant::at(pages), beside(pages).first * PAGE).unwrap();
    let by = beside(pages).first - Tenant::at(0) / PAGE;
    for page in 0..pages {
        let mut bytes = vec![0; PAGE as usize];
        it.space.read_at(&mut bytes, Tenant::at(by + page)).unwrap();
        assert!(bytes == Tenant::contents(page), "page {page}");
    }
}

/// Regression: the calculation of the memory for a move left out the words at the new place. So the
/// move first brought all pages into memory, and failed afterwards.
#[test]
fn a_move_whose_pages_fit_into_memory_but_not_with_their_new_words_fails_at_once() {
    let it = sparse();
    let parts = 24;
    (0..parts).for_each(|part| it.write(part * PART).unwrap());
    drop(it.take_all());
    let charged = it.group.charged();
    let swap_ins = it.group.stats().swap_ins;
    let moved = it.space.move_to(Tenant::at(0)..Tenant::at(parts * PART), Tenant::at(64 * PART));
    assert!(matches!(&moved, Err(error) if matches!(error.cause(), Error::LimitReached { .. })), "{moved:?}");
    assert_eq!((it.group.stats().swap_ins, it.group.charged()), (swap_ins, charged));
    let fewer = 16;
    it.space.move_to(Tenant::at(0)..Tenant::at(fewer * PART), Tenant::at(64 * PART)).unwrap();
    assert_eq!(it.group_state().parts.charged(), parts, "the new parts replace the old ones");
    for part in 0..parts {
        let mut bytes = vec![0; PAGE as usize];
        let to = if part < fewer { part + 64 } else { part };
        it.space.read_at(&mut bytes, Tenant::at(to * PART)).unwrap();
        assert!(bytes == Tenant::contents(part * PART), "part {part}");
    }
}

/// Regression: a move charged the parts for the new words after it had vacated the old place. While
/// the move waited for memory, all accesses to the old place waited, too.
#[test]
fn while_a_move_waits_for_memory_for_words_its_pages_are_where_they_were() {
    let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, PART);
    it.write(0).unwrap();
    let mut taken = it.take_all();
    let moved = it.while_it_waits(
        || it.space.move_to(Tenant::at(0)..Tenant::at(PART), Tenant::at(4 * PART)),
        || {
            assert!(it.state().index.entry(Tenant::at(0) / PAGE).may_read(), "vacated already");
            taken.clear();
        },
    );
    assert!(matches!(moved, (_, false) | (Ok(()), _)), "{moved:?}");
}

/// Regression: if a move failed after it had put some of the new words in *loading*, the parts for
/// these words stayed charged. In this test, the move fails because a page that was swapped out
/// can't be read.
#[test]
fn a_move_that_fails_keeps_no_parts_at_the_new_place() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("/swap", vec![0; 801 * PAGE as usize]);
    let backend = FaultyBackend::new(disk, Schedule::default());
    let area = SwapArea::path("/swap").overwrite(true);
    let it = Tenant::new(Pagefold::builder().backend(backend.clone()).swap_area(area), 64, 3 * PART);
    it.manager().memory.doorbell.stop();
    it.write(2 * PART).unwrap();
    drop(it.take_all());
    [0, PART].into_iter().for_each(|page| it.write(page).unwrap());
    assert!(matches!(it.page(2 * PART), PageState::Swapped { .. }));
    let state = it.state();
    let old = state.pages(&(Tenant::at(0)..Tenant::at(3 * PART))).unwrap();
    let (new, by) = (old.moved(64 * PART), 64 * PART);
    let guards = state.lock_both(old, new);
    let parts = state.charge_parts(old, by).unwrap();
    assert_eq!((parts.len(), it.group_state().parts.charged()), (3, 6));
    state.prepare(new).unwrap();
    state.vacate(old).unwrap();
    state.enter_new(old, by).unwrap();
    state.make_records(old, by).unwrap();
    backend.set_schedule(Schedule::From(1, DiskFault::Errno(5)));
    let moving = state.reserve(old, by, parts);
    let error = moving.map(|pages| pages.len()).unwrap_err();
    assert!(matches!(error.cause(), Error::SwapReadFailed { .. }), "{error}");
    assert_eq!(it.group_state().parts.charged(), 3);
    drop(state.forget_pages(new));
    state.restore(old);
    drop(guards);
    backend.set_schedule(Schedule::Never);
    for page in [0, PART, 2 * PART] {
        let mut bytes = vec![0; PAGE as usize];
        it.space.read_at(&mut bytes, Tenant::at(page)).unwrap();
        assert!(bytes == Tenant::contents(page), "page {page}");
    }
}

/// If nothing can be swapped out, a group may have more in memory than its lowered limit permits.
/// This doesn't prevent a move.
#[test]
fn pages_in_memory_move_even_above_a_lowered_limit() {
    let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 40);
    (0..40).for_each(|page| it.write(page).unwrap());
    let _ = it.group.set_max(20 * PAGE);
    it.space.move_to(Tenant::at(0)..Tenant::at(40), beside(40).first * PAGE).unwrap();
}
