//! Arguments that make no sense, but that a caller may pass.

use std::ops::Range;

use pagefold::{Advice, Error, Pagefold, Protection, ReadQueue, ReadRequest, WriteRequest};

use crate::support::{disk, manager, read};

/// `Builder::numa_nodes` made a vector with an element for each node. When the caller asked for
/// very many nodes, this overflowed the vector's capacity. The number is now limited to what a
/// machine can have.
#[test]
fn absurd_numbers_of_numa_nodes_are_cut_down() {
    for nodes in [0, 1 << 58, usize::MAX] {
        let mm = Pagefold::builder().memory("16MiB").numa_nodes(nodes).backend(disk(1, 1 << 20)).build().unwrap();
        let file = mm.group("tenant").build().unwrap().open("f0").unwrap();
        read(&file, 0, 5000, 100).unwrap();
    }
}

/// Offsets and ranges near `i64::MAX` and `u64::MAX`. If an addition wrapped around, a read far
/// past the end would become a read of the file's beginning.
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
        assert_eq!(file.page_at(at).is_ok(), at < 3 * 4096, "page at {at}");
        for to in [0, 1, 9_999, LEN, u64::MAX] {
            for advice in [Advice::WillNeed, Advice::DontNeed, Advice::Sequential] {
                file.advise(at..to, advice).unwrap();
            }
        }
    }
}

/// From 16 TiB on, with pages of 4 KiB, page numbers don't fit in 32 bits.
#[test]
fn pages_beyond_16_tib_are_those_that_were_asked_for() {
    const LEN: u64 = 20 << 40;
    const FAR: u64 = 1 << 44;
    let mm = manager(256, disk(1, LEN));
    let group = mm.group("a").build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    for offset in [0, FAR - 4096, FAR, FAR + 5000, LEN - 100] {
        let len = read(&file, 0, offset, 10_000).unwrap();
        assert_eq!(len as u64, 10_000.min(LEN - offset));
    }
    // The same page number modulo 2^32: the offsets are 16 TiB apart.
    file.write_at(&[1; 5000], 77 * 4096).unwrap();
    file.write_at(&[2; 5000], FAR + 77 * 4096).unwrap();
    file.sync().unwrap();
    file.advise(0..u64::MAX, Advice::DontNeed).unwrap();
    for (offset, byte) in [(77 * 4096, 1), (FAR + 77 * 4096, 2)] {
        let mut bytes = [0; 5000];
        file.read_exact_at(&mut bytes, offset).unwrap();
        assert_eq!(bytes, [byte; 5000]);
        assert_eq!(file.page_at(offset).unwrap()[..], [byte; 4096]);
    }
    let space = group.space().unwrap();
    let mapped = space.map_file(&file, FAR, 1 << 20, Protection::Read).unwrap();
    let mut bytes = [0; 100];
    space.read_at(&mut bytes, mapped.start + 77 * 4096).unwrap();
    assert_eq!(bytes, [2; 100]);
}

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

/// A group's name may contain quotes and line breaks. It becomes a label in the metrics, so these
/// must be escaped; otherwise the whole text can't be parsed.
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

/// Numbers at which sums, products and roundings go wrong.
const NUMBERS: [u64; 16] = [
    0,
    1,
    5,
    4095,
    4096,
    4097,
    1 << 30,
    (1 << 47) - 4096,
    1 << 47,
    (1 << 47) + 1,
    1 << 63,
    u64::MAX - 8191,
    u64::MAX - 4096,
    u64::MAX - 4095,
    u64::MAX - 1,
    u64::MAX,
];

/// Every pair of them as a range: empty, reversed and unaligned ones too.
fn ranges() -> impl Iterator<Item = Range<u64>> {
    NUMBERS.into_iter().flat_map(|start| NUMBERS.into_iter().map(move |end| start..end))
}

