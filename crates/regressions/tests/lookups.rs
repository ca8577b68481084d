//! Which lookups are counted as hits, and which as misses.

use pagefold::{Advice, Protection};

use crate::support::{disk, manager};

/// Of 1,000 pages in memory that were changed through `page_mut_at`, none counted as a hit, though
/// each page that wasn't in memory counted as a miss. A partial write to a page that wasn't in
/// memory counted as a hit and a miss. A store that used these calls saw half of its real hit rate.
#[test]
fn changing_a_page_is_one_lookup() {
    let mm = manager(256, disk(2, 1 << 20));
    let group = mm.group("tenant").build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    file.advise(0..0, Advice::Random).unwrap();
    let lookups = || {
        let stats = file.stats();
        (stats.hits, stats.misses)
    };
    (0..10).for_each(|page| file.page_mut_at(page * 4096).unwrap()[0] = 7);
    assert_eq!(lookups(), (0, 10), "absent, through page_mut");
    (0..10).for_each(|page| file.page_mut_at(page * 4096).unwrap()[0] = 8);
    assert_eq!(lookups(), (10, 10), "in memory, through page_mut");
    (10..20).for_each(|page| file.write_at(&[7], page * 4096).unwrap());
    assert_eq!(lookups(), (10, 20), "absent, through write_at");
    (10..20).for_each(|page| file.write_at(&[8], page * 4096).unwrap());
    assert_eq!(lookups(), (20, 20), "in memory, through write_at");
    let mapped = group.open_options().write(true).open("f1").unwrap();
    let space = group.space().unwrap();
    let at = space.map_file(&mapped, 0, 1 << 20, Protection::ReadWrite).unwrap().start;
    drop(space.page_mut_at(at).unwrap());
    space.update_u64(at, Some).unwrap();
    let stats = group.stats();
    assert_eq!((stats.hits, stats.misses), (21, 21), "through a space");
}

/// A tenant that used only a space's own memory had "0 0 0.00%" in the table, as if each access had
/// missed. Such accesses aren't counted, so the table must show "–".
#[test]
fn what_is_not_counted_is_not_shown_as_zero() {
    let mm = manager(256, disk(1, 1 << 20));
    let group = mm.group("tenant").build().unwrap();
    let space = group.space().unwrap();
    let at = space.map(4096, Protection::ReadWrite).unwrap().start;
    space.write_at(&[1], at).unwrap();
    (0..100).for_each(|_| space.read_at(&mut [0], at).unwrap());
    let row = |table: String| table.lines().find(|line| line.starts_with("tenant")).map(str::to_owned).unwrap();
    let words = |row: &str| row.split_whitespace().filter(|word| *word == "–").count();
    assert_eq!(words(&row(mm.stats().to_string())), 3);
    group.open("f0").unwrap().read_at(&mut [0], 0).unwrap();
    let shown = row(mm.stats().to_string());
    assert!(words(&shown) == 0 && shown.contains("0.00%"), "{shown}");
}
