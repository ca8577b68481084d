//! Arguments that nobody means, but somebody passes.

use pagefold::{Advice, Error, Pagefold};

use crate::support::{disk, manager, read};

/// A vector with a place for each imaginary NUMA node overflowed its capacity when somebody asked for very many. Beyond
/// what any machine has, the number is now cut down.
#[test]
fn absurd_numbers_of_numa_nodes_are_cut_down() {
    for nodes in [0, 1 << 58, usize::MAX] {
        let mm = Pagefold::builder().memory("16MiB").numa_nodes(nodes).backend(disk(1, 1 << 20)).build().unwrap();
        let file = mm.group("tenant").build().unwrap().open("f0").unwrap();
        read(&file, 0, 5000, 100).unwrap();
    }
}

/// Offsets and ranges near the ends of what an integer can hold: an addition that wraps around would turn a read far
/// past the end into one at the beginning.
#[test]
fn offsets_at_the_ends_of_the_integers() {
    const LEN: u64 = 10_000;
    let mm = manager(64, disk(1, LEN));
    let file = mm.group("tenant").max(u64::MAX).build().unwrap().open("f0").unwrap();
    for at in [0, 9_999, LEN, 10_001, i64::MAX as u64, u64::MAX - 4999, u64::MAX - 1, u64::MAX] {
        let there = LEN.saturating_sub(at).min(5000) as usize;
        assert_eq!(read(&file, 0, at, 5000).unwrap(), there, "at {at}");
        assert_eq!(file.read_at(&mut [], at).unwrap(), 0, "at {at}");
        assert_eq!(file.read_exact_at(&mut [0; 5000], at).is_ok(), there == 5000, "at {at}");
        assert_eq!(file.page(at).is_ok(), at < 3, "page {at}");
        for to in [0, 1, 9_999, LEN, u64::MAX] {
            for advice in [Advice::WillNeed, Advice::DontNeed, Advice::Sequential] {
                file.advise(advice, at..to).unwrap();
            }
        }
    }
}

/// The same for sizes: a limit of everything is no limit, one of nothing is refused, and neither wraps around into
/// another.
#[test]
fn sizes_at_the_ends_of_the_integers() {
    let mm = manager(64, disk(1, 1 << 20));
    let group = mm.group("tenant").build().unwrap();
    let budget = mm.budget();
    assert!(matches!(mm.resize(u64::MAX), Err(Error::BudgetTooLarge { .. })));
    assert!(mm.resize(0).is_err());
    assert_eq!(mm.budget(), budget);
    group.set_max(u64::MAX).unwrap();
    assert!(matches!(group.set_max(0), Err(Error::TooSmall { .. })));
    let file = group.open("f0").unwrap();
    for page in 0..256 {
        read(&file, 0, page * 4096, 100).unwrap();
    }
}

/// Names with quotes and line breaks in them end up in labels of metrics, where what isn't escaped makes the lines of
/// all the other groups unreadable.
#[test]
fn names_with_line_breaks_do_not_break_the_metrics() {
    let mm = manager(64, disk(1, 10_000));
    let group = mm.group("\0\n\"").build().unwrap();
    assert!(group.open("").is_err() && group.open("\0").is_err());
    let text = mm.stats().to_prometheus();
    for line in text.lines() {
        assert!(line.starts_with('#') || line.starts_with("pagefold_"), "{line:?}");
    }
    assert!(text.contains("\\n\\\""), "{text}");
}
