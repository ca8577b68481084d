use std::collections::BTreeMap;

use sync::Arc;
use sync::one_cpu::stay_on_this_cpu;
use sync::random::Random;

use super::*;
use crate::page_map::{BeginLoad, Detach, Labels, PageMap};
use crate::page_word::PageState;
use crate::wait_table::LoadFailure;
use crate::write_state::Unclean;
use crate::writeback::Hold;
use crate::writing::BeginWrite;

const PAGE: usize = 4096;
/// The number of words in a chunk and in a segment, and the charge for a chunk.
const CHUNK: u64 = 512;
const SEGMENT: u64 = CHUNK * 512;
const CHUNK_COST: u64 = 4096;
const BLOCK: u64 = CHUNK * 16;
/// The charge for a system page of states, which neighbouring segments share.
const BLOCK_COST: u64 = 4096;

fn frames_with(change: impl FnOnce(&mut Config)) -> Arc<Frames> {
    let mut config = Config { page_words_shift: Some(24), nodes: Some(1), ..Config::new(2 << 20, PAGE) };
    change(&mut config);
    Arc::new(Frames::new(&config).unwrap())
}

fn frames() -> Arc<Frames> {
    frames_with(|_| {})
}

fn map(frames: &Arc<Frames>, pages: u64) -> PageMap {
    PageMap::new(Arc::clone(frames), pages).unwrap()
}

/// Loads `page` with `byte` as its first byte, and lists its frame.
fn load(map: &PageMap, page: u64, byte: u8) -> FrameId {
    let frame = map.frames().allocate().expect("a frame is free");
    frame.fill(|bytes| {
        bytes.zero_from(0);
        bytes.copy_from(0, &[byte]);
    });
    let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("page {page} can't be loaded") };
    let (frame, _) = loading.publish(frame, Labels::default(), false);
    let id = frame.id();
    map.frames().put_back(frame).unwrap();
    id
}

fn evict(frames: &Frames, frame: FrameId, shadow: u64) -> bool {
    let isolated = frames.isolate(frame).expect("listed");
    match frames.evict(isolated, shadow) {
        Ok(_) => true,
        Err(refused) => {
            frames.put_back(refused.frame).unwrap();
            false
        }
    }
}

/// Returns whether the system has memory behind a frame.
fn has_memory(frames: &Frames, frame: FrameId) -> bool {
    let mut resident = 0_u8;
    // SAFETY: one whole page of our own mapping, and a byte for the result.
    let result = unsafe { libc::mincore(frames.bytes(frame).as_ptr().cast(), PAGE, &raw mut resident) };
    assert_eq!(result, 0);
    resident & 1 != 0
}

/// Runs `body` in a forked child. Returns how the child ended: its exit code, or minus the signal.
///
/// The child has one thread and perhaps locks that are held for ever, so `body` must not allocate.
fn in_child(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs only `body`, which obeys this rule, and then ends.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(!body())),
            child => {
                assert!(child > 0, "no process left");
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
            }
        }
    }
}

// ---- extents

#[test]
fn memory_is_charged_by_the_extent_and_never_past_the_limit() {
    let _one_cpu = stay_on_this_cpu();
    let frames = frames();
    let before = frames.budget().used();
    let first = frames.allocate().unwrap();
    let extent = frames.layout.extent_cost(true);
    assert_eq!(frames.budget().used(), before + extent);
    assert!(!has_memory(&frames, first.id()), "charged before it is used");
    let all: Vec<_> = std::iter::from_fn(|| frames.allocate()).collect();
    assert_eq!(all.len() + 1, frames.stats().frames);
    assert_eq!(frames.budget().used(), before + frames.extents() as u64 * extent);
    assert!(frames.budget().peak() <= frames.budget().max());
    assert!(frames.budget().room() < frames.layout.map_reserve + extent, "all but the maps' share is used");
}

