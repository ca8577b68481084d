//! Bytes that were written and then lost, and related bugs.

use std::time::{Duration, Instant};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pagefold::io::IoError;
use pagefold::{Error, File, Pagefold};
use sync::Arc;
use sync::asleep::Sleeper;
use sync::lock::OnceCell;
use sync::random::Random;
use test_disks::Call;

use crate::bad_sector::BadSector;
use crate::hooked::{Answer, Gate};
use crate::support::{
    assert_same, bytes_on, disk, eventually, manager, manager_in_time, stop_at_end, version, when_free,
};
use crate::watched::Watched;

/// A call that needs memory waits for pages to become clean for at least so long.
const QUIET_MAX: Duration = Duration::from_secs(2);

fn open(mm: &Pagefold) -> File {
    mm.group("a").build().unwrap().open_options().write(true).create(true).open("f0").unwrap()
}

/// A write past the end made its page dirty before it made the file longer. When write-back ran
/// between these two steps, it wrote the page only up to the old end, and marked it clean.
#[test]
fn a_page_written_back_while_the_file_grows_is_written_as_a_whole() {
    const APPENDS: u64 = 20_000;
    let disk = disk(0, 0);
    let mm = manager(2_000, disk.clone());
    let file = open(&mm);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = stop_at_end(&stop);
        let syncs = || {
            while !stop.load(Ordering::Relaxed) {
                file.sync().unwrap();
            }
        };
        scope.spawn(syncs);
        let mut random = Random::seeded(1);
        let mut expected = Vec::new();
        for _ in 0..APPENDS {
            let new = version(1, expected.len() as u64, 3_000 + random.below(6_000) as usize);
            file.write_at(&new, expected.len() as u64).unwrap();
            expected.extend(new);
            if expected.len() > 4 << 20 {
                file.sync().unwrap();
                assert_same(&bytes_on(&disk, "f0"), &expected, "appended");
                file.set_len(0).unwrap();
                expected.clear();
            }
        }
        stop.store(true, Ordering::Relaxed);
        file.sync().unwrap();
        assert_same(&bytes_on(&disk, "f0"), &expected, "appended");
    });
}

/// A backend panicked in a sync. The next sync succeeded although it wrote nothing: the pages that
/// had been written before the panic counted as clean after it.
#[test]
fn after_a_sync_that_panics_the_next_one_writes_again() {
    for time in [None, Some(Duration::from_secs(3600))] {
        let disk = disk(1, 8192);
        let (syncs, writes) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let seen = Arc::clone(&writes);
        let watched = Watched::new(&disk, move |call| {
            seen.fetch_add(u64::from(call == Call::Write), Ordering::SeqCst);
            let panics = call == Call::Sync && syncs.fetch_add(1, Ordering::SeqCst) == 0;
            if panics { panic!("on purpose") } else { Ok(()) }
        });
        let mm = manager_in_time(64, watched, time);
        let file = open(&mm);
        file.write_at(&[1], 0).unwrap();
        let error = file.sync().unwrap_err();
        assert!(matches!(error, Error::WriteFailed { error: IoError::IO, .. }), "{error}");
        file.sync().unwrap();
        assert_eq!(writes.load(Ordering::SeqCst), 2, "what a failed sync covered is written again");
    }
}

/// A backend panicked in a write. The sync that had begun the write unwound, so no other handle
/// heard that the file couldn't be written.
#[test]
fn a_write_that_panics_is_a_write_that_fails() {
    // The first write is of both pages, the second one is of one of them.
    for panics in [1, 2] {
        let disk = disk(1, 8192);
        let writes = AtomicU64::new(0);
        let watched = Watched::new(&disk, move |call| {
            let is_due = call == Call::Write && writes.fetch_add(1, Ordering::SeqCst) < panics;
            if is_due { panic!("on purpose") } else { Ok(()) }
        });
        let mm = manager(64, watched);
        let file = open(&mm);
        let other = file.group().open_options().write(true).open("f0").unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        for handle in [&file, &other] {
            let error = handle.sync().unwrap_err();
            assert!(matches!(error, Error::WriteFailed { error: IoError::IO, .. }), "{error}");
        }
        file.sync().unwrap();
        assert_same(&bytes_on(&disk, "f0"), &[1; 8192], "after the panic");
    }
}

