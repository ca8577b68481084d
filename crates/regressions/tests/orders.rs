//! Orders of events that rarely occur by chance, and in which a write could be lost, or removed
//! bytes could come back.

use sync::atomic::{AtomicBool, Ordering};
use sync::{Arc, asleep};

use pagefold::{Advice, Error, Protection, Space};
use test_disks::Call;

use crate::hooked::Gate;
use crate::support::{bytes_on, disk, manager};
use crate::watched::Watched;

/// In order: a writer finds that its page lies past the file's end. So the page needn't be read,
/// and the writer waits for a frame. Another thread writes to the same page, which is written back
/// and evicted. When the first writer gets its frame, it must read the page.
#[test]
fn a_page_that_came_to_the_file_while_a_writer_waited_is_read() {
    let disk = disk(1, 10 * 4096);
    let gate = Arc::new(Gate::default());
    let armed = Arc::new(AtomicBool::new(false));
    let (held, hold) = (Arc::clone(&gate), Arc::clone(&armed));
    let watched = Watched::new(&disk, move |call| {
        if call == Call::Read && hold.swap(false, Ordering::SeqCst) {
            held.pass();
        }
        Ok(())
    });
    let mm = manager(128, watched);
    let (small, large) = (mm.group("small").max(4 * 4096).build().unwrap(), mm.group("large").build().unwrap());
    let [ours, theirs] = [&small, &large].map(|group| group.open_options().write(true).open("f0").unwrap());
    theirs.write_at(&[9], 30 * 4096).unwrap();
    let pins: Vec<_> = (0..3).map(|page| ours.page_at(page * 4096).unwrap()).collect();
    armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| ours.read_at(&mut [0; 10], 5 * 4096).unwrap());
        gate.wait_for_somebody();
        // The small group is full, but one of its pages is loading, so the writer waits instead of
        // failing.
        let writer = asleep::spawn(scope, || ours.write_at(&[1; 10], 20 * 4096 + 100));
        theirs.write_at(&[2; 10], 20 * 4096 + 500).unwrap();
        theirs.sync().unwrap();
        theirs.advise(0..u64::MAX, Advice::DontNeed).unwrap();
        gate.open();
        drop(pins);
        writer.join().unwrap().unwrap();
    });
    theirs.sync().unwrap();
    let page = &bytes_on(&disk, "f0")[20 * 4096..21 * 4096];
    assert_eq!((&page[100..110], &page[500..510]), (&[1; 10][..], &[2; 10][..]));
}

/// While a page is being written back, the file is truncated before this page. The write must not
/// make the file longer again.
#[test]
fn what_is_on_its_way_does_not_make_a_file_longer_that_is_cut_off() {
    let disk = disk(1, 10 * 4096);
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let watched = Watched::new(&disk, move |call| {
        if call == Call::Write {
            held.pass();
        }
        Ok(())
    });
    let mm = manager(128, watched);
    let file = mm.group("a").build().unwrap().open_options().write(true).open("f0").unwrap();
    file.write_at(&[1; 4096], 9 * 4096).unwrap();
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| file.sync());
        gate.wait_for_somebody();
        let cuts = asleep::spawn(scope, || file.set_len(5 * 4096));
        gate.open();
        cuts.join().unwrap().unwrap();
        syncs.join().unwrap().unwrap();
    });
    assert_eq!((file.len(), bytes_on(&disk, "f0").len()), (5 * 4096, 5 * 4096));
}

/// A write past the end has put its bytes into the page, but can't raise the length yet, because a
/// reader holds the lock of the length. Meanwhile write-back writes the page up to the old end.
/// After the length has been raised, the page must be written again.
#[test]
fn a_page_written_back_before_the_length_grows_is_written_again() {
    let disk = disk(1, 100);
    let gate = Arc::new(Gate::default());
    let armed = Arc::new(AtomicBool::new(false));
    let (held, hold) = (Arc::clone(&gate), Arc::clone(&armed));
    let watched = Watched::new(&disk, move |call| {
        // Holds back only the reader's request for the length, which it makes under the lock.
        // Write-back's requests come later.
        if call == Call::Len && hold.swap(false, Ordering::SeqCst) {
            held.pass();
        }
        Ok(())
    });
    let mm = manager(128, watched);
    let file = mm.group("a").build().unwrap().open_options().write(true).open("f0").unwrap();
    file.write_at(&[1], 0).unwrap();
    file.sync().unwrap();
    armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| file.read_at(&mut [0; 10], 4096).unwrap());
        gate.wait_for_somebody();
        asleep::spawn(scope, || file.write_at(&[2; 50], 100).unwrap());
        file.sync().unwrap();
        gate.open();
    });
    file.sync().unwrap();
    assert_eq!(bytes_on(&disk, "f0")[100..], [2; 50]);
}

/// Runs `access` on a page of a mapped file, and unmaps the file while the device reads the page.
fn unmap_during<T: Send>(access: impl FnOnce(&Space, u64) -> Result<T, Error> + Send) -> Result<T, Error> {
    let disk = disk(1, 10 * 4096);
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let watched = Watched::new(&disk, move |call| {
        if call == Call::Read {
            held.pass();
        }
        Ok(())
    });
    let group = manager(128, watched).group("a").build().unwrap();
    let space = group.space().unwrap();
    let area = space.map_file(&group.open("f0").unwrap(), 0, 4 * 4096, Protection::Read).unwrap();
    std::thread::scope(|scope| {
        let accesses = scope.spawn(|| access(&space, area.start + 2 * 4096));
        gate.wait_for_somebody();
        space.unmap(area.clone()).unwrap();
        gate.open();
        accesses.join().unwrap()
    })
}

/// A reader at an address waits for the device. Before the page arrives, the file is unmapped
/// there. The reader must fail with `NotMapped`.
#[test]
fn a_page_that_is_unmapped_while_it_is_read_is_not_read() {
    let mut bytes = [0; 100];
    let read = unmap_during(|space, address| space.read_at(&mut bytes, address));
    assert!(matches!(read, Err(Error::NotMapped { .. })), "{read:?}");
}

/// As above, for a thread that wants to pin the page.
#[test]
fn a_page_that_is_unmapped_while_it_is_pinned_is_not_pinned() {
    let pinned = unmap_during(|space, address| space.page_at(address).map(|page| page.len()));
    assert!(matches!(pinned, Err(Error::NotMapped { .. })), "{pinned:?}");
}
