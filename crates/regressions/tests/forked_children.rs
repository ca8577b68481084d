//! What a child process may do with a Pagefold that it inherited over `fork`: calls are refused,
//! and take no lock that could block forever.

use std::task::{Wake, Waker};

use pagefold::{Advice, Error, File, Group, Pagefold};
use sync::Arc;
use sync::lock::Mutex;
use sync::random::Random;

use crate::meanwhile::meanwhile;
use crate::support::{WATCHDOG, disk, manager};

/// Runs `body` in a forked child. Fails unless `body` returns true before the watchdog's time is
/// over.
pub(crate) fn in_child(body: impl FnOnce() -> bool) {
    // SAFETY: the child calls `body`, which may allocate (glibc allows that), and leaves without
    // unwinding.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: `alarm` touches no memory; the signal ends a child that hangs.
        unsafe { libc::alarm(WATCHDOG.as_secs() as u32) };
        let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: leaves at once, and runs nothing that belongs to the parent.
        unsafe { libc::_exit(i32::from(!well)) };
    }
    expect_success(child);
}

fn expect_success(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `status` is ours and writable; `child` is our child, and no other thread waits for
    // it.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    let signal = status & 0x7f;
    assert_ne!(signal, libc::SIGALRM, "the child hangs, after {WATCHDOG:?}");
    assert_eq!(status, 0, "the child ended by signal {signal}, or with {}", status >> 8);
}

/// A Pagefold whose frames are nearly all in use.
fn used() -> (Pagefold, Group, File) {
    let mm = manager(64, disk(1, 1 << 20));
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(0..0, Advice::Random).unwrap(); // These pages and no others.
    for page in 0..60 {
        file.read_at(&mut [0; 4096], page * 4096).unwrap();
    }
    (mm, group, file)
}

/// A child built a group and succeeded, although it could never read anything through the group: a
/// child doesn't inherit the frames' contents. `build` itself must fail.
#[test]
fn a_child_cannot_build_a_group() {
    let (mm, _group, _file) = used();
    in_child(|| matches!(mm.group("child").build(), Err(Error::Forked)));
}

/// A child lowered the budget. The call touched the frames that were to be given back. At that
/// time, frames weren't mapped in a child, so the child died of `SIGSEGV`.
#[test]
fn a_child_cannot_resize() {
    let (mm, _group, _file) = used();
    in_child(|| matches!(mm.resize("150KiB"), Err(Error::Forked)));
}

/// As above, with a group's limit: lowering it evicts pages, and so touched frames that weren't
/// mapped in the child.
#[test]
fn a_child_cannot_set_a_limit() {
    let (_mm, group, _file) = used();
    in_child(|| matches!(group.set_max("64KiB"), Err(Error::Forked)));
}

/// In a child, `stats` returned the parent's numbers as of the fork, and took locks that another
/// thread may have held at the fork. It must return empty statistics, without a lock.
#[test]
fn the_statistics_of_a_child_are_empty() {
    let (mm, group, file) = used();
    in_child(|| mm.stats().groups.is_empty() && group.stats().charged_bytes == 0 && file.stats().hits == 0);
    assert_eq!(group.stats().charged_bytes, 60 * 4096, "the parent's go on");
}

/// A child that returns from `main` drops what it inherited. These drops must not close files or
/// free pages, because the child doesn't inherit the contents of frames and page maps.
#[test]
fn a_child_can_drop_everything() {
    let (mm, group, file) = used();
    in_child(move || {
        drop((file, group, mm));
        true
    });
}

/// A child dropped a Pagefold that it had inherited, which detached a thread of the child's own
/// Pagefold. When the child dropped its own Pagefold, it couldn't join this thread, and panicked.
/// The reason: a thread's id is the address of its stack, and the C library reuses the stacks of
/// the parent's threads. Here the child's threads use up all these stacks.
#[test]
fn a_child_can_drop_what_it_inherited_beside_pagefolds_of_its_own() {
    let (mm, group, file) = used();
    in_child(move || {
        let own: Vec<_> = (0..64).map(|_| manager(64, disk(1, 1 << 20))).collect();
        drop((file, group, mm));
        drop(own);
        true
    });
}

