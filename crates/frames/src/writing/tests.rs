use super::*;
use crate::write_state::USES_MAX;
use crate::{
    Ahead, BeginLoad, Config, Detach, Hold, KeptPin, KeptWriting, Labels, MapInWord, NUMBER_SHIFT, PageMaps, PageState,
    PinError, Unclean,
};
use sync::Arc;

const PAGE: usize = 4096;

fn map(frames: usize, pages: u64) -> PageMap {
    let config = Config { nodes: Some(1), ..Config::new(((frames + 16) * (PAGE + 64)) as u64 + (1 << 20), PAGE) };
    PageMap::new(Arc::new(Frames::new(&config).unwrap()), pages).unwrap()
}

fn load(map: &PageMap, page: u64, byte: u8) {
    let frame = map.frames().allocate().unwrap();
    let BeginLoad::Begun(loading) = map.begin_load(page) else { panic!("not in memory") };
    frame.fill(|bytes| bytes.copy_from(0, &[byte; PAGE]));
    let (isolated, _) = loading.publish(frame, Labels::default(), false);
    map.frames().put_back(isolated).unwrap();
}

fn write(map: &PageMap, page: u64, offset: usize, from: &[u8]) -> bool {
    let BeginWrite::Begun(mut writing) = map.begin_write(page) else { panic!("no one else has the page") };
    writing.write(offset, from)
}

fn read(map: &PageMap, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    assert!(map.read(page * PAGE as u64, &mut bytes));
    bytes
}

/// Makes a page hot, by `USES_MAX` uses.
fn make_hot(map: &PageMap, page: u64) {
    (0..USES_MAX).for_each(|_| drop(read(map, page)));
}

fn hold(map: &PageMap, page: u64, state: Unclean) -> crate::HeldPage<'_> {
    let Hold::Held(held) = map.hold(page, state) else { panic!("page {page} is {state:?}") };
    held
}

#[test]
fn a_page_is_written_to_written_back_and_settled() {
    let map = map(8, 2000);
    load(&map, 700, 1);
    assert_eq!(map.next_written(0..2000), None);
    assert!(write(&map, 700, 10, &[2; 20]) && !write(&map, 700, 20, &[3; 2]), "clean at first, not then");
    let mut expected = vec![1; PAGE];
    expected[10..30].fill(2);
    expected[20..22].fill(3);
    assert_eq!(read(&map, 700), expected);
    assert_eq!((map.next_written(0..2000), map.next_written(701..2000)), (Some(700), None));

    let held = hold(&map, 700, Unclean::Dirty);
    assert!(matches!(map.hold(700, Unclean::Dirty), Hold::Busy));
    held.end(Unclean::Unstable);
    assert!(matches!(map.hold(700, Unclean::Dirty), Hold::Other));
    let before = map.state(700);
    assert!(hold(&map, 700, Unclean::Unstable).settle());
    assert_eq!((map.next_written(0..2000), map.state(700)), (None, before));
    assert_eq!(read(&map, 700), expected);
    // `detach` asserts that the chunk has no written page left.
    assert!(matches!(map.detach(700, 0, false), Detach::Listed { discarded: false, .. }));
}

#[test]
fn a_page_that_is_used_settles_without_leaving_the_long_way() {
    let map = map(8, 8);
    load(&map, 0, 1);
    assert!(write(&map, 0, 0, &[2]));
    hold(&map, 0, Unclean::Dirty).end(Unclean::Unstable);
    let pin = map.pin(0).unwrap().unwrap();
    assert!(matches!(map.begin_write(0), BeginWrite::Pinned));
    assert!(hold(&map, 0, Unclean::Unstable).settle());
    assert_eq!((map.next_written(0..8), pin.bytes()[0]), (Some(0), 2));
    drop(pin);
    let PageState::Resident { frame } = map.state(0) else { panic!("in memory") };
    let isolated = map.frames().isolate(frame).unwrap();
    assert!(map.frames().take_referenced(isolated.id()), "it was pinned");
    drop(map.frames().evict(isolated, 0).expect("it is clean"));
    assert_eq!(map.next_written(0..8), None);
}

