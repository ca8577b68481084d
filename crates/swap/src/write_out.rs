//! Writes pages to areas: chooses the area, and retries in other areas after a failure.

use arrayvec::ArrayVec;
use sync::Arc;

use crate::allowance::Need;
use crate::area::NotWritten;
use crate::area_list::Handle;
use crate::error::SwapOutError;
use crate::page_out::PageOut;
use crate::slot_word::{BATCH_MAX, SlotBatch, SlotId};

/// The maximum number of attempts to write a page, including the first one.
const WRITES_MAX: u32 = 3;

/// The outcome of earlier attempts to write the same pages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tried {
    times: u32,
    /// A bit for each area whose write failed.
    areas: u32,
    /// A bit for each area that doesn't take the pages, or has no room for them.
    refused_by: u32,
    error: Option<SwapOutError>,
}

impl Tried {
    /// Creates the state before the first attempt. Areas whose bits are set in `areas` must not be
    /// used.
    pub(crate) fn refused_by(areas: u32) -> Self {
        Self { refused_by: areas, ..Self::default() }
    }
}

/// Allocates slots in one area, at most the given number, and returns the area. The two arguments
/// after the number are sets of areas, with one bit for each area. Areas in the first set are a
/// fallback: they are used only if all areas outside both sets are full, or have devices that don't
/// answer. Areas in the second set are never used.
type Allocate<'a> = dyn Fn(usize, u32, u32, &mut SlotBatch) -> Option<Arc<Handle>> + 'a;

type Done<'a> = dyn FnMut(usize, Result<SlotId, SwapOutError>) + 'a;

/// Writes pages to slots of areas. Holds no lock during device I/O. `without_buffer` has a bit for
/// each area that had no free buffer, even after this thread waited for one. Such an area gets no
/// more pages, so the thread waits for each area at most once.
pub(crate) fn write_out(
    allocate: &Allocate<'_>,
    pages: &[PageOut<'_>],
    need: Need,
    tried: Tried,
    without_buffer: &mut u32,
    done: &mut Done<'_>,
) {
    let mut at = 0;
    while at < pages.len() {
        let mut batch = SlotBatch::new();
        let mut refused = ArrayVec::<usize, BATCH_MAX>::new();
        let Some(area) = allocate(pages.len() - at, tried.areas, tried.refused_by | *without_buffer, &mut batch) else {
            let error = tried.error.unwrap_or(SwapOutError::Full);
            return (at..pages.len()).for_each(|at| done(at, Err(error)));
        };
        for run in batch.chunk_by(|&a, &b| area.joins(a, b)) {
            let (start, of_run) = (at, &pages[at..at + run.len()]);
            at += run.len();
            let has_buffer = *without_buffer >> area.number & 1 == 0;
            match if has_buffer { area.write(run, of_run, need) } else { Err(NotWritten::NoBuffer) } {
                Ok(()) => (start..at).zip(run).for_each(|(at, &slot)| done(at, Ok(slot))),
                Err(why) => {
                    // The slots' numbers aren't stale: the slots were allocated just now.
                    run.iter().for_each(|&slot| _ = area.free(slot));
                    let NotWritten::Failed(error) = why else {
                        // Sometimes: an area has no room for pages that it has slots for.
                        *without_buffer |= u32::from(why == NotWritten::NoBuffer) << area.number;
                        refused.extend(start..at);
                        continue;
                    };
                    let error = SwapOutError::WriteFailed { area: area.number, error };
                    tracing::warn!(area = area.name, pages = run.len(), %error, "can't write to a swap area");
                    let areas_tried = tried.areas | 1 << area.number;
                    let tried = Tried { times: tried.times + 1, areas: areas_tried, error: Some(error), ..tried };
                    if tried.times < WRITES_MAX {
                        // Sometimes: pages are tried in another area after a failed write.
                        write_out(allocate, of_run, need, tried, without_buffer, &mut |at, result| {
                            done(start + at, result);
                        });
                    } else {
                        (start..at).for_each(|at| done(at, Err(error)));
                    }
                }
            }
        }
        if !refused.is_empty() {
            // The refused pages are collected, for one large write.
            let elsewhere: ArrayVec<PageOut<'_>, BATCH_MAX> = refused.iter().map(|&at| pages[at]).collect();
            let tried = Tried { refused_by: tried.refused_by | 1 << area.number, ..tried };
            write_out(allocate, &elsewhere, need, tried, without_buffer, &mut |at, result| done(refused[at], result));
        }
    }
}