#[test]
fn a_drained_extents_memory_goes_back_to_the_system() {
    let _one_cpu = stay_on_this_cpu();
    let frames = frames();
    let map = map(&frames, 1000);
    let loaded: Vec<_> = (0..100).map(|page| load(&map, page, 1)).collect();
    let (before, extents) = (frames.budget().used(), frames.extents());
    let drain = frames.begin_drain(1, 1, |_| true).unwrap();
    let drained: Vec<_> = drain.frames(0).collect();
    for &frame in drained.iter().filter(|frame| loaded.contains(frame)) {
        assert!(has_memory(&frames, frame) && evict(&frames, frame, 0));
    }
    assert!(drain.finish(0));
    assert_eq!(frames.extents(), extents - 1);
    let part = (frames.extents.frames_each() * PAGE) as u64; // Its records stay.
    assert_eq!(frames.budget().used(), before - part);
    assert!(drained.iter().all(|&frame| !has_memory(&frames, frame)), "charged no more, but still there");
    // When memory is used again, its charge is what was uncharged before, and it reads as zeros.
    let rest: Vec<_> = std::iter::from_fn(|| frames.allocate()).collect();
    let again = rest.iter().find(|frame| drained.contains(&frame.id())).expect("it is used again");
    let mut bytes = [1; PAGE];
    again.copy_to(0, &mut bytes);
    assert_eq!(bytes, [0; PAGE]);
    let new = frames.extents() - extents;
    assert_eq!(frames.budget().used(), before + new as u64 * frames.layout.extent_cost(true));
}

#[test]
fn an_extent_with_a_pinned_page_stays_as_it_was() {
    let frames = frames();
    let map = map(&frames, 1000);
    for page in 0..100 {
        load(&map, page, page as u8);
    }
    frames.set_budget(0);
    let (used, free) = (frames.budget().used(), frames.stats().free_frames);
    let pins: Vec<_> = (0..100).map(|page| map.pin(page).unwrap().unwrap()).collect();
    for _ in 0..2 * frames.extents() {
        let drain = frames.begin_drain(1, 1, |_| true).unwrap();
        let all_free = drain.frames(0).all(|frame| {
            frames.isolate(frame).is_none_or(|isolated| {
                let refused = frames.evict(isolated, 0).expect_err("it is pinned");
                frames.put_back(refused.frame).unwrap();
                false
            })
        });
        if all_free {
            drop(drain); // All frames are free, so `finish` would succeed.
        } else {
            assert!(!drain.finish(0));
            drop(drain);
        }
        assert_eq!((frames.budget().used(), frames.stats().free_frames), (used, free));
    }
    for (page, pin) in pins.iter().enumerate() {
        assert_eq!(pin.bytes()[0], page as u8);
    }
}

#[test]
fn a_page_moves_with_its_labels_and_stays_in_memory() {
    let frames = frames();
    let map = map(&frames, 10);
    let from = load(&map, 3, 7);
    let mut byte = [0];
    assert!(map.read(3 * PAGE as u64, &mut byte)); // Referenced, from now on.
    let pin = map.pin(3).unwrap().unwrap();
    let (page, to) = (frames.isolate(from).unwrap(), frames.allocate().unwrap());
    frames.set_rank(from, 5);
    let (page, to) = frames.move_page(page, to).expect_err("it is pinned");
    drop(pin);
    let id = to.id();
    let (page, old) = frames.move_page(page, to).expect("it is free to move");
    assert_eq!((page.id(), old.id(), frames.rank(id)), (id, from, 5));
    assert_eq!(map.state(3), PageState::Resident { frame: id });
    assert!(frames.is_referenced(id) && map.read(3 * PAGE as u64, &mut byte) && byte == [7]);
    frames.put_back(page).unwrap();
    drop(old);
    assert!(evict(&frames, id, 1) && frames.stats().free_frames == frames.stats().frames);
}