/// Regression: pages that belong to no file stay written, and were always read on the slow path.
/// Now the lookup by the map's number has a fast path for them.
#[test]
fn a_written_page_is_hit_by_its_maps_number() {
    let map = map(8, 8);
    let maps = PageMaps::new(Arc::clone(map.frames()));
    let hit = |still: bool| {
        let mut bytes = [0; 8];
        maps.read_hot(map.number(), 8, &mut bytes, || still).then_some(bytes)
    };
    load(&map, 0, 1);
    assert!(write(&map, 0, 10, &[2; 3]));
    assert_eq!(hit(true), None, "it isn't hot");
    make_hot(&map, 0);
    assert_eq!((hit(true), hit(false)), (Some([1, 1, 2, 2, 2, 1, 1, 1]), None));
    let BeginWrite::Begun(mut writing) = map.begin_write(0) else { panic!("no one else has the page") };
    writing.write_unfiled(8, &[3; 4]);
    assert_eq!(hit(true), Some([3, 3, 3, 3, 2, 1, 1, 1]), "between two writes");
    let mut bytes = [0; 8];
    assert!(!map.read_hot(8, &mut bytes) && map.read_while(8, &mut bytes, || true));
    assert!(!map.read_while(8, &mut bytes, || false));
}

/// A page can be found, and written to, by a `MapInWord`: a value that contains the map's number
/// among other bits. The page number is then taken modulo 2^18, the number of page words that even
/// the shortest map has. So page 3 + 2^18 stands for page 3.
#[test]
fn a_page_is_hit_and_written_to_by_a_word_with_its_maps_number() {
    let map = map(8, 8);
    let maps = PageMaps::new(Arc::clone(map.frames()));
    let others_bits = 0xfff_u64 | 0x3ff << 54;
    let word = MapInWord(map.number().bits() << NUMBER_SHIFT | others_bits);
    assert_eq!(word.number(), map.number());
    let hit = |page: u64| {
        let mut bytes = [0; 8];
        maps.read_hot_shortest(word, page * 4096 + 8, &mut bytes, || true).then_some(bytes)
    };
    load(&map, 3, 1);
    make_hot(&map, 3);
    assert_eq!((hit(3), hit(3 + (1 << 18)), hit(4)), (Some([1; 8]), Some([1; 8]), None));
    assert!(!maps.read_hot_shortest(word, 4 * 4096 - 4, &mut [0; 8], || true), "two pages");
    assert!(matches!(maps.begin_write(word, 4), BeginWrite::Absent));
    let BeginWrite::Begun(mut writing) = maps.begin_write(word, 3 + (1 << 18)) else {
        panic!("no one else has the page")
    };
    assert!(matches!(maps.writer(word, 3).begin(), BeginWrite::Busy));
    writing.write_unfiled(8, &[2; 4]);
    drop(writing);
    assert_eq!(hit(3), Some([2, 2, 2, 2, 1, 1, 1, 1]));
}

/// Regression: if a page was pinned when writeback tried to settle it, its word stayed `WRITTEN`
/// for good. So a loop that wrote an object back until it had no `WRITTEN` page left never ended.
/// Now a later `hold` settles the page.
#[test]
fn a_clean_page_goes_back_to_the_short_way_in_the_end() {
    let map = map(8, 8);
    load(&map, 0, 1);
    assert!(write(&map, 0, 0, &[2]));
    hold(&map, 0, Unclean::Dirty).end(Unclean::Unstable);
    let pin = map.pin(0).unwrap();
    assert!(hold(&map, 0, Unclean::Unstable).settle());
    assert_eq!(map.next_written(0..8), Some(0));
    drop(pin);
    assert!(matches!(map.hold(0, Unclean::Unstable), Hold::Other));
    assert_eq!((map.next_written(0..8), read(&map, 0)[0]), (None, 2));
}

