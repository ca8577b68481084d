//! Pages are swapped out while other threads write to them, read them, unmap them, or take their
//! slots away.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{
    BeginLoad, BeginWrite, Detach, FrameId, Frames, Hold, Labels, PageMap, PageState, Unclean, Writing,
};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering, spin_hint};

/// The swap slots in these models: a new one, and one that a page keeps.
const PLACE: u64 = 7;
const KEPT: u64 = 5;

fn one_page(mark: u64, slot: u64) -> (Arc<Frames>, Arc<PageMap>) {
    let frames = frames(1);
    let map = map(&frames, 2);
    let frame = frames.allocate().expect("a frame is free");
    let BeginLoad::Begun(loading) = map.begin_load(0) else { panic!("nobody else is there") };
    frame.fill(|bytes| bytes.copy_from(0, &contents(mark)));
    let (isolated, _) = loading.publish(frame, Labels { slot, ..Labels::default() }, false);
    assert!(list(&frames, isolated));
    (frames, map)
}

/// Swaps page 0 out. See [`swap_out_of`].
fn swap_out(map: &PageMap) -> Option<([u8; PAGE], u64)> {
    let PageState::Resident { frame } = map.state(0) else { return None };
    swap_out_of(map.frames(), frame)
}

/// Swaps the page in `frame` out. If the page still keeps a slot with its current bytes, it is
/// swapped out to that slot, otherwise to `PLACE`. Returns the bytes that were copied from the
/// frame, and the number of a kept slot whose bytes are out of date, or 0. Returns `None` if the
/// page stays in memory, or was removed.
fn swap_out_of(frames: &Frames, frame: FrameId) -> Option<([u8; PAGE], u64)> {
    let isolated = frames.isolate(frame)?;
    let mut device = [0; PAGE];
    let Some(page) = frames.look_unwritten(&isolated) else {
        list(frames, isolated);
        return None;
    };
    page.bytes().copy_to(0, &mut device);
    let kept = page.slot();
    match frames.swap_out(isolated, &page, kept.unwrap_or(PLACE), kept.is_some(), || {}) {
        Ok((frame, in_vain)) => {
            drop(frame);
            Some((device, in_vain))
        }
        Err(isolated) => {
            list(frames, isolated);
            None
        }
    }
}

/// Unmaps page 0. Returns the slots that the page had.
fn unmap(map: &PageMap) -> Vec<u64> {
    loop {
        match map.detach(0, 0, true) {
            Detach::Vacant => return vec![],
            Detach::Listed { slot, frame, .. } => {
                drop(frame);
                return [slot].into_iter().filter(|&slot| slot != 0).collect();
            }
            Detach::Orphaned { slot, .. } => return [slot].into_iter().filter(|&slot| slot != 0).collect(),
            Detach::Swapped { entry } => return vec![entry],
            Detach::Pinned | Detach::Busy | Detach::Loading | Detach::Unclean => spin_hint(),
        }
    }
}

/// Begins to write to a page in memory. Retries until it succeeds.
fn writing(map: &PageMap, page: u64) -> Writing<'_> {
    loop {
        match map.begin_write(page) {
            BeginWrite::Begun(writing) => return writing,
            _ => spin_hint(),
        }
    }
}

fn word(bytes: [u8; PAGE]) -> u64 {
    let halves = [&bytes[..8], &bytes[8..]].map(|half| u64::from_ne_bytes(half.try_into().unwrap()));
    assert_eq!(halves[0], halves[1], "torn");
    halves[0]
}

/// W1: either the device has the bytes that the last writer left, or the page stays in memory. Only
/// the first write to a page changes the page's word. Later writes change the version alone.
#[test]
fn nothing_that_was_written_is_left_behind() {
    [false, true].into_iter().for_each(swap_out_beside_a_writer);
}