/// A backend panicked in a write that the flusher had begun. The flusher's thread ended, and no
/// dirty page of the device was written any more without a sync.
#[test]
fn after_a_write_that_panics_the_flusher_goes_on() {
    let disk = disk(1, 8192);
    let writes = AtomicU64::new(0);
    let watched = Watched::new(&disk, move |call| {
        let is_first = call == Call::Write && writes.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first { panic!("on purpose") } else { Ok(()) }
    });
    let mm = manager(64, watched);
    let file = open(&mm);
    // More dirty pages than the flusher leaves in memory.
    (0..40).for_each(|page| file.write_at(&[1; 4096], page * 4096).unwrap());
    eventually("the flusher writes no more", || mm.stats().groups[0].unclean_bytes == 0);
}

/// A backend panicked in `set_len`, which was to truncate a file. Afterwards the file was shorter
/// for its readers, though not on the disk.
#[test]
fn a_truncation_that_panics_changes_nothing() {
    let cuts = AtomicU64::new(0);
    let watched = Watched::new(&disk(1, 8192), move |call| {
        let panics = call == Call::SetLen && cuts.fetch_add(1, Ordering::SeqCst) == 0;
        if panics { panic!("on purpose") } else { Ok(()) }
    });
    let mm = manager(64, watched);
    let file = open(&mm);
    let error = file.set_len(100).unwrap_err();
    assert!(matches!(error, Error::WriteFailed { error: IoError::IO, .. }), "{error}");
    assert_eq!(file.len(), 8192);
    assert_eq!(file.read_at(&mut [0; 10], 8000).unwrap(), 10);
    file.set_len(100).unwrap();
    assert_eq!((file.len(), file.read_at(&mut [0; 10], 8000).unwrap()), (100, 0));
}

/// Several threads waited in `sync` of the same handle, and the sync that they waited for failed.
/// Only the first of them returned the error. The others returned `Ok`, because the error had
/// already been reported to the handle.
#[test]
fn all_who_wait_for_a_sync_that_fails_hear_of_it() {
    let disk = disk(1, 8192);
    let gate = Arc::new(Gate::default());
    let (syncs, looks) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let (held, seen) = (Arc::clone(&gate), Arc::clone(&looks));
    let mm = manager(
        64,
        Watched::new(&disk, move |call| {
            seen.fetch_add(u64::from(call == Call::Len), Ordering::SeqCst);
            match (call, if call == Call::Sync { syncs.fetch_add(1, Ordering::SeqCst) } else { 9 }) {
                (Call::Sync, 0) => held.pass(),
                (Call::Sync, 1) => return Err(IoError::IO),
                _ => {}
            }
            Ok(())
        }),
    );
    let file = open(&mm);
    let first = file.clone();
    let first = std::thread::spawn(move || first.sync());
    gate.wait_for_somebody();
    file.write_at(&[1; 4096], 0).unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (file, before) = (file.clone(), looks.load(Ordering::SeqCst));
            let sync = Answer::of(move || file.sync());
            // Each sync first asks for the file's length. When the thread has done so and sleeps,
            // it waits for the first sync to end.
            eventually("a sync doesn't begin", || looks.load(Ordering::SeqCst) > before);
            assert!(sync.thread().sleeps(), "a sync doesn't wait for the one under way");
            sync
        })
        .collect();
    gate.open();
    // The first sync itself succeeded. But its thread may also return the error of the next sync,
    // if that sync fails before the thread checks for errors.
    let _ = first.join().unwrap();
    for sync in waiting {
        let result = sync.wait().unwrap();
        assert!(matches!(result, Err(Error::WriteFailed { .. })), "{result:?}");
    }
    file.sync().unwrap();
}

