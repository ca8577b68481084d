//! Pins that outlast a step: what must not change while they exist, and which calls must work
//! beside them.

use std::collections::HashSet;
use std::ops::Range;

use pagefold::{Advice, Error, File, PageRef};

use crate::limits::SPARE;
use crate::support::assert_same;
use crate::world::World;

/// The most pins at a time. This is more than the smallest limits of groups.
const HELD_MAX: usize = 39;
/// The longest that a pin is kept, in steps.
const STEPS_MAX: u64 = 12;
/// A call that needs a pinned page waits for seconds, so the test makes such calls rarely: one in
/// `WRITES` writes, one in `CHANGES` changes of a page, and one in `GROWTHS` growths. The latter
/// two need a pinned page less often.
pub(crate) const WRITES: u64 = 500;
pub(crate) const CHANGES: u64 = 60;
pub(crate) const GROWTHS: u64 = 20;
const SQUEEZED_CALLS: u64 = 20;
/// The smallest limit that a group can have.
const LIMIT_MIN: u64 = 4;
/// The smallest budget that there can be.
const BUDGET_MIN: u64 = 160 << 10;

/// A pinned page, as it was when it was pinned.
pub(crate) struct Held {
    number: usize,
    page: u64,
    /// The group that the page's handle belongs to. The pin keeps the group alive.
    group: String,
    pin: PageRef<'static>,
    bytes: Vec<u8>,
    /// The step before which it is dropped.
    until: u64,
}

impl World {
    pub(crate) fn pin_some(&mut self) {
        let Some((number, file)) = self.pick(false) else { return };
        let wanted = self.random.below(HELD_MAX as u64 + 1);
        self.pin(number, &file, wanted);
        let writes = self.open.iter().any(|open| open.number == number && open.writable);
        if let Some(held) = self.held.iter().find(|held| held.number == number && writes) {
            self.cut_pinned(number, held.page as usize);
        }
    }

    /// Pins up to `wanted` pages, but no more than [`HELD_MAX`] in all.
    fn pin(&mut self, number: usize, file: &File, wanted: u64) {
        let until = self.steps + 1 + self.random.below(STEPS_MAX);
        for _ in 0..wanted.min((HELD_MAX - self.held.len()) as u64) {
            let len = self.bytes(number).len();
            // Growth meets the last page.
            let page = if self.random.one_in(100) { len as u64 } else { self.offset(number) } / 4096;
            match self.ask(file.group(), 1, || file.page_at_owned(page * 4096)) {
                Ok(pin) => {
                    let bytes = self.bytes(number)[page as usize * 4096..len.min((page as usize + 1) * 4096)].to_vec();
                    assert_same(&pin, &bytes, &format!("f{number}, page {page} to be pinned"));
                    let group = file.group().name().to_owned();
                    self.held.push(Held { number, page, group, pin, bytes, until });
                    self.seen.pins += 1;
                }
                Err(Error::PastEnd { .. }) => assert!(page >= (len as u64).div_ceil(4096)),
                Err(error) => {
                    self.tolerate(&error);
                    break;
                }
            }
        }
    }

    /// Works with little more memory than what is pinned.
    pub(crate) fn squeeze(&mut self) {
        let Some((number, file)) = self.pick(false) else { return };
        let wanted = self.random.below(HELD_MAX as u64 + 1);
        self.pin(number, &file, wanted);
        let more = self.random.below(8);
        if self.random.one_in(2) {
            let at = self.groups.iter().position(|group| group.name() == file.group().name()).expect("one of them");
            let before = self.groups[at].max();
            // Or with less.
            let less = self.random.below(3);
            self.limit(at, (self.pinned_pages() + more).saturating_sub(less).max(LIMIT_MIN) * 4096);
            self.work_squeezed(number, &file);
            self.limit(at, before);
        } else {
            let before = self.mm.budget();
            let extents = self.random.below(self.pinned_pages() + 1) + more;
            let size = self.mm.stats().metadata_bytes + self.random.below(SPARE) + extents * self.extent_bytes;
            self.resize_to(size.max(BUDGET_MIN));
            self.work_squeezed(number, &file);
            self.resize_to(before);
        }
    }

    /// Until a call is refused, which takes a while.
    fn work_squeezed(&mut self, number: usize, file: &File) {
        let refused = self.seen.refusals_due;
        for turn in 0..SQUEEZED_CALLS {
            if self.seen.refusals_due > refused {
                break;
            }
            let advice = if turn.is_multiple_of(2) { Advice::Random } else { Advice::Normal };
            file.advise(0..1, advice).expect("it does nothing yet");
            match self.random.below(16) {
                0 => self.open(),
                1 => self.change_page(),
                2 => self.write(),
                3 => self.page_async(),
                4 => self.pin(number, file, 8),
                _ => self.read_from(number, file),
            }
            self.check_pins();
            self.check_limits();
        }
    }

    /// Nothing changes a page while it is pinned.
    pub(crate) fn check_pins(&self) {
        for Held { number, page, pin, bytes, .. } in &self.held {
            assert_same(pin, bytes, &format!("f{number}, pinned page {page}"));
        }
    }

    pub(crate) fn drop_old_pins(&mut self) {
        let now = self.steps;
        self.held.retain(|held| held.until > now);
    }

    pub(crate) fn drop_pins(&mut self) {
        self.check_pins();
        self.held.clear();
    }

    pub(crate) fn drop_pins_of(&mut self, number: usize) {
        self.check_pins();
        self.held.retain(|held| held.number != number);
    }

    /// How many pages are pinned, each counted once.
    pub(crate) fn pinned_pages(&self) -> u64 {
        let mut pages: Vec<_> = self.held.iter().map(|held| (held.number, held.page)).collect();
        pages.sort_unstable();
        pages.dedup();
        pages.len() as u64
    }

    /// The number of extents in which pages are pinned, at most: at which page of memory an extent
    /// begins isn't known.
    pub(crate) fn pinned_extents(&self) -> u64 {
        let pages_each = self.extent_bytes as usize / 4096;
        let count = |phase| {
            let extents = self.held.iter().map(|held| (held.pin.as_ptr().addr() / 4096 + phase) / pages_each);
            extents.collect::<HashSet<_>>().len() as u64
        };
        (0..pages_each).map(count).max().unwrap_or(0)
    }

    pub(crate) fn pins_keep_group(&self, name: &str) -> bool {
        self.held.iter().any(|held| held.group == name)
    }

    pub(crate) fn is_pinned(&self, number: usize, pages: Range<u64>) -> bool {
        self.held.iter().any(|held| held.number == number && pages.contains(&held.page))
    }

    /// Whether a write of these bytes changes a pinned page. If the file grows, the page with its
    /// old end changes, too.
    pub(crate) fn write_meets_pin(&mut self, number: usize, bytes: Range<u64>) -> bool {
        let len = self.bytes(number).len() as u64;
        !bytes.is_empty() && self.is_pinned(number, bytes.start.min(len) / 4096..bytes.end.div_ceil(4096))
    }

    /// The same for a new length.
    pub(crate) fn length_meets_pin(&mut self, number: usize, len: u64) -> bool {
        let before = self.bytes(number).len() as u64;
        if len < before {
            return self.is_pinned(number, len / 4096..u64::MAX);
        }
        self.is_pinned(number, before / 4096..before.div_ceil(4096))
    }
}