fn swap_out_beside_a_writer(was_written: bool) {
    sync::model(move || {
        let (_frames, map) = one_page(0xa, 0);
        if was_written {
            writing(&map, 0).write_unfiled(0, &contents(0xa));
        }
        let theirs = Arc::clone(&map);
        let wrote = Arc::new(AtomicU64::new(0));
        let their_wrote = Arc::clone(&wrote);
        let writer = thread(move || {
            if let BeginWrite::Begun(mut writing) = theirs.begin_write(0) {
                let _ = writing.write(0, &contents(0xb));
                their_wrote.store(1, Ordering::Relaxed);
            }
        });
        let out = swap_out(&map);
        writer.join().unwrap();
        let last = if wrote.load(Ordering::Relaxed) == 1 { 0xb } else { 0xa };
        match (out, map.state(0)) {
            (Some((device, _)), PageState::Swapped { entry: PLACE }) => assert_eq!(word(device), last),
            (None, PageState::Resident { .. }) => {
                let mut bytes = [0; PAGE];
                assert!(map.read(0, &mut bytes));
                assert_eq!(word(bytes), last);
            }
            other => panic!("{other:?}"),
        }
    });
}

/// A reader finds the page in memory, or finds that it isn't there. It never gets the bytes of the
/// frame's next page.
#[test]
fn a_reader_gets_the_page_or_finds_it_elsewhere() {
    sync::model(|| {
        let (frames, map) = one_page(0xa, 0);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let mut bytes = [0; PAGE];
            if theirs.read(0, &mut bytes) {
                assert_eq!(word(bytes), 0xa);
            }
        });
        if swap_out(&map).is_some() {
            load(&map, 1, 0xc);
        }
        reader.join().unwrap();
        drop(frames);
    });
}

/// W2, W3, W4: the thread that unmaps the page gets the page's slot exactly once, whether the page
/// was still in memory or already swapped out. The frame is free afterwards.
#[test]
fn a_page_that_is_unmapped_on_its_way_out_leaves_nothing() {
    for kept in [0, KEPT] {
        sync::model(move || {
            let (frames, map) = one_page(0xa, kept);
            let theirs = Arc::clone(&map);
            let places = Arc::new(AtomicU64::new(0));
            let their_places = Arc::clone(&places);
            let remover = thread(move || {
                unmap(&theirs)
                    .into_iter()
                    .for_each(|place| _ = their_places.fetch_add(1 << (8 * (place - 5)), Ordering::Relaxed));
            });
            let out = swap_out(&map);
            remover.join().unwrap();
            assert!(matches!(map.state(0), PageState::Vacant { .. }));
            let expected = match (kept, out) {
                (0, None) => 0,
                (0, Some(_)) => 1 << 16,
                _ => 1,
            };
            assert_eq!(places.load(Ordering::Relaxed), expected);
            assert!(frames.allocate().is_some(), "the frame was leaked");
        });
    }
}

/// W6. Regression: a swapper made a written page's word *swapped*, and only then removed the page
/// from the chunk's count of written words. In between, another thread unmapped the page and
/// dropped the map. The drop gave the chunk back, because no word was in use, and the swapper then
/// subtracted from the state of an absent chunk. So the chunk stayed *locked* for ever. Now the
/// swapper removes the page from the count first.
#[test]
fn a_map_dropped_while_a_written_page_is_swapped_out_leaves_nothing() {
    sync::model(|| {
        let (frames, old) = one_page(0xa, 0);
        let first = old.first_word();
        writing(&old, 0).write_unfiled(0, &contents(0xb));
        let frame = frame_of(&old, 0);
        let theirs = Arc::clone(&frames);
        let swapper = thread(move || _ = swap_out_of(&theirs, frame));
        unmap(&old);
        drop(old);
        swapper.join().unwrap();
        assert_eq!(frames.budget().used(), EXTENT);
        let new = map(&frames, 2);
        assert_eq!(new.first_word(), first, "the old map's words are lost");
        load(&new, 0, 0xc);
        unmap(&new);
        drop(new);
        assert_eq!(frames.budget().used(), EXTENT);
    });
}

