//! Threads that wait for one another. Each wait must end. If a user holds what a call waits for,
//! the call must fail with a typed error.

use std::time::{Duration, Instant};

use pagefold::{Error, Group, Pagefold, Protection, Space};
use sync::Arc;

use crate::gated_disk::GatedDisk;
use crate::hooked::Answer;
use crate::meanwhile::{meanwhile, share_a_cpu};
use crate::support::{disk, eventually, manager, when_free};

const RW: Protection = Protection::ReadWrite;
/// The longest time that a call may take if it needs a page which is in use.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A space with one page that was written to.
fn one_page() -> (Pagefold, Group, Arc<Space>, u64) {
    let mm = manager(64, disk(1, 1 << 20));
    let group = mm.group("tenant").build().unwrap();
    let space = group.space().unwrap();
    let address = space.map(4096, RW).unwrap().start;
    space.write_at(&[1; 4096], address).unwrap();
    (mm, group, Arc::new(space), address)
}

/// Makes calls that need a page which their own thread holds. Returns how long the longest call
/// took, and its name.
fn write_to_own_pages() -> (Duration, &'static str) {
    type Call = fn(&Space, u64) -> Result<(), Error>;
    let calls: [(&str, Call); 5] = [
        ("write_at beside its own pin", |space, at| {
            let _pin = space.page_at(at)?;
            space.write_at(&[2], at)
        }),
        ("write_at beside its own page_mut", |space, at| {
            let _guard = space.page_mut_at(at)?;
            space.write_at(&[2], at)
        }),
        ("update_u64 beside its own pin", |space, at| {
            let _pin = space.page_at(at)?;
            space.update_u64(at, |n| Some(n + 1)).map(drop)
        }),
        ("update_u64 within update_u64", |space, at| {
            let mut inner = Ok(0);
            space.update_u64(at, |_| {
                inner = space.update_u64(at, |n| Some(n + 1));
                None
            })?;
            inner.map(drop)
        }),
        ("unmap within update_u64", |space, at| {
            let mut inner = Ok(());
            space.update_u64(at, |_| {
                inner = space.unmap(at..at + 4096);
                None
            })?;
            inner
        }),
    ];
    let answers = calls.map(|(what, call)| {
        let answer = Answer::of(move || {
            let (_mm, _group, space, at) = one_page();
            let start = Instant::now();
            let answer = call(&space, at);
            // After the call, the page can be written again.
            space.write_at(&[3], at).unwrap();
            (answer, start.elapsed(), at)
        });
        (what, answer)
    });
    let each = answers.into_iter().map(|(what, answer)| {
        let (answer, time, at) = answer.wait().unwrap_or_else(|| panic!("{what}: no answer"));
        assert!(matches!(answer, Err(Error::AddressBusy { address }) if address == at), "{what}: {answer:?}");
        (time, what)
    });
    each.max_by_key(|(time, _)| *time).unwrap()
}

