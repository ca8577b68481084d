//! Areas come and go while pages are in them.

use std::io::ErrorKind;

use super::*;
use pagefold::{AddError, Error, Placement, PlacementReason, RemoveError};

#[test]
fn pages_touched_before_there_was_swap_go_there_too() {
    let mm = Pagefold::builder().memory("8MiB").build().unwrap();
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let (space, base) = filled(&group, ROOM);
    let more = space.map(ROOM * PAGE, Protection::ReadWrite).unwrap().start;
    assert!(matches!(space.write_at(&[1], more).unwrap_err().cause(), Error::LimitReached { .. }));
    mm.add_swap(in_memory(200)).unwrap();
    (0..ROOM).for_each(|page| write(&space, more, page, 3));
    (0..ROOM).for_each(|page| check(&space, base, page, 0));
    (0..ROOM).for_each(|page| check(&space, more, page, 3));
    drop(space);
    assert_eq!((group.charged(), used(&mm)), (0, 0));
}

#[test]
fn an_area_is_removed_when_its_pages_are_back_or_says_what_is_missing() {
    let (mm, group) = with_swap(1000);
    let (space, base) = filled(&group, 8 * ROOM);
    let error = mm.remove_swap(0).unwrap_err();
    let Error::SwapInUse(RemoveError::NoMemory { area: 0, missing_bytes }) = error else { panic!("{error}") };
    // Nearly all of it is missing: only a few pages fit, in the room that a limit keeps for pages
    // in transit.
    assert!((6 * ROOM * PAGE..=8 * ROOM * PAGE).contains(&missing_bytes), "{error}");
    (0..8 * ROOM).for_each(|page| check(&space, base, page, 0));
    // Into another one.
    let second = mm.add_swap(in_memory(2000)).unwrap();
    mm.remove_swap(0).unwrap();
    assert_eq!(mm.stats().swap.len(), 1);
    (0..8 * ROOM).for_each(|page| check(&space, base, page, 0));
    // And into memory.
    group.set_max("8MiB").unwrap();
    mm.remove_swap(second).unwrap();
    assert!(mm.stats().swap.is_empty());
    assert_eq!(space.areas()[0].swapped, 0);
    (0..8 * ROOM).for_each(|page| check(&space, base, page, 0));
    assert!(matches!(mm.remove_swap(second), Err(Error::SwapInUse(RemoveError::Unknown { .. }))));
}

/// Regression: After a space was dropped, and only an owned guard kept it alive, its pages in swap
/// couldn't be swapped in. So their area couldn't be removed.
#[test]
fn an_area_goes_while_a_guard_outlives_its_space() {
    let (mm, group) = with_swap(1000);
    let (space, base) = filled(&group, 8 * ROOM);
    write(&space, base, 0, 1); // It gives up its slot.
    let guard = space.page_at_owned(base).unwrap();
    drop(space);
    group.set_max("8MiB").unwrap();
    mm.remove_swap(0).unwrap();
    assert_eq!(&*guard, contents(0, 1));
    assert!(mm.stats().swap.is_empty() && group.stats().swapped_bytes == 0);
}

#[test]
fn tables_are_charged_to_the_budget() {
    let mm = Pagefold::builder().memory("1MiB").build().unwrap();
    let before = mm.stats().metadata_bytes;
    // The area's table, with twenty bytes for each page, is larger than the budget.
    let error = mm.add_swap(SwapArea::unlinked(std::env::temp_dir(), "1GiB")).unwrap_err();
    assert!(matches!(error, Error::SwapRefused(AddError::NoRoom { .. })), "{error}");
    // Regression: the text was that of a budget that can't be lowered.
    assert!(error.to_string().starts_with("no room in the budget for the tables of the swap area "), "{error}");
    assert_eq!(mm.stats().metadata_bytes, before);
    mm.add_swap(SwapArea::unlinked(std::env::temp_dir(), "16MiB")).unwrap();
    assert!(mm.stats().metadata_bytes >= before + 4096 * 20);
    mm.remove_swap(0).unwrap();
    assert_eq!(mm.stats().metadata_bytes, before);
}

#[test]
fn slots_are_given_out_as_the_user_says() {
    for placement in [Placement::PerCpu, Placement::Sequential] {
        let (mm, group) = with_swap(1);
        mm.add_swap(in_memory(1000).placement(placement)).unwrap();
        let area = mm.stats().swap.remove(1);
        assert_eq!((area.placement, area.placement_reason), (placement, PlacementReason::Requested));
        let (space, base) = filled(&group, 4 * ROOM);
        (0..4 * ROOM).for_each(|page| check(&space, base, page, 0));
        drop(space);
        assert_eq!(left(&mm, &group), (0, 0, 0), "{placement:?}");
    }
}

#[test]
fn statistics_say_how_slots_are_given_out_and_why() {
    let requested = in_memory(9).placement(Placement::Sequential);
    let mm = Pagefold::builder().memory("8MiB").compressed_swap("1MiB").swap_area(requested).build().unwrap();
    let stats = mm.stats();
    let said = |area: &SwapAreaStats| (area.placement, area.placement_reason.clone());
    assert_eq!(said(&stats.swap[0]), (Placement::PerCpu, PlacementReason::Memory));
    assert_eq!(said(&stats.swap[1]), (Placement::Sequential, PlacementReason::Requested));
    let text = stats.to_string();
    assert!(text.contains("priority 100, per-cpu (in memory);"), "{text}");
    assert!(text.contains("priority 0, sequential (as requested)\n"), "{text}");
    #[cfg(feature = "prometheus")]
    {
        let metrics = stats.to_prometheus();
        let labels = r#"area="1",name="memory",placement="sequential",reason="as requested""#;
        assert!(metrics.contains(&format!("pagefold_swap_placement{{{labels}}} 1\n")), "{metrics}");
    }
}

#[test]
fn what_cant_be_an_area_is_told_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("swap");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let mm = Pagefold::builder().memory("8MiB").build().unwrap();
    let refusal = |area: SwapArea| match mm.add_swap(area) {
        Err(Error::SwapRefused(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refusal(SwapArea::path(&path)), AddError::BadHeader { .. }));
    assert!(matches!(refusal(SwapArea::unlinked(&path, "1MiB")), AddError::OpenFailed { .. }), "it exists");
    assert!(matches!(refusal(SwapArea::path(dir.path().join("none"))), AddError::OpenFailed { .. }));
    assert!(matches!(refusal(SwapArea::memory(4096)), AddError::TooSmall { .. }));
    assert!(matches!(mm.add_swap(SwapArea::memory("lots")), Err(Error::BadSize(_))));
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
    assert!(matches!(Pagefold::builder().memory("8MiB").swap(&path, "1MiB").build(), Err(Error::SwapRefused(_))));
    mm.add_swap(SwapArea::path(&path).overwrite(true)).unwrap();
    let in_use = refusal(SwapArea::path(&path).overwrite(true));
    assert!(matches!(in_use, AddError::InUse { .. }) && in_use.kind() == ErrorKind::ResourceBusy, "{in_use}");
}

/// The area is a file of the machine, through the backend that `automatic` chooses.
#[test]
fn a_file_without_a_name_is_swap() {
    let dir = tempfile::tempdir().unwrap();
    let mm = Pagefold::builder().memory("8MiB").swap(dir.path().join("swap"), "16MiB").build().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name any more");
    let group = mm.group("a").max((ROOM + INDEX) * PAGE).build().unwrap();
    let (space, base) = filled(&group, 8 * ROOM);
    (0..8 * ROOM).for_each(|page| check(&space, base, page, 0));
    assert!(used(&mm) >= 7 * ROOM);
}
