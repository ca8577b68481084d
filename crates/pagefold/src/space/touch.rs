//! The first touch of a page, and its end.

use std::ops::Range;

use frames::{BeginLoad, Detach, Labels, OwnedFrame};
use sync::SharedBytes;
use sync::atomic::{Backoff, Ordering, fence};

use super::SpaceState;
use super::address::Pages;
use super::region::{REGION_PAGES, Region};
use crate::error::Error;
use crate::group_state::ANONYMOUS;

/// Pages that are freed together.
const FREE_BATCH: usize = 256;
/// How often room for page words is made before a touch gives up.
const ROOM_ATTEMPTS: u32 = 64;

/// What a page of zeros is copied from, in parts.
static ZEROS: [u8; 4096] = [0; 4096];

/// Zeroes a frame: through the caches if it is in them, past them otherwise.
fn zero(bytes: SharedBytes<'_>, is_warm: bool) {
    if !is_warm && bytes.len() == ZEROS.len() {
        return bytes.stream_from(&ZEROS);
    }
    for offset in (0..bytes.len()).step_by(ZEROS.len()) {
        bytes.copy_from(offset, &ZEROS);
    }
}

impl SpaceState {
    /// Brings a page that was never written into memory: zeros, but for `bytes` at `offset`. False, with nothing done, if
    /// it is there, or somebody else is at it.
    ///
    /// # Errors
    /// [`Error::LimitReached`]; those of [`refuse`](Self::refuse).
    #[cold]
    pub(super) fn touch(&self, region: &Region, page: u64, offset: usize, bytes: &[u8]) -> Result<bool, Error> {
        let manager = &**self.manager();
        let mut rooms_made = 0;
        loop {
            let frame = manager.take_frame(self.group.state())?.into_anonymous();
            let is_warm = self.warm.take();
            frame.fill(|memory| {
                zero(memory, is_warm);
                if !bytes.is_empty() {
                    memory.copy_from(offset, bytes);
                }
            });
            match region.map.begin_load(page % REGION_PAGES) {
                BeginLoad::Begun(loading) => {
                    fence(Ordering::SeqCst); // S1
                    let entry = region.entry(page % REGION_PAGES);
                    if !entry.may_write_anonymous() {
                        drop(loading);
                        self.give_back([frame]);
                        // As another file's page it isn't this call's affair: whoever called looks again.
                        return if entry.may_write() { Ok(false) } else { Err(self.refuse(page, entry)) };
                    }
                    let labels = Labels { group: self.group.state().id, owner: ANONYMOUS, ..Labels::default() };
                    let (isolated, _) = loading.publish(frame, labels, false);
                    // On no list; but so that who unmaps it gets the frame.
                    if let Err(orphan) = manager.frames.put_back(isolated) {
                        self.give_back([orphan]);
                    }
                    return Ok(true);
                }
                BeginLoad::Resident => {
                    self.give_back([frame]);
                    return Ok(false);
                }
                BeginLoad::Busy => {
                    self.give_back([frame]);
                    // The other one's failure isn't ours.
                    let _ = region.map.wait(page % REGION_PAGES);
                    return Ok(false);
                }
                BeginLoad::NoRoom => {
                    self.give_back([frame]);
                    rooms_made += 1;
                    if rooms_made > ROOM_ATTEMPTS {
                        return Err(manager.limit_reached(self.group.state()));
                    }
                    manager.make_room(self.group.state())?;
                }
            }
        }
    }

    fn give_back<'a>(&'a self, frames: impl IntoIterator<Item = OwnedFrame<'a>>) {
        let count = self.manager().release_anonymous(self.group.state(), frames);
        self.warm.freed(count as u64);
    }

    /// Takes all of `pages` out of memory, and waits for those who have one (S1).
    pub(super) fn free(&self, pages: Pages) {
        for (region, local) in self.index.regions(pages) {
            self.free_in(region, local);
        }
    }

    fn free_in(&self, region: &Region, local: Range<u64>) {
        let mut gone = Vec::with_capacity(FREE_BATCH.min((local.end - local.start) as usize));
        for page in region.map.pages_in_memory(local) {
            if let Some(frame) = self.take_out(region, page) {
                gone.push(frame);
                if gone.len() == FREE_BATCH {
                    self.give_back(gone.drain(..));
                }
            }
        }
        if !gone.is_empty() {
            self.give_back(gone);
        }
    }

    fn take_out<'a>(&self, region: &'a Region, page: u64) -> Option<OwnedFrame<'a>> {
        let mut backoff = Backoff::new();
        loop {
            match region.map.detach(page, 0, true) {
                Detach::Listed { frame, .. } => return Some(frame),
                // Whoever brought it in is about to put it back, and frees it.
                Detach::Vacant | Detach::Orphaned { .. } => return None,
                Detach::Pinned | Detach::Busy | Detach::Loading | Detach::Unclean => backoff.wait(),
            }
        }
    }
}
