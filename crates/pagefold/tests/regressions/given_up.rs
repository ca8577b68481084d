//! Calls that gave up although there was something to be had.

use pagefold::{Error, File, Group, Pagefold, PinnedPage};

use crate::support::disk;

const PAGE: u64 = 4096;

/// Pins pages of a file, from `first` on, until that is refused.
fn pin_all(file: &File, first: u64) -> Vec<PinnedPage<'_>> {
    let mut pins = Vec::new();
    for page in first.. {
        match file.page(page) {
            Ok(pin) => pins.push(pin),
            Err(Error::LimitReached { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    pins
}

/// A tenant had all of its pages pinned, and was refused another one. It let go of the pins, asked again, and was refused again:
/// that none of so many pages can go is remembered for a while, far longer than the call took.
#[test]
fn what_was_unpinned_can_go_at_once() {
    const PAGES: u64 = 40_000;
    for has_limit in [true, false] {
        let mm = Pagefold::builder().memory(if has_limit { "256MiB" } else { "160MiB" });
        let mm = mm.backend(disk(1, 2 * PAGES * PAGE)).build().unwrap();
        let group = mm.group("tenant");
        let group = if has_limit { group.max(PAGES * PAGE) } else { group }.build().unwrap();
        let file = group.open("f0").unwrap();
        for round in 0..2 {
            let pins = pin_all(&file, 0);
            assert!(pins.len() as u64 > PAGES * 9 / 10, "{}", pins.len());
            drop(pins);
            let read = file.read_at(&mut [0; 8], (2 * PAGES - 1 - round) * PAGE);
            assert!(read.is_ok(), "limit: {has_limit}: {read:?}");
        }
    }
}

/// There were thousands of groups, some with all of their pages pinned, most with one page, and a few with many that could go. A
/// tenant with little was refused: of all groups it had asked those with pins again and again, and else the few that came next.
#[test]
#[ignore = "quarantine: the rich groups had 1,436 pages, not 1,600, in 1 of 48 runs beside four busy loops. Suspected: their pages \
            go with extents that are drained for page maps"]
fn what_a_few_of_many_groups_can_give_is_found() {
    const GROUPS: u64 = 4_000;
    const RICH: u64 = 8;
    const RICH_PAGES: u64 = 200;
    let mm = Pagefold::builder().memory("64MiB").backend(disk(1, 256 << 20)).build().unwrap();
    let group = |name: String| mm.group(&name).build().unwrap();
    // Each has pages of the file to itself.
    let mut pages = 0..;
    let mut next = || pages.next().unwrap();
    let hogs: Vec<File> = (0..20).map(|number| group(format!("hog{number}")).open("f0").unwrap()).collect();
    let others: Vec<Group> = (0..GROUPS).map(|number| group(format!("g{number}"))).collect();
    let is_rich = |number: u64| number / RICH == GROUPS / 2 / RICH;
    for (number, group) in (0..).zip(&others) {
        let file = group.open("f0").unwrap();
        let count = if is_rich(number) { RICH_PAGES } else { 1 };
        (0..count).for_each(|_| file.read_at(&mut [0; 8], next() * PAGE).map(drop).unwrap());
    }
    let poor = group("poor".to_owned()).open("f0").unwrap();
    let mut ours: Vec<_> = (0..4).map(|_| poor.page(next()).unwrap()).collect();
    let mut theirs = Vec::new();
    while let Some(pins) = hogs.iter().map(|hog| hog.page(next()).ok()).collect::<Option<Vec<_>>>() {
        theirs.extend(pins);
    }
    let rich: u64 = (0..).zip(&others).filter(|(number, _)| is_rich(*number)).map(|(_, group)| group.charged()).sum();
    assert!(theirs.len() as u64 > 20 * RICH_PAGES && rich >= RICH * RICH_PAGES * PAGE, "{}, {rich}", theirs.len());
    ours.extend(pin_all(&poor, next()));
    assert!(ours.len() as u64 >= RICH_PAGES / 2, "{}", ours.len());
}
