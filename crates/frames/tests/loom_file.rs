//! Writeback, and frames that get other pages. A page is evicted or removed only after the device
//! has read its bytes. If a frame goes to another page, or a page to another frame, no thread
//! mistakes one page or stay for the other.
//!
//! The file is one atomic, with relaxed accesses, so only the protocol under test orders them.
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{BeginLoad, BeginWrite, Detach, HeldRun, Hold, Labels, OwnedFrame, PageMap, Unclean};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering, spin_hint};

fn write(map: &PageMap, page: u64, mark: u64) -> bool {
    let BeginWrite::Begun(mut writing) = map.begin_write(page) else { return false };
    let _ = writing.write(0, &contents(mark));
    true
}

fn read(map: &PageMap, page: u64) -> Option<[u8; PAGE]> {
    let mut bytes = [0; PAGE];
    let start = page * PAGE as u64;
    (map.read_hot(start, &mut bytes) || map.read(start, &mut bytes)).then_some(bytes)
}

/// Writes the page to the file if it is dirty. Returns whether it was.
fn write_back(map: &PageMap, page: u64, file: &AtomicU64) -> bool {
    let Hold::Held(held) = map.hold(page, Unclean::Dirty) else { return false };
    let (mut run, mut bytes) = (HeldRun::new(map, held), [0; 8]);
    run.bytes().for_each(|page| page.copy_to(0, &mut bytes));
    file.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    run.end(1, Unclean::Unstable);
    true
}

fn settle(map: &PageMap, page: u64) -> bool {
    let Hold::Held(held) = map.hold(page, Unclean::Unstable) else { return false };
    held.settle()
}

/// Removes the page from memory, even if it is dirty.
fn must_detach(map: &PageMap, page: u64) -> OwnedFrame<'_> {
    loop {
        match map.detach(page, 0, true) {
            Detach::Listed { frame, .. } => return frame,
            Detach::Busy | Detach::Pinned => spin_hint(),
            other => panic!("{other:?}"),
        }
    }
}

/// Loads `page` into `frame` with bytes that its file doesn't have.
fn load_dirty_into(map: &PageMap, page: u64, mark: u64, frame: OwnedFrame<'_>) {
    let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("the page isn't in memory") };
    frame.fill(|bytes| bytes.copy_from(0, &contents(mark)));
    assert!(list(map.frames(), loading.publish_dirty(frame, Labels::default())));
}

/// Creates `count` frames and a map. Page 0 is loaded with 0xa, and then overwritten with 0xb.
fn written(count: usize) -> (Arc<pagefold_frames::Frames>, Arc<PageMap>) {
    let frames = frames(count);
    let map = map(&frames, 2);
    load(&map, 0, 0xa);
    assert!(write(&map, 0, 0xb));
    (frames, map)
}

/// If the page can be evicted, the device has read its last bytes.
#[test]
fn an_evicted_page_is_in_its_file() {
    sync::model(|| {
        let (frames, map) = written(1);
        let file = Arc::new(AtomicU64::new(0xa));
        let (theirs, device) = (Arc::clone(&map), Arc::clone(&file));
        let flusher = thread(move || {
            assert!(write_back(&theirs, 0, &device) && settle(&theirs, 0));
        });
        if let Some(frame) = evict(&frames, frame_of(&map, 0), 0) {
            assert_eq!(file.load(Ordering::Relaxed), 0xb);
            drop(frame);
        }
        flusher.join().unwrap();
    });
}

/// After a page was removed, the flusher writes none of its bytes to the file any more.
#[test]
fn a_page_that_is_cut_off_goes_to_no_file() {
    sync::model(|| {
        let (_, map) = written(1);
        let file = Arc::new(AtomicU64::new(0xa));
        let (theirs, device) = (Arc::clone(&map), Arc::clone(&file));
        let flusher = thread(move || {
            write_back(&theirs, 0, &device);
        });
        let gone = must_detach(&map, 0);
        let seen = file.load(Ordering::Relaxed);
        drop(gone);
        flusher.join().unwrap();
        assert_eq!(file.load(Ordering::Relaxed), seen);
    });
}

