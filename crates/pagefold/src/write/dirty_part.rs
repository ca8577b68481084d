//! The dirty pages that one group has in one file.
//!
//! Writers are throttled by group, but pages are written by file and device. So dirty pages are
//! counted for each pair of a file and a group, in a [`DirtyPart`] (PART-1 and PART-2 of `device`).
//! A part is created when the group first makes a page of the file dirty. The file may drop the
//! part when the part has no dirty pages, and no handle uses the part any more.
//!
//! A group has a list of all its parts; a device has a list of its parts that have dirty pages.

use sync::{Arc, Weak};

use crate::dirty::device::{Device, DirtyPart};
use crate::file::handle::Handle;
use crate::file::state::FileState;
use crate::group::dirt::Part;
use crate::group::state::GroupState;
use io::IoError;

impl FileState {
    /// Sets the file's device, before the file is first written to.
    pub(crate) fn settle_on(self: &Arc<Self>, device: impl FnOnce() -> Arc<Device>) {
        let file: Weak<Self> = Arc::downgrade(self);
        self.dirt.home.get_or_init(|| (file, device()));
    }

    /// Returns the file's device, if the file is open for writing.
    pub(crate) fn device(&self) -> Option<&Arc<Device>> {
        self.dirt.home.get().map(|(_, device)| device)
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.device().is_some_and(|device| device.is_stalled())
    }

    /// Returns the number of the file's dirty pages, of all groups.
    pub(crate) fn unclean(&self) -> u64 {
        self.dirt.parts.lock().iter().map(|part| part.pages()).sum()
    }

    /// Calls `what` with each part.
    pub(crate) fn each_part(&self, what: impl FnMut(&Arc<DirtyPart>)) {
        self.dirt.parts.lock().iter().for_each(what);
    }

    /// Returns whether `is` holds for any part.
    pub(crate) fn any_part(&self, is: impl FnMut(&Arc<DirtyPart>) -> bool) -> bool {
        self.dirt.parts.lock().iter().any(is)
    }

    /// Returns the part of a group, creating it if need be. `None` if the file isn't open for
    /// writing.
    pub(crate) fn part_of(&self, group: &Arc<GroupState>) -> Option<Arc<DirtyPart>> {
        let (file, device) = self.dirt.home.get()?;
        let mut parts = self.dirt.parts.lock();
        // Group numbers are reused, so the group itself is compared.
        if let Some(part) = parts.iter().find(|part| Arc::ptr_eq(&part.group, group)) {
            return Some(Arc::clone(part));
        }
        parts.retain(|part| !part.is_idle());
        let failed_ms = self.latch.failing().map_or(0, |_| self.manager.memory.now_ms().max(1));
        let part = DirtyPart::new(file, group, device, failed_ms);
        let of_group: Arc<dyn Part> = Arc::clone(&part) as _;
        group.dirt.add(&of_group);
        parts.push(Arc::clone(&part));
        Some(part)
    }

    /// Returns the part in which dirty pages charged to the group with this number are counted.
    pub(crate) fn part_of_number(&self, group: u32) -> Option<Arc<DirtyPart>> {
        match self.manager.memory.groups.get(group) {
            Some(group) => self.part_of(&group),
            // Another thread has just given up the group's last page.
            None => self.dirt.parts.lock().iter().find(|part| part.group.id == group).cloned(),
        }
    }

    /// Counts a page charged to the group with this number that has just become dirty.
    pub(crate) fn became_dirty(&self, group: u32) {
        if let Some(part) = self.part_of_number(group) {
            part.became_dirty(&self.manager.file_io.unclean, || self.manager.memory.now_ms());
        }
    }

    /// Notes that all pages that were dirty at `started_ms` have become clean.
    pub(crate) fn clean_since(&self, started_ms: u64) {
        self.each_part(|part| part.clean_since(started_ms));
    }

    /// Notes that the flusher has written the file. If `tried` names a visit, the flusher doesn't
    /// try the file again in that visit.
    pub(crate) fn swept(&self, tried: Option<u64>) {
        let now_ms = self.manager.memory.now_ms();
        self.each_part(|part| part.swept(now_ms, tried));
    }

    /// Notes that a cycle failed, or that a round of the whole file succeeded.
    pub(crate) fn note_outcome(&self, failure: Option<IoError>) {
        if let Some(error) = failure {
            self.latch.fail(error);
            self.failed_at(self.manager.memory.now_ms().max(1));
        } else if self.latch.failing().is_some() {
            self.latch.heal();
            self.can_be_written_again();
        }
    }

    /// Notes that write-back of the file doesn't fail any more.
    pub(crate) fn can_be_written_again(&self) {
        self.failed_at(0);
    }

    /// Notes that write-back of the file failed at `failed_ms`, or, if `failed_ms` is 0, that it
    /// doesn't fail any more. Then updates the groups' counts of pages that can't be written.
    fn failed_at(&self, failed_ms: u64) {
        let mut groups = Vec::new();
        self.each_part(|part| {
            part.failed_at(failed_ms);
            groups.push(Arc::clone(&part.group));
        });
        for group in groups {
            group.dirt.count_stuck();
        }
    }
}

impl Handle {
    /// Counts a page, charged to the group with this number, that has just become dirty.
    pub(crate) fn became_dirty(&self, group: u32) {
        let own = self.group.state();
        if group != own.id {
            return self.file.became_dirty(group);
        }
        let part = match self.dirty_part.get() {
            Some(part) => part,
            None => match self.file.part_of(own) {
                Some(part) => self.dirty_part.get_or_init(|| part),
                None => return,
            },
        };
        part.became_dirty(&self.file.manager.file_io.unclean, || self.file.manager.memory.now_ms());
    }
}