/// A read past the end asks the disk for the file's length. Such a read ran in the middle of
/// `set_len`, which had lowered the known length, but hadn't truncated the file on the disk yet.
/// The read set the known length back to the old one, so the file stayed long, with zeros at its
/// end.
#[test]
fn a_read_past_the_end_does_not_undo_a_cut() {
    let disk = disk(1, 10 * 4096);
    let reader = Arc::new(OnceCell::<File>::new());
    let reads = Arc::clone(&reader);
    let mm = manager(
        64,
        Watched::new(&disk, move |call| {
            if let (Call::SetLen, Some(file)) = (call, reads.get()) {
                assert!(file.read_at(&mut [0; 10], 9 * 4096).is_ok());
            }
            Ok(())
        }),
    );
    let file = open(&mm);
    reader.set(file.clone()).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(file.len(), 5000);
    file.write_at(&[1; 10], 8 * 4096).unwrap();
    file.sync().unwrap();
    let mut expected = vec![0; 8 * 4096];
    expected[..5000].copy_from_slice(&bytes_on(&disk, "f0")[..5000]);
    expected.extend([1; 10]);
    assert_same(&bytes_on(&disk, "f0"), &expected, "cut off and grown");
}

/// `set_len` truncated the file on the disk, and then failed because the page with the new end was
/// pinned. The caller got an error although the file was shorter. When the file grew again, the
/// bytes of the pinned page came back.
#[test]
fn a_file_is_not_cut_within_a_pinned_page() {
    let disk = disk(1, 10 * 4096);
    let mm = manager(64, disk.clone());
    let file = open(&mm);
    let pin = file.page_at(4096).unwrap();
    assert!(matches!(file.set_len(5000), Err(Error::PageBusy { page: 1, .. })));
    assert_eq!((file.len(), bytes_on(&disk, "f0").len()), (10 * 4096, 10 * 4096));
    drop(pin);
    file.set_len(5000).unwrap();
    file.set_len(8192).unwrap();
    let mut tail = [9; 8192 - 5000];
    file.read_exact_at(&mut tail, 5000).unwrap();
    assert!(tail.iter().all(|&byte| byte == 0));
}

/// In the case above, it took seconds until the error, although the reason was known at once.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_cut_within_a_pinned_page_is_refused_at_once() {
    let file = open(&manager(64, disk(1, 10 * 4096)));
    let _pin = file.page_at(4096).unwrap();
    let start = Instant::now();
    assert!(matches!(file.set_len(5000), Err(Error::PageBusy { page: 1, .. })));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// Nearly all pages of a group were pinned. The few others were unclean, but too few to start the
/// flusher. A thread that needed a frame waited for seconds and failed.
#[test]
fn few_unclean_pages_give_way_to_who_needs_a_frame() {
    let mm = manager(256, disk(1, 1 << 20));
    let group = mm.group("a").max(16 * 4096).build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    let _pins: Vec<_> = (0..14).map(|page| file.page_at(page * 4096).unwrap()).collect();
    file.write_at(&[1; 2 * 4096], 20 * 4096).unwrap();
    file.read_at(&mut [0; 10], 30 * 4096).unwrap();
}

/// Pagefold asked for the file's length twice, and another process truncated the file in between.
/// Pagefold then took the file for longer than it was. A write past the new end waited forever for
/// the load of a page that the file no longer had.
#[test]
fn a_write_past_the_end_of_a_file_that_somebody_cut_off_ends() {
    let disk = disk(1, 10 * 4096);
    let looks = AtomicU64::new(0);
    let cut = disk.clone();
    let mm = manager(
        64,
        Watched::new(&disk, move |call| {
            // The first request for the length is that of `open`. When a file turns out to be
            // shorter, its length is requested again.
            if call == Call::Len {
                match looks.fetch_add(1, Ordering::SeqCst) {
                    1 => cut.truncate("f0", 8 * 4096)?,
                    2 => cut.truncate("f0", 5 * 4096)?,
                    _ => {}
                }
            }
            Ok(())
        }),
    );
    let file = open(&mm);
    assert_eq!(file.read_at(&mut [0; 10], 10 * 4096).unwrap(), 0);
    assert_eq!(file.len(), 5 * 4096);
    let writes = file.clone();
    let answer = Answer::of(move || writes.write_at(&[1; 10], 7 * 4096 + 5));
    answer.wait().expect("it goes round for ever").unwrap();
    file.sync().unwrap();
    assert_eq!(bytes_on(&disk, "f0").len(), 7 * 4096 + 15);
}

