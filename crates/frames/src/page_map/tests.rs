use super::*;
use crate::config::Config;
use crate::frames::{IsolatedFrame, Use};
use crate::wait_table::LoadFailure;
use crate::write_state::USES_MAX;
use sync::one_cpu::stay_on_this_cpu;

const PAGE: usize = 4096;

fn frames(memory: u64) -> Arc<Frames> {
    let config = Config { page_words_shift: Some(24), ..Config::new(memory, PAGE) };
    Arc::new(Frames::new(&config).unwrap())
}

fn map(pages: u64) -> PageMap {
    PageMap::new(frames(1 << 20), pages).unwrap()
}

fn begin(map: &PageMap, page: u64) -> Loading<'_> {
    match map.begin_load(page) {
        BeginLoad::Begun(loading) => loading,
        other => panic!("can't load page {page}: {other:?}"),
    }
}

/// Loads `page`, filled with `byte`, and leaves its frame isolated.
fn load(map: &PageMap, page: u64, byte: u8) -> IsolatedFrame {
    let frame = map.frames().allocate().expect("a frame is free");
    frame.fill(|bytes| bytes.copy_from(0, &[byte; PAGE]));
    begin(map, page).publish(frame, Labels { group: 7, owner: 8, rank: 9, ..Labels::default() }, false).0
}

#[test]
fn a_page_comes_is_used_and_goes() {
    let map = map(10);
    let frames = Arc::clone(map.frames());
    assert_eq!(map.state(3), PageState::Vacant { shadow: 0 });
    let mut bytes = [0; 100];
    assert!(!map.read(3 * PAGE as u64, &mut bytes) && map.pin(3).unwrap().is_none());

    let isolated = load(&map, 3, 0x55);
    let frame = isolated.id();
    assert_eq!(map.state(3), PageState::Resident { frame });
    assert_eq!((frames.group(frame), frames.owner(frame), frames.rank(frame)), (7, 8, 9));
    assert!(matches!(map.begin_load(3), BeginLoad::Resident));
    assert!(!frames.take_referenced(isolated.id()), "nobody has read it yet");
    assert!(map.read(3 * PAGE as u64 + (PAGE - 100) as u64, &mut bytes) && bytes == [0x55; 100]);
    assert!(frames.take_referenced(isolated.id()) && !frames.take_referenced(isolated.id()));

    let pin = map.pin(3).unwrap().expect("resident");
    assert!(pin.bytes() == [0x55; PAGE] && frames.is_pinned(&isolated) && frames.take_referenced(isolated.id()));
    let isolated = frames.evict(isolated, 77).expect_err("it is pinned").frame;
    drop(pin);
    let evicted = frames.evict(isolated, 77).expect("nobody has it");
    evicted.copy_to(0, &mut bytes);
    assert_eq!(bytes, [0x55; 100], "whoever evicts can still copy");
    drop(evicted);
    assert_eq!(map.state(3), PageState::Vacant { shadow: 77 });

    let loading = begin(&map, 3);
    assert_eq!((loading.shadow(), map.state(3)), (77, PageState::Loading));
    assert!(matches!(map.begin_load(3), BeginLoad::Busy) && matches!(map.detach(3, 0, false), Detach::Loading));
    loading.fail(LoadFailure(5));
    assert_eq!(map.state(3), PageState::Vacant { shadow: 77 }, "a failed load keeps the shadow");
    drop(begin(&map, 3));
    assert_eq!(map.state(3), PageState::Vacant { shadow: 77 }, "so does an abandoned one");
}

#[test]
fn what_a_page_was_read_ahead_for_is_no_use_of_it() {
    let map = map(1);
    let frame = map.frames().allocate().expect("a frame is free");
    let labels = Labels { ahead: Ahead::Marked, ..Labels::default() };
    let (isolated, _) = begin(&map, 0).publish(frame, labels, false);
    let used = || map.frames().take_use(isolated.id());
    let read = || {
        let mut ahead = Ahead::No;
        assert!(map.read_first(0, &mut [0; 8], &mut ahead, || true));
        ahead
    };
    assert_eq!(used(), Use::None);
    assert_eq!((read(), used()), (Ahead::Marked, Use::None));
    assert_eq!((read(), used(), used()), (Ahead::No, Use::Certain(1), Use::None));

    drop(map.frames().evict(isolated, 0).expect("in use by no one"));
    let frame = map.frames().allocate().expect("a frame is free");
    let (isolated, _) = begin(&map, 0).publish(frame, labels, false);
    let used = || map.frames().take_use(isolated.id());
    assert_eq!((read(), read(), read()), (Ahead::Marked, Ahead::No, Ahead::No));
    assert_eq!((used(), used()), (Use::Doubtful, Use::None));
    assert_eq!((read(), used()), (Ahead::No, Use::Certain(1)));
}