#[test]
fn uses_are_remembered_when_a_page_changes_its_way() {
    let map = map(8, 8);
    load(&map, 0, 1);
    let PageState::Resident { frame } = map.state(0) else { panic!("in memory") };
    let take_referenced = || {
        let isolated = map.frames().isolate(frame).unwrap();
        let referenced = map.frames().take_referenced(isolated.id());
        map.frames().put_back(isolated).unwrap();
        referenced
    };
    read(&map, 0);
    assert!(write(&map, 0, 0, &[2]));
    assert!(take_referenced() && !take_referenced(), "it was read before it was written to");
    read(&map, 0);
    hold(&map, 0, Unclean::Dirty).end(Unclean::Unstable);
    assert!(hold(&map, 0, Unclean::Unstable).settle());
    assert!(take_referenced() && !take_referenced(), "it was read before it was settled");
}

#[test]
fn what_its_file_lacks_is_not_evicted() {
    let map = map(8, 8);
    load(&map, 0, 1);
    assert!(write(&map, 0, 0, &[2]));
    let PageState::Resident { frame } = map.state(0) else { panic!("in memory") };
    for state in [Unclean::Dirty, Unclean::Unstable] {
        let isolated = map.frames().isolate(frame).unwrap();
        let refused = map.frames().evict(isolated, 0).expect_err("its file doesn't have it");
        assert!(refused.unclean);
        map.frames().put_back(refused.frame).unwrap();
        assert!(matches!(map.detach(0, 0, false), Detach::Unclean));
        hold(&map, 0, state).end(Unclean::Unstable);
    }
    let Detach::Listed { frame, discarded: true, .. } = map.detach(0, 0, true) else { panic!("listed, unclean") };
    drop(frame);
    assert_eq!((map.next_written(0..8), map.state(0)), (None, PageState::Vacant { shadow: 0 }));
}

#[test]
fn a_failed_write_back_leaves_the_page_dirty() {
    let map = map(8, 8);
    load(&map, 3, 1);
    assert!(write(&map, 3, 0, &[2]));
    drop(hold(&map, 3, Unclean::Dirty));
    hold(&map, 3, Unclean::Dirty).end(Unclean::Dirty);
    hold(&map, 3, Unclean::Dirty).end(Unclean::Unstable);
    let held = hold(&map, 3, Unclean::Unstable);
    assert!(!write(&map, 3, 1, &[4]), "a page that is held can be written to, and isn't clean");
    assert!(!held.settle());
    hold(&map, 3, Unclean::Dirty).end(Unclean::Dirty);
}

#[test]
fn a_page_that_is_written_to_keeps_others_off() {
    let map = map(8, 8);
    load(&map, 0, 1);
    let BeginWrite::Begun(mut writing) = map.begin_write(0) else { panic!("no one else has the page") };
    assert!(matches!(map.begin_write(0), BeginWrite::Busy));
    assert!(matches!(map.pin(0), Err(crate::PinError::Busy)));
    assert_eq!(read(&map, 0)[0], 1, "readers don't wait");
    assert!(matches!(map.detach(0, 0, true), Detach::Busy));
    writing.zero_from(1);
    assert_eq!(read(&map, 0)[..2], [1, 0]);
    drop(writing);
    assert!(map.pin(0).unwrap().is_some());
    assert!(matches!(map.begin_write(1), BeginWrite::Absent) && matches!(map.begin_write(8 << 30), BeginWrite::Absent));
}

#[test]
fn a_page_can_be_loaded_dirty() {
    let map = map(8, 8);
    let frame = map.frames().allocate().unwrap();
    let BeginLoad::Begun(loading) = map.begin_load(5) else { panic!("not in memory") };
    frame.fill(|bytes| bytes.copy_from(0, &[9; PAGE]));
    let isolated = loading.publish_dirty(frame, Labels { group: 3, ..Labels::default() });
    map.frames().put_back(isolated).unwrap();
    assert_eq!((map.next_written(0..8), read(&map, 5)[7]), (Some(5), 9));
    let held = hold(&map, 5, Unclean::Dirty);
    assert_eq!(held.group(), 3);
}

