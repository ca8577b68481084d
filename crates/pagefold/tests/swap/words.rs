//! The words of a space's pages are charged to the space's group, a part of 4 KiB at a time. A part
//! can't be given back while one of its pages is in swap. So a group that swaps out one page of
//! each part uses as much memory for the words as the pages took.

use super::*;
use pagefold::Error;

/// The pages whose words are in one part.
const PART: u64 = 512;
/// More parts than a group of [`ROOM`] pages may have.
const PARTS: u64 = 4 * ROOM;

/// A Pagefold, and a group with `pages` pages.
fn sparse_group(pages: u64) -> (Pagefold, Group) {
    let mm = Pagefold::builder().memory("8MiB").swap_area(in_memory(6000)).build().unwrap();
    let group = mm.group("sparse").max(pages * PAGE).build().unwrap();
    (mm, group)
}

/// Maps memory for [`PARTS`] parts.
fn sparse_range(space: &Space) -> u64 {
    space.map(PARTS * PART * PAGE, Protection::ReadWrite).unwrap().start
}

/// Writes a page in each part until the group has no room for another part. Returns the number of
/// pages.
#[track_caller]
fn write_sparsely(mm: &Pagefold, group: &Group, space: &Space, base: u64) -> u64 {
    for number in 0..PARTS {
        let written = space.write_at(&contents(number, 0), base + number * PART * PAGE);
        let stats = mm.stats();
        assert!(group.charged() <= group.max(), "{} bytes are charged", group.charged());
        // No other group has words. The budget's metadata would be no measure: it includes the
        // tables of swap areas, which grow when this thread moves to another CPU.
        assert!(stats.map_bytes <= group.stats().metadata_bytes, "{number}: {stats}");
        if let Err(error) = written {
            assert!(matches!(error.cause(), Error::LimitReached { .. }), "{error}");
            return number;
        }
    }
    panic!("{PARTS} parts within a limit of {} bytes", group.max());
}

#[track_caller]
fn check_sparse(space: &Space, base: u64, pages: u64) {
    for number in 0..pages {
        let mut bytes = vec![0xa5; PAGE as usize];
        space.read_at(&mut bytes, base + number * PART * PAGE).unwrap();
        assert!(bytes == contents(number, 0), "page {number}");
    }
}

#[test]
fn words_of_pages_in_swap_are_within_the_groups_limit() {
    let (mm, group) = sparse_group(ROOM + INDEX);
    let before = mm.stats().map_bytes;
    let space = group.space().unwrap();
    let base = sparse_range(&space);
    let pages = write_sparsely(&mm, &group, &space, base);
    assert!(pages > ROOM / 2, "{pages} pages");
    let stats = group.stats();
    assert!((pages * PAGE..=stats.charged_bytes).contains(&stats.metadata_bytes), "{}", mm.stats());
    check_sparse(&space, base, pages);
    // A further page of a part that is there needs no words.
    space.write_at(&[1], base + 7 * PAGE).unwrap();
    // What was discarded makes room.
    space.discard(base..base + PART * PAGE).unwrap();
    space.write_at(&contents(0, 0), base + pages * PART * PAGE).unwrap();
    let mut bytes = vec![0; PAGE as usize];
    space.read_at(&mut bytes, base + pages * PART * PAGE).unwrap();
    assert!(bytes == contents(0, 0));
    drop(space);
    assert_eq!((left(&mm, &group), group.stats().metadata_bytes), ((0, 0, 0), 0));
    assert!(mm.stats().map_bytes <= before, "{}", mm.stats());
}

/// The first space holds no page any more, but still has the words of its pages.
#[test]
fn words_that_one_space_no_longer_needs_serve_another_space_of_the_group() {
    let (mm, group) = sparse_group(ROOM + 2 * INDEX);
    let spaces = [(); 2].map(|()| group.space().unwrap());
    let bases = spaces.each_ref().map(sparse_range);
    let pages = write_sparsely(&mm, &group, &spaces[0], bases[0]);
    assert!(spaces[1].write_at(&[1], bases[1]).is_err(), "the words of one space fill the limit of both");
    check_sparse(&spaces[0], bases[0], pages);
    spaces[0].discard(bases[0]..bases[0] + PARTS * PART * PAGE).unwrap();
    let others = write_sparsely(&mm, &group, &spaces[1], bases[1]);
    assert!(others + INDEX >= pages, "{others} pages, before {pages}");
    check_sparse(&spaces[1], bases[1], others);
    // As well for pages beside each other.
    spaces[1].discard(bases[1]..bases[1] + PARTS * PART * PAGE).unwrap();
    let swapped_out = group.stats().swap_outs;
    (0..ROOM - 2 * INDEX).for_each(|page| write(&spaces[0], bases[0], page, 1));
    assert_eq!(group.stats().swap_outs, swapped_out, "words that no page needs go first");
    (0..ROOM - 2 * INDEX).for_each(|page| check(&spaces[0], bases[0], page, 1));
    drop(spaces);
    assert_eq!(left(&mm, &group), (0, 0, 0));
}

