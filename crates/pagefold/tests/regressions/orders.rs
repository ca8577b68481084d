//! Orders of events that chance seldom brings about, and in which a write could be lost or come back.

use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pagefold::Advice;
use pagefold::io::Call;

use crate::hooked::{Gate, MOMENT};
use crate::support::{bytes_on, disk, manager};
use crate::watched::Watched;

/// The first writer finds that the file doesn't have the page and waits for a frame. Meanwhile somebody else writes to
/// the page, and it goes to the file and out of memory: now it has to be read.
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
    let pins: Vec<_> = (0..3).map(|page| ours.page(page).unwrap()).collect();
    armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| ours.read_at(&mut [0; 10], 5 * 4096).unwrap());
        gate.wait_for_somebody();
        // The small group is full now, but with a load under way, so it is waited.
        let writer = scope.spawn(|| ours.write_at(&[1; 10], 20 * 4096 + 100));
        std::thread::sleep(MOMENT);
        theirs.write_at(&[2; 10], 20 * 4096 + 500).unwrap();
        theirs.sync().unwrap();
        theirs.advise(Advice::DontNeed, 0..u64::MAX).unwrap();
        gate.open();
        drop(pins);
        writer.join().unwrap().unwrap();
    });
    theirs.sync().unwrap();
    let page = &bytes_on(&disk, "f0")[20 * 4096..21 * 4096];
    assert_eq!((&page[100..110], &page[500..510]), (&[1; 10][..], &[2; 10][..]));
}

/// A page is on its way to the file when that is cut off before it.
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
        let cuts = scope.spawn(|| file.set_len(5 * 4096));
        std::thread::sleep(MOMENT);
        gate.open();
        cuts.join().unwrap().unwrap();
        syncs.join().unwrap().unwrap();
    });
    assert_eq!((file.len(), bytes_on(&disk, "f0").len()), (5 * 4096, 5 * 4096));
}

/// A write past the end has its bytes in the page, but the length hasn't grown yet, because somebody looks how long the
/// file is. Write-back writes the page as far as the old length.
#[test]
fn a_page_written_back_before_the_length_grows_is_written_again() {
    let disk = disk(1, 100);
    let gate = Arc::new(Gate::default());
    let (held, looks) = (Arc::clone(&gate), AtomicU64::new(0));
    let watched = Watched::new(&disk, move |call| {
        // One look at the opening, one with the first read, and the one under the lock.
        if call == Call::Len && looks.fetch_add(1, Ordering::SeqCst) == 2 {
            held.pass();
        }
        Ok(())
    });
    let mm = manager(128, watched);
    let file = mm.group("a").build().unwrap().open_options().write(true).open("f0").unwrap();
    file.write_at(&[1], 0).unwrap();
    file.sync().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| file.read_at(&mut [0; 10], 4096).unwrap());
        gate.wait_for_somebody();
        scope.spawn(|| file.write_at(&[2; 50], 100).unwrap());
        std::thread::sleep(MOMENT);
        file.sync().unwrap();
        gate.open();
    });
    file.sync().unwrap();
    assert_eq!(bytes_on(&disk, "f0")[100..], [2; 50]);
}