#[test]
fn a_run_holds_neighbours_until_each_is_ended() {
    let map = map(8, 8);
    (2..6).for_each(|page| load(&map, page, page as u8));
    (2..6).for_each(|page| assert!(write(&map, page, 0, &[9])));
    let mut run = crate::HeldRun::new(&map, hold(&map, 2, Unclean::Dirty));
    (3..6).for_each(|page| run.push(hold(&map, page, Unclean::Dirty)));
    let start_of = |page: sync::SharedBytes<'_>| {
        let mut bytes = [0; 2];
        page.copy_to(0, &mut bytes);
        bytes
    };
    let bytes: Vec<_> = run.bytes().map(start_of).collect();
    assert_eq!((run.pages(), run.len(), bytes), (2..6, 4, vec![[9, 2], [9, 3], [9, 4], [9, 5]]));
    assert!(!write(&map, 3, 0, &[8]), "it isn't clean");
    assert!(matches!(map.hold(3, Unclean::Dirty), Hold::Busy));
    run.end(2, Unclean::Unstable);
    assert_eq!((run.pages(), run.is_empty()), (4..6, false));
    drop(run);
    hold(&map, 2, Unclean::Unstable).end(Unclean::Unstable);
    (3..6).for_each(|page| hold(&map, page, Unclean::Dirty).end(Unclean::Dirty));
}

#[test]
#[should_panic(expected = "isn't the next")]
fn a_run_has_no_gap() {
    let map = map(8, 8);
    (2..5).for_each(|page| load(&map, page, 1));
    (2..5).for_each(|page| assert!(write(&map, page, 0, &[9])));
    let mut run = crate::HeldRun::new(&map, hold(&map, 2, Unclean::Dirty));
    run.push(hold(&map, 4, Unclean::Dirty));
}

/// Regression: threads that pinned a page for a moment each, with overlapping pins, starved a
/// writer.
#[test]
fn a_writer_that_waits_keeps_new_pins_out() {
    let map = map(8, 8);
    load(&map, 0, 1);
    let first = map.pin(0).unwrap().unwrap();
    let mut writer = map.writer(0);
    assert!(matches!(writer.begin(), BeginWrite::Pinned) && map.pin(0).is_ok(), "the pin may be gone the next moment");
    assert!(matches!(writer.begin(), BeginWrite::Pinned));
    assert_eq!(map.pin(0).err(), Some(PinError::Busy), "a pin that begins before the first one ends");
    assert!(map.pin_hot(0).is_none());
    drop(first);
    assert_eq!(map.pin(0).err(), Some(PinError::Busy), "the writer is first");
    let BeginWrite::Begun(mut writing) = writer.begin() else { panic!("no pin is left") };
    let _ = writing.write(0, &[2]);
    drop(writing);
    assert_eq!(map.pin(0).unwrap().unwrap().bytes()[0], 2, "while the writer lives");
}

/// A thread that holds a pin of a page may need a second pin of the page while a writer waits for
/// the first pin to end. To prevent a deadlock, the writer must let the second pin in after a time.
/// A writer that gives up must not keep pinners out any longer.
#[test]
fn pins_are_kept_out_for_a_time_only() {
    let map = map(8, 8);
    load(&map, 0, 1);
    let _first = map.pin(0).unwrap().unwrap();
    let mut writer = map.writer(0);
    let mut refused = [0, 0];
    for attempt in 1..=1023 {
        assert!(matches!(writer.begin(), BeginWrite::Pinned));
        refused[usize::from(attempt >= 64)] += u32::from(map.pin(0).is_err());
    }
    assert_eq!(refused, [62, 56 + 112 + 224 + 448], "it waits longer each time, and lets pinners in before that");
    assert_eq!(map.pin(0).err(), Some(PinError::Busy));
    drop(writer);
    assert!(map.pin(0).unwrap().is_some());
}

