//! Dirty pages: their groups, their devices, and the writers that wait for them.

use std::path::Path;
use std::time::{Duration, Instant};

use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};

use pagefold::io::{Access, Backend, IoError};
use pagefold::{Error, File, Group, Pagefold};

use crate::hooked::Answer;
use crate::meanwhile::meanwhile;
use crate::support::devices::Devices;
use crate::support::{disk, eventually, manager, undisturbed};

const PAGE: u64 = 4096;
/// A little less than the age at which the flusher writes a page anyway.
const YOUNG: Duration = Duration::from_secs(4);

fn open(group: &Group, path: &str) -> File {
    group.open_options().write(true).create(true).open(path).unwrap()
}

fn write(file: &File, page: u64) -> Result<(), Error> {
    file.write_at(&[page as u8; PAGE as usize], page * PAGE)
}

fn unclean_pages(group: &Group) -> u64 {
    group.stats().unclean_bytes / PAGE
}

/// A thread of `group` that makes pages of `path` dirty, one after another, until it is dropped.
struct Hog {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Hog {
    fn start(group: &Group, path: &str) -> Self {
        let (file, stop) = (open(group, path), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let body = move || {
            for page in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let _ = write(&file, page % 100_000);
            }
        };
        Self { stop, thread: Some(std::thread::spawn(body)) }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Waits until the group has nearly as many dirty pages as it may have before its writers are
/// throttled. From then on, each further page takes half a second. The group must be the only one
/// with dirty pages, on a stalled device.
fn settled(mm: &Pagefold, group: &Group) {
    let pages = mm.budget() / PAGE;
    let most = (pages - (pages / 8).max(64)) * 15 / 16;
    eventually("the hog has few dirty pages", || unclean_pages(group) >= most * 9 / 10);
}

/// There was one flusher thread, which wrote the files in turn. A device that didn't answer blocked
/// it, so no other file was written: writers on other devices were throttled to two pages per
/// second, and readers got no memory.
#[test]
fn a_stalled_device_holds_up_no_other() {
    let devices = Devices::new(2);
    let mm = manager(4096, devices.clone());
    let (stuck, well) = (mm.group("stuck").max(1024 * PAGE), mm.group("well").max(1024 * PAGE));
    let (stuck, well) = (stuck.build().unwrap(), well.build().unwrap());
    devices.device(0).stall(true);
    let hog = Hog::start(&stuck, "0/f");
    let _going_on = devices.going_on_at_last();
    eventually("nothing is written", || devices.device(0).writes() > 0);
    let file = open(&well, "1/f");
    let writer = Answer::of(move || (0..10_000).try_for_each(|page| write(&file, page)));
    writer.wait().expect("10,000 pages aren't written").unwrap();
    assert!(devices.device(1).writes() > 0);
    devices.device(0).stall(false);
    drop(hog);
}

/// Each writer was throttled at the dirty mark of the whole budget, however few dirty pages its own
/// group had. When a neighbour had made most of memory dirty, each page that the writer wrote took
/// half a second.
#[test]
fn a_writer_is_held_back_by_its_own_groups_dirty_pages_alone() {
    let devices = Devices::new(2);
    let mm = manager(4096, devices.clone());
    let (hogs, quiet) = (mm.group("hog").build().unwrap(), mm.group("quiet").max(512 * PAGE).build().unwrap());
    devices.device(0).stall(true);
    let hog = Hog::start(&hogs, "0/f");
    let _going_on = devices.going_on_at_last();
    settled(&mm, &hogs);
    let file = open(&quiet, "1/f");
    let writer = Answer::of(move || (0..5_000).try_for_each(|n| write(&file, n % 50)));
    writer.wait().expect("5,000 writes to 50 pages aren't over").unwrap();
    devices.device(0).stall(false);
    drop(hog);
}

/// A group's limit was full of pinned pages, and a neighbour was writing. A `page_at` in the group
/// took four seconds to fail. Meanwhile it had the neighbour's file synced 400 times.
#[test]
fn a_group_full_of_pins_has_no_neighbours_files_written() {
    let devices = Devices::new(1);
    devices.device(0).disk.add_generated("read", 1, 100 * PAGE);
    let mm = manager(4096, devices.clone());
    let (ours, theirs) = (mm.group("ours").max(16 * PAGE).build().unwrap(), mm.group("theirs").build().unwrap());
    let (file, written) = (ours.open("0/read").unwrap(), open(&theirs, "0/written"));
    let _pins: Vec<_> = (0..16).map(|page| file.page_at(page * PAGE).unwrap()).collect();
    let tries = || {
        let before = ours.stats().direct_reclaims;
        assert!(matches!(file.page_at(20 * PAGE), Err(Error::LimitReached { .. })));
        ours.stats().direct_reclaims - before
    };
    let alone = tries();
    let (beside, syncs) = undisturbed(YOUNG, || {
        written.sync().unwrap();
        write(&written, 0).unwrap();
        let syncs = devices.device(0).syncs();
        let beside = meanwhile(1, |_| write(&written, 0).unwrap(), tries);
        (beside, devices.device(0).syncs() - syncs)
    });
    assert!(beside < 10 * alone, "{alone} tries alone, {beside} beside a dirty page of another group");
    assert_eq!(syncs, 0, "syncs of their file");
}

/// One tenant had read pages, and another tenant overwrote them. The dirty pages stayed charged to
/// the first tenant. They filled its limit, so it could no longer read; and the writer, which had
/// no dirty pages by its own counts, was neither throttled nor refused.
#[test]
fn a_page_is_charged_to_the_group_that_makes_it_dirty() {
    let devices = Devices::new(1);
    let disk = &devices.device(0).disk;
    disk.add_generated("shared", 1, 1024 * PAGE);
    disk.add_generated("other", 2, 1024 * PAGE);
    let mm = manager(4096, devices.clone());
    let (reads, writes) = (mm.group("reads").max(256 * PAGE), mm.group("writes").max(256 * PAGE));
    let (reads, writes) = (reads.build().unwrap(), writes.build().unwrap());
    let (reader, writer) = (reads.open("0/shared").unwrap(), open(&writes, "0/shared"));
    devices.device(0).kill(true);
    let mut bytes = [0; PAGE as usize];
    let mut refused = None;
    for page in 0..512 {
        reader.read_exact_at(&mut bytes, page * PAGE).unwrap();
        refused = write(&writer, page).err();
        assert!(writes.charged() <= writes.max() && reads.charged() <= reads.max());
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(unclean_pages(&reads), 0, "the reader's dirty pages");
    assert!(unclean_pages(&writes) > 128, "{} dirty pages of the writer", unclean_pages(&writes));
    assert!(matches!(refused, Some(Error::WriteFailed { .. } | Error::LimitReached { .. })), "{refused:?}");
    let other = reads.open("0/other").unwrap();
    for page in 0..512 {
        other.read_exact_at(&mut bytes, page * PAGE).unwrap();
    }
}

/// As above, for pages that are changed in place or through a mapping.
#[test]
fn a_page_changed_in_place_is_charged_to_the_group_that_changes_it() {
    let devices = Devices::new(1);
    devices.device(0).disk.add_generated("shared", 1, 64 * PAGE);
    let mm = manager(4096, devices);
    let (reads, writes) = (mm.group("reads").build().unwrap(), mm.group("writes").build().unwrap());
    let (reader, writer) = (reads.open("0/shared").unwrap(), open(&writes, "0/shared"));
    let mut bytes = vec![0; 64 * PAGE as usize];
    reader.read_exact_at(&mut bytes, 0).unwrap();
    writer.page_mut_at(3 * PAGE).unwrap()[5] = 7;
    let space = writes.space().unwrap();
    let start = space.map_file(&writer, 0, 64 * PAGE, pagefold::Protection::ReadWrite).unwrap().start;
    space.write_at(&[1; 100], start + 10 * PAGE).unwrap();
    assert_eq!((unclean_pages(&reads), unclean_pages(&writes)), (0, 2));
    assert_eq!(reads.charged(), 62 * PAGE, "two pages are the writer's");
    writer.sync().unwrap();
    assert_eq!((unclean_pages(&reads), unclean_pages(&writes)), (0, 0));
}

/// A group with a limit of a few pages is always near its dirty mark. Each time it wrote, all other
/// groups' files were written and synced.
#[test]
fn a_tiny_writer_has_only_its_own_file_written() {
    let (its_syncs, syncs, pages) = undisturbed(YOUNG, || {
        let devices = Devices::new(2);
        let mm = manager(8192, devices.clone());
        let (tiny, quiet) = (mm.group("tiny").max(64 * PAGE).build().unwrap(), mm.group("quiet").build().unwrap());
        // On the same device, and on another one.
        let files = [open(&quiet, "0/quiet"), open(&quiet, "1/quiet")];
        let its = open(&tiny, "0/tiny");
        // It can have 64 dirty pages at most.
        for n in 0..1_000 {
            write(&files[n as usize % 2], n % 100).unwrap();
            write(&its, n).unwrap();
        }
        let pages = files.each_ref().map(|file| file.stats().bytes_out / PAGE);
        (devices.device(0).syncs(), devices.device(1).syncs(), pages)
    });
    assert!(its_syncs > 10, "the tiny one's file isn't written");
    assert_eq!((syncs, pages), (0, [0, 0]), "syncs of the other device, and pages of the quiet ones' files");
}

fn full_of_stalled_pages(pages: u64) -> (Devices, Pagefold, Group, Hog) {
    let devices = Devices::new(2);
    devices.device(1).disk.add_generated("f", 1, 64 * PAGE);
    let mm = manager(pages, devices.clone());
    let stuck = mm.group("stuck").build().unwrap();
    devices.device(0).stall(true);
    let hog = Hog::start(&stuck, "0/f");
    settled(&mm, &stuck);
    (devices, mm, stuck, hog)
}

/// A limit was lowered below the number of pinned pages. The call wrote back all files of all
/// groups, and so waited for another tenant's device, which didn't answer.
#[test]
fn a_lowered_limit_waits_for_no_other_groups_device() {
    let (devices, mm, _stuck, hog) = full_of_stalled_pages(1024);
    let _going_on = devices.going_on_at_last();
    let group = mm.group("pins").max(64 * PAGE).build().unwrap();
    let file = group.open("1/f").unwrap();
    let _pins: Vec<_> = (0..8).map(|page| file.page_at(page * PAGE).unwrap()).collect();
    let lowered = group.clone();
    let answer = Answer::of(move || lowered.set_max(4 * PAGE));
    answer.wait().expect("it waits for the stalled device").unwrap();
    assert_eq!(group.charged(), 8 * PAGE);
    devices.device(0).stall(false);
    drop(hog);
}

/// The budget was full of dirty pages of a device that didn't answer. Opening a file waited for
/// that device. Meanwhile it held a lock which is also needed to open other files, to build groups,
/// and to change the budget.
#[test]
fn an_open_waits_for_no_other_groups_device() {
    let (devices, mm, _stuck, hog) = full_of_stalled_pages(256);
    let _going_on = devices.going_on_at_last();
    let group = mm.group("opens").build().unwrap();
    let answers: Vec<_> = (0..3)
        .map(|n| {
            let group = group.clone();
            Answer::of(move || {
                (0..200).try_for_each(|m| {
                    group.open_options().write(true).create(true).open(format!("1/{n}-{m}")).map(std::mem::forget)
                })
            })
        })
        .collect();
    for answer in answers {
        let answer = answer.wait().expect("an open waits for the stalled device");
        assert!(matches!(answer, Ok(()) | Err(Error::BudgetBusy { .. })), "{answer:?}");
    }
    let answer = Answer::of(move || mm.resize(1 << 20));
    let _either = answer.wait().expect("a change of the budget waits for the stalled device");
    devices.device(0).stall(false);
    drop(hog);
}

/// After 128 failed requests, a write-back cycle submitted no more. But each failed request was
/// then retried in up to 32 pieces, one after another. With a device that takes half a minute for
/// each error, `sync` took hours.
#[test]
fn a_dead_device_is_not_asked_for_each_piece() {
    for run in [1, 64, 256] {
        let mut asked = 0;
        eventually("no round is over in time", || {
            let devices = Devices::new(1);
            let mm = manager(40_000, devices.clone());
            let group = mm.group("a").build().unwrap();
            let (file, written_since) = (open(&group, "0/f"), Instant::now());
            for n in 0..200 {
                (0..run).for_each(|page| write(&file, n * (run + 1) + page).unwrap());
                if n * run > 10_000 {
                    break;
                }
            }
            let (before, dead_since) = (devices.device(0).writes(), Instant::now());
            devices.device(0).kill(true);
            assert!(matches!(file.sync(), Err(Error::WriteFailed { error: IoError::IO, .. })));
            asked = devices.device(0).writes() - before;
            // The flusher writes old pages without being asked, and retries a failed file after a
            // second. Both would add to the count, so a round that took too long is repeated.
            let is_known = written_since.elapsed() < YOUNG && dead_since.elapsed() < Duration::from_millis(900);
            devices.device(0).kill(false);
            is_known
        });
        // Requests that are in flight when the cycle gives up are counted, too.
        assert!(asked <= 128 + 64, "runs of {run} pages: the device was asked {asked} times");
    }
}

/// One page of a file couldn't be written. Each successful `sync_range` of another page marked the
/// whole file as writable again. So the flusher retried the bad page at once, and writers of the
/// group waited for it.
#[test]
fn a_range_that_is_synced_does_not_heal_the_file() {
    let devices = Devices::new(1);
    let mm = manager(4096, devices.clone());
    let group = mm.group("a").max(64 * PAGE).build().unwrap();
    let file = open(&group, "0/f");
    devices.device(0).spoil(0);
    for page in 0..40 {
        write(&file, page * 2).unwrap(); // Above the mark from which on the flusher writes.
    }
    eventually("the flusher doesn't write", || file.stats().write_errors > 0);
    let (errors, start) = (file.stats().write_errors, Instant::now());
    for _ in 0..30 {
        write(&file, 100).unwrap();
        let _told = file.sync_range(100 * PAGE..101 * PAGE);
        for page in 1..40 {
            write(&file, page * 2).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let attempts = file.stats().write_errors - errors;
    // The flusher waits at least a second between two attempts. The bound grows with the measured
    // time, so that it holds on a busy machine, too.
    let most = 2 + start.elapsed().as_secs();
    assert!(attempts <= most, "{attempts} attempts at the bad page in {:?}", start.elapsed());
    devices.device(0).spoil(u64::MAX);
    drop(mm);
}

/// Another process truncated a file, and so cut off a dirty page. Pagefold adopted the new length,
/// but from then on treated the file as one that can't be written. So the flusher left the file
/// alone for a second, and writers of a group with many dirty pages failed with `CutOff`.
#[test]
fn a_cut_that_is_adopted_keeps_no_writer_from_the_file() {
    const PAGES: u64 = 256;
    let disk = disk(1, 4 * PAGE);
    let mm = manager(1024, disk.clone());
    let group = mm.group("tenant").max(PAGES * PAGE).build().unwrap();
    let file = open(&group, "f0");
    write(&file, 3).unwrap();
    disk.open(Path::new("f0"), Access::Write).unwrap().set_len(100).unwrap();
    assert_eq!(file.read_at(&mut [0; 8], 4 * PAGE).unwrap(), 0, "this read notices");
    for page in 0..2 * PAGES {
        write(&file, page).unwrap();
    }
    let told = file.sync();
    assert!(matches!(told, Err(Error::WriteFailed { error: IoError::CutOff, .. })), "{told:?}");
    file.sync().unwrap();
}
