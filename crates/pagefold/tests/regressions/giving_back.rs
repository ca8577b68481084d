//! Memory that goes back to the system: for page maps and the like, and when the budget is lowered.

use sync::Arc;

use pagefold::{Advice, Group, Pagefold, Protection, SwapArea};

use crate::hooked::{Gate, Hooked, fill};
use crate::support::{disk, eventually};

const PAGE: u64 = 4096;

/// Pages evicted when a sparse file is read, beside a tenant that keeps some pages where they are in each extent.
fn evictions(keep: impl FnOnce(&Group) -> Box<dyn std::any::Any>) -> u64 {
    evictions_in(&Pagefold::builder().memory("16MiB").backend(disk(2, 64 << 30)).build().unwrap(), keep)
}

fn evictions_in(mm: &Pagefold, keep: impl FnOnce(&Group) -> Box<dyn std::any::Any>) -> u64 {
    let group = mm.group("tenant").build().unwrap();
    let _kept = keep(&group);
    let (used, sparse) = (group.open("f0").unwrap(), group.open("f1").unwrap());
    used.advise(Advice::Random, 0..1).unwrap();
    for page in 0..4_000 {
        used.read_at(&mut [0; 8], page * PAGE).unwrap();
    }
    let before = group.stats().evictions;
    for part in 0..400 {
        sparse.read_at(&mut [0; 8], part << 21).unwrap();
    }
    group.stats().evictions - before
}

/// Has most extents get one of the pages that are kept.
fn spread(group: &Group, mut keep: impl FnMut(u64)) {
    let others = group.open("f0").unwrap();
    others.advise(Advice::Random, 0..1).unwrap();
    for number in 0..28 {
        keep(number);
        for page in 0..130 {
            others.read_at(&mut [0; 8], (10_000 + 130 * number + page) * PAGE).unwrap();
        }
    }
}

/// To make room for a part of a page map, an extent's clean pages were evicted, one with a dirty page in it, too, though that
/// made it useless; and then those of 15 more. Likewise with memory that no file has, where there is no swap.
#[test]
#[ignore = "quarantine: 1,157 evictions with swap full, where 1,156 are allowed and 809 to 900 usual, in one full run of about 25 beside \
            busy loops. Suspected: a walk's rest ends by the clock, so a preempted thread looks through more pages"]
fn room_for_page_maps_costs_no_pages_in_vain() {
    let without = evictions(|_| Box::new(()));
    let dirty = evictions(|group| {
        let file = group.open_options().write(true).create(true).open("written").unwrap();
        spread(group, |number| {
            file.write_at(&[1], number * PAGE).unwrap();
        });
        Box::new(file)
    });
    let anonymous = evictions(|group| {
        let space = group.space().unwrap();
        let area = space.map(1 << 20, Protection::ReadWrite).unwrap();
        spread(group, |number| space.write_at(&[1], area.start + number * PAGE).unwrap());
        Box::new(space)
    });
    let random = |page: u64| sync::random::Random::seeded(page).next_u64().to_ne_bytes().map(|byte| byte | 1);
    let bytes = |page: u64| (0..PAGE / 8).flat_map(|word| random(page << 10 | word)).collect::<Vec<_>>();
    let with_swap = Pagefold::builder().memory("16MiB").backend(disk(2, 64 << 30));
    let with_swap = with_swap.swap_area(SwapArea::memory("128KiB")).build().unwrap();
    let filler = with_swap.group("filler").max("64KiB").build().unwrap().space().unwrap();
    let area = filler.map(1 << 20, Protection::ReadWrite).unwrap();
    assert!((0..256).any(|page| filler.write_at(&bytes(page), area.start + page * PAGE).is_err()), "swap is full");
    let swap_full = evictions_in(&with_swap, |group| {
        let space = group.space().unwrap();
        let area = space.map(1 << 20, Protection::ReadWrite).unwrap();
        spread(group, |number| space.write_at(&bytes(number), area.start + number * PAGE).unwrap());
        Box::new(space)
    });
    let most = without * 3 / 2;
    assert!(
        dirty <= most && anonymous <= most && swap_full <= most,
        "{without} evictions; {dirty} beside dirty, {anonymous} beside anonymous pages, {swap_full} with swap full"
    );
}

/// A budget that was being lowered kept everybody waiting that needed a few KiB of it, to open a file, say: until the end,
/// which was a long time, or, as here, for a page that another thread was loading.
#[test]
fn a_file_can_be_opened_while_the_budget_is_lowered() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let backend = Hooked::new(
        move |offset, into| {
            if offset == 1000 * PAGE {
                held.pass();
            }
            Ok(fill(offset, into, 8 << 20, 1))
        },
        || Ok(8 << 20),
    );
    let mm = Pagefold::builder().memory("1MiB").backend(backend).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("file").unwrap();
    file.advise(Advice::Random, 0..1).unwrap();
    for page in 0..240 {
        file.read_at(&mut [0; 8], page * PAGE).unwrap();
    }
    let pins: Vec<_> = (100..200).map(|page| file.page(page).unwrap()).collect();
    std::thread::scope(|scope| {
        let loader = scope.spawn(|| file.read_at(&mut [0; 8], 1000 * PAGE));
        gate.wait_for_somebody();
        // Lowering is given up after a while. A thread that gets no CPU meanwhile comes too late, and tries again.
        eventually("a file is only opened when the budget isn't lowered any more", || {
            let lowered = scope.spawn(|| mm.resize("256KiB"));
            eventually("it doesn't begin", || mm.budget() < 1 << 20 || lowered.is_finished());
            let opened = group.open("another").unwrap();
            let was_in_time = mm.budget() < 1 << 20;
            drop(opened);
            assert!(lowered.join().unwrap().is_err(), "pages are pinned");
            was_in_time
        });
        gate.open();
        loader.join().unwrap().unwrap();
    });
    drop(pins);
    mm.resize("256KiB").unwrap();
    assert!(mm.stats().used_bytes <= 256 << 10);
}
