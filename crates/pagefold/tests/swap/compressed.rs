//! Pages that are compressed in memory, within the budget, before they go to another area.

use super::*;
use sync::random::Random;

use pagefold::{AddError, CompressedSwapStats, Error, RemoveError};

/// Memory of a chunk: what an area takes at once.
const CHUNK: u64 = (64 << 10) + 1024;

fn stats(mm: &Pagefold) -> CompressedSwapStats {
    mm.stats().swap.into_iter().find_map(|area| area.compressed).expect("an area of compressed pages")
}

fn fill_sparse(space: &Space, base: u64, pages: u64) {
    (0..pages).for_each(|page| space.write_at(&sparse(page, 1), base + page * PAGE).unwrap());
}

#[track_caller]
fn check_sparse(space: &Space, base: u64, pages: u64) {
    for page in 0..pages {
        let mut bytes = vec![0xa5; PAGE as usize];
        space.read_at(&mut bytes, base + page * PAGE).unwrap();
        assert!(bytes == sparse(page, 1), "page {page} isn't what was written");
    }
}

#[test]
fn pages_are_kept_compressed_until_they_come_back() {
    let mm = Pagefold::builder().memory("8MiB").compressed_swap("2MiB").build().unwrap();
    let before = stats(&mm);
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let space = group.space().unwrap();
    let base = space.map(8 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    fill_sparse(&space, base, 8 * ROOM);
    let now = stats(&mm);
    assert!((6 * ROOM..=8 * ROOM).contains(&(now.original_bytes / PAGE)), "{now:?}");
    assert!(now.compressed_bytes * 2 < now.original_bytes && now.compressed_bytes <= now.memory_bytes, "{now:?}");
    assert!(now.memory_bytes > before.memory_bytes && now.memory_bytes <= now.limit_bytes, "{now:?}");
    let text = mm.stats().to_string();
    assert!(text.contains("swap 0 (compressed)") && text.contains(" compressed to "), "{text}");
    #[cfg(feature = "prometheus")]
    {
        let metrics = mm.stats().to_prometheus();
        let bytes = now.compressed_bytes;
        let metric = format!("pagefold_swap_compressed_bytes{{area=\"0\",name=\"compressed\"}} {bytes}");
        assert!(metrics.contains(&metric), "{metrics}");
    }
    for _ in 0..3 {
        check_sparse(&space, base, 8 * ROOM);
    }
    drop(space);
    eventually_free(&mm);
    let after = stats(&mm);
    assert_eq!((after.original_bytes, after.compressed_bytes, after.memory_bytes), (0, 0, before.memory_bytes));
}

/// When memory for compressed pages is needed, frames already take the whole budget.
#[test]
fn more_memory_than_the_budget_is_in_the_budget() {
    const BUDGET: u64 = 8 << 20;
    let mm = Pagefold::builder().memory(BUDGET).build().unwrap();
    let group = mm.group("a").build().unwrap();
    let metadata = || mm.stats().metadata_bytes;
    let before = metadata();
    mm.add_swap(SwapArea::compressed("7MiB")).unwrap();
    let added = metadata() - before;
    // LZ4 alone makes room for fewer.
    let bytes = if cfg!(feature = "zstd") { 3 * BUDGET / 2 } else { 9 * BUDGET / 8 };
    let (pages, space) = (bytes / PAGE, group.space().unwrap());
    let base = space.map(pages * PAGE, Protection::ReadWrite).unwrap().start;
    fill_sparse(&space, base, pages);
    check_sparse(&space, base, pages);
    let now = mm.stats();
    assert!(now.used_bytes <= BUDGET && now.peak_bytes <= BUDGET, "{now}");
    assert!(stats(&mm).original_bytes > bytes - BUDGET, "{now}");
    drop(space);
    eventually_free(&mm);
    assert_eq!(stats(&mm).original_bytes, 0);
    let before = metadata();
    mm.remove_swap(0).unwrap();
    assert_eq!(before - metadata(), added, "all that it took as it filled was given back before");
}

#[test]
fn what_doesnt_shrink_or_fit_goes_to_the_next_area() {
    let mm = Pagefold::builder().memory("8MiB").compressed_swap(4 * CHUNK).swap_area(in_memory(2000)).build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let (space, base) = filled(&group, 4 * ROOM);
    let refused = stats(&mm);
    assert!(refused.incompressible_pages >= 3 * ROOM && refused.original_bytes == 0, "{refused:?}");
    let more = space.map(16 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    fill_sparse(&space, more, 16 * ROOM);
    let full = stats(&mm);
    assert!(full.no_room_pages > 0 && full.memory_bytes == 4 * CHUNK, "{full:?}");
    assert!(full.compressed_bytes > 2 * CHUNK, "it is full: {full:?}");
    assert!(full.spilled_pages > 8 * ROOM, "the oldest have made room: {full:?}");
    assert_eq!(full.zstd_pages > 0, cfg!(feature = "zstd"), "those that were not quite as old take less: {full:?}");
    assert_eq!((full.lz4_pages + full.zstd_pages) * PAGE, full.original_bytes);
    (0..4 * ROOM).for_each(|page| check(&space, base, page, 0));
    check_sparse(&space, more, 16 * ROOM);
    drop(space);
    assert_eq!(left(&mm, &group), (0, 0, 0));
}

#[test]
fn what_doesnt_shrink_stays_where_there_is_no_other_area() {
    let mm = Pagefold::builder().memory("8MiB").compressed_swap("2MiB").build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let space = group.space().unwrap();
    let base = space.map(2 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    let written =
        (0..2 * ROOM).take_while(|&page| space.write_at(&contents(page, 0), base + page * PAGE).is_ok()).count();
    assert_eq!(written as u64, ROOM);
    let refused = space.write_at(&contents(0, 0), base + ROOM * PAGE).unwrap_err();
    assert!(matches!(refused.cause(), Error::LimitReached { .. }), "{refused}");
    (0..ROOM).for_each(|page| check(&space, base, page, 0));
}

#[test]
fn pages_of_a_full_area_come_back() {
    let mm = Pagefold::builder().memory("8MiB").compressed_swap("1MiB").build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let space = group.space().unwrap();
    let base = space.map(64 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    let is_refused = |page: u64| space.write_at(&sparse(page, 1), base + page * PAGE).is_err();
    let pages = (0..64 * ROOM).find(|&page| is_refused(page)).expect("there is no room for all");
    let full = stats(&mm);
    assert!(pages > 2 * ROOM && full.memory_bytes + 2 * CHUNK > full.limit_bytes, "{full:?}");
    let is_tight = full.zstd_pages > full.lz4_pages;
    assert_eq!(is_tight, cfg!(feature = "zstd"), "it was made room for as many as there can be: {full:?}");
    // All of this runs on one thread, so ThreadSanitizer can find little here, and compression
    // takes ten times as long under it. So there is less work then.
    let (rounds, writes, reads) =
        if cfg!(pagefold_tsan) { (1, pages / 2, pages / 2) } else { (3, 10 * pages, 4 * pages) };
    for _ in 0..rounds {
        check_sparse(&space, base, pages);
    }
    // Writes pages in random order.
    let mut random = Random::seeded(1);
    for _ in 0..writes {
        let page = random.below(pages);
        space.write_at(&sparse(page, 1), base + page * PAGE).unwrap();
    }
    check_sparse(&space, base, pages);
    // Between the reads, which exchange pages, writes more pages. They may use the room that
    // exchanges don't need, but must not take the room that exchanges need.
    let mut more = pages;
    for step in 0..reads {
        let page = random.below(pages);
        space.read_at(&mut [0], base + page * PAGE).unwrap();
        more += u64::from(step % 16 == 0 && !is_refused(more));
    }
    check_sparse(&space, base, more);
    assert!(stats(&mm).memory_bytes <= full.limit_bytes);
    drop(space);
    assert_eq!(left(&mm, &group), (0, 0, 0));
}

#[test]
fn the_area_goes_while_it_is_full() {
    let mm = Pagefold::builder().memory("8MiB").compressed_swap("2MiB").build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let space = group.space().unwrap();
    let base = space.map(6 * ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    fill_sparse(&space, base, 6 * ROOM);
    let missing = mm.remove_swap(0).unwrap_err();
    assert!(matches!(missing, Error::SwapInUse(RemoveError::NoMemory { .. })), "{missing}");
    check_sparse(&space, base, 6 * ROOM);
    mm.add_swap(in_memory(1000)).unwrap();
    let before = mm.stats().metadata_bytes;
    let held = stats(&mm).memory_bytes;
    mm.remove_swap(0).unwrap();
    assert!(mm.stats().metadata_bytes + held < before, "memory and tables are given back");
    check_sparse(&space, base, 6 * ROOM);
}

#[test]
fn an_area_has_the_same_part_of_a_budget_that_is_lowered() {
    let mm = Pagefold::builder().memory("16MiB").compressed_swap("8MiB").build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let space = group.space().unwrap();
    let pages = 40 * ROOM;
    let base = space.map(pages * PAGE, Protection::ReadWrite).unwrap().start;
    fill_sparse(&space, base, pages);
    let before = stats(&mm);
    assert!(before.limit_bytes == 8 << 20 && before.memory_bytes > 3 << 20, "{before:?}");
    // All compressed pages fit into the lowered limit, but no more.
    mm.resize("6MiB").unwrap();
    assert_eq!(stats(&mm).limit_bytes, 3 << 20);
    assert!(stats(&mm).original_bytes > before.original_bytes / 2, "it has nowhere to go: {:?}", stats(&mm));
    check_sparse(&space, base, pages);
    mm.resize("16MiB").unwrap();
    mm.add_swap(in_memory(pages)).unwrap();
    mm.resize("4MiB").unwrap();
    let now = stats(&mm);
    assert!(now.memory_bytes <= 2 << 20 && now.limit_bytes == 2 << 20 && now.spilled_pages > 0, "{now:?}");
    check_sparse(&space, base, pages);
    assert!(stats(&mm).memory_bytes <= 2 << 20, "{:?}", stats(&mm));
    mm.resize("16MiB").unwrap();
    assert_eq!(stats(&mm).limit_bytes, 8 << 20);
    drop(space);
    assert_eq!(left(&mm, &group), (0, 0, 0));
}

#[test]
fn areas_that_make_no_sense_are_refused() {
    let mm = Pagefold::builder().memory("8MiB").build().unwrap();
    let before = mm.stats().metadata_bytes;
    let refused = mm.add_swap(SwapArea::compressed(CHUNK - 1)).unwrap_err();
    assert!(matches!(refused, Error::SwapRefused(AddError::TooSmall { min: CHUNK, .. })), "{refused}");
    for limit in [(8 << 20) + 1, 1 << 30, u64::MAX] {
        let refused = mm.add_swap(SwapArea::compressed(limit)).unwrap_err();
        assert!(matches!(refused, Error::SwapRefused(AddError::BeyondMemory { max: 8_388_608, .. })), "{refused}");
    }
    assert!(matches!(mm.add_swap(SwapArea::compressed("most")), Err(Error::BadSize(_))));
    assert_eq!((mm.stats().metadata_bytes, mm.stats().swap.len()), (before, 0));
}
