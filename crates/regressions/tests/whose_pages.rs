//! Whose pages go when the whole budget is short.

use pagefold::{Advice, Error, File, Group, Pagefold, Protection};
use test_disks::SimulatedDisk;

use crate::support::disk;

const PAGE: u64 = 4096;
/// Pages that a quiet tenant uses again and again.
const HOT: u64 = 512;

fn budget(mib: u64, disk: SimulatedDisk) -> Pagefold {
    Pagefold::builder().memory(mib << 20).backend(disk).build().unwrap()
}

fn open(group: &Group, name: &str) -> File {
    let file = group.open(name).unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    file
}

/// Uses each hot page.
fn use_hot(file: &File) {
    for page in 0..HOT {
        file.read_at(&mut [0; 8], page * PAGE).unwrap();
    }
}

/// Brings the hot pages in, and has them known as hot.
fn warm_up(file: &File) {
    (0..3).for_each(|_| use_hot(file));
}

/// The hot pages that are in memory, in percent.
fn kept(group: &Group, file: &File) -> u64 {
    let before = group.stats().misses;
    use_hot(file);
    100 - 100 * (group.stats().misses - before) / HOT
}

/// A tenant had a limit above the budget, which it can never use up. Its share of that limit was
/// always small, so all other tenants had to give their pages for it.
#[test]
fn a_limit_above_the_budget_takes_nothing_from_others() {
    let mm = budget(16, disk(2, 256 << 20));
    let (quiet, hog) = (mm.group("quiet").max("4MiB").build().unwrap(), mm.group("hog").max("16GiB").build().unwrap());
    let (ours, theirs) = (open(&quiet, "f0"), open(&hog, "f1"));
    warm_up(&ours);
    for page in 0..32_000 {
        if page % 64 == 0 {
            use_hot(&ours);
        }
        theirs.read_at(&mut [0; 8], page * PAGE).unwrap();
    }
    let kept = kept(&quiet, &ours);
    assert!(kept >= 90, "{kept} % of the hot pages are left");
}

/// A tenant's pages were dirty, on a disk that was full, so they couldn't go. Others had to give
/// theirs: first all that the group with the lowest number had, then all of the next.
#[test]
fn a_writer_whose_pages_cant_go_takes_nothing_from_others() {
    const QUIET: u64 = 4;
    let disk = disk(QUIET, 16 << 20);
    disk.set_capacity(0);
    let mm = budget(16, disk.clone());
    let quiet: Vec<_> = (0..QUIET).map(|number| mm.group(&format!("quiet{number}")).build().unwrap()).collect();
    let hog = mm.group("hog").build().unwrap();
    let files: Vec<_> = quiet.iter().enumerate().map(|(number, group)| open(group, &format!("f{number}"))).collect();
    let written = hog.open_options().write(true).create(true).open("written").unwrap();
    files.iter().for_each(warm_up);
    std::thread::scope(|scope| {
        // It fails, or waits, sooner or later: the disk is full, then memory.
        let writer = scope.spawn(|| (0..3_000).try_for_each(|page| written.write_at(&[7; 64], page * PAGE).map(drop)));
        let mut rounds_without_change = 0;
        while !writer.is_finished() && rounds_without_change < 100 {
            let before = hog.charged();
            files.iter().for_each(use_hot);
            std::thread::sleep(std::time::Duration::from_millis(1));
            rounds_without_change = if hog.charged() == before { rounds_without_change + 1 } else { 0 };
        }
        let kept: Vec<_> = quiet.iter().zip(&files).map(|(group, file)| kept(group, file)).collect();
        disk.set_capacity(1 << 30);
        assert!(kept.iter().all(|&kept| kept >= 90), "{kept:?} % of the hot pages are left");
    });
}

