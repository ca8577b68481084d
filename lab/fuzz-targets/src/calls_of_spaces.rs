//! Calls of a space, with any arguments.

use std::ops::Range;

use arbitrary::{Result, Unstructured};
use pagefold::{File, Pagefold, Protection, Space, SwapArea};
use test_disks::SimulatedDisk;

use crate::calls_of_files::ADVICE;
use crate::numbers::{number, range};

const PAGE: u64 = 4096;
const BUDGET: u64 = 1 << 20;
/// More calls than this say nothing new.
const CALLS: usize = 40;

pub(crate) fn run(bytes: &[u8]) {
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 1, 50_000);
    let builder = Pagefold::builder().memory(BUDGET).backend(disk.clone()).swap_area(SwapArea::memory(256_u64 << 10));
    let fold = builder.build().expect("a budget that is large enough");
    let group = fold.group("a").max(128_u64 << 10).build().expect("a new name");
    let file = group.open_options().write(true).open("f").expect("the file is there");
    disk.set_capacity(1 << 20);
    let space = group.space().expect("there is room for an empty space");
    let mine = space.map(8 * PAGE, Protection::ReadWrite).expect("there is room for a few pages");
    let mut bytes = Unstructured::new(bytes);
    for _ in 0..CALLS {
        if bytes.is_empty() || call(&mut bytes, &space, &file, &mine).is_err() {
            break;
        }
        assert!(fold.used() <= fold.budget(), "{} bytes of {}", fold.used(), fold.budget());
        assert!(group.charged() <= group.max(), "{} bytes of {}", group.charged(), group.max());
    }
    let areas = space.areas();
    assert!(areas.windows(2).all(|two| two[0].range.end <= two[1].range.start), "areas overlap: {areas:?}");
    for area in areas {
        space.unmap(area.range).expect("what is mapped can be unmapped");
    }
    assert!(space.areas().is_empty());
    let again = space.map(PAGE, Protection::ReadWrite).expect("there is room again");
    space.write_at(b"still usable", again.start).expect("there is room again");
}

fn call(bytes: &mut Unstructured<'_>, space: &Space, file: &File, mine: &Range<u64>) -> Result<()> {
    let at = number(bytes, mine.start)?;
    let protection = *bytes.choose(&[Protection::None, Protection::Read, Protection::ReadWrite])?;
    let mut buffer = vec![7; usize::from(bytes.arbitrary::<u16>()? % 9000)];
    match bytes.int_in_range(0..=18_u8)? {
        0 => drop(space.read_at(&mut buffer, at)),
        1 => drop(space.write_at(&buffer, at)),
        2 => drop(space.update_u64(at, |number| number.checked_add(1))),
        3 => drop(space.page_at(at).map(|page| page.len())),
        4 => drop(space.page_mut_at(at).map(|mut page| page.first_mut().map(|first| *first = 1))),
        5 => drop(space.map(number(bytes, 0)?, protection)),
        6 => drop(space.map_at(range(bytes, mine.start)?, protection)),
        7 => drop(space.map_file(file, number(bytes, 0)?, number(bytes, 0)?, protection)),
        8 => drop(space.map_file_at(range(bytes, mine.start)?, file, number(bytes, 0)?, protection)),
        9 => drop(space.unmap(range(bytes, mine.start)?)),
        10 => drop(space.protect(range(bytes, mine.start)?, protection)),
        11 => {
            let advice = *bytes.choose(&ADVICE)?;
            drop(space.advise(range(bytes, mine.start)?, advice));
        }
        12 => drop(space.sync(range(bytes, mine.start)?)),
        13 => drop(space.discard(range(bytes, mine.start)?)),
        14 => drop(space.populate(range(bytes, mine.start)?)),
        15 => drop(space.grow(range(bytes, mine.start)?, number(bytes, 0)?)),
        16 => drop(space.move_to(range(bytes, mine.start)?, at)),
        17 => drop(space.move_anywhere(range(bytes, mine.start)?)),
        _ => drop(space.areas()),
    }
    Ok(())
}