/// A written page is removed, and another page gets its frame. The frame's version doesn't show
/// this, but the page's word does.
#[test]
fn a_reader_of_a_written_page_never_sees_the_frames_next_page() {
    sync::model(|| {
        let (_, map) = written(1);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let seen = read(&theirs, 0);
            assert!(seen.is_none_or(|seen| seen == contents(0xb)), "{seen:x?}");
        });
        drop(must_detach(&map, 0));
        load(&map, 1, 0xd);
        reader.join().unwrap();
    });
}

/// A written page is removed, and loaded into another frame. The reader loads the page's word
/// several times, and any of these loads may return the word of the second stay.
#[test]
fn a_reader_follows_a_written_page_to_another_frame() {
    sync::model(|| {
        let (frames, map) = written(2);
        let theirs = Arc::clone(&map);
        let reader = thread(move || {
            let seen = read(&theirs, 0);
            assert!(seen.is_none_or(|seen| seen == contents(0xb) || seen == contents(0xc)), "{seen:x?}");
        });
        let frame = frames.allocate().unwrap();
        let gone = must_detach(&map, 0);
        load_dirty_into(&map, 0, 0xc, frame);
        drop(gone);
        reader.join().unwrap();
    });
}

/// A writer loads a page's word. Before it freezes the frame, the frame goes to another page. The
/// writer must not write to that page.
#[test]
fn a_late_writer_writes_to_its_own_page() {
    sync::model(|| {
        let frames = frames(2);
        let map = map(&frames, 2);
        load(&map, 0, 0xa);
        let theirs = Arc::clone(&map);
        let writer = thread(move || {
            write(&theirs, 0, 0xb);
        });
        let frame = frames.allocate().unwrap();
        let gone = must_detach(&map, 0);
        let (isolated, _) = load_into(&map, 0, 0xc, frame, false).expect("it was detached");
        assert!(list(&frames, isolated));
        drop(gone);
        load(&map, 1, 0xd);
        writer.join().unwrap();
        assert_eq!(read(&map, 1), Some(contents(0xd)));
        let seen = read(&map, 0);
        assert!(seen == Some(contents(0xb)) || seen == Some(contents(0xc)), "{seen:x?}");
    });
}

/// `settle` ends the hold of page 0, which is then clean, and freezes the frame. In between, page 0
/// may be evicted, and page 1 may get the frame. `settle` must not change page 1.
#[test]
fn settling_touches_no_other_page() {
    sync::model(|| {
        let (frames, map) = written(1);
        assert!(write_back(&map, 0, &AtomicU64::new(0)));
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&map);
        let evictor = thread(move || {
            if let Some(evicted) = evict(theirs.frames(), frame, 0) {
                drop(evicted);
                load(&theirs, 1, 0xd);
            }
        });
        assert!(settle(&map, 0));
        evictor.join().unwrap();
        let expected = if read(&map, 1).is_some() { [None, Some(0xd)] } else { [Some(0xb), None] };
        assert_eq!([read(&map, 0), read(&map, 1)], expected.map(|mark| mark.map(contents)));
        drop(frames);
    });
}

/// As above, but page 0 is also loaded again, into another frame and as a dirty page. `settle` must
/// not change this stay either.
#[test]
fn settling_touches_no_other_stay() {
    sync::model(|| {
        let (frames, map) = written(2);
        assert!(write_back(&map, 0, &AtomicU64::new(0)));
        let frame = frame_of(&map, 0);
        let theirs = Arc::clone(&map);
        let evictor = thread(move || {
            let other = theirs.frames().allocate().expect("there are two");
            let Some(evicted) = evict(theirs.frames(), frame, 0) else { return };
            load_dirty_into(&theirs, 0, 0xc, other);
            drop(evicted);
            load(&theirs, 1, 0xd);
        });
        assert!(settle(&map, 0));
        evictor.join().unwrap();
        let moved = read(&map, 1).is_some();
        assert_eq!(read(&map, 0), Some(contents(if moved { 0xc } else { 0xb })));
        drop(frames);
    });
}
