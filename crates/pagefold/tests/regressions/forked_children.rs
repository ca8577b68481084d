//! What a child gets that inherited a Pagefold over `fork`: refusals, and no lock that it could hang on.

use pagefold::{Advice, Error, File, Group, Pagefold};
use sync::random::Random;

use crate::hooked::PATIENCE;
use crate::meanwhile::meanwhile;
use crate::support::{disk, manager};

/// Runs `body` in a forked child, and fails unless it says that all went well, in time.
fn in_child(body: impl FnOnce() -> bool) {
    // SAFETY: the child calls `body`, which may allocate (glibc allows that), and leaves without unwinding.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: `alarm` touches no memory; the signal ends a child that hangs.
        unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
        let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: leaves at once, and runs nothing that belongs to the parent.
        unsafe { libc::_exit(i32::from(!well)) };
    }
    let mut status = 0;
    // SAFETY: `status` is ours and writable; `child` is our child, and nobody else waits for it.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    assert_eq!(status, 0, "the child ended by signal {}, or with {}", status & 0x7f, status >> 8);
}

/// A Pagefold whose frames are nearly all in use.
fn used() -> (Pagefold, Group, File) {
    let mm = manager(64, disk(1, 1 << 20));
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("f0").unwrap();
    file.advise(Advice::Random, 0..0).unwrap(); // These pages and no others.
    for page in 0..60 {
        file.read_at(&mut [0; 4096], page * 4096).unwrap();
    }
    (mm, group, file)
}

/// A server forked a worker, and the worker built a group for itself. It got one, though nothing could ever be read
/// through it: the child has none of the frames. The refusal belongs where the mistake is.
#[test]
fn a_child_cannot_build_a_group() {
    let (mm, _group, _file) = used();
    in_child(|| matches!(mm.group("child").build(), Err(Error::Forked)));
}

/// A child lowered the budget, went through frames to give back whose memory it doesn't have, and died of `SIGSEGV`.
#[test]
fn a_child_cannot_resize() {
    let (mm, _group, _file) = used();
    in_child(|| matches!(mm.resize("150KiB"), Err(Error::Forked)));
}

/// The same through a group's limit: lowering it evicts pages, the child has none, and it died of `SIGSEGV`.
#[test]
fn a_child_cannot_set_a_limit() {
    let (_mm, group, _file) = used();
    in_child(|| matches!(group.set_max("64KiB"), Err(Error::Forked)));
}

/// A child asked for statistics and was told the parent's, as of the fork, by way of locks that may have been held at
/// that moment. What it has itself is nothing, and it needs no lock to say so.
#[test]
fn the_statistics_of_a_child_are_empty() {
    let (mm, group, file) = used();
    in_child(|| mm.stats().groups.is_empty() && group.stats().charged_bytes == 0 && file.stats().hits == 0);
    assert_eq!(group.stats().charged_bytes, 60 * 4096, "the parent's go on");
}

/// Every child that ends by returning drops what it inherited. It must not close files, or free pages, in structures
/// that it doesn't have.
#[test]
fn a_child_can_drop_everything() {
    let (mm, group, file) = used();
    in_child(move || {
        drop((file, group, mm));
        true
    });
}

/// At a fork, other threads of the parent hold locks, which the child inherits taken and nobody will ever release.
/// Children that dropped a file or looked at statistics took those locks, and hung there.
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
                drop(group.stats());
                true
            });
        }
    });
}
