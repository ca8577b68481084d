//! Memory that goes back to the system when the budget is lowered.

use sync::Arc;

use pagefold::{Advice, Pagefold};

use crate::hooked::{Gate, Hooked, fill};
use crate::support::eventually;

const PAGE: u64 = 4096;

/// While the budget was being lowered, every call that needed a few KiB of it was blocked, such as
/// opening a file. It stayed blocked until `resize` returned. Here that took long, because another
/// thread was loading a page.
#[test]
fn a_file_can_be_opened_while_the_budget_is_lowered() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let backend = Hooked::new(
        move |offset, into| {
            if offset == 1000 * PAGE {
                held.pass();
            }
            Ok(fill(offset, into, 8 << 20, 1))
        },
        || Ok(8 << 20),
    );
    let mm = Pagefold::builder().memory("1MiB").backend(backend).build().unwrap();
    let group = mm.group("tenant").build().unwrap();
    let file = group.open("file").unwrap();
    file.advise(0..1, Advice::Random).unwrap();
    for page in 0..240 {
        file.read_at(&mut [0; 8], page * PAGE).unwrap();
    }
    let pins: Vec<_> = (100..200).map(|page| file.page_at(page * PAGE).unwrap()).collect();
    std::thread::scope(|scope| {
        let loader = scope.spawn(|| file.read_at(&mut [0; 8], 1000 * PAGE));
        gate.wait_for_somebody();
        // `resize` gives up after a while. If this thread gets no CPU before that, its `open` comes
        // too late, and the round is repeated.
        eventually("a file is only opened when the budget isn't lowered any more", || {
            let lowered = scope.spawn(|| mm.resize("256KiB"));
            eventually("it doesn't begin", || mm.budget() < 1 << 20 || lowered.is_finished());
            let opened = group.open("another").unwrap();
            let was_in_time = mm.budget() < 1 << 20;
            drop(opened);
            assert!(lowered.join().unwrap().is_err(), "pages are pinned");
            was_in_time
        });
        gate.open();
        loader.join().unwrap().unwrap();
    });
    drop(pins);
    mm.resize("256KiB").unwrap();
    assert!(mm.stats().used_bytes <= 256 << 10);
}