/// Regression: a page was in use when it became clean. From then on it couldn't be moved until the
/// next writeback, so its extent couldn't be given back, although the page was clean.
#[test]
fn a_page_that_was_in_use_when_it_was_settled_moves_later() {
    let frames = frames();
    let map = map(&frames, 10);
    let from = load(&map, 3, 7);
    let BeginWrite::Begun(mut writing) = map.begin_write(3) else { panic!("no other thread has it") };
    assert!(writing.write(0, &[8]), "it was clean");
    drop(writing);
    let (page, to) = (frames.isolate(from).unwrap(), frames.allocate().unwrap());
    let (page, to) = frames.move_page(page, to).expect_err("it is dirty");
    let pin = map.pin(3).unwrap().unwrap();
    let Hold::Held(held) = map.hold(3, Unclean::Dirty) else { panic!("it is dirty") };
    assert!(held.settle());
    let (page, to) = frames.move_page(page, to).expect_err("it is pinned");
    drop(pin);
    let id = to.id();
    let (page, _free) = frames.move_page(page, to).expect("it is free to move");
    assert_eq!(map.state(3), PageState::Resident { frame: id });
    let mut byte = [0];
    assert!(map.read(3 * PAGE as u64, &mut byte) && byte == [8]);
    assert!(map.next_written(0..10).is_none(), "its chunk counts no written page");
    frames.put_back(page).unwrap();
}

/// Regression: see `a_drain_dropped_unfinished_gives_its_catch_back` in
/// `tests/loom_free_frames.rs`.
#[test]
fn a_drain_dropped_unfinished_changes_nothing() {
    let frames = frames();
    let map = map(&frames, 1000);
    for page in 0..100 {
        load(&map, page, page as u8);
    }
    let (used, free) = (frames.budget().used(), frames.stats().free_frames);
    for _ in 0..frames.extents() {
        drop(frames.begin_drain(1, 1, |_| true));
    }
    assert_eq!((frames.budget().used(), frames.stats().free_frames), (used, free));
    for _ in 0..frames.extents() {
        let _ = frames.begin_drain(1, 1, |_| true).unwrap().finish(0);
    }
    for page in 0..100 {
        let mut byte = [0];
        assert!(map.read(page * PAGE as u64, &mut byte) && byte[0] == page as u8, "page {page} was given back in use");
    }
}

/// Regression: all free frames were sifted twice for each extent that was given back. The number of
/// free frames grows with the number of extents, so giving all of them back took quadratic time.
/// Now one sift serves many extents.
#[test]
fn many_extents_are_drained_together_the_emptiest_first() {
    let _one_cpu = stay_on_this_cpu();
    let frames = frames();
    let all: Vec<_> = std::iter::from_fn(|| frames.allocate()).collect();
    let extents = frames.extents();
    let each = all.len() / extents;
    drop(all);
    let map = map(&frames, 1000);
    let pages = each as u64 + 1; // In two extents.
    for page in 0..pages {
        load(&map, page, page as u8);
    }
    let drain = frames.begin_drain(extents - 2, usize::MAX, |_| true).unwrap();
    assert_eq!(drain.len(), extents - 2);
    assert!((0..drain.len()).all(|at| drain.finish(at) && drain.is_finished(at)), "no page is in them");
    assert!(!drain.finish(0), "once is enough");
    drop(drain);
    assert_eq!((frames.extents(), frames.stats().free_frames), (2, each - 1));
    assert!(frames.begin_drain(1, usize::MAX, |frame| !frames.has_unclean(frame)).is_some());
    let _pin = map.pin(0).unwrap().unwrap();
    let drain = frames.begin_drain(2, usize::MAX, |frame| !frames.has_pinned(frame)).unwrap();
    assert_eq!(drain.len(), 1, "in the other one a page is pinned");
    assert!(!drain.finish(0), "a page is in it");
}

#[test]
fn a_lower_limit_is_reached_by_draining_and_a_higher_one_filled_again() {
    let _one_cpu = stay_on_this_cpu();
    let frames = frames_with(|config| config.memory_max = 4 << 20);
    let fill = |frames: &Frames| std::iter::from_fn(|| frames.allocate()).collect::<Vec<_>>().len();
    let at_two = fill(&frames);
    frames.set_budget(4 << 20);
    let at_four = fill(&frames);
    assert!(at_four > at_two * 3 / 2, "{at_two}, then {at_four}");
    frames.set_budget(1 << 20);
    while frames.budget().used() > frames.budget().max() {
        assert!(frames.begin_drain(1, 1, |_| true).unwrap().finish(0), "all frames are free");
    }
    assert!(fill(&frames) <= at_two / 2 + 64);
}