/// Has a hog without a limit take what it can get, while a quiet tenant uses its hot pages. Returns
/// how many of those, in percent, stay in memory, and how many pages the hog got.
fn beside_a_hog(mut take: impl FnMut(&Group, u64) -> Result<(), Error>) -> (u64, u64) {
    let mm = budget(16, disk(2, 256 << 20));
    let (quiet, hog) = (mm.group("quiet").build().unwrap(), mm.group("hog").build().unwrap());
    let ours = open(&quiet, "f0");
    warm_up(&ours);
    let (mut got, mut refused, mut cold) = (0, 0, HOT);
    while refused < 60 {
        use_hot(&ours);
        for _ in 0..32 {
            // What the tenant gives up for these pages is its own to use.
            ours.read_at(&mut [0; 8], cold * PAGE).unwrap();
            cold += 1;
            match take(&hog, got) {
                Ok(()) => got += 1,
                Err(error) if matches!(error.cause(), Error::LimitReached { .. }) => {
                    refused += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            assert!(got < 8 << 10, "more than there is");
        }
    }
    (kept(&quiet, &ours), got)
}

/// A tenant without a limit pinned page after page. When its own were all pinned, its neighbour's
/// were evicted for it, and the frames that the neighbour made free for its own reads went to it as
/// well.
#[test]
fn a_hog_that_pins_is_refused_before_it_takes_a_neighbours_hot_pages() {
    let file = std::cell::OnceCell::new();
    let mut pins = Vec::new();
    let (kept, got) = beside_a_hog(|hog, number| {
        pins.push(file.get_or_init(|| open(hog, "f1")).page_at(number * PAGE)?);
        Ok(())
    });
    assert!(kept >= 90, "{kept} % of the hot pages are left");
    assert!(got > 1_500, "{got} pages: its share");
}

/// The same with memory that no file has, where there is no swap.
#[test]
fn a_hog_that_maps_is_refused_before_it_takes_a_neighbours_hot_pages() {
    let mut space = None;
    let (kept, got) = beside_a_hog(|hog, number| {
        let (space, start) = space.get_or_insert_with(|| {
            let space = hog.space().unwrap();
            let area = space.map(64 << 20, Protection::ReadWrite).unwrap();
            (space, area.start)
        });
        space.write_at(&[1], *start + number * PAGE)
    });
    assert!(kept >= 90, "{kept} % of the hot pages are left");
    assert!(got > 1_500, "{got} pages: its share");
}

/// A tenant read a large file here and there, for which room in page maps was needed. An extent of
/// frames was emptied for each such piece of room, with all that was in it: hot pages of a quiet
/// tenant, too.
#[test]
fn room_for_page_maps_is_not_made_of_a_neighbours_hot_pages() {
    let mm = budget(16, disk(2, 64 << 30));
    let (quiet, hog) = (mm.group("quiet").build().unwrap(), mm.group("hog").build().unwrap());
    let (ours, theirs) = (open(&quiet, "f0"), open(&hog, "f1"));
    warm_up(&ours);
    for page in 0..4_000 {
        theirs.read_at(&mut [0; 8], page * PAGE).unwrap();
    }
    warm_up(&ours);
    let before = quiet.stats().misses;
    for part in 0..4_000 {
        theirs.read_at(&mut [0; 8], (part << 21) + (part % 500) * PAGE).unwrap();
        if part % 16 == 0 {
            use_hot(&ours);
        }
    }
    let missed = quiet.stats().misses - before;
    assert!(missed < HOT / 10, "{missed} of the neighbour's {HOT} pages had to be read again");
}

/// A tenant read here and there beside a hog that had pinned nearly all memory. Each part of a page
/// map that it needed was paid for with an extent of its own pages, or with the 64 that came first,
/// hot ones among them.
#[test]
fn room_for_a_tenants_own_page_maps_is_not_made_of_its_hot_pages() {
    let mm = budget(16, disk(3, 1 << 30));
    let (quiet, hog) = (mm.group("quiet").max("4MiB").build().unwrap(), mm.group("hog").build().unwrap());
    let (ours, cold, theirs) = (open(&quiet, "f0"), open(&quiet, "f1"), open(&hog, "f2"));
    warm_up(&ours);
    // Pages that it can give up: as many as it needs to read others in their place.
    for page in 0..HOT / 2 {
        cold.read_at(&mut [0; 8], page * PAGE).unwrap();
    }
    let pins: Vec<_> = (0..).map_while(|page| theirs.page_at(page * PAGE).ok()).collect();
    assert!(pins.len() > 3_000, "{} pages are pinned", pins.len());
    let before = ours.stats().misses;
    for part in 0..400 {
        cold.read_at(&mut [0; 8], (1 + part % 200) * (512 * PAGE) + part / 200 * PAGE).unwrap();
        if part % 4 == 0 {
            use_hot(&ours);
        }
    }
    let missed = ours.stats().misses - before;
    assert!(missed < 8 * HOT, "{missed} of the tenant's {HOT} hot pages had to be read again");
}