#[test]
fn the_short_way_is_for_hot_whole_pages() {
    let map = map(10);
    let start = |page: u64| page * PAGE as u64;
    let isolated = [3, 4].map(|page| load(&map, page, 0x55));
    let mut bytes = [0; 8];
    assert!(!map.read_hot(start(3), &mut bytes) && map.pin_hot(3).is_none(), "it isn't hot");
    assert!([(); USES_MAX as usize].iter().all(|()| map.read(start(3), &mut bytes)));
    assert!(map.read_hot(start(4) - 8, &mut bytes) && bytes == [0x55; 8]);
    assert!(!map.read_hot(start(4) - 7, &mut bytes) && !map.read(start(4) - 7, &mut bytes), "two pages");
    assert!(map.pin_hot(3).is_some());
    for page in [5, 9, 10, u64::MAX >> 12] {
        assert!(!map.read_hot(start(page), &mut bytes) && map.pin_hot(page).is_none());
    }
    // The object ends within page 4.
    map.read(start(4), &mut bytes);
    assert_eq!(map.set_len(start(4) + 10), start(4) + 10);
    assert!(!map.read_hot(start(4), &mut bytes) && map.pin_hot(4).is_none() && map.read(start(4), &mut bytes));
    assert!(!map.read(start(4) + 3, &mut bytes) && map.read(start(4) + 2, &mut bytes));
    assert!(map.read_hot(start(3), &mut bytes));
    map.set_len(start(3));
    assert!(!map.read_hot(start(3), &mut bytes) && !map.read(start(3), &mut bytes));
    drop(isolated);
}

#[test]
fn past_the_end_there_is_nothing() {
    let map = map(10);
    for page in [10, 11, u64::MAX] {
        assert_eq!(map.state(page), PageState::Vacant { shadow: 0 });
        assert!(!map.read(page.saturating_mul(PAGE as u64), &mut [0; 8]) && map.pin(page).unwrap().is_none());
        assert!(
            matches!(map.begin_load(page), BeginLoad::NoPlace) && matches!(map.detach(page, 0, false), Detach::Vacant)
        );
        assert_eq!(map.wait(page), Ok(()));
    }
}

#[test]
fn a_removed_page_is_its_removers_or_its_holders() {
    let map = map(10);
    let frames = Arc::clone(map.frames());
    assert!(matches!(map.detach(0, 1, false), Detach::Vacant));

    let frame = load(&map, 0, 1);
    frames.put_back(frame).unwrap();
    let pin = map.pin(0).unwrap();
    assert!(matches!(map.detach(0, 1, false), Detach::Pinned), "it is pinned");
    drop(pin);
    let Detach::Listed { frame: owned, .. } = map.detach(0, 1, false) else { panic!("it is listed") };
    assert!(frames.isolate(owned.id()).is_none(), "the remover alone takes it off its list");
    drop(owned);

    let held = load(&map, 0, 2);
    assert!(matches!(map.detach(0, 3, false), Detach::Orphaned { .. }));
    assert_eq!(map.state(0), PageState::Vacant { shadow: 3 });
    let held = frames.evict(held, 4).expect_err("there is no page to evict").frame;
    let free = frames.stats().free_frames;
    drop(frames.put_back(held).expect_err("its page was removed"));
    assert_eq!((frames.stats().free_frames, map.state(0)), (free + 1, PageState::Vacant { shadow: 3 }));
}

#[test]
fn pages_in_memory_are_found_in_order() {
    let map = map(5000);
    let pages = [0, 1, 511, 512, 2000, 4999];
    for page in pages.into_iter().rev() {
        map.frames().put_back(load(&map, page, 1)).unwrap();
    }
    assert_eq!(map.pages_in_memory(0..map.pages()).collect::<Vec<_>>(), pages);
    assert_eq!(map.pages_in_memory(1..2000).collect::<Vec<_>>(), [1, 511, 512]);
    assert!(map.pages_in_memory(4999..u64::MAX).eq([4999]) && map.pages_in_memory(u64::MAX..u64::MAX).next().is_none());
    let _loading = begin(&map, 600);
    assert!(map.pages_in_memory(0..map.pages()).any(|page| page == 600), "pages that are being loaded count");
}

/// Regression: a frame that went directly from an evictor to the next loader kept its generation.
/// If the evicted page later returned to this frame, the page's word had the same value as during
/// its first stay there. A reader that loaded the word before the eviction, and again after the
/// return, saw no difference. So the reader didn't notice that the frame had held another page's
/// bytes in between. Now a frame must be freed before it gets another page; otherwise `publish`
/// panics.
#[test]
#[should_panic(expected = "wasn't freed after its last page")]
fn an_evicted_frame_takes_no_page_before_it_was_freed() {
    let map = map(10);
    let frame = load(&map, 0, 1);
    let evicted = map.frames().evict(frame, 0).unwrap();
    let _ = begin(&map, 1).publish(evicted, Labels::default(), false);
}

