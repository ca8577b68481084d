//! Which tenant's pages are evicted when the whole budget is short.

use pagefold::{Advice, Error, File, Group, Pagefold, Protection};
use test_disks::SimulatedDisk;

use crate::support::{disk, eventually};

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

/// Loads the hot pages, and uses them until they count as hot.
fn warm_up(file: &File) {
    (0..3).for_each(|_| use_hot(file));
}

/// How many of the hot pages are in memory, in percent. Reads them all.
fn kept(group: &Group, file: &File) -> u64 {
    let before = group.stats().misses;
    use_hot(file);
    100 - 100 * (group.stats().misses - before) / HOT
}

/// A tenant's limit was larger than the budget. Its share was computed from this limit, so it was
/// always small, and reclaim evicted the pages of all other tenants instead.
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

/// A tenant's pages were dirty and couldn't be evicted, because its disk was full. Other tenants
/// lost their pages instead: first all pages of the group with the lowest number, then all of the
/// next group, and so on.
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
        // Each write fails or waits from some point on: first the disk is full, then memory.
        let writer = scope.spawn(|| (0..3_000).try_for_each(|page| written.write_at(&[7; 64], page * PAGE).map(drop)));
        let (mut before, mut rounds_without_change) = (hog.charged(), 0);
        eventually("the writer neither ends nor waits", || {
            files.iter().for_each(use_hot);
            let charged = hog.charged();
            rounds_without_change = if charged == before { rounds_without_change + 1 } else { 0 };
            before = charged;
            writer.is_finished() || rounds_without_change == 500
        });
        let kept: Vec<_> = quiet.iter().zip(&files).map(|(group, file)| kept(group, file)).collect();
        disk.set_capacity(1 << 30);
        assert!(kept.iter().all(|&kept| kept >= 90), "{kept:?} % of the hot pages are left");
    });
}

/// A hog without a limit calls `take` until it is refused, while a quiet tenant uses its hot pages.
/// Returns how many percent of the hot pages stay in memory, and how many pages the hog got.
fn beside_a_hog(mut take: impl FnMut(&Group, u64) -> Result<(), Error>) -> (u64, u64) {
    let mm = budget(16, disk(2, 256 << 20));
    let (quiet, hog) = (mm.group("quiet").build().unwrap(), mm.group("hog").build().unwrap());
    let ours = open(&quiet, "f0");
    warm_up(&ours);
    let (mut got, mut refused, mut cold) = (0, 0, HOT);
    while refused < 60 {
        use_hot(&ours);
        for _ in 0..32 {
            // The quiet tenant's own reads evict its own pages; the hog must not get these frames.
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

/// A tenant without a limit pinned one page after another. When all of its own pages were pinned,
/// its neighbour's pages were evicted for it. The tenant also got the frames that the neighbour had
/// freed for the neighbour's own reads.
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

/// As above, with a space's own memory, and without swap.
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

/// A tenant read single pages of a large file, far apart. Each read needed memory for another part
/// of the file's page map. For each part, a whole extent of frames was emptied, including a quiet
/// tenant's hot pages.
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

/// A hog had pinned nearly all memory, and a tenant read single pages, far apart. For each part of
/// its page map, the tenant lost a whole extent of its own pages, or the first 64 pages that
/// reclaim found, including hot ones.
#[test]
fn room_for_a_tenants_own_page_maps_is_not_made_of_its_hot_pages() {
    let mm = budget(16, disk(3, 1 << 30));
    let (quiet, hog) = (mm.group("quiet").max("4MiB").build().unwrap(), mm.group("hog").build().unwrap());
    let (ours, cold, theirs) = (open(&quiet, "f0"), open(&quiet, "f1"), open(&hog, "f2"));
    warm_up(&ours);
    // Cold pages that can be evicted: as many as the reads below need frames.
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