#[test]
fn frames_come_from_both_of_two_nodes_and_go_home() {
    let _one_cpu = stay_on_this_cpu();
    let frames = frames_with(|config| config.nodes = Some(2));
    for _ in 0..3 {
        let all: Vec<_> = std::iter::from_fn(|| frames.allocate()).collect();
        assert_eq!(all.len(), frames.stats().frames);
        assert_eq!(frames.stats().free_frames, 0);
        let of_node = |node| {
            let extent = |frame: &OwnedFrame| frame.id().index() / frames.extents.frames_each();
            all.iter().filter(|frame| frames.extents.node_of(extent(frame)) == node).count()
        };
        assert!(of_node(0) > 0 && of_node(1) > 0, "{} and {}", of_node(0), of_node(1));
        let mut numbers: Vec<_> = all.iter().map(|frame| frame.id().index()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all.len(), "a frame was given out twice");
        drop(all);
        assert_eq!(frames.stats().free_frames, frames.stats().frames);
    }
}

// ---- page maps' memory

#[test]
fn a_map_of_a_terabyte_costs_what_is_used_of_it() {
    let frames = frames_with(|config| config.page_words_shift = None);
    let before = frames.budget().used();
    let pages = (1_u64 << 40) / PAGE as u64;
    let map = map(&frames, pages);
    for page in (0..pages).step_by(pages as usize / 1000) {
        assert_eq!(map.state(page), PageState::Vacant { shadow: 0 });
    }
    assert_eq!((frames.budget().used(), frames.stats().map_bytes), (before, 0));
    let free = |frames: &Frames| frames.budget().used() - frames.extents() as u64 * frames.layout.extent_cost(true);
    for (loaded, page) in [pages - 1, pages / 2, 0].into_iter().enumerate() {
        load(&map, page, 1);
        assert_eq!(free(&frames) - before, (loaded as u64 + 1) * (CHUNK_COST + BLOCK_COST));
    }
    assert_eq!(map.pages_in_memory(0..map.pages()).collect::<Vec<_>>(), [0, pages / 2, pages - 1]);
    for page in [0, pages / 2, pages - 1] {
        let Detach::Listed { frame, .. } = map.detach(page, 1, false) else { panic!("listed") };
        drop(frame);
    }
    drop(map);
    assert_eq!(free(&frames), before, "a dropped map leaves nothing charged");
}

#[test]
fn maps_that_dont_fit_are_refused() {
    let frames = frames();
    assert!(PageMap::new(Arc::clone(&frames), 1 << 25).is_err());
    assert!(PageMap::new(Arc::clone(&frames), u64::MAX).is_err());
    let large = map(&frames, 3 << 22);
    assert!(PageMap::new(Arc::clone(&frames), 2 * SEGMENT).is_err(), "the rest is for maps of one segment");
    let small: Vec<_> = (0..16).map(|_| map(&frames, 1)).collect();
    assert!(PageMap::new(Arc::clone(&frames), 1).is_err(), "the array is used up");
    drop((large, small));
    drop(map(&frames, 3 << 22));
}

/// A plain model of what a map has in memory, and of what must be charged for it.
#[derive(Default)]
struct Plain {
    resident: BTreeMap<u64, (FrameId, u8)>,
    shadows: BTreeMap<u64, u64>,
    chunks: BTreeMap<u64, u64>,
    blocks: BTreeMap<u64, ()>,
}

impl Plain {
    fn enter(&mut self, page: u64) {
        *self.chunks.entry(page / CHUNK).or_default() += 1;
        self.blocks.insert(page / BLOCK % 32, ());
    }