/// Other threads of the parent held locks at the fork. In the child these locks stay locked
/// forever, as it doesn't have these threads. A child that dropped a file, or read statistics, took
/// these locks and hung.
#[test]
fn a_child_does_not_wait_for_locks_that_were_held_at_the_fork() {
    let mm = manager(64, disk(1, 64 << 20));
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("f0").unwrap();
    let work = |thread| {
        let mut random = Random::seeded(thread);
        for _ in 0..100 {
            let _ = file.read_at(&mut [0; 4096], random.below(16_384) * 4096);
            if thread == 1 {
                drop(mm.stats());
            }
        }
    };
    meanwhile(2, work, || {
        for _ in 0..40 {
            let inherited = file.clone();
            in_child(|| {
                drop(inherited);
                drop((group.stats(), mm.stats()));
                mm.find_group("tenant").is_none() && mm.groups().is_empty()
            });
        }
    });
}

/// As above, with spaces: `areas`, `map`, `map_file` and `move_anywhere` took a lock before they
/// checked whether they were in a child.
#[test]
fn a_child_is_refused_by_a_space_before_it_waits_for_a_lock() {
    let (_mm, group, file) = used();
    let space = group.space().unwrap();
    let read = pagefold::Protection::Read;
    let fixed = space.map(4096, read).unwrap();
    let work = |thread: u64| {
        for _ in 0..4_000 {
            if thread == 0 {
                let area = space.map(4096, read).unwrap();
                space.unmap(area).unwrap();
            } else {
                assert!(!space.areas().is_empty());
            }
        }
    };
    meanwhile(2, work, || {
        for _ in 0..20 {
            in_child(|| {
                let refused = |result: Result<std::ops::Range<u64>, Error>| matches!(result, Err(Error::Forked));
                space.areas().is_empty()
                    && refused(space.map(4096, read))
                    && refused(space.map_file(&file, 0, 4096, read))
                    && refused(space.move_anywhere(fixed.clone()))
                    && refused(space.grow(fixed.clone(), 8192))
                    && space.unmap(fixed.clone()).is_err()
            });
        }
    });
}

/// A thread forked while it had guards. The child dropped them as its function returned or unwound.
/// Each drop wrote to the frame's record, which wasn't mapped in the child at that time, so the
/// child died of `SIGSEGV`. It also died when it read a guard's page. Now the child reads zeros
/// there, and the drops have no effect.
#[test]
fn a_child_can_read_and_drop_the_guards_of_its_thread() {
    let mm = manager(64, disk(2, 1 << 20));
    let group = mm.group("tenant").build().unwrap();
    let file = group.open_options().write(true).open("f0").unwrap();
    let mapped = group.open_options().write(true).open("f1").unwrap();
    let space = group.space().unwrap();
    let rw = pagefold::Protection::ReadWrite;
    let (own, of_file) =
        (space.map(16 * 4096, rw).unwrap().start, space.map_file(&mapped, 0, 16 * 4096, rw).unwrap().start);
    space.write_at(&[1; 16 * 4096], own).unwrap();
    let pins = [file.page_at(0).unwrap(), file.page_at(4096).unwrap()];
    let pages = [space.page_at(own).unwrap(), space.page_at(of_file).unwrap()];
    let mut changed = [
        file.page_mut_at(2 * 4096).unwrap(),
        space.page_mut_at(own + 4096).unwrap(),
        space.page_mut_at(of_file + 4096).unwrap(),
    ];
    in_child(move || {
        let seen: u64 = pins.iter().flat_map(|pin| pin.iter()).map(|&byte| u64::from(byte)).sum();
        let seen = seen + pages.iter().flat_map(|page| page.iter()).map(|&byte| u64::from(byte)).sum::<u64>();
        for page in &mut changed {
            page[0] = page[0].wrapping_add(1);
        }
        drop((pins, pages, changed));
        seen == 0
    });
    drop(mm);
}