#[test]
#[should_panic(expected = "another budget's")]
fn a_page_takes_no_frame_of_another_budget() {
    let (map, other) = (map(10), frames(1 << 20));
    let _ = begin(&map, 0).publish(other.allocate().unwrap(), Labels::default(), false);
}

#[test]
fn a_frame_is_retired_with_its_last_generation() {
    let _one_cpu = stay_on_this_cpu();
    let map = map(10);
    let frames = Arc::clone(map.frames());
    let last = frames.allocate().unwrap();
    let id = last.id();
    frames.table.set_last_generation(id);
    last.fill(|bytes| bytes.copy_from(0, &[1; PAGE]));
    let (frame, _) = begin(&map, 0).publish(last, Labels::default(), false);
    let mut byte = [0];
    assert!(map.read(0, &mut byte) && byte == [1], "the last stay is one like any other");
    drop(frames.evict(frame, 0).unwrap());
    assert_eq!(frames.stats().retired_frames, 1);
    frames.bytes(id).copy_to(0, &mut byte);
    assert_eq!(byte, [0], "its memory went back to the system");
    let rest: Vec<_> = std::iter::from_fn(|| frames.allocate()).collect();
    assert_eq!(rest.len(), frames.stats().frames - 1, "all frames but one");
    assert!(rest.iter().all(|frame| frame.id() != id), "a retired frame was given out");
    drop(rest);
    // An extent with a retired frame can be drained like any other. When the extent is used again,
    // the retired frame is left out.
    let extents = frames.extents();
    for _ in 0..extents {
        assert!(frames.begin_drain(1, 1, |_| true).expect("some have memory").finish(0));
    }
    assert_eq!(frames.extents(), 0);
    let again: Vec<_> = std::iter::from_fn(|| frames.allocate()).collect();
    assert!(again.iter().all(|frame| frame.id() != id) && !again.is_empty());
}

#[test]
fn those_who_wait_are_told() {
    let map = Arc::new(map(10));
    for outcome in [Ok(()), Err(LoadFailure(5))] {
        let loading = begin(&map, 0);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let theirs = Arc::clone(&map);
                sync::thread::spawn("waiter", move || theirs.wait(0)).unwrap()
            })
            .collect();
        match outcome {
            Ok(()) => {
                let frame = loading.publish(map.frames().allocate().unwrap(), Labels::default(), false).0;
                drop(map.frames().evict(frame, 0).unwrap());
            }
            Err(failure) => loading.fail(failure),
        }
        for waiter in waiters {
            let told = waiter.join().unwrap();
            assert!(told == outcome || told == Ok(()), "{told:?}"); // `Ok` if it came late.
        }
    }
}

/// The number of pages in a part.
const PART: u64 = 1 << 18;

#[test]
fn pages_far_behind_the_first_run_are_as_any_other() {
    let frames = frames(1 << 20);
    let before = frames.budget().used();
    let map = PageMap::growing(Arc::clone(&frames), 1, 1).unwrap();
    let last = map.pages() - 1;
    assert_eq!(last, i64::MAX as u64 / PAGE as u64);
    let pages = [0, PART - 1, PART, 5 * PART + 7, 600 * PART, 600 * PART + 600, 1 << 40, last];
    for page in pages.into_iter().rev() {
        assert_eq!(map.state(page), PageState::Vacant { shadow: 0 });
        frames.put_back(load(&map, page, page as u8)).unwrap();
    }
    assert_eq!(map.pages_in_memory(0..map.pages()).collect::<Vec<_>>(), pages);
    assert_eq!(map.pages_in_memory(PART..600 * PART + 1).collect::<Vec<_>>(), pages[2..5]);
    assert_eq!(map.pages_in_memory(600 * PART + 1..600 * PART + 600).next(), None);
    assert_eq!(map.next_written(0..u64::MAX), None);
    for page in pages {
        let mut byte = [9];
        assert!(map.read(page * PAGE as u64 + 5, &mut byte) && byte == [page as u8], "page {page}");
        assert_eq!(map.pin(page).unwrap().expect("in memory").bytes()[7], page as u8);
        assert_eq!((map.state(page + 1), map.is_used(page)), (map.state(page + 1), Some(true)));
    }
    // When an object is truncated, pages past its end aren't found any more, wherever their words
    // are.
    map.set_len(600 * PART * PAGE as u64);
    assert!(!map.read(600 * PART * PAGE as u64, &mut [0]) && map.pin(600 * PART).unwrap().is_none());
    assert!(map.read(600 * PART * PAGE as u64 - 5, &mut [0]) == map.pin(600 * PART - 1).unwrap().is_some());
    for page in pages {
        assert!(matches!(map.detach(page, 77, false), Detach::Listed { .. }), "page {page}");
        assert_eq!(map.state(page), PageState::Vacant { shadow: 77 });
    }
    drop(map);
    assert_eq!(frames.budget().used() - frames.stats().frames as u64 * (PAGE as u64 + 64), before);
}