    fn leave(&mut self, page: u64, shadow: u64) {
        *self.chunks.get_mut(&(page / CHUNK)).unwrap() -= 1;
        self.shadows.insert(page, shadow);
    }

    fn forget_idle(&mut self) -> usize {
        let before = self.chunks.len();
        self.chunks.retain(|_, pages| *pages > 0);
        let chunks = &self.chunks;
        self.shadows.retain(|page, _| chunks.contains_key(&(page / CHUNK)));
        before - self.chunks.len()
    }

    fn cost(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_COST + self.blocks.len() as u64 * BLOCK_COST
    }
}

#[test]
fn maps_are_charged_exactly_whatever_happens() {
    for seed in 0..8 {
        let mut random = Random::seeded(seed);
        let frames = frames();
        let pages = 3 * SEGMENT;
        let map = map(&frames, pages);
        let mut plain = Plain::default();
        let before = frames.budget().used();
        for step in 0..3000 {
            let page = random.below(3) * SEGMENT + random.below(2) * BLOCK + random.below(3) * CHUNK + random.below(4);
            let resident = plain.resident.get(&page).copied();
            match (random.below(100), resident) {
                (0..60, None) => {
                    let byte = random.next_u64() as u8;
                    let Some(frame) = frames.allocate() else { continue };
                    let shadow = plain.shadows.get(&page).copied().unwrap_or(0);
                    plain.enter(page);
                    let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("there is room") };
                    assert_eq!(loading.shadow(), shadow, "seed {seed}, step {step}");
                    if random.one_in(4) {
                        loading.fail(LoadFailure(5));
                        plain.leave(page, shadow);
                    } else {
                        frame.fill(|bytes| bytes.copy_from(0, &[byte; PAGE]));
                        let (frame, _) = loading.publish(frame, Labels::default(), false);
                        plain.resident.insert(page, (frame.id(), byte));
                        frames.put_back(frame).unwrap();
                    }
                }
                (0..60, Some((_, byte))) => {
                    let mut read = [0; 8];
                    assert!(
                        map.read(page * PAGE as u64 + 16, &mut read) && read == [byte; 8],
                        "seed {seed}, step {step}"
                    );
                }
                (60..96, Some((frame, _))) => {
                    let shadow = random.below(1 << 40) + 1;
                    if random.one_in(2) {
                        assert!(evict(&frames, frame, shadow));
                    } else {
                        let Detach::Listed { frame, .. } = map.detach(page, shadow, false) else { panic!("listed") };
                        drop(frame);
                    }
                    plain.resident.remove(&page);
                    plain.leave(page, shadow);
                }
                (96.., _) => {
                    // The sweep makes two rounds: the first marks idle chunks, the second gives
                    // them back.
                    assert_eq!(frames.sweep_maps(usize::MAX, |_| ()), plain.forget_idle(), "seed {seed}, step {step}");
                }
                _ => {}
            }
            let maps = frames.budget().used() - before - frames.extents() as u64 * frames.layout.extent_cost(true);
            assert_eq!(maps, plain.cost(), "seed {seed}, step {step}");
            assert_eq!(frames.stats().map_bytes, plain.chunks.len() as u64 * CHUNK_COST);
        }
        for &page in plain.resident.keys() {
            let Detach::Listed { frame, .. } = map.detach(page, 1, false) else { panic!("listed") };
            drop(frame);
        }
        drop(map);
        assert_eq!(frames.budget().used() - before, frames.extents() as u64 * frames.layout.extent_cost(true));
        assert_eq!(frames.stats().free_frames, frames.stats().frames);
    }
}