/// A group's limit was lowered. The pages above the limit were unclean, so they couldn't be
/// evicted. The call must have them written.
#[test]
fn a_lowered_limit_has_unclean_pages_written() {
    let mm = manager(256, disk(1, 1 << 20));
    let group = mm.group("a").max(100 * 4096).build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    file.write_at(&[1; 40 * 4096], 0).unwrap();
    let is_kept = || {
        let start = Instant::now();
        group.set_max(8 * 4096).unwrap();
        let too_early = || panic!("{} bytes are charged", group.charged());
        group.charged() <= 8 * 4096 || start.elapsed() < QUIET_MAX && too_early()
    };
    // If the flusher gets no CPU, the call gives up before the pages are clean.
    eventually("a limit isn't kept", is_kept);
}

/// Pages of a file that couldn't be written were at the cold end of their group's lists. Reclaim
/// looked at these pages again and again, so readers of other files got no frame.
#[test]
fn pages_that_cannot_be_written_are_in_nobodys_way() {
    let disk = disk(1, 4_000 * 4096);
    disk.set_capacity(0);
    let mm = manager(600, disk);
    let group = mm.group("a").build().unwrap();
    let full = group.open_options().write(true).create(true).open("full").unwrap();
    let file = group.open("f0").unwrap();
    let mut random = Random::seeded(1);
    let mut bytes = [0; 4096];
    for round in 0..4_000_u64 {
        if round % 20 == 0 && round < 2_000 {
            full.write_at(&version(1, round, 4096), round / 20 * 4096).unwrap();
        }
        file.read_exact_at(&mut bytes, random.below(4_000) * 4096).unwrap();
    }
    assert_eq!(group.stats().unclean_bytes, 100 * 4096);
    assert!(full.sync().is_err());
}

/// Write-back stopped at the first page that couldn't be written, and began at the file's start
/// again next time. So the pages after a bad sector were never written.
#[test]
fn a_bad_place_does_not_keep_the_rest_from_being_written() {
    let disk = disk(0, 0);
    let backend = BadSector::new(&disk, 512);
    let sector = backend.around.clone();
    let file = open(&manager(2_000, backend));
    // The pages are too far apart to be written by one request, or by one thread's part of a cycle.
    let pages = [0_u64, 2, 1_000, 2_000];
    for page in pages {
        file.write_at(&version(1, page, 4096), page * 4096).unwrap();
    }
    file.sync().unwrap_err();
    assert_eq!(file.stats().unclean_bytes, 4096, "one page couldn't be written");
    sector.mend();
    file.sync().unwrap();
    for page in pages {
        assert_same(&bytes_on(&disk, "f0")[page as usize * 4096..][..4096], &version(1, page, 4096), "written");
    }
}

/// `set_len` was about to truncate a file within a page, when another thread got a guard to change
/// this page. Then `set_len` failed, because another page was pinned. But the guard had the length
/// that the page would have had after the cut, so the rest of the page couldn't be changed.
#[test]
fn a_cut_that_is_refused_does_not_shorten_a_page_that_is_changed() {
    let mm = manager(64, disk(1, 10 * 4096));
    let file = open(&mm);
    let _pin = file.page_at(5 * 4096).unwrap();
    for _ in 0..20 {
        let in_the_way = file.page_mut_at(4096).unwrap();
        // If this thread gets no CPU, either thread may wait for the first guard until its call
        // fails. Then it retries.
        let cuts = || {
            loop {
                let cut = file.set_len(4096 + 1000);
                if !matches!(cut, Err(Error::PageBusy { page: 1, .. })) {
                    break cut;
                }
            }
        };
        let changes = || when_free(|| file.page_mut_at(4096).map(|page| page.len())).unwrap();
        let threads: [Sleeper; 2] = Default::default();
        std::thread::scope(|scope| {
            let cut = scope.spawn(|| threads[0].run(cuts));
            let change = scope.spawn(|| threads[1].run(changes));
            threads.iter().for_each(Sleeper::await_sleep);
            drop(in_the_way);
            assert_eq!(change.join().unwrap(), 4096);
            assert!(matches!(cut.join().unwrap(), Err(Error::PageBusy { page: 5, .. })));
        });
    }
}

