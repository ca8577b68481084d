//! Threads write to pages while other threads read without a trace, pin, evict, and write back.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{BeginLoad, BeginWrite, Detach, Frames, HeldRun, Hold, Labels, PageMap, PageState, Unclean};
use sync::Arc;
use sync::atomic::spin_hint;

/// Overwrites a page. Returns false if the page isn't in memory, or isn't available now.
fn write(map: &PageMap, page: u64, mark: u64) -> bool {
    let BeginWrite::Begun(mut writing) = map.begin_write(page) else { return false };
    let _ = writing.write(0, &contents(mark));
    true
}

/// Overwrites a page. Retries until it succeeds.
fn must_write(map: &PageMap, page: u64, mark: u64) {
    while !write(map, page, mark) {
        spin_hint();
    }
}

fn read(map: &PageMap, page: u64) -> Option<[u8; PAGE]> {
    let mut bytes = [0; PAGE];
    let start = page * PAGE as u64;
    (map.read_hot(start, &mut bytes) || map.read(start, &mut bytes)).then_some(bytes)
}

/// Writes a page back. Returns the bytes that the device has read, or `None` if the page isn't
/// dirty.
fn write_back(map: &PageMap, page: u64) -> Option<[u8; PAGE]> {
    let mut run = loop {
        match map.hold(page, Unclean::Dirty) {
            Hold::Held(held) => break HeldRun::new(map, held),
            Hold::Other => return None,
            Hold::Busy => spin_hint(),
        }
    };
    let mut bytes = [0; PAGE];
    run.bytes().for_each(|page| page.copy_to(0, &mut bytes));
    run.end(1, Unclean::Unstable);
    Some(bytes)
}

/// Settles a page, as after a sync. Returns whether the page is clean.
fn settle(map: &PageMap, page: u64) -> bool {
    loop {
        match map.hold(page, Unclean::Unstable) {
            Hold::Held(held) => return held.settle(),
            Hold::Other => return false,
            Hold::Busy => spin_hint(),
        }
    }
}

/// Loads `page` with bytes that its file doesn't have.
fn load_dirty(map: &PageMap, page: u64, mark: u64) {
    let frame = map.frames().allocate().expect("a frame is free");
    let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("the page isn't in memory") };
    frame.fill(|bytes| bytes.copy_from(0, &contents(mark)));
    let isolated = loading.publish_dirty(frame, Labels::default());
    assert!(list(map.frames(), isolated));
}

fn one_page(mark: u64) -> (Arc<Frames>, Arc<PageMap>) {
    let frames = frames(1);
    let map = map(&frames, 2);
    load(&map, 0, mark);
    (frames, map)
}

/// The reader gets the page as it was before the first write or after it, but no mixture. This
/// holds even if the reader loads the word before the write.
#[test]
fn a_reader_sees_a_write_whole_or_not_at_all() {
    sync::model(|| {
        let (_, map) = one_page(0xa);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let seen = read(&theirs, 0);
            assert!(seen.is_none_or(|seen| seen == contents(0xa) || seen == contents(0xb)), "torn: {seen:x?}");
        });
        must_write(&map, 0, 0xb);
        reader.join().unwrap();
        assert_eq!(read(&map, 0), Some(contents(0xb)));
    });
}

#[test]
fn a_reader_of_a_written_page_sees_one_version() {
    sync::model(|| {
        let (_, map) = one_page(0xa);
        must_write(&map, 0, 0xb);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let seen = read(&theirs, 0);
            assert!(seen.is_none_or(|seen| seen == contents(0xb) || seen == contents(0xc)), "torn: {seen:x?}");
        });
        must_write(&map, 0, 0xc);
        reader.join().unwrap();
    });
}

/// A page is written to, settled, and written to again. The word that a reader may have loaded
/// before the first write must not come back.
#[test]
fn a_settled_page_has_another_word() {
    sync::model(|| {
        let (_, map) = one_page(0xa);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let seen = read(&theirs, 0);
            assert!(seen.is_none_or(|seen| (0xa..0xd).any(|mark| seen == contents(mark))), "torn: {seen:x?}");
        });
        must_write(&map, 0, 0xb);
        assert_eq!(write_back(&map, 0), Some(contents(0xb)));
        assert!(settle(&map, 0));
        must_write(&map, 0, 0xc);
        reader.join().unwrap();
    });
}

#[test]
fn a_pinned_page_does_not_change() {
    sync::model(|| {
        let (_, map) = one_page(0xa);
        let theirs = Arc::clone(&map);
        let pinner = thread(move || {
            let Ok(Some(pin)) = theirs.pin(0) else { return };
            let (mut first, mut second) = ([0; PAGE], [0; PAGE]);
            pin.copy_to(0, &mut first);
            pin.copy_to(0, &mut second);
            assert_eq!(first, second);
            assert!(first == contents(0xa) || first == contents(0xb), "torn: {first:x?}");
        });
        let _ = write(&map, 0, 0xb);
        pinner.join().unwrap();
    });
}