/// A pinner that finds a writer at the page makes a reservation in the frame. The reservation
/// becomes a pin when the writer is done. If the pinner gives up, the reservation is given back.
#[test]
fn a_pinner_that_gives_up_leaves_no_place() {
    let map = map(8, 8);
    load(&map, 0, 1);
    for gives_up in [true, false] {
        let BeginWrite::Begun(writing) = map.begin_write(0) else { panic!("no pin is left") };
        let mut pinner = map.pinner(0);
        assert_eq!(pinner.pin(&mut Ahead::No).err(), Some(PinError::Busy));
        assert_eq!(pinner.pin(&mut Ahead::No).err(), Some(PinError::Busy), "with its place");
        if gives_up {
            drop(pinner);
            drop(writing);
        } else {
            drop(writing);
            let BeginWrite::Pinned = map.begin_write(0) else { panic!("the place is a pin") };
            assert_eq!(pinner.pin(&mut Ahead::No).unwrap().unwrap().bytes()[0], 1);
        }
    }
    assert!(matches!(map.begin_write(0), BeginWrite::Begun(_)));
}

/// When a page's last pin has ended, an evictor may take the page even while a writer waits for the
/// page. The next page in the frame must then be pinnable as usual.
#[test]
fn the_next_page_of_a_frame_has_no_waiting_writer() {
    let map = map(1, 8);
    load(&map, 0, 1);
    let first = map.pin(0).unwrap();
    let mut writer = map.writer(0);
    assert!(matches!((writer.begin(), writer.begin()), (BeginWrite::Pinned, BeginWrite::Pinned)));
    drop(first);
    let Detach::Listed { frame, .. } = map.detach(0, 0, true) else { panic!("it isn't pinned") };
    drop(frame);
    load(&map, 1, 2);
    assert!(map.pin(1).unwrap().is_some());
    assert!(matches!(writer.begin(), BeginWrite::Absent));
}

/// Regression: a page's word became `WRITTEN` although the page's bytes weren't changed: a thread
/// had only begun to write to the page, or a refused `set_len` had looked at it. Such a page is
/// clean, and a clean page causes no writeback, so its readers stayed on the slower path for good.
#[test]
fn a_page_that_was_not_changed_is_no_written_page() {
    let map = map(8, 8);
    load(&map, 0, 1);
    make_hot(&map, 0);
    assert!(map.read_hot(0, &mut [0]));
    let BeginWrite::Begun(unchanged) = map.begin_write(0) else { panic!("no one else has the page") };
    drop(unchanged);
    assert_eq!(map.next_written(0..8), None);
    assert!(map.read_hot(0, &mut [0]), "the short way");
    let BeginWrite::Begun(writing) = map.begin_write(0) else { panic!("no one else has the page") };
    let mut adopted = map.frames().adopt_writing(writing);
    assert!(adopted.write(0, &[2]) && !adopted.write(1, &[2]));
    drop(adopted);
    assert_eq!(map.next_written(0..8), Some(0));
    assert_eq!(read(&map, 0)[..2], [2, 2]);
}

#[test]
fn a_kept_access_outlives_its_map_and_remembers_that_it_was_written_to() {
    let map = map(8, 8);
    load(&map, 0, 1);
    let frames = Arc::clone(&map.shared.frames);
    let BeginWrite::Begun(writing) = map.begin_write(0) else { panic!("no one else has the page") };
    let mut kept = KeptWriting::of(&frames, writing);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        kept.with(|writing| {
            assert!(writing.write(0, &[2]));
            panic!("on purpose");
        })
    }));
    assert!(refused.is_err() && map.is_held(0) && !kept.with(|writing| writing.write(1, &[2])));
    assert_eq!((map.next_written(0..8), &read(&map, 0)[..3]), (Some(0), &[2, 2, 1][..]));
    drop(kept);
    assert!(!map.is_held(0));
    let pin = KeptPin::of(&frames, map.pin(0).unwrap().unwrap());
    assert!(map.is_pinned(0) && pin.bytes()[..3] == [2, 2, 1]);
    drop(pin);
    assert!(!map.is_pinned(0));
}
