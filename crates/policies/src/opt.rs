//! OPT, also MIN: L. A. Belady, *A Study of Replacement Algorithms for a Virtual-Storage Computer*,
//! IBM Systems Journal 5 (2), 1966. Evicts the page whose next use is farthest in the future.

use std::collections::BinaryHeap;

use crate::accesses::Accesses;
use crate::replacement::STEP;

/// A page that isn't used again.
const NEVER: u32 = u32::MAX;

/// The heap may have up to `2 * room + SPARE` entries before out-of-date ones are removed.
const SPARE: usize = 1024;

/// Returns how many accesses miss in a cache of `room` pages, one at least.
///
/// # Errors
/// That of `progress`.
pub(crate) fn misses<E>(
    accesses: &Accesses,
    room: usize,
    mut progress: impl FnMut(usize) -> Result<(), E>,
) -> Result<u64, E> {
    let next_uses = next_uses(accesses);
    let mut is_there = vec![false; accesses.pages()];
    // Entries `(next use, page)`. An entry is out of date once its next use is over.
    let mut heap: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let (mut misses, mut held) = (0, 0);
    for (now, (&page, &next)) in accesses.order().iter().zip(&next_uses).enumerate() {
        if !std::mem::replace(&mut is_there[page as usize], true) {
            misses += 1;
            if held < room {
                held += 1;
            } else if let Some((_, farthest)) = heap.pop() {
                // The entry on top has the farthest next use, and is up to date: each page in the
                // cache has an entry whose next use is still to come, and all such entries are
                // above those that are out of date.
                is_there[farthest as usize] = false;
            }
        }
        heap.push((next, page));
        if heap.len() > 2 * room + SPARE {
            heap.retain(|&(next, _)| next as usize > now);
        }
        if (now + 1) % STEP == 0 || now + 1 == accesses.len() {
            progress(now + 1)?;
        }
    }
    Ok(misses)
}

/// Returns for each access which access is the next one to the same page.
fn next_uses(accesses: &Accesses) -> Vec<u32> {
    let mut next_of_page = vec![NEVER; accesses.pages()];
    let mut next_uses = vec![NEVER; accesses.len()];
    // There are fewer accesses than `NEVER`.
    for ((now, &page), next) in accesses.order().iter().enumerate().zip(&mut next_uses).rev() {
        *next = std::mem::replace(&mut next_of_page[page as usize], now as u32);
    }
    next_uses
}