/// A thread held a guard of a space's page, and wrote to this page. In another case, a thread
/// called `update_u64` within the closure of an `update_u64` of the same page. Each thread waited
/// for itself forever, at full CPU, in safe code.
#[test]
fn a_writer_of_a_page_that_its_own_thread_has_is_told_so() {
    let _longest = write_to_own_pages();
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_writer_of_a_page_that_its_own_thread_has_is_told_so_within_seconds() {
    let (time, what) = write_to_own_pages();
    assert!(time < ANSWER_MAX, "{what}: {time:?}");
}

/// A thread wrote to a space's page without a pause. A reader of this page tried to copy it between
/// two writes, but with pages of 2 MiB a write nearly always begins before the copy ends, so the
/// reader retried forever. Then the reader tried to pin the page between two writes. If both share
/// one CPU, this nearly always fails, because the writer is preempted in the middle of a write.
#[test]
fn a_reader_of_a_page_that_is_written_to_all_the_time_gets_its_turn() {
    const PAGE: usize = 2 << 20;
    let mm = Pagefold::builder().memory("64MiB").page_size(PAGE).backend(disk(1, 1 << 20)).build().unwrap();
    let space = Arc::new(mm.group("tenant").build().unwrap().space().unwrap());
    let at = space.map(PAGE as u64, RW).unwrap().start;
    space.write_at(&vec![1; PAGE], at).unwrap();
    let (theirs, bytes) = (Arc::clone(&space), [vec![1; PAGE], vec![2; PAGE]]);
    let answer = meanwhile(
        2,
        |thread| {
            share_a_cpu();
            when_free(|| theirs.write_at(&bytes[thread as usize], at)).unwrap();
        },
        || {
            let reader = Answer::of(move || {
                share_a_cpu();
                let mut seen = vec![0; PAGE];
                (0..20).all(|_| {
                    space.read_at(&mut seen, at).unwrap();
                    seen.iter().all(|&byte| byte == seen[0])
                })
            });
            reader.wait()
        },
    );
    assert_eq!(answer, Some(true), "no answer, or one of two writes");
}

/// Three threads call `pin` again and again. Each call keeps a page pinned for a while, so the page
/// is nearly always pinned. Meanwhile `write` must succeed ten times.
fn writes_beside_overlapping_pins(pin: impl Fn() + Sync, mut write: impl FnMut() -> Result<(), Error>) {
    meanwhile(
        3,
        |_| pin(),
        || {
            for _ in 0..10 {
                write().unwrap();
            }
        },
    );
}

/// Takes a little longer than a thread needs to pin a page again.
fn look_at(bytes: &[u8]) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(100) {
        std::hint::black_box(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    }
}

/// A write, to be tried once or repeatedly.
type Attempt<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

/// Runs each kind of write while pins overlap. `patiently` decides how often a write is tried.
fn write_beside_pins_that_overlap(mut patiently: impl FnMut(Attempt<'_>) -> Result<(), Error>) {
    let mut beside = |pin: &(dyn Fn() + Sync), write: Attempt<'_>| {
        writes_beside_overlapping_pins(pin, || patiently(write));
    };
    let mm = manager(64, disk(1, 1 << 20));
    let file = mm.group("tenant").build().unwrap().open_options().write(true).open("f0").unwrap();
    beside(&|| look_at(&when_free(|| file.page_at(0)).unwrap()), &mut || file.write_at(&[1; 8], 0));
    let (_mm, _group, space, at) = one_page();
    let pin = || look_at(&when_free(|| space.page_at(at)).unwrap());
    beside(&pin, &mut || space.write_at(&[1; 8], at));
    beside(&pin, &mut || space.page_mut_at(at).map(|mut page| page[0] = 2));
}

/// As above, for two other kinds of write: one makes a file longer whose last page is always
/// pinned, and one changes another group's clean page.
fn grow_beside_pins_that_overlap(mut patiently: impl FnMut(Attempt<'_>) -> Result<(), Error>) {
    let mut beside = |pin: &(dyn Fn() + Sync), write: Attempt<'_>| {
        writes_beside_overlapping_pins(pin, || patiently(write));
    };
    let mm = manager(64, disk(1, 4096 + 100));
    let (group, other) = (mm.group("tenant").build().unwrap(), mm.group("other").build().unwrap());
    let file = group.open_options().write(true).open("f0").unwrap();
    beside(&|| look_at(&when_free(|| file.page_at(4096)).unwrap()), &mut || file.set_len(file.len() + 1));
    let theirs = other.open_options().write(true).open("f0").unwrap();
    beside(&|| look_at(&when_free(|| theirs.page_at(0)).unwrap()), &mut || {
        file.write_at(&[1], 0)?;
        file.sync()?;
        file.charge_to(0..4096, &other)?;
        file.write_at(&[2], 0)?;
        file.sync()
    });
}

/// Many clients pinned a page, each for a moment, so that the page was always pinned. A writer of
/// the page waited for seconds and then failed with `PageBusy`, because new pins were still allowed
/// while it waited.
#[test]
fn a_writer_beside_pins_that_overlap_gets_its_turn() {
    // A client that has pinned the page may get no CPU for as long as a writer waits.
    write_beside_pins_that_overlap(|write| when_free(write));
}

#[test]
fn a_file_grows_beside_pins_of_its_last_page_that_overlap() {
    grow_beside_pins_that_overlap(|write| when_free(write));
}

/// If threads get CPU in time, each write succeeds at the first attempt.
#[test]
#[ignore = "chance: cargo xtask prove times"]
fn chance_a_writer_beside_pins_that_overlap_is_never_told_that_the_page_is_in_use() {
    write_beside_pins_that_overlap(|write| write());
    grow_beside_pins_that_overlap(|write| write());
}

/// A thread pins a page twice. The second pin waits for a writer, and the writer waits for the
/// first pin. Both waits must end: the thread gets its second pin after a while, and the writer
/// fails because the page is in use.
#[test]
fn a_second_pin_does_not_wait_for_ever_for_a_writer_that_waits_for_the_first() {
    let (_mm, _group, space, at) = one_page();
    let first = space.page_at(at).unwrap();
    let theirs = Arc::clone(&space);
    let writer = Answer::of(move || theirs.write_at(&[2], at));
    eventually("the writer doesn't answer", || {
        drop(when_free(|| space.page_at(at)).unwrap());
        writer.has_come()
    });
    let answer = writer.wait().expect("the writer answers");
    assert!(matches!(answer, Err(Error::AddressBusy { .. })), "{answer:?}");
    drop(first);
    space.write_at(&[2], at).unwrap();
}

/// A file's user leaked guards of `page_mut_at`. When the file was closed, the call waited for
/// seconds for each of these pages, one after another. It must wait once for all of them.
#[test]
fn closing_a_file_waits_once_for_all_leaked_guards() {
    // So many guards that two seconds for each would exceed the watchdog's time.
    const GUARDS: u64 = 100;
    let answer = Answer::of(|| {
        let mm = manager(4 * GUARDS, disk(1, 1 << 20));
        let file = mm.group("tenant").build().unwrap().open_options().write(true).open("f0").unwrap();
        (0..GUARDS).for_each(|page| std::mem::forget(file.page_mut_at(page * 4096).unwrap()));
        drop(file);
    });
    assert!(answer.wait().is_some(), "it is still being closed");
}

/// A thread read a page of a file from a device that didn't answer for a while. Meanwhile a
/// writable mapping of the file that contained the page couldn't be unmapped, protected or moved:
/// after two seconds, the call failed with `AddressBusy`, although no thread wrote to the page.
#[test]
fn a_page_that_is_only_being_read_keeps_no_mapping() {
    let disk = GatedDisk::with_file("/file", 8 * 4096);
    let mm = Pagefold::builder().memory("8MiB").backend(disk.clone()).build().unwrap();
    let (group, reader) = (mm.group("mapper").build().unwrap(), mm.group("reader").build().unwrap());
    let (file, theirs) = (group.open_options().write(true).open("/file").unwrap(), reader.open("/file").unwrap());
    let space = group.space().unwrap();
    let [unmapped, protected, moved] = [(); 3].map(|()| space.map_file(&file, 0, 8 * 4096, RW).unwrap());
    disk.fail_reads();
    let read = Answer::of(move || theirs.read_at(&mut [0; 8], 3 * 4096));
    disk.gate.wait_for_somebody();
    space.unmap(unmapped).unwrap();
    space.protect(protected.clone(), Protection::Read).unwrap();
    space.move_anywhere(moved).unwrap();
    assert!(matches!(space.write_at(&[1; 4096], protected.start), Err(Error::NotPermitted { .. })));
    assert!(!read.has_come());
    disk.gate.open();
    assert!(matches!(read.wait(), Some(Err(error)) if matches!(error.cause(), Error::ReadFailed { .. })));
}