/// A read past the end of a file that is open for writing requested the file's length twice.
#[test]
fn a_read_past_the_end_asks_once_how_long_the_file_is() {
    let disk = disk(1, 4096);
    let looks = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&looks);
    let mm = manager(
        64,
        Watched::new(&disk, move |call| {
            seen.fetch_add(u64::from(call == Call::Len), Ordering::SeqCst);
            Ok(())
        }),
    );
    let file = open(&mm);
    let before = looks.load(Ordering::SeqCst);
    assert_eq!(file.read_at(&mut [0; 10], 4096).unwrap(), 0);
    assert_eq!(looks.load(Ordering::SeqCst) - before, 1);
}

/// Another process truncated the file, but the pages past the new end stayed in memory. They must
/// be removed before the file grows again, because the file has zeros there.
#[test]
fn pages_past_the_end_do_not_come_back_when_the_file_grows() {
    for grow in [(|file: &File| file.write_at(&[1; 10], 9 * 4096)) as fn(&File) -> _, |file| file.set_len(10 * 4096)] {
        let disk = disk(1, 10 * 4096);
        let file = open(&manager(64, disk.clone()));
        file.read_exact_at(&mut [0; 4096], 7 * 4096).unwrap();
        disk.truncate("f0", 5 * 4096).unwrap();
        assert_eq!(file.read_at(&mut [0; 10], 10 * 4096).unwrap(), 0);
        assert_eq!(file.len(), 5 * 4096);
        grow(&file).unwrap();
        let mut bytes = [9; 4096];
        file.read_exact_at(&mut bytes, 7 * 4096).unwrap();
        assert_same(&bytes, &[0; 4096], "between the old end and the new one");
    }
}

/// When a request included a bad sector, none of its pages was written. Only the page with the bad
/// sector may stay dirty.
#[test]
fn a_bad_sector_keeps_its_own_page_dirty_and_no_other() {
    let disk = disk(0, 0);
    let backend = BadSector::new(&disk, 37 * 4096 + 512);
    let sector = backend.around.clone();
    let file = open(&manager(2_000, backend));
    let (before, after) = (version(1, 0, 200 * 4096), version(2, 0, 200 * 4096));
    sector.mend();
    file.write_at(&before, 0).unwrap();
    file.sync().unwrap();
    sector.spoil();
    file.write_at(&after, 0).unwrap();
    file.sync().unwrap_err();
    assert_eq!(file.stats().unclean_bytes, 4096, "one page can't be written");
    let on_disk = bytes_on(&disk, "f0");
    assert_same(&on_disk[..37 * 4096], &after[..37 * 4096], "before the bad sector");
    assert_same(&on_disk[38 * 4096..], &after[38 * 4096..], "behind it");
    sector.mend();
    file.sync().unwrap();
    assert_same(&bytes_on(&disk, "f0"), &after, "after all");
}

/// A stage of write-back ends with a sync. During such a sync, pages of the next stage were already
/// being written. The sync failed, and may have lost the writes of both stages. But only the pages
/// of its own stage became dirty again.
#[test]
fn what_was_written_while_a_sync_failed_is_written_again() {
    let disk = disk(0, 0);
    // More pages than may be in flight at a time, so the cycle has three stages; but so few unclean
    // pages that the flusher doesn't start.
    let pages = 10_000;
    let (syncs, armed) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let (fails, on) = (disk.clone(), Arc::clone(&armed));
    let watched = Watched::new(&disk, move |call| {
        // The second sync of the cycle ends its second stage.
        if call == Call::Sync && on.load(Ordering::SeqCst) && syncs.fetch_add(1, Ordering::SeqCst) == 1 {
            fails.fail_syncs(1, 3);
        }
        Ok(())
    });
    let file = open(&manager(40_000, watched));
    let written = version(1, 0, pages * 4096);
    file.write_at(&vec![7; pages * 4096], 0).unwrap();
    file.sync().unwrap();
    armed.store(true, Ordering::SeqCst);
    file.write_at(&written, 0).unwrap();
    file.sync().unwrap_err();
    file.sync().unwrap();
    assert_same(&bytes_on(&disk, "f0"), &written, "after a failed stage");
}
