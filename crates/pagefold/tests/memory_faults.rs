//! The system refuses memory. The first call that allocates memory, makes it accessible or gives it
//! back fails in the first run, the second call in the second run, and so on, until a run ends
//! before the call that should fail. This is done for a single failing call and for all calls from
//! there on. The test is alone in its process, because the refusals apply to the whole process.
#![cfg(not(pagefold_loom))]

use pagefold::{Error, Group, Pagefold, Protection, SwapArea};
use sync::memory::refusals;
use test_disks::SimulatedDisk;

const PAGE: u64 = 4096;

/// Whether an error says that memory, or room in the budget, is lacking.
fn is_of_memory(error: &Error) -> bool {
    matches!(
        error.cause(),
        Error::System { .. }
            | Error::TooSmall { .. }
            | Error::BudgetTooLarge { .. }
            | Error::BudgetBusy { .. }
            | Error::LimitReached { .. }
            | Error::FileTooLarge { .. }
            | Error::SwapRefused(_)
            | Error::SwapInUse(_)
    )
}

fn tagged(page: u64) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|word| sync::random::mix(page << 10 | word).to_le_bytes()).collect()
}

/// Uses files, memory in swap, and a budget that changes. Goes on after an error, and returns the
/// first one.
fn scenario() -> Result<(), Error> {
    let disk = SimulatedDisk::default();
    disk.add_generated("file", 1, 600 * PAGE);
    let mm = Pagefold::builder().memory("1MiB").memory_max("4MiB").backend(disk).build()?;
    let group = mm.group("tenant").build()?;
    let added =
        [mm.add_swap(SwapArea::memory("4MiB")).map(drop), mm.add_swap(SwapArea::compressed("256KiB")).map(drop)];
    let results = [files(&group), memory(&group), mm.resize("4MiB"), files(&group), mm.resize("512KiB"), files(&group)];
    let stats = mm.stats();
    assert!(stats.used_bytes <= stats.budget_bytes, "{stats}");
    added.into_iter().chain(results).collect()
}

fn files(group: &Group) -> Result<(), Error> {
    let file = group.open_options().write(true).open("file")?;
    for page in 0..500 {
        let mut bytes = [0; 8];
        file.read_at(&mut bytes, page * PAGE)?;
        if page % 7 == 0 {
            file.write_at(&tagged(page), page * PAGE)?;
        }
    }
    file.sync()?;
    for page in (0..500).step_by(7) {
        let mut bytes = vec![0; PAGE as usize];
        file.read_at(&mut bytes, page * PAGE)?;
        assert!(bytes == tagged(page), "page {page} of the file isn't what was written");
    }
    file.close()
}

fn memory(group: &Group) -> Result<(), Error> {
    let space = group.space()?;
    let base = space.map(400 * PAGE, Protection::ReadWrite)?.start;
    for page in 0..400 {
        space.write_at(&tagged(page), base + page * PAGE)?;
    }
    for page in 0..400 {
        let mut bytes = vec![0; PAGE as usize];
        space.read_at(&mut bytes, base + page * PAGE)?;
        assert!(bytes == tagged(page), "page {page} isn't what was written");
    }
    space.unmap(base..base + 400 * PAGE)
}

#[test]
fn whichever_call_for_memory_is_refused_the_answer_is_an_error() {
    refusals::refuse(u64::MAX..=u64::MAX);
    scenario().expect("with all memory that it wants");
    let clean = refusals::allow();
    let (mut runs, mut injected, mut errors) = (0, 0, 0);
    for for_ever in [false, true] {
        for call in 1.. {
            refusals::refuse(call..=if for_ever { u64::MAX } else { call });
            let result = scenario();
            let calls = refusals::allow();
            if calls < call {
                break;
            }
            runs += 1;
            injected += if for_ever { calls - call + 1 } else { 1 };
            errors += u64::from(result.is_err());
            result.or_else(|error| if is_of_memory(&error) { Ok(()) } else { Err(error) }).unwrap_or_else(|error| {
                panic!("call {call} refused{}: {error}", if for_ever { ", and all later ones" } else { "" })
            });
            assert!(call < clean + 1000, "calls without end");
        }
    }
    scenario().expect("memory that is there again");
    println!("{clean} calls in a clean run, {runs} runs, {errors} with an error");
    println!("faults injected: {injected} in {runs} runs");
    assert!(runs > 50 && errors > 10, "{runs} runs, {errors} with an error");
}
