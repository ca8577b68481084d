//! What can be used as a swap area, and by how many Pagefolds at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use pagefold::{AddError, Builder, Error, PageRef, Pagefold, Protection, RemoveError, Space, SwapArea};
use sync::SharedBytes;
use sync::one_cpu::stay_on_this_cpu;
use sync::random::mix;
use test_disks::SimulatedDisk;

use crate::gated_disk::GatedDisk;
use crate::hooked::Answer;
use crate::support::eventually;

const PAGE: u64 = 4096;

fn contents(page: u64) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|word| mix(mix(page) ^ word).to_le_bytes()).collect()
}

/// Returns a Pagefold that swaps to `area`, a space of 300 pages most of which are in swap, and its
/// first address.
fn swapping(area: SwapArea) -> Result<(Pagefold, Space, u64), Error> {
    swapping_by(Pagefold::builder().swap_area(area))
}

/// The same, with an area on a disk that can hold up its calls.
pub(crate) fn swapping_to(disk: &GatedDisk) -> (Pagefold, Space, u64) {
    let area = SwapArea::path("/swap").overwrite(true);
    swapping_by(Pagefold::builder().backend(disk.clone()).swap_area(area)).unwrap()
}

fn swapping_by(builder: Builder) -> Result<(Pagefold, Space, u64), Error> {
    let mm = builder.memory("8MiB").build()?;
    let group = mm.group("tenant").max(64 * PAGE).build()?;
    let space = group.space()?;
    let base = space.map(300 * PAGE, Protection::ReadWrite)?.start;
    (0..300).try_for_each(|page| space.write_at(&contents(page), base + page * PAGE))?;
    Ok((mm, space, base))
}

/// Two services were configured to use the same swap file. The second one found a valid header and
/// used the file, so both wrote to the same slots. Of 1,000 pages of the first one, 960 were lost.
#[test]
fn a_swap_file_has_one_user() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("swap");
    std::fs::write(&path, vec![0; 1 << 21]).unwrap();
    let area = || SwapArea::path(&path).overwrite(true);
    let (mm, space, base) = swapping(area()).unwrap();
    let second = swapping(area()).map(|_| "two users").unwrap_err();
    assert!(matches!(&second, Error::SwapRefused(AddError::InUse { .. })), "{second}");
    assert!(second.to_string().contains("in use") && second.to_string().contains("swap"), "{second}");
    for page in 0..300 {
        let mut bytes = vec![0; PAGE as usize];
        space.read_at(&mut bytes, base + page * PAGE).unwrap();
        assert!(bytes == contents(page), "page {page} isn't what was written");
    }
    // As soon as the area is removed, another Pagefold can use it.
    drop(space);
    mm.remove_swap(0).unwrap();
    drop(swapping(area()).unwrap());
    swapping(area()).unwrap();
}

/// An error said "can't open /srv/cache: No such file or directory", without the word swap; another
/// one said that an area "can't have 16777216 bytes". The errors must name swap, the path and
/// readable sizes.
#[test]
fn refusals_name_swap_the_path_and_sizes() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("/short", vec![0; 4096]);
    disk.add_bytes("/diary", vec![7; 1 << 16]);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let missing = directory.path().join("missing/swap");
    let refusal = |area: SwapArea| {
        let error = Pagefold::builder().memory("8MiB").backend(disk.clone()).swap_area(area).build().unwrap_err();
        assert!(matches!(error, Error::SwapRefused(_)), "{error}");
        error.to_string()
    };
    let says = |text: String, parts: &[&str]| {
        assert!(parts.iter().all(|part| text.contains(part)), "{text:?} lacks one of {parts:?}");
    };
    says(refusal(SwapArea::path("/none")), &["swap", "/none", "No such file"]);
    says(refusal(SwapArea::path("/short").overwrite(true)), &["swap", "/short", "4 KiB", "8 KiB"]);
    says(refusal(SwapArea::path("/diary")), &["swap", "/diary", "overwrite"]);
    says(refusal(SwapArea::compressed("16MiB")), &["swap", "16 MiB", "8 MiB"]);
    let error = Pagefold::builder().memory("8MiB").swap(&missing, "1MiB").build().unwrap_err().to_string();
    says(error, &["swap", "missing/swap", "No such file"]);
}