/// W4: a page is never swapped out to a slot that another thread has taken away.
#[test]
fn a_place_that_is_taken_away_is_nobody_elses() {
    sync::model(|| {
        let (frames, map) = one_page(0xa, KEPT);
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&frames);
        let taken = Arc::new(AtomicU64::new(0));
        let their_taken = Arc::clone(&taken);
        let taker = thread(move || {
            their_taken.store(u64::from(theirs.take_slot(frame, KEPT, false).is_some()), Ordering::Relaxed);
        });
        let out = swap_out(&map);
        taker.join().unwrap();
        let taken = taken.load(Ordering::Relaxed) == 1;
        match map.state(0) {
            PageState::Swapped { entry: KEPT } => assert!(!taken && out.is_some()),
            PageState::Swapped { entry: PLACE } => assert!(taken && out == Some((contents(0xa), 0))),
            PageState::Resident { .. } => assert!(out.is_none()),
            other => panic!("{other:?}"),
        }
    });
}

/// The entry of a swapped page goes to exactly one thread: to the faulting thread, or to the thread
/// that unmaps the page. If the fault comes first, the unmapping thread waits for it.
#[test]
fn an_entry_is_one_partys() {
    sync::model(|| {
        let (_frames, map) = one_page(0xa, 0);
        swap_out(&map).expect("nobody else is there");
        let theirs = Arc::clone(&map);
        let got = Arc::new(AtomicU64::new(0));
        let their_got = Arc::clone(&got);
        let faulter = thread(move || {
            let frame = theirs.frames().allocate().expect("a frame is free");
            if let BeginLoad::Begun(loading) = theirs.begin_load(0)
                && let Some(entry) = loading.swapped()
            {
                assert_eq!(entry, PLACE);
                their_got.fetch_add(1, Ordering::Relaxed);
                frame.fill(|bytes| bytes.copy_from(0, &contents(0xa)));
                let (isolated, _) = loading.publish(frame, Labels::default(), false);
                list(theirs.frames(), isolated);
            }
        });
        let places = unmap(&map);
        got.fetch_add(places.len() as u64, Ordering::Relaxed);
        faulter.join().unwrap();
        assert_eq!(got.load(Ordering::Relaxed), 1);
    });
}

/// If a fault fails, the page stays swapped out, with the same entry.
#[test]
fn a_fault_that_fails_leaves_the_entry() {
    sync::model(|| {
        let (_frames, map) = one_page(0xa, 0);
        swap_out(&map).expect("nobody else is there");
        let theirs = Arc::clone(&map);
        let faulter = thread(move || {
            if let BeginLoad::Begun(loading) = theirs.begin_load(0) {
                loading.fail(pagefold_frames::LoadFailure(5));
            }
        });
        let _ = map.wait(0);
        faulter.join().unwrap();
        assert_eq!(map.state(0), PageState::Swapped { entry: PLACE });
        assert_eq!(unmap(&map), [PLACE]);
    });
}

/// W5. Regression: a flusher loaded the word of a file page. Then this page left its frame, and a
/// page without a file got the frame. The flusher held that page by mistake. The page was swapped
/// out all the same, and a clean page of the file got the frame. When the flusher noticed its
/// mistake, it released this clean page as *dirty*. So the page was never written back, and could
/// never be evicted. Now a page that is held stays in its frame.
#[test]
fn a_page_that_is_held_by_mistake_stays_in_its_frame() {
    sync::model(|| {
        let frames = frames(1);
        let (file, own) = (map(&frames, 2), map(&frames, 2));
        load(&file, 0, 0xa);
        let _ = writing(&file, 0).write(0, &contents(0xb));
        let theirs = Arc::clone(&file);
        let leader = thread(move || {
            if let Hold::Held(held) = theirs.hold(0, Unclean::Dirty) {
                held.end(Unclean::Dirty);
            }
        });
        unmap(&file);
        load(&own, 0, 0xc);
        writing(&own, 0).write_unfiled(0, &contents(0xd));
        if swap_out(&own).is_some() {
            load(&file, 1, 0xe);
            assert!(writing(&file, 1).write(0, &contents(0xf)), "it was clean until now");
        }
        leader.join().unwrap();
    });
}