/// Forks children that run `in_child` and then call `exit`, as C programs do. Meanwhile other
/// threads of the parent read statistics.
fn exit_beside_statistics(children: u32, in_child: impl Fn() -> bool) {
    let (mm, _group, file) = used();
    meanwhile(
        2,
        |_| drop(mm.stats()),
        || {
            for _ in 0..children {
                file.read_at(&mut [0; 8], 0).unwrap(); // This thread counts.
                // SAFETY: the child allocates, which glibc allows, and exits as C programs do. It
                // has no thread but this one, and runs nothing of the parent's but what is
                // registered for its end.
                let child = unsafe { libc::fork() };
                assert!(child >= 0, "fork failed");
                if child == 0 {
                    // SAFETY: `alarm` touches no memory; the signal ends a child that hangs.
                    unsafe { libc::alarm(WATCHDOG.as_secs() as u32) };
                    let well = in_child();
                    // SAFETY: as above.
                    unsafe { libc::exit(i32::from(!well)) };
                }
                expect_success(child);
            }
        },
    );
}

/// Another thread was reading statistics at the fork, and so held the lock of all threads'
/// counters. When a child called `exit`, its main thread gave its counters back. To do so, it
/// waited for this lock forever.
#[test]
fn a_child_can_exit() {
    exit_beside_statistics(200, || sync::thread::spawn("child's", || ()).unwrap().join().is_ok());
}

/// A child that made a Pagefold of its own hung in one of seven runs. The child had inherited two
/// locked structures: the lock library's table of waiting threads, and a lock of the standard
/// library that each thread takes as it starts.
#[test]
fn a_child_can_have_a_pagefold_of_its_own() {
    exit_beside_statistics(20, || {
        drop(manager(64, disk(1, 1 << 20)));
        true
    });
}

/// A child advised that pages be evicted next. The call waited for locks that threads of the parent
/// had held at the fork, or changed lists that only the parent may change.
#[test]
fn a_child_cannot_advise() {
    let (_mm, _group, file) = used();
    for advice in [Advice::Cold, Advice::DontNeed, Advice::WillNeed, Advice::PageOut, Advice::Random] {
        in_child(|| matches!(file.advise(0..4096, advice), Err(Error::Forked)));
    }
}

/// Drops a file, and then forks.
struct Forks {
    file: Mutex<Option<File>>,
    child: Mutex<libc::pid_t>,
}

impl Wake for Forks {
    fn wake(self: Arc<Self>) {
        drop(self.file.lock().take());
        // SAFETY: the child runs what follows the waker, and leaves without unwinding.
        let child = unsafe { libc::fork() };
        *self.child.lock() = child;
        if child == 0 {
            // SAFETY: `alarm` touches no memory; the signal ends a child that hangs.
            unsafe { libc::alarm(WATCHDOG.as_secs() as u32) };
        }
    }
}

/// A task's waker dropped a file's last handle, and then forked. When the waker returned in the
/// child, the child closed the file: it took locks that threads of the parent may have held at the
/// fork, and started a thread.
#[test]
fn a_child_does_not_close_what_a_waker_dropped_before_the_fork() {
    let (_mm, _group, file) = used();
    let forks = Arc::new(Forks { file: Mutex::new(Some(file)), child: Mutex::new(-1) });
    sync::tasks::wake_all([Waker::from(Arc::clone(&forks))]);
    let child = *forks.child.lock();
    if child == 0 {
        let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        // SAFETY: leaves at once, and runs nothing that belongs to the parent.
        unsafe { libc::_exit(i32::from(threads > 1)) };
    }
    assert!(child > 0, "fork failed");
    expect_success(child);
}