/// On a full file system, adding an area must fail with a clear error, and change nothing.
#[test]
fn an_area_on_a_full_file_system_is_refused() {
    let disk = SimulatedDisk::default();
    disk.set_capacity(0);
    let mm = Pagefold::builder().memory("8MiB").backend(disk.clone()).build().unwrap();
    let before = mm.stats().metadata_bytes;
    let error = mm.add_swap(SwapArea::unlinked("/", "1MiB")).unwrap_err().to_string();
    assert!(error.contains("swap area") && error.contains("No space left"), "{error}");
    disk.open("/swap".as_ref(), Access::Create).unwrap().set_len(1 << 20).unwrap();
    let error = mm.add_swap(SwapArea::path("/swap").overwrite(true)).unwrap_err().to_string();
    assert!(error.contains("/swap") && error.contains("No space left"), "{error}");
    assert_eq!((mm.stats().metadata_bytes, mm.stats().swap.len()), (before, 0));
    disk.set_capacity(1 << 20);
    mm.add_swap(SwapArea::path("/swap").overwrite(true)).unwrap();
}

/// Its files panic when they are asked how they are to be written.
#[derive(Clone)]
struct Panics;

impl Backend for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(self.clone()))
    }
}

impl BackingFile for Panics {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: 7 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(1 << 20)
    }

    fn needs_stable_bytes(&self) -> bool {
        panic!("on purpose")
    }

    fn read(&self, _: u64, _: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        Ok(0)
    }
}

/// A backend panicked as an area was added. What had been charged for the area's tables stayed
/// charged, and the area's number stayed taken. There are 32 numbers.
#[test]
fn an_area_whose_backend_panics_leaves_nothing_behind() {
    let mm = Pagefold::builder().memory("8MiB").backend(Panics).build().unwrap();
    let before = mm.used();
    for _ in 0..33 {
        let added = catch_unwind(AssertUnwindSafe(|| mm.add_swap(SwapArea::path("/swap").overwrite(true))));
        assert!(added.is_err(), "the panic doesn't reach the caller: {added:?}");
    }
    assert_eq!(mm.used(), before);
    mm.add_swap(SwapArea::memory("1MiB")).unwrap();
}

/// Before the test drops the guard, the removal checks this many times whether the guard is still
/// there. Between two checks it sleeps, for at most a millisecond. In total it has then slept for
/// longer than 8 ms, and for longer than the shorter of the two waits in `sync::wait`.
const LOOKS: u64 = 40;
/// Half of the time that a removal waits for a guard. If the test's thread gets no CPU for longer,
/// the round is repeated.
const HELD_MAX: Duration = Duration::from_secs(1);

/// Writes all pages of the space again, so that most of them are in a new area.
fn swap_out_again(mm: &Pagefold, space: &Space, base: u64) {
    mm.add_swap(SwapArea::memory(801 * PAGE)).unwrap();
    space.group().set_max(64 * PAGE).unwrap();
    (0..300).for_each(|page| space.write_at(&contents(page), base + page * PAGE).unwrap());
}

/// The address of a page of `swapping` that is in swap. Which of its pages are depends on threads.
fn in_swap(space: &Space, base: u64) -> u64 {
    (0..300).map(|page| base + page * PAGE).find(|&page| space.try_page_at(page).is_none()).unwrap()
}

/// Gives the group room for all of its pages, and returns a guard of a page that was in swap. The
/// page keeps its slot, because enough slots are free.
fn swapped_in(space: &Space, base: u64) -> PageRef<'_> {
    let page = in_swap(space, base);
    space.group().set_max("4MiB").unwrap();
    space.page_at(page).unwrap()
}

/// An area couldn't be removed while one of its pages was back in memory and pinned by a guard.
/// After 8 ms the error was that the page "can't be brought back". The removal should have waited
/// for the guard.
#[test]
fn removal_waits_for_guards_and_says_what_it_waited_for() {
    let (mm, space, base) = swapping(SwapArea::memory(801 * PAGE)).unwrap();
    let mut is_first = true;
    eventually("guards are never dropped in time", || {
        if !std::mem::take(&mut is_first) {
            swap_out_again(&mm, &space, base);
        }
        let held = swapped_in(&space, base);
        let (theirs, start) = (mm.clone(), Instant::now());
        let removal = Answer::of(move || theirs.remove_swap(0));
        // All other pages are back in memory, so the removal waits for the guard's page.
        eventually("pages aren't brought back", || mm.stats().swap[0].used_bytes <= PAGE);
        removal.thread().await_sleeps(LOOKS);
        drop(held);
        let was_short = start.elapsed() < HELD_MAX;
        let removed = removal.wait().expect("the removal hangs");
        assert!(removed.is_ok() || !was_short, "the guard was dropped in time: {removed:?}");
        removed.inspect_err(|_| mm.remove_swap(0).unwrap()).is_ok()
    });
    swap_out_again(&mm, &space, base);
    let held = swapped_in(&space, base);
    let error = mm.remove_swap(0).unwrap_err();
    assert!(matches!(error, Error::SwapInUse(RemoveError::InUse { area: 0, pages: 1 })), "{error}");
    drop(held);
    mm.remove_swap(0).unwrap();
}