/// The visit skips chunks with many pages, because a visitor that evicts a few of them doesn't make
/// the chunk idle. It also skips chunks with a dirty page, because a dirty page can't be evicted.
#[test]
fn a_visit_of_sparse_pages_leaves_out_full_chunks_and_written_pages() {
    let frames = frames();
    let map = map(&frames, SEGMENT);
    let pages = [0, CHUNK, CHUNK + 7, 2 * CHUNK, 2 * CHUNK + 1, 2 * CHUNK + 2, 3 * CHUNK];
    let loaded = pages.map(|page| load(&map, page, 1));
    let BeginWrite::Begun(mut writing) = map.begin_write(3 * CHUNK) else { panic!("no other thread has it") };
    assert!(writing.write(0, &[2]), "it was clean");
    drop(writing);
    let visited = |most: usize| {
        let mut seen = Vec::new();
        frames.visit_sparse_pages(|frame, _| {
            seen.push(frame);
            seen.len() < most
        });
        seen.sort_unstable_by_key(|frame| frame.index());
        seen
    };
    let mut expected = loaded[..3].to_vec();
    expected.sort_unstable_by_key(|frame| frame.index());
    assert_eq!(visited(usize::MAX), expected);
    assert_eq!(visited(1).len(), 1);
}

/// A part that a visitor has made idle is given back at once; a part with a page in memory stays.
#[test]
fn a_part_is_given_back_when_its_last_page_has_gone() {
    let frames = frames();
    let map = map(&frames, SEGMENT);
    load(&map, 0, 1);
    let mut seen = Vec::new();
    frames.visit_sparse_pages(|frame, part| {
        seen.push((frame, part));
        true
    });
    let [(frame, part)] = seen[..] else { panic!("{seen:?}") };
    assert!(!frames.give_back(part, |_| ()), "a page is in memory");
    assert!(evict(&frames, frame, 5));
    let before = frames.budget().used();
    assert!(frames.give_back(part, |_| ()) && !frames.give_back(part, |_| ()));
    assert!(frames.budget().used() < before);
    assert_eq!(map.state(0), PageState::Vacant { shadow: 0 }, "with it goes the shadow");
    load(&map, 0, 1);
}

#[test]
fn a_sweep_gives_back_what_was_idle_the_last_time_too() {
    let frames = frames();
    let map = map(&frames, SEGMENT);
    let mut loaded: Vec<_> = (0..4).map(|chunk| load(&map, chunk * CHUNK, 1)).collect();
    let busy = loaded.pop().unwrap();
    for frame in loaded {
        assert!(evict(&frames, frame, 5));
    }
    // All chunks are marked, and the hand reaches the first one again.
    assert_eq!(frames.sweep_maps(1, |_| ()), 1, "no more than is wanted");
    assert_eq!(map.state(0), PageState::Vacant { shadow: 0 }, "with the chunk goes the shadow");
    // The second chunk was used again, which cleared its mark. So the next sweep only marks it, and
    // gives back the third one, which is still marked.
    let again = load(&map, CHUNK + 1, 1);
    assert!(evict(&frames, again, 6));
    assert_eq!(frames.sweep_maps(1, |_| ()), 1);
    assert_eq!(map.state(CHUNK + 1), PageState::Vacant { shadow: 6 });
    assert_eq!(map.state(2 * CHUNK), PageState::Vacant { shadow: 0 });
    assert_eq!(frames.sweep_maps(usize::MAX, |_| ()), 1);
    assert_eq!(frames.stats().map_bytes, CHUNK_COST, "one has a page in memory");
    assert_eq!(frames.sweep_maps(usize::MAX, |_| ()), 0);
    let mut byte = [0];
    assert!(map.read(3 * CHUNK * PAGE as u64, &mut byte) && byte == [1]);
    assert!(evict(&frames, busy, 7));
}

// ---- what the system is asked for

#[test]
fn a_forked_child_has_no_pages_and_knows_it() {
    let frames = frames();
    let map = map(&frames, 1000);
    load(&map, 3, 1);
    assert!(!frames.forked());
    let code = in_child(|| {
        let nothing = map.state(3) == PageState::Vacant { shadow: 0 }
            && !map.read(3 * PAGE as u64, &mut [0; 8])
            && matches!(map.pin(3), Ok(None))
            && matches!(map.detach(3, 0, false), Detach::Vacant)
            && map.pages_in_memory(0..map.pages()).next().is_none();
        nothing && frames.forked()
    });
    assert_eq!(code, 0);
    let mut byte = [0];
    assert!(map.read(3 * PAGE as u64, &mut byte) && byte == [1], "the parent's is untouched");
}