/// S3: if the device may have missed a write, the page is written back again.
#[test]
fn no_write_is_lost_to_write_back() {
    sync::model(|| {
        let (frames, map) = one_page(0xa);
        must_write(&map, 0, 0xb);
        let theirs = Arc::clone(&map);
        let writer = thread(move || must_write(&theirs, 0, 0xc));
        let first = write_back(&map, 0).expect("it is dirty");
        let settled = settle(&map, 0);
        writer.join().unwrap();
        if settled && first == contents(0xc) {
            // The device has the last bytes. The page may be dirty all the same: the writer changes
            // the write state after the bytes.
            return;
        }
        assert_eq!(write_back(&map, 0), Some(contents(0xc)), "the file would have {first:x?}");
        assert!(settle(&map, 0));
        assert!(evict(&frames, frame_of(&map, 0), 0).is_some());
    });
}

/// S1: a page is evicted before the write, or not at all.
#[test]
fn no_write_is_lost_to_eviction() {
    sync::model(|| {
        let (frames, map) = one_page(0xa);
        let frame = frame_of(&map, 0);
        let evictor = thread(move || drop(evict(&frames, frame, 7)));
        let written = write(&map, 0, 0xb);
        evictor.join().unwrap();
        match map.state(0) {
            PageState::Resident { .. } => assert_eq!(read(&map, 0), Some(contents(if written { 0xb } else { 0xa }))),
            _ => assert!(!written, "a dirty page was evicted"),
        }
    });
}

/// A page is settled and evicted at the same time.
#[test]
fn settling_and_evicting_meet() {
    sync::model(|| {
        let (frames, map) = one_page(0xa);
        must_write(&map, 0, 0xb);
        assert!(write_back(&map, 0).is_some());
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&frames);
        let evictor = thread(move || drop(evict(&theirs, frame, 7)));
        assert!(settle(&map, 0));
        evictor.join().unwrap();
        if let PageState::Resident { frame } = map.state(0) {
            assert_eq!(read(&map, 0), Some(contents(0xb)));
            drop(evict(&frames, frame, 7).expect("it is clean"));
        }
        assert_eq!(map.state(0), PageState::Vacant { shadow: 7 });
        assert_eq!(frames.stats().free_frames, 1);
    });
}

/// S4: a flusher that has loaded an outdated word holds another page for a moment, and changes
/// nothing.
#[test]
fn a_stale_holder_does_no_harm() {
    sync::model(|| {
        let (frames, map) = one_page(0xa);
        must_write(&map, 0, 0xb);
        assert!(write_back(&map, 0).is_some());
        let theirs = Arc::clone(&map);
        let stale = thread(move || {
            if let Hold::Held(held) = theirs.hold(0, Unclean::Dirty) {
                panic!("page 0 isn't dirty: {held:?}");
            }
        });
        // It would suffice that the page is clean. Here its word also loses `WRITTEN`.
        assert!(settle(&map, 0));
        // The page is clean. But the eviction fails if the other thread has the frame frozen, to
        // remove `WRITTEN` from the page's word.
        let Some(evicted) = evict(&frames, frame_of(&map, 0), 0) else { return stale.join().unwrap() };
        drop(evicted);
        load_dirty(&map, 1, 0xc);
        assert_eq!(write_back(&map, 1), Some(contents(0xc)));
        stale.join().unwrap();
        assert!(settle(&map, 1));
    });
}

#[test]
fn a_page_that_is_cut_off_is_not_being_written_back() {
    sync::model(|| {
        let (frames, map) = one_page(0xa);
        must_write(&map, 0, 0xb);
        let theirs = Arc::clone(&map);
        let flusher = thread(move || {
            let written = write_back(&theirs, 0);
            assert!(written.is_none_or(|bytes| bytes == contents(0xb)), "{written:x?}");
        });
        let gone = loop {
            match map.detach(0, 0, true) {
                Detach::Listed { frame, discarded, .. } => {
                    assert!(discarded);
                    break frame;
                }
                Detach::Busy => spin_hint(),
                other => panic!("{other:?}"),
            }
        };
        drop(gone);
        load(&map, 1, 0xd);
        flusher.join().unwrap();
        assert_eq!(read(&map, 1), Some(contents(0xd)));
        assert_eq!(frames.stats().free_frames, 0);
    });
}

#[test]
fn two_writers_take_turns() {
    sync::model(|| {
        let (_, map) = one_page(0xa);
        let theirs = Arc::clone(&map);
        let other = thread(move || must_write(&theirs, 0, 0xb));
        must_write(&map, 0, 0xc);
        other.join().unwrap();
        let seen = read(&map, 0);
        assert!(seen == Some(contents(0xb)) || seen == Some(contents(0xc)), "torn: {seen:x?}");
    });
}