/// A disk with a swap area didn't answer, and an operator added a second area. Adding it waited for
/// a write to the first area. While it waited, no thread on the same CPU could swap, to any area.
#[test]
fn areas_come_and_go_beside_one_that_doesnt_answer() {
    const STUCK: u64 = 7;
    let disk = GatedDisk::with_file("/swap", 1001 * PAGE);
    let area = SwapArea::path("/swap").overwrite(true);
    let mm = Pagefold::builder().memory("8MiB").backend(disk.clone()).swap_area(area).build().unwrap();
    let write_all = |name: &str, word: u64| {
        let space = mm.group(name).max(64 * PAGE).build().unwrap().space().unwrap();
        let base = space.map(300 * PAGE, Protection::ReadWrite).unwrap().start;
        move || {
            for page in 0..300 {
                let mut bytes = contents(page);
                bytes[PAGE as usize - 8..].copy_from_slice(&word.to_le_bytes());
                space.write_at(&bytes, base + page * PAGE).unwrap();
            }
        }
    };
    disk.hold_writes_of(STUCK);
    let stuck = Answer::of(write_all("stuck", STUCK));
    disk.gate.wait_for_somebody();
    let theirs = mm.clone();
    let change = Answer::of(move || {
        let number = theirs.add_swap(SwapArea::memory(1001 * PAGE))?;
        theirs.remove_swap(number)?;
        theirs.add_swap(SwapArea::memory(1001 * PAGE))
    });
    assert!(matches!(change.wait(), Some(Ok(1))), "areas don't come and go");
    assert!(Answer::of(write_all("other", 8)).wait().is_some(), "another tenant doesn't get on");
    // All of the above happens before the disk answers.
    disk.gate.open();
    assert!(stuck.wait().is_some());
}

/// A swap file was on a full file system. The error said only that the group had reached its limit,
/// and didn't mention the file system.
#[test]
fn a_limit_that_is_reached_as_swap_fails_says_why() {
    let disk = SimulatedDisk::default();
    disk.set_capacity(40 * PAGE);
    let mm = Pagefold::builder().memory("8MiB").backend(disk.clone());
    let mm = mm.swap_area(SwapArea::unlinked("/full", 1 << 20)).build().unwrap();
    let group = mm.group("tenant").max(64 * PAGE).build().unwrap();
    let space = group.space().unwrap();
    let base = space.map(256 * PAGE, Protection::ReadWrite).unwrap().start;
    let fill = |pages: std::ops::Range<u64>| {
        pages.into_iter().try_for_each(|page| {
            let bytes: Vec<u8> = (0..PAGE).map(|at| (at * 7 + page * 13 + at * at % 251) as u8).collect();
            space.write_at(&bytes, base + page * PAGE)
        })
    };
    let error = fill(0..256).unwrap_err();
    assert!(matches!(error.cause(), Error::LimitReached { .. }), "{error}");
    let chain = |error: &Error| {
        let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>()
    };
    for causes in [chain(&error), chain(error.cause())] {
        let last = causes.last().unwrap();
        assert!(last.contains("/full") && last.contains("No space left on device"), "{causes:?}");
    }
    // Once there is room, later errors must not name the old failure.
    disk.set_capacity(1 << 30);
    fill(0..256).unwrap();
}

/// A file system may give two files the same device and inode numbers, as union file systems do. On
/// such a file system, a second swap file was taken for the first one and refused.
#[test]
fn two_swap_files_that_are_numbered_alike_are_two() {
    let disk = SimulatedDisk::default();
    disk.number_alike();
    disk.add_bytes("/a", vec![0; 1 << 20]);
    disk.add_bytes("/b", vec![0; 1 << 20]);
    let area = |path: &str| SwapArea::path(path).overwrite(true);
    let mm = Pagefold::builder().memory("8MiB").backend(disk).swap_area(area("/a")).build().unwrap();
    mm.add_swap(area("/b")).unwrap();
    let refused = mm.add_swap(area("/a")).unwrap_err();
    assert!(matches!(refused, Error::SwapRefused(AddError::InUse { .. })), "{refused}");
}