/// Lowering the limit can't give back the words of pages in swap. Discarding the pages can.
#[test]
fn a_limit_below_the_words_of_pages_in_swap_lets_pages_be_discarded() {
    let (mm, group) = sparse_group(ROOM + INDEX);
    let space = group.space().unwrap();
    let base = sparse_range(&space);
    let pages = write_sparsely(&mm, &group, &space, base);
    group.set_max(pages / 2 * PAGE).unwrap();
    assert!(group.charged() > group.max());
    let read = space.read_at(&mut [0], base).unwrap_err();
    assert!(matches!(read.cause(), Error::LimitReached { .. }), "{read}");
    space.discard(base..base + pages * 3 / 4 * PART * PAGE).unwrap();
    for number in pages * 3 / 4..pages {
        let mut bytes = vec![0; PAGE as usize];
        space.read_at(&mut bytes, base + number * PART * PAGE).unwrap();
        assert!(bytes == contents(number, 0), "page {number}");
        assert!(group.charged() <= group.max());
    }
    drop(space);
    assert_eq!(left(&mm, &group), (0, 0, 0));
}

#[test]
fn a_group_without_a_limit_has_words_for_what_fits_into_the_budget() {
    let mm = Pagefold::builder().memory("8MiB").swap_area(in_memory(4 * PARTS)).build().unwrap();
    let group = mm.group("all").build().unwrap();
    let space = group.space().unwrap();
    let base = sparse_range(&space);
    (0..PARTS).for_each(|number| space.write_at(&contents(number, 0), base + number * PART * PAGE).unwrap());
    check_sparse(&space, base, PARTS);
    assert!(group.charged() >= PARTS * PAGE, "the words of {PARTS} parts are charged");
    drop(space);
    group.set_max(ROOM * PAGE).unwrap(); // CPUs keep no charges in stock for so small a group.
    assert_eq!(left(&mm, &group), (0, 0, 0));
}

#[test]
fn words_of_pages_that_move_are_charged_where_the_pages_go() {
    let (mm, group) = sparse_group(ROOM + 4 * INDEX);
    let space = group.space().unwrap();
    let base = sparse_range(&space);
    let pages = 8;
    (0..pages).for_each(|number| space.write_at(&contents(number, 0), base + number * PART * PAGE).unwrap());
    let (mut at, mut charged) = (base, 0);
    for turn in 0..20 {
        let range = at..at + PARTS * PART * PAGE;
        at = space.move_anywhere(range).unwrap().start;
        check_sparse(&space, at, pages);
        assert!(group.charged() <= group.max());
        if turn == 8 {
            charged = group.charged();
        }
    }
    assert!(group.charged() <= charged + ROOM / 4 * PAGE, "{} bytes, before {charged}", group.charged());
    space.unmap(at..at + PARTS * PART * PAGE).unwrap();
    drop(space);
    assert_eq!(left(&mm, &group), (0, 0, 0));
}

/// The parts have 4 KiB, the pages 64 KiB.
#[test]
fn words_of_large_pages_are_charged_in_whole_pages() {
    const LARGE: u64 = 64 << 10;
    let area = SwapArea::memory((PARTS + 1) * LARGE);
    let mm = Pagefold::builder().memory("32MiB").page_size(LARGE as usize).swap_area(area).build().unwrap();
    let group = mm.group("large").max(32 * LARGE).build().unwrap();
    let space = group.space().unwrap();
    let base = space.map(PARTS * PART * LARGE, Protection::ReadWrite).unwrap().start;
    for number in 0..PARTS {
        let written = space.write_at(&number.to_le_bytes(), base + number * PART * LARGE);
        assert!(group.charged() <= group.max() && mm.stats().map_bytes <= group.max());
        if written.is_err() {
            panic!("{number}: {} bytes are charged", group.charged());
        }
    }
    for number in 0..PARTS {
        let mut bytes = [0; 8];
        space.read_at(&mut bytes, base + number * PART * LARGE).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), number);
    }
    drop(space);
    assert_eq!(left(&mm, &group), (0, 0, 0));
}