/// Each call of a file returns for all numbers and ranges, without a panic, and leaves the file
/// usable. Once, a batch of two writes near the largest offset added a page's length to the offset,
/// and panicked because of the overflow.
#[test]
fn every_call_of_a_file_takes_every_number() {
    const LEN: u64 = 3 * 4096;
    let disk = disk(1, LEN);
    let mm = manager(256, disk.clone());
    let (group, other) = (mm.group("tenant").build().unwrap(), mm.group("other").build().unwrap());
    let file = group.open_options().write(true).open("f0").unwrap();
    disk.set_capacity(1 << 20);
    for at in NUMBERS {
        let mut bytes = [0; 5000];
        let _ = file.read_at(&mut bytes, at);
        let _ = file.read_exact_at(&mut bytes, at);
        let _ = file.page_at(at).map(|page| page.len());
        let _ = file.page_mut_at(at).map(|page| page.len());
        drop(file.page_at_async(at));
        let (mut one, mut two) = ([0; 5000], [0; 5000]);
        file.read_batch(&mut [ReadRequest::new(at, &mut one), ReadRequest::new(at.wrapping_add(4096), &mut two)]);
        let mut queue = ReadQueue::new(&file);
        queue.push(ReadRequest::new(at, &mut bytes), ());
        while queue.wait().is_some() {}
        let _ = file.write_at(&[], at);
        if !(4..1 << 47).contains(&(at / 4096)) {
            let _ = file.write_at(&[1; 5000], at);
            file.write_batch(&mut [WriteRequest::new(at, &one), WriteRequest::new(at.wrapping_add(4096), &two)]);
        }
    }
    for range in ranges() {
        file.prefetch(range.clone());
        for advice in [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed] {
            let _ = file.advise(range.clone(), advice);
        }
        let _ = file.sync_range(range.clone());
        let _ = file.charge_to(range, &other);
    }
    for len in [0, 1, 4095, 4096, 4097, 1 << 47, 1 << 63, u64::MAX - 4095, u64::MAX, LEN] {
        let _ = file.set_len(len);
    }
    file.set_len(LEN).unwrap();
    file.write_at(b"still usable", 5).unwrap();
    file.sync().unwrap();
}

/// As above, for spaces: a range in which nothing is mapped is refused, and this takes neither time
/// nor memory in proportion to the range's length.
#[test]
fn every_call_of_a_space_takes_every_number() {
    let mm = manager(1024, disk(1, 1 << 20));
    let group = mm.group("tenant").build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    let space = group.space().unwrap();
    let mine = space.map(8 * 4096, Protection::ReadWrite).unwrap();
    let metadata = mm.stats().metadata_bytes;
    for at in NUMBERS {
        let mut bytes = [0; 5000];
        let _ = space.read_at(&mut bytes, at);
        let _ = space.write_at(&bytes, at);
        let _ = space.read_at(&mut [], at);
        let _ = space.write_at(&[], at);
        let _ = space.update_u64(at, |number| Some(number + 1));
        let _ = space.page_at(at).map(|page| page.len());
        let _ = space.page_mut_at(at).map(|page| page.len());
        if space.move_to(mine.clone(), at).is_ok() {
            space.move_to(at..at + 8 * 4096, mine.start).unwrap();
        }
        for more in [0, 4096, 1 << 47, u64::MAX] {
            let _ = space.map_file(&file, at, more, Protection::Read).map(|range| space.unmap(range).unwrap());
        }
        if !(1 << 20..1 << 47).contains(&at) {
            let _ = space.map(at, Protection::None).map(|range| space.unmap(range).unwrap());
        }
    }
    for range in ranges().filter(|range| range.start > mine.end || range.end <= mine.start || range.is_empty()) {
        let _ = space.unmap(range.clone());
        for protection in [Protection::None, Protection::Read, Protection::ReadWrite] {
            let _ = space.protect(range.clone(), protection);
        }
        for advice in [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed] {
            let _ = space.advise(range.clone(), advice);
        }
        let _ = space.discard(range.clone());
        let _ = space.populate(range.clone());
        let _ = space.sync(range.clone());
        let _ = space.move_anywhere(range.clone());
        let _ = space.grow(range.clone(), range.end);
        let _ = space.map_file_at(range, &file, u64::MAX, Protection::Read);
    }
    let grown = mm.stats().metadata_bytes.saturating_sub(metadata);
    assert!(grown <= 256 << 10, "{grown} bytes for ranges of which nothing is mapped");
    assert_eq!(space.areas().iter().map(|area| area.range.end - area.range.start).sum::<u64>(), 8 * 4096);
    space.write_at(b"still usable", mine.start).unwrap();
}