#[test]
fn runs_of_pages_cross_from_part_to_part() {
    let map = PageMap::growing(frames(1 << 20), 1, 1).unwrap();
    let frames = map.frames();
    for first in [PART - 2, 7 * PART - 2] {
        let mut run = crate::LoadingRun::new(&map);
        for page in first..first + 4 {
            run.push(begin(&map, page), frames.allocate().unwrap());
        }
        assert_eq!(run.pages(), first..first + 4);
        let mut frames_of = Vec::new();
        while let Some((loading, frame)) = run.next() {
            frame.fill(|bytes| bytes.zero_from(0));
            frames_of.push(loading.publish_dirty(frame, Labels::default()));
        }
        assert!(map.pages_in_memory(first..first + 4).eq(first..first + 4));
        let mut written = first;
        let mut held = None;
        while let Some(page) = map.next_written(written..first + 9) {
            let crate::Hold::Held(page_held) = map.hold(page, crate::Unclean::Dirty) else { panic!("it is dirty") };
            match &mut held {
                None => held = Some(crate::HeldRun::new(&map, page_held)),
                Some(run) => run.push(page_held),
            }
            written = page + 1;
        }
        assert_eq!(held.unwrap().pages(), first..first + 4);
        frames_of.into_iter().for_each(|frame| frames.put_back(frame).unwrap());
    }
}

/// Tables are charged before they are allocated, and a load that finds no room for them returns
/// `NoRoom`.
#[test]
fn tables_of_far_words_need_room() {
    let frames = frames(1 << 20);
    let map = PageMap::growing(Arc::clone(&frames), 1, 1).unwrap();
    let before = frames.budget().used();
    for room in 0..5 {
        frames.set_budget(before + room * 4096);
        assert!(matches!(map.begin_load(1 << 40), BeginLoad::NoRoom), "room for {room}");
        assert_eq!(map.state(1 << 40), PageState::Vacant { shadow: 0 });
    }
    frames.set_budget(before + 5 * 4096);
    assert!(matches!(map.begin_load(1 << 40), BeginLoad::Begun(_)), "three tables, a chunk and its states");
}

/// The object has more pages than there are words; its near pages get a shorter run.
#[test]
fn a_map_makes_do_with_a_shorter_first_run() {
    let frames = frames(1 << 20);
    let map = PageMap::growing(Arc::clone(&frames), 1 << 51, 1 << 51).unwrap();
    for page in [0, 31 * PART, 1 << 50] {
        frames.put_back(load(&map, page, 3)).unwrap();
        assert!(map.read(page * PAGE as u64, &mut [0; 8]));
    }
    // Parts leave the last quarter of the segments to new maps.
    let parts = (100..).take_while(|part| matches!(map.begin_load(part * PART), BeginLoad::Begun(_))).count();
    assert!((14..=16).contains(&parts), "{parts}");
    assert!(matches!(map.begin_load(1000 * PART), BeginLoad::NoPlace));
    for _ in 0..16 {
        std::mem::forget(PageMap::growing(Arc::clone(&frames), 1, 1 << 20).unwrap());
    }
    assert!(PageMap::growing(Arc::clone(&frames), 1, 1).is_err(), "all are in use");
}

/// Two threads may load the first pages of a part at the same time. The second one must get the
/// words that the first one has allocated.
#[test]
fn the_words_of_a_part_are_made_once() {
    let map = PageMap::growing(frames(1 << 20), 1, 1).unwrap();
    let word = map.shared.make_far_word(9 * PART).unwrap();
    assert_eq!(map.shared.make_far_word(9 * PART).unwrap(), word);
    assert_eq!(map.shared.make_far_word(9 * PART + 1).unwrap(), word + 1);
    assert_eq!(map.shared.far_word(9 * PART), Some(word));
}

/// Regression: a writer that was created before its page had a word found the page absent for ever.
#[test]
fn a_writer_finds_a_page_that_got_its_word_meanwhile() {
    let map = PageMap::growing(frames(1 << 20), 1, 1).unwrap();
    let mut writer = map.writer(9 * PART);
    assert!(matches!(writer.begin(), crate::BeginWrite::Absent));
    map.frames().put_back(load(&map, 9 * PART, 1)).unwrap();
    assert!(matches!(writer.begin(), crate::BeginWrite::Begun(_)));
}
