//! Checks whether a size can be a budget.

use sync::FirstTime;

use crate::error::Error;
use crate::machine;
use crate::size::Size;

/// The fewest pages that a budget must hold.
const PAGES_MIN: u64 = 16;

/// Checks that a budget of `size` is possible, with pages of `page_size` bytes. Writes one warning
/// to the log if the budget exceeds the memory that this process may use.
///
/// # Errors
/// [`Error::TooSmall`], [`Error::BudgetTooLarge`].
pub(crate) fn check_budget(size: Size, page_size: usize) -> Result<(), Error> {
    // A budget must hold its pages and their records, and leave room for groups and page maps. A
    // page map needs more room if the system's pages are larger (`map_room`).
    let room = (56 << 10) + frames::map_room().next_multiple_of(8 << 10);
    let min = Size(PAGES_MIN * (page_size as u64 + 64) + room);
    if size < min {
        return Err(Error::TooSmall { what: "a budget", size, min, page_size: Size(page_size as u64) });
    }
    let max = Size(frames::FRAMES_MAX * page_size as u64);
    if size > max {
        return Err(Error::BudgetTooLarge { size, max });
    }
    let allowed = machine::memory_allowed();
    if size.0 > allowed.bytes {
        static TOLD: FirstTime = FirstTime::new();
        if TOLD.is_now() {
            let (bytes, limit) = (Size(allowed.bytes), allowed.limit);
            tracing::warn!(
                target: "pagefold::room",
                %size, allowed = %bytes, ?limit, "a budget beyond the memory there is"
            );
        }
    }
    Ok(())
}