/// Regression: the states of chunks had no memory in the child at all, so the child crashed when it
/// dropped a map.
#[test]
fn a_map_can_be_dropped_in_a_forked_child() {
    let frames = frames();
    let mut dropped = Some(map(&frames, 1000));
    load(dropped.as_ref().unwrap(), 3, 1);
    let code = in_child(|| {
        drop(dropped.take());
        true
    });
    assert_eq!(code, 0);
}

/// The child doesn't inherit the parent's bytes, and doesn't crash when it reads the frame.
#[test]
fn a_frame_is_zeros_in_a_forked_child() {
    let frames = frames();
    let frame = frames.allocate().unwrap();
    frame.fill(|bytes| bytes.copy_from(0, &[1; PAGE]));
    let code = in_child(|| {
        let mut bytes = [1; PAGE];
        frame.copy_to(0, &mut bytes);
        bytes == [0; PAGE]
    });
    assert_eq!(code, 0);
}

/// The administrator can read core dumps, so these must not contain the users' pages.
#[test]
fn pages_are_not_in_core_dumps() {
    let frames = frames();
    let frame = frames.allocate().unwrap();
    frame.fill(|bytes| bytes.copy_from(0, &[1; PAGE]));
    let at = frame.fill(|bytes| bytes.as_ptr().addr());
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_it, mut flags) = (false, "");
    for line in maps.lines() {
        let mut ends = line.split(' ').next().unwrap_or("").split('-').map(|end| usize::from_str_radix(end, 16));
        if let (Some(Ok(start)), Some(Ok(end))) = (ends.next(), ends.next()) {
            is_it = (start..end).contains(&at);
        } else if is_it && let Some(found) = line.strip_prefix("VmFlags:") {
            flags = found;
        }
    }
    assert!(flags.split(' ').any(|flag| flag == "dd"), "the arena's flags are {flags:?}");
}

#[test]
fn segments_are_closed_until_a_page_is_loaded() {
    // Two strides of 512 segments.
    const STRIDE: u64 = SEGMENT * 512;
    let frames = frames_with(|config| config.page_words_shift = Some(28));
    let map = map(&frames, 2 * SEGMENT);
    load(&map, 0, 1);
    let word = |page: u64| &frames.words.words[page as usize];
    let write = |page| {
        in_child(|| {
            word(page).store(1, Ordering::Relaxed);
            true
        })
    };
    assert_eq!(write(1), 0, "the page's stride is open");
    assert_eq!(write(STRIDE), -libc::SIGSEGV, "the next one isn't, and costs no commit charge");
    assert_eq!(word(STRIDE).load(Ordering::Relaxed), 0);
}

/// The next test runs this in a process of its own, where address space is short.
#[test]
#[ignore = "for a process of its own: limits its address space"]
fn with_little_address_space() {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let little = 1_u64 << 30;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) }, 0);
    limit.rlim_cur = pages * 4096 + little;
    if limit.rlim_cur > limit.rlim_max {
        return println!("not here: a gibibyte of address space");
    }
    // SAFETY: the structure outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let frames = frames_with(|config| config.page_words_shift = None);
    let map = map(&frames, SEGMENT);
    load(&map, 0, 1);
    let mut pages = SEGMENT;
    while let Ok(larger) = PageMap::new(Arc::clone(&frames), pages) {
        drop(larger);
        pages *= 2;
    }
    assert!(pages > 4 * SEGMENT, "no room for maps in what there was");
    assert!(pages * 8 <= little / 2, "most is left to the rest of the process");
    drop(vec![1_u8; (little / 2) as usize]);
}

#[test]
fn page_words_make_do_with_little_address_space() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "frames::tests::with_little_address_space"]);
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the test has another name");
}

#[test]
fn address_space_that_isnt_there_is_an_error() {
    let config = Config { memory_max: u64::MAX, ..Config::new(1 << 30, 2 << 20) };
    assert!(Frames::new(&config).is_err());
}
