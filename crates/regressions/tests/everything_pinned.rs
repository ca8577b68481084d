//! A process whose budget is all pinned: each public call succeeds or fails with a typed error,
//! within seconds.
//!
//! All calls are made at the same time, each in a world and a thread of its own, so a test takes as
//! long as the slowest of them.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pagefold::{
    Advice, Error, File, Group, PageRef, Pagefold, Protection, ReadQueue, ReadRequest, Space, WriteRequest,
};

use crate::hooked::Answer;
use crate::support::{disk, manager};

const PAGE: u64 = 4096;
const RW: Protection = Protection::ReadWrite;
/// What a call may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What the calls are made to.
struct World {
    mm: Pagefold,
    group: Group,
    file: File,
    /// Another file, which is mapped in the space.
    mapped: File,
    space: Space,
    /// Memory in the space, of which the first pages are in memory.
    own: u64,
    /// Of `mapped`.
    of_file: u64,
}

/// A call, and its name. Success and typed errors are both fine.
type Call = (&'static str, fn(&World) -> Result<(), Error>);

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A byte of a page that is pinned, and of one that isn't in memory.
const PINNED: u64 = PAGE;
const ABSENT: u64 = 3000 * PAGE;

const FILE_CALLS: &[Call] = &[
    ("read_at pinned", |w| w.file.read_at(&mut [0; 100], PINNED).map(drop)),
    ("read_at absent", |w| w.file.read_at(&mut [0; 100], ABSENT).map(drop)),
    ("read_exact_at", |w| w.file.read_exact_at(&mut [0; 3 * PAGE as usize], ABSENT)),
    ("page pinned", |w| w.file.page_at(PAGE).map(drop)),
    ("page absent", |w| w.file.page_at(3001 * PAGE).map(drop)),
    ("page_async", |w| block_on(w.file.page_at_async(3002 * PAGE)).map(drop)),
    ("read_at_async", |w| block_on(w.file.read_at_async(&mut [0; 3 * PAGE as usize], ABSENT)).map(drop)),
    ("prefetch", |w| {
        w.file.prefetch(0..1 << 40);
        Ok(())
    }),
    ("read_batch", |w| {
        let (mut one, mut other) = ([0; 100], [0; 100]);
        let mut requests = [ReadRequest::new(PINNED, &mut one), ReadRequest::new(ABSENT, &mut other)];
        w.file.read_batch(&mut requests);
        Ok(())
    }),
    ("ReadQueue", |w| {
        let (mut one, mut other) = ([0; 100], [0; 100]);
        let mut queue = ReadQueue::new(&w.file);
        queue.push(ReadRequest::new(PINNED, &mut one), 1);
        queue.push(ReadRequest::new(ABSENT, &mut other), 2);
        while queue.wait().is_some() {}
        Ok(())
    }),
    ("write_at pinned", |w| w.file.write_at(&[1; 100], PINNED)),
    ("write_at absent", |w| w.file.write_at(&[1; 100], ABSENT)),
    ("write_at whole", |w| w.file.write_at(&[1; 2 * PAGE as usize], ABSENT)),
    ("write_at past the end", |w| w.file.write_at(&[1; 100], 5000 * PAGE)),
    ("write_batch", |w| {
        let bytes = [1; 100];
        w.file.write_batch(&mut [WriteRequest::new(PINNED, &bytes), WriteRequest::new(ABSENT, &bytes)]);
        Ok(())
    }),
    ("page_mut pinned", |w| w.file.page_mut_at(PAGE).map(drop)),
    ("page_mut absent", |w| w.file.page_mut_at(3003 * PAGE).map(drop)),
    ("set_len shorter", |w| w.file.set_len(PAGE + 1)),
    ("set_len longer", |w| w.file.set_len(6000 * PAGE)),
    ("sync", |w| w.file.sync()),
    ("sync_range", |w| w.file.sync_range(0..ABSENT)),
    ("advise", |w| {
        let all = [Advice::Normal, Advice::Sequential, Advice::Random, Advice::DontNeed, Advice::Cold, Advice::PageOut];
        all.into_iter().try_for_each(|advice| w.file.advise(0..100 * PAGE, advice))
    }),
    ("advise WillNeed", |w| w.file.advise(0..1 << 40, Advice::WillNeed)),
    ("charge_to", |w| w.file.charge_to(0..1 << 40, &w.group).map(drop)),
    ("close", |w| w.file.clone().close()),
];

const GROUP_CALLS: &[Call] = &[
    ("open again", |w| w.group.open("f0").map(drop)),
    ("open another", |w| w.group.open("f2").map(drop)),
    ("create", |w| w.group.open_options().write(true).create(true).open("new").map(drop)),
    ("truncate", |w| w.group.open_options().write(true).truncate(true).open("f0").map(drop)),
    ("group", |w| w.mm.group("another").max(16 * PAGE).build().map(drop)),
    ("set_max lower", |w| w.group.set_max(8 * PAGE)),
    ("set_max higher", |w| w.group.set_max(1_u64 << 40)),
    ("set_swap_max", |w| w.group.set_swap_max(PAGE)),
    ("hand_over", |w| w.group.hand_over(&w.mm.group("heir").build()?).map(drop)),
    ("space", |w| w.group.space().map(drop)),
    ("resize lower", |w| w.mm.resize("300KiB")),
    ("add_swap", |w| {
        let area = w.mm.add_swap(pagefold::SwapArea::compressed("32KiB"))?;
        w.mm.remove_swap(area)
    }),
    ("stats", |w| {
        let _ = w.mm.stats().to_string();
        let _ = (w.file.stats(), w.group.stats());
        Ok(())
    }),
];

const SPACE_CALLS: &[Call] = &[
    ("Space::read_at pinned", |w| w.space.read_at(&mut [0; 100], w.own)),
    ("Space::read_at never written", |w| w.space.read_at(&mut [0; 100], w.own + 100 * PAGE)),
    ("Space::read_at of a file", |w| w.space.read_at(&mut [0; 100], w.of_file + 500 * PAGE)),
    ("Space::write_at pinned", |w| w.space.write_at(&[2; 100], w.own)),
    ("Space::write_at never written", |w| w.space.write_at(&[2; 100], w.own + 101 * PAGE)),
    ("Space::write_at to a file", |w| w.space.write_at(&[2; 100], w.of_file)),
    ("Space::update_u64 pinned", |w| w.space.update_u64(w.own, |n| Some(n + 1)).map(drop)),
    ("Space::update_u64 never written", |w| w.space.update_u64(w.own + 102 * PAGE, |n| Some(n + 1)).map(drop)),
    ("Space::update_u64 of a file", |w| w.space.update_u64(w.of_file, |n| Some(n + 1)).map(drop)),
    ("Space::page", |w| w.space.page_at(w.own).map(drop)),
    ("Space::page never written", |w| w.space.page_at(w.own + 103 * PAGE).map(drop)),
    ("Space::page of a file", |w| w.space.page_at(w.of_file + 501 * PAGE).map(drop)),
    ("Space::page_mut pinned", |w| w.space.page_mut_at(w.own).map(drop)),
    ("Space::page_mut never written", |w| w.space.page_mut_at(w.own + 104 * PAGE).map(drop)),
    ("Space::page_mut of a file", |w| w.space.page_mut_at(w.of_file).map(drop)),
    ("Space::populate", |w| w.space.populate(w.own..w.own + 200 * PAGE)),
    ("Space::map", |w| w.space.map(64 * PAGE, RW).map(drop)),
    ("Space::map_at", |w| w.space.map_at(1 << 45..(1 << 45) + PAGE, RW)),
    ("Space::map_file", |w| w.space.map_file(&w.mapped, 0, 64 * PAGE, RW).map(drop)),
    ("Space::protect", |w| w.space.protect(w.own..w.own + 200 * PAGE, Protection::Read)),
    ("Space::discard", |w| w.space.discard(w.own..w.own + 200 * PAGE)),
    ("Space::advise", |w| {
        let all = [Advice::Normal, Advice::WillNeed, Advice::Cold, Advice::PageOut, Advice::DontNeed];
        all.into_iter().try_for_each(|advice| w.space.advise(w.own..w.own + 200 * PAGE, advice))
    }),
    ("Space::sync", |w| w.space.sync(w.of_file..w.of_file + 200 * PAGE)),
    ("Space::grow", |w| w.space.grow(w.of_file..w.of_file + 600 * PAGE, 700 * PAGE).map(drop)),
    ("Space::move_to", |w| w.space.move_to(w.own..w.own + 200 * PAGE, 1 << 46)),
    ("Space::move_anywhere", |w| w.space.move_anywhere(w.own..w.own + 200 * PAGE).map(drop)),
    ("Space::unmap", |w| w.space.unmap(w.own..w.own + 200 * PAGE)),
    ("Space::areas", |w| {
        drop(w.space.areas());
        Ok(())
    }),
];

/// Makes one call to a new world, in which all that can be pinned is. Returns what it came to, and
/// how long it took.
fn call_pinned(call: fn(&World) -> Result<(), Error>) -> (Result<(), Error>, Duration) {
    let mm = manager(64, disk(3, 4000 * PAGE));
    let group = mm.group("tenant").build().unwrap();
    let open = |path| group.open_options().write(true).open(path).unwrap();
    let (file, mapped, space) = (open("f0"), open("f1"), group.space().unwrap());
    let own = space.map(200 * PAGE, RW).unwrap().start;
    let of_file = space.map_file(&mapped, 0, 600 * PAGE, RW).unwrap().start;
    space.write_at(&[1; 4 * PAGE as usize], own).unwrap();
    let world = World { mm, group, file, mapped, space, own, of_file };
    let (_own, _of_file) = (world.space.page_at(own).unwrap(), world.space.page_at(of_file).unwrap());
    let (_changed_own, _changed) = (world.space.page_mut_at(own + PAGE).unwrap(), world.file.page_mut_at(0).unwrap());
    let mut pins: Vec<PageRef<'_>> = Vec::new();
    let refused = (1..4000).find_map(|page| world.file.page_at(page * PAGE).map(|pin| pins.push(pin)).err());
    assert!(matches!(refused, Some(Error::LimitReached { .. })), "{refused:?}");
    let start = Instant::now();
    (call(&world), start.elapsed())
}

/// Makes all calls. Returns how long the longest took, and which it was.
fn call_all(calls: &'static [Call]) -> (Duration, String) {
    let answers: Vec<_> = calls.iter().map(|&(name, call)| (name, Answer::of(move || call_pinned(call)))).collect();
    let each = answers.into_iter().map(|(name, answer)| {
        let (outcome, time) = answer.wait().unwrap_or_else(|| panic!("{name}: no answer"));
        (time, format!("{name}: {outcome:?}"))
    });
    each.max_by_key(|(time, _)| *time).unwrap()
}

/// With all of its budget pinned, a process had calls that didn't return.
#[test]
fn each_call_to_a_file_answers() {
    let _longest = call_all(FILE_CALLS);
}

#[test]
fn each_call_to_a_group_answers() {
    let _longest = call_all(GROUP_CALLS);
}

#[test]
fn each_call_to_a_space_answers() {
    let _longest = call_all(SPACE_CALLS);
}

/// A group whose hot pages were all pinned never looked at the few others, which its policy held to
/// be the window's share: it got no page any more, kept more than a lower limit, and kept pages
/// after it was dropped.
#[test]
fn the_last_pages_that_are_not_pinned_give_way() {
    for (limit, free) in [(16, 1), (1000, 8)] {
        let mm = manager(4096, disk(1, 64 << 20));
        let group = mm.group("tenant").max(limit * PAGE).build().unwrap();
        let file = group.open("f0").unwrap();
        file.advise(0..1, Advice::Random).unwrap();
        let pins: Vec<_> = (0..limit - free).map(|page| file.page_at(page * PAGE).unwrap()).collect();
        for page in 2000..2000 + 3 * limit {
            let read = file.read_at(&mut [0; 8], page * PAGE);
            assert!(read.is_ok(), "page {page}, {free} of {limit} aren't pinned: {read:?}");
        }
        group.set_max((limit - free) * PAGE).unwrap();
        assert_eq!(group.charged(), (limit - free) * PAGE);
        drop(pins);
    }
}

/// And others that took longer than any client waits.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_each_call_answers_within_seconds() {
    for calls in [FILE_CALLS, GROUP_CALLS, SPACE_CALLS] {
        let (time, call) = call_all(calls);
        assert!(time < ANSWER_MAX, "{call}, after {time:?}");
    }
}
