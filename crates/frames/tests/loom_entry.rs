//! Models of S1 of `pagefold`'s `space`: a thread touches a page for the first time, or writes to
//! it, while another thread changes what is mapped.
//!
//! ```text
//!   toucher: word = loading        unmap: entry = none
//!            fence                        fence
//!            entry? mapped: publish       word? loading: wait, then take the page out
//! ```
#![cfg(pagefold_loom)]

mod model;

use model::*;
use pagefold_frames::{BeginLoad, BeginWrite, Detach, Labels, PageMap, PageState};
use sync::Arc;
use sync::atomic::{AtomicU64, Backoff, Ordering, fence, fence_after_update};

const MAPPED: u64 = 1;
const NONE: u64 = 0;

/// A first touch, like `SpaceState::fault`.
fn touch(map: &PageMap, entry: &AtomicU64) {
    let frame = map.frames().allocate().unwrap();
    frame.fill(|bytes| bytes.copy_from(0, &contents(7)));
    let BeginLoad::Begun(loading) = map.begin_load(0) else { return };
    fence(Ordering::SeqCst);
    if entry.load(Ordering::Acquire) == MAPPED {
        let (isolated, _) = loading.publish(frame, Labels::default(), false);
        list(map.frames(), isolated);
    }
}

/// Like `SpaceState::free`.
fn free(map: &PageMap) {
    for page in map.pages_in_memory(0..1) {
        let mut backoff = Backoff::new();
        loop {
            match map.detach(page, 0, true) {
                Detach::Listed { .. } | Detach::Orphaned { .. } | Detach::Swapped { .. } | Detach::Vacant => break,
                Detach::Pinned | Detach::Busy | Detach::Loading | Detach::Unclean => backoff.wait(),
            }
        }
    }
}

#[test]
fn nothing_is_in_memory_that_isnt_mapped() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let entry = Arc::new(AtomicU64::new(MAPPED));
        let theirs = (Arc::clone(&map), Arc::clone(&entry));
        let toucher = thread(move || touch(&theirs.0, &theirs.1));
        entry.store(NONE, Ordering::Release);
        fence(Ordering::SeqCst);
        free(&map);
        toucher.join().unwrap();
        assert!(matches!(map.state(0), PageState::Vacant { .. }), "a page of nothing");
        assert!(frames.allocate().is_some(), "its frame is lost");
    });
}

#[test]
fn nothing_is_written_that_mustnt() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 7);
        let entry = Arc::new(AtomicU64::new(MAPPED));
        let theirs = (Arc::clone(&map), Arc::clone(&entry));
        let writer = thread(move || {
            let (map, entry) = &theirs;
            if let BeginWrite::Begun(mut writing) = map.begin_write(0) {
                fence_after_update();
                if entry.load(Ordering::Acquire) == MAPPED {
                    let _ = writing.write(0, &contents(8));
                }
            }
        });
        entry.store(NONE, Ordering::Release);
        fence(Ordering::SeqCst);
        let mut backoff = Backoff::new();
        while matches!(map.begin_write(0), BeginWrite::Busy) {
            backoff.wait();
        }
        let mut before = [0; PAGE];
        assert!(map.read(0, &mut before));
        writer.join().unwrap();
        let mut after = [0; PAGE];
        assert!(map.read(0, &mut after) && before == after, "written after it was protected");
    });
}

/// Regression: a reader that finds a page's word vacant loads the page's entry again. If the entry
/// hasn't changed, the reader reads the page as zeros. But between the reader's two loads of the
/// entry, a page was moved away and back. Its entry was then the same as before, so the reader read
/// zeros, which the page never contained. Now memory gets a new number whenever it is mapped or
/// moved (ENTRY-1 of `space/entry`). If `BACK` were equal to `MAPPED`, this model would fail.
#[test]
fn a_page_that_moved_away_and_back_isnt_zeros() {
    const BACK: u64 = 2;
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        load(&map, 0, 7);
        let entry = Arc::new(AtomicU64::new(MAPPED));
        let theirs = (Arc::clone(&map), Arc::clone(&entry));
        // Like `SpaceState::read_page`.
        let reader = thread(move || {
            let (map, entry) = theirs;
            let seen = entry.load(Ordering::Acquire);
            let is_vacant = || matches!(map.state(0), PageState::Vacant { .. });
            assert!(seen == NONE || !is_vacant() || entry.load(Ordering::Acquire) != seen, "zeros that never were");
        });
        entry.store(NONE, Ordering::Release);
        fence(Ordering::SeqCst);
        free(&map);
        load(&map, 0, 7);
        entry.store(BACK, Ordering::Release);
        reader.join().unwrap();
    });
}

/// A region's record goes to another region, whose pages have the same words. A first touch of a
/// page of the old region must not leave a page in the new one (REGION-1 of `space/region`). Two
/// checks ensure this. The toucher checks a second time whether the record still belongs to its
/// region (`stay`). And the record goes to another region only if no page is in memory. Without
/// them, this model fails.
#[test]
fn a_record_goes_on_without_pages_of_the_region_before() {
    sync::model(|| {
        let frames = frames(1);
        let map = map(&frames, 2);
        let (entry, stay) = (Arc::new(AtomicU64::new(MAPPED)), Arc::new(AtomicU64::new(1)));
        let theirs = (Arc::clone(&map), Arc::clone(&entry), Arc::clone(&stay));
        // Like `SpaceState::fault`, with `Region::entry`.
        let toucher = thread(move || {
            let (map, entry, stay) = theirs;
            let frame = map.frames().allocate().unwrap();
            frame.fill(|bytes| bytes.copy_from(0, &contents(7)));
            let BeginLoad::Begun(loading) = map.begin_load(0) else { return };
            fence(Ordering::SeqCst);
            let is_mine = || stay.load(Ordering::Acquire) == 1;
            if is_mine() && entry.load(Ordering::Acquire) == MAPPED && is_mine() {
                let (isolated, _) = loading.publish(frame, Labels::default(), false);
                list(map.frames(), isolated);
            }
        });
        entry.store(NONE, Ordering::Release);
        fence(Ordering::SeqCst);
        free(&map);
        // Like `Index::end_record`, and then `region_link` for another region.
        stay.store(0, Ordering::Release);
        fence(Ordering::SeqCst);
        if map.pages_in_memory(0..1).next().is_none() {
            entry.store(MAPPED, Ordering::Release);
            stay.store(2, Ordering::Release);
        }
        toucher.join().unwrap();
        assert!(matches!(map.state(0), PageState::Vacant { .. }), "another region's page");
    });
}