/// When the budget was lowered, the limit of a large compressed area was lowered, too, but its
/// pages stayed. The reason: one pass over the slots covers only a part of them, and only marks the
/// pages that it meets for the first time.
#[test]
fn a_large_compressed_area_gives_way_to_a_lower_budget() {
    const PAGES: u64 = 12_000;
    let mm = Pagefold::builder().memory("128MiB").compressed_swap("64MiB").build().unwrap();
    mm.add_swap(SwapArea::memory("64MiB")).unwrap();
    let space = mm.group("tenant").max("2MiB").build().unwrap().space().unwrap();
    let base = space.map(PAGES * PAGE, Protection::ReadWrite).unwrap().start;
    let sparse = |page: u64| [&contents(page)[..1536], &[0; 2560]].concat();
    (0..PAGES).for_each(|page| space.write_at(&sparse(page), base + page * PAGE).unwrap());
    let compressed = || mm.stats().swap.into_iter().find_map(|area| area.compressed).unwrap();
    assert!(compressed().memory_bytes > 16 << 20, "{:?}", compressed());
    mm.resize("32MiB").unwrap();
    let now = compressed();
    assert!(now.limit_bytes == 16 << 20 && now.memory_bytes <= now.limit_bytes, "{now:?}");
    for page in (0..PAGES).step_by(97) {
        let mut bytes = vec![0; PAGE as usize];
        space.read_at(&mut bytes, base + page * PAGE).unwrap();
        assert!(bytes == sparse(page), "page {page}");
    }
}

/// The budget was lowered while a fault was moving pages out of a compressed area, to a slow disk.
/// Only one thread at a time moves pages, so `resize` concluded that no page could move. The area
/// kept more memory than its new limit.
#[test]
fn a_compressed_area_gives_way_to_a_lower_budget_beside_a_fault_that_spills() {
    const PAGES: u64 = 8_000;
    /// The last word of the first pages. The area has room for them; later they are the oldest.
    const OLD: u64 = 7;
    const OLD_PAGES: u64 = 500;
    // Each CPU has its own part of the area. If all threads of the Pagefold are on one CPU, the
    // pages written first are also the first that move out.
    let _here = stay_on_this_cpu();
    let disk = GatedDisk::with_file("/swap", 8001 * PAGE);
    let mm = Pagefold::builder().memory("32MiB").backend(disk.clone()).compressed_swap("8MiB").build().unwrap();
    mm.add_swap(SwapArea::path("/swap").overwrite(true)).unwrap();
    // Pages can also move here, while the disk doesn't answer.
    mm.add_swap(SwapArea::memory("32MiB").priority(-1)).unwrap();
    let compressed = || mm.stats().swap.into_iter().find_map(|area| area.compressed).unwrap();
    let space = mm.group("tenant").max("2MiB").build().unwrap().space().unwrap();
    let base = space.map(PAGES * PAGE, Protection::ReadWrite).unwrap().start;
    let sparse = |page: u64| {
        let last = if page < OLD_PAGES { OLD } else { page << 32 };
        [&contents(page)[..1536], &[0; 2552], &last.to_le_bytes()].concat()
    };
    disk.hold_writes_of(OLD);
    let theirs = space.clone();
    let filled = Answer::of(move || (0..PAGES).try_for_each(|page| theirs.write_at(&sparse(page), base + page * PAGE)));
    disk.gate.wait_for_somebody();
    assert!(compressed().memory_bytes > 6 << 20, "it spills before it is full: {:?}", compressed());
    let theirs = mm.clone();
    let resized = Answer::of(move || theirs.resize("16MiB"));
    // From here on, the lowering has at most to wait for the fault.
    eventually("the budget isn't lowered", || mm.stats().budget_bytes <= 16 << 20);
    disk.gate.open();
    resized.wait().expect("the lowering hangs").unwrap();
    let now = compressed();
    assert!(now.limit_bytes == 4 << 20 && now.memory_bytes <= now.limit_bytes, "{now:?}");
    filled.wait().expect("the fault hangs").unwrap();
    for page in (0..PAGES).step_by(97) {
        let mut bytes = vec![0; PAGE as usize];
        space.read_at(&mut bytes, base + page * PAGE).unwrap();
        assert!(bytes == sparse(page), "page {page}");
    }
}

/// One thread read a page from swap, and the read was going to fail. Meanwhile another thread wrote
/// the whole page. It waited for the read, and failed with the same error, although it doesn't need
/// the old bytes.
#[test]
fn a_write_of_a_whole_page_goes_on_although_anothers_read_of_it_fails() {
    let disk = GatedDisk::with_file("/swap", 1001 * PAGE);
    let (_mm, space, base) = swapping_to(&disk);
    let in_swap = in_swap(&space, base);
    disk.fail_reads();
    let (ours, theirs) = (space.clone(), space.clone());
    let read = Answer::of(move || ours.read_at(&mut [0; 8], in_swap));
    disk.gate.wait_for_somebody();
    let write = Answer::of(move || theirs.write_at(&contents(7), in_swap));
    write.thread().await_sleep();
    disk.gate.open();
    assert!(matches!(read.wait(), Some(Err(error)) if matches!(error.cause(), Error::SwapReadFailed { .. })));
    write.wait().unwrap().unwrap();
    let mut bytes = vec![0; PAGE as usize];
    space.read_at(&mut bytes, in_swap).unwrap();
    assert!(bytes == contents(7), "other bytes than those that were written");
}
