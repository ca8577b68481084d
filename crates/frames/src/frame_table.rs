//! The frame table: one record, one cache line, for each page frame.
//!
//! Two words of a record tell which threads may do what with its frame.
//!
//! **`count`** tells which threads may use the bytes:
//!
//! | value | meaning | which thread may change it |
//! |---|---|---|
//! | `FROZEN` | the frame has one owner: it is free, being loaded, written to, or being evicted | the owner, by subtracting `FROZEN` |
//! | `FROZEN` + n | the same, and n pinners hold a reservation | a pinner that waits, `+1`; a holder of a reservation, `−1`; the owner, by subtracting `FROZEN`: the reservations are pins then |
//! | 0 | the page is resident and has no pin | a pinner, `+1`; an evictor or a writer, compare-and-swap to `FROZEN` |
//! | n | n pins | a pinner, `+1`; a holder, `−1`; a writer, `+ WRITER_WAITS` |
//! | `WRITER_WAITS` + n | n pins, and a writer waits until they are gone | a holder, `−1`; the writer, `− WRITER_WAITS`; with n = 0 an evictor or a writer, compare-and-swap to `FROZEN` |
//!
//! A pinner adds its 1 first and checks the result afterwards. If the pinner finds `FROZEN` or
//! `WRITER_WAITS`, it *steps back*, that is, subtracts its 1 again. So any value may be too high by
//! the number of pinners that are about to step back. If an owner stored to `count`, it would
//! overwrite the pinners' additions; therefore owners only add and subtract.
//!
//! `WRITER_WAITS` keeps overlapping pins from starving a writer:
//! ```text
//!   pinners                                       writer
//!   A: count 0 → 1
//!   B: count 1 → 2                                freeze: count is 2, no
//!   A: count 2 → 1;  C: count 1 → 2               freeze: count is 2, no
//!   B: count 2 → 1;  A: count 1 → 2               … for ever; with WRITER_WAITS set at its second look, C and A step back
//! ```
//! A pinner that finds the frame frozen steps back, but may then add its 1 again and leave it in
//! `count`. This 1 is a *reservation*: it becomes a pin when the owner unfreezes the frame. (The
//! code calls a reservation a place, as in `take_place`; the field `place`, below, is something
//! else.) Reservations keep pinners from being starved by writers that follow each other closely:
//! ```text
//!   writers                                       pinner
//!   A: count 0 → FROZEN                           count FROZEN → FROZEN + 1: its reservation
//!   A: count FROZEN + 1 → 1                       the reservation is a pin from now on
//!   B: freeze: count is 1, no; WRITER_WAITS       reads, count 1 → 0; B freezes
//! ```
//! A reservation belongs to the frame, not to the page. If the page leaves the frame before the
//! reservation has become a pin, the holder of the reservation finds that the page word has
//! changed, and gives the reservation back. Until then the reservation acts as a pin of the page
//! that gets the frame next. This is harmless: it only delays threads that want to freeze the
//! frame.
//!
//! A pinner makes no reservation in two cases. First, if `WRITER_WAITS` is set: then the writer
//! goes first. Second, if another pinner already holds a reservation. One reservation is enough:
//! once it has become a pin, no writer can freeze the frame for the moment, so the other pinners
//! can pin the page as well. With more reservations, the next writer would have to wait for the
//! holder of each, and the holders may be asleep.
//!
//! `WRITER_WAITS` is a hint: it excludes no thread permanently, and a missing or leftover flag only
//! causes a delay. So any writer may clear a flag that another writer has set. It is cleared by
//! every freeze, and by a writer that lets pinners in for a time or gives up (`writing`).
//!
//! **`place`** tells which thread may touch the list links:
//!
//! | value | meaning | next |
//! |---|---|---|
//! | `ISOLATED` | one holder has the frame off the lists (a free frame counts as isolated) | holder: → `LISTED`; remover: → `ORPHANED` |
//! | `LISTED` | on a list of its group | only the thread that wins the swap to `ISOLATED` may take it off |
//! | `ORPHANED` | its page was removed while a holder had it | the holder frees it |
//!
//! - I1. A frame whose count is `FROZEN` has exactly one owner, and only the owner writes the
//!   frame's bytes.
//! - I2. The bytes of a pinned frame don't change, because a writer freezes the frame, too.
//! - I3. While a frame is `ISOLATED`, only its holder may change its group, and the holder must
//!   also have the frame frozen to do so. The frame keeps its page, except that a remover may take
//!   the page away and leave the frame `ORPHANED`.
//! - I4. A generation (a number in the frame's record) is used for one *stay*: a period that one
//!   page spends in the frame. The generation is incremented when the frame is freed, before
//!   another thread can get the frame. It is also incremented when a written page has become clean
//!   and is *settled* (`page_word`); then the page begins another stay in the same frame.
//!
//! Orderings: freezing is `Acquire` and pairs with the `Release` of unpinning and of unfreezing, so
//! the owner's writes come after the last pinned read.
//!
//! Pinning is `Acquire` and pairs with the `Release` of unfreezing. Suppose that a pinner pins the
//! frame too late, when the frame has already been unfrozen for its *next* stay. The evictor
//! changed the page word before this unfreezing, so the pinner sees the change, and steps back.

use smp_list::Links;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::frame_id::FrameId;
use crate::page_word::GENERATION_BITS;
use crate::region::{Region, ZeroedAtomics};
use crate::write_state::WriteState;

/// The frame has one owner (I1).
const FROZEN: u32 = 1 << 31;
/// A writer waits until the pins are gone; new pinners step back.
const WRITER_WAITS: u32 = 1 << 30;
/// Mask of the bits of a count that hold the number of pins.
const PINS: u32 = WRITER_WAITS - 1;
/// Pins beyond this number are refused, long before the count can overflow into `WRITER_WAITS`.
const PINS_MAX: u32 = 1 << 29;

const ISOLATED: u32 = 0;
const LISTED: u32 = 1;
const ORPHANED: u32 = 2;

/// The generation of a frame that has used all of its generations.
const RETIRED: u32 = 1 << GENERATION_BITS;

/// The record of one frame. Links are frame numbers plus one, 0 for none.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct FrameRecord {
    count: AtomicU32,
    place: AtomicU32,
    generation: AtomicU32,
    /// The memory group that is charged for the page.
    group: AtomicU32,
    /// Links of the LRU list that the frame is on. The policy controls them, so the exclusive
    /// ownership of frames mustn't depend on them. Therefore free frames are chained by `slot`, not
    /// by these links.
    links: Links,
    /// Another frame, which a walk from the cold end of the list is likely to reach a few steps
    /// after this one. A hint for the CPU's prefetch.
    ahead: AtomicU32,
    /// The write state of the frame's page.
    pub(crate) write_state: WriteState,
    /// The version of a written page's bytes: odd while a writer changes them (`writing`).
    pub(crate) version: AtomicU64,
    /// Index of the page's word.
    word: AtomicU64,
    /// The owner of the page, in the policy's numbering.
    owner: AtomicU32,
    /// While the frame holds a page: the policy's rank, changed only by the thread that has the
    /// frame isolated.
    ///
    /// While the frame is the first of a free batch in a depot: the number of frames in that batch.
    rank: AtomicU32,
    /// While the frame holds a page: the swap slot that the page keeps, or 0. The slot contains the
    /// page's bytes until a writer changes the page. Changed only while the frame is frozen.
    ///
    /// While the frame is free: the lower half names the next frame of its batch. If the frame is
    /// the first of a batch in a depot, the upper half names the first frame of the next batch
    /// there.
    slot: AtomicU64,
}

#[cfg(not(pagefold_loom))]
const _: () = assert!(size_of::<FrameRecord>() == 64, "one record, one cache line");

// SAFETY: all fields are atomic integers.
unsafe impl ZeroedAtomics for FrameRecord {}

/// The reason why a pin was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinRefused {
    /// The frame has an owner at the moment, or a writer waits to become the owner.
    Closed,
    /// The frame has more pins than any use can need.
    Saturated,
}

impl FrameRecord {
    #[inline]
    pub(crate) fn pin(&self) -> Result<(), PinRefused> {
        // Adds first and then loads the count. Using the result of the addition instead would be
        // slower: a locked addition whose result is needed keeps the CPU from reading the frame's
        // bytes speculatively. No thread can freeze the frame between the addition and the load,
        // because the count includes it. If an owner unfreezes the frame between them, the
        // addition counts as a pin from then on.
        //
        // Relaxed: the load below is the Acquire of pinning (see the module head). It reads the
        // value of this addition or of a later change of the count. Either way it pairs with the
        // Release of the last `unfreeze` before this addition, because all later changes of the
        // count are read-modify-writes: they continue the release sequence.
        self.count.fetch_add(1, Ordering::Relaxed);
        let count = self.count.load(Ordering::Acquire);
        if count <= PINS_MAX { Ok(()) } else { Err(self.step_back(count)) }
    }

    #[cold]
    fn step_back(&self, count: u32) -> PinRefused {
        // Sometimes: a pinner steps back.
        // Relaxed: this thread has read nothing through the refused pin.
        self.count.fetch_sub(1, Ordering::Relaxed);
        if count & (FROZEN | WRITER_WAITS) != 0 { PinRefused::Closed } else { PinRefused::Saturated }
    }

    /// Returns whether [`pin`](Self::pin) would be refused as [`Closed`](PinRefused::Closed) now. A
    /// pinner that waits calls this instead of retrying `pin`: each attempt of `pin` raises the
    /// count for a moment, and the writer couldn't freeze the frame then. Relaxed: `pin` checks
    /// again.
    pub(crate) fn is_closed(&self) -> bool {
        self.count.load(Ordering::Relaxed) & (FROZEN | WRITER_WAITS) != 0
    }

    /// Makes a reservation in a frame that has an owner. When the owner unfreezes the frame, the
    /// reservation becomes a pin of the page that is then in the frame. Returns false if the frame
    /// has no owner, if a writer waits (`WRITER_WAITS`), or if another pinner holds a reservation.
    pub(crate) fn take_place(&self) -> bool {
        // If two pinners pass this check at the same time, both get a reservation, which does no
        // harm. Relaxed: a pinner reads nothing through its reservation until `place_is_pin`, which
        // is Acquire, has returned true.
        if self.count.load(Ordering::Relaxed) != FROZEN {
            return false;
        }
        // Transition: count, frozen → a reservation.
        // If the owner has just unfrozen the frame, another writer may have set `WRITER_WAITS`
        // before this addition. This thread then steps back like a refused pinner.
        let taken = self.count.fetch_add(1, Ordering::Relaxed) & WRITER_WAITS == 0;
        if !taken {
            self.give_place_back();
        }
        taken
    }

    /// Returns whether the owner has unfrozen the frame, so that the reservation is a pin. Acquire
    /// pairs with the Release of `unfreeze`.
    pub(crate) fn place_is_pin(&self) -> bool {
        self.count.load(Ordering::Acquire) & FROZEN == 0
    }

    /// Gives up a reservation through which nothing was read.
    pub(crate) fn give_place_back(&self) {
        // Sometimes: a reservation is given back.
        // Relaxed: as in `step_back`.
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn unpin(&self) {
        // Release pairs with the Acquire of `freeze`.
        let before = self.count.fetch_sub(1, Ordering::Release);
        // A forked child reads zeros here, and may drop pins that its parent took.
        debug_assert!(before & PINS != 0 || before == 0, "unpinned more often than pinned");
    }
}

/// The records of all frames. Fields that only one thread may use at a time are read and written
/// `Relaxed`; the module head describes how the right to use them passes from thread to thread.
#[derive(Debug)]
pub(crate) struct FrameTable {
    records: Region<FrameRecord>,
}

impl FrameTable {
    pub(crate) fn new(records: Region<FrameRecord>) -> Self {
        Self { records }
    }

    /// All records.
    #[cfg(not(pagefold_loom))]
    pub(crate) fn records(&self) -> &[FrameRecord] {
        &self.records
    }

    #[inline]
    pub(crate) fn record(&self, frame: FrameId) -> &FrameRecord {
        &self.records[frame.index()]
    }

    /// Returns the frame whose record this is, or `None` if the record isn't in this table.
    pub(crate) fn frame_of(&self, record: &FrameRecord) -> Option<FrameId> {
        let offset = std::ptr::from_ref(record).addr().checked_sub(self.records.as_ptr().addr())?;
        let number = offset / size_of::<FrameRecord>();
        (number < self.records.len()).then(|| FrameId::new(number as u32))
    }

    /// Makes a frame that has just got memory from the system an owned frame.
    pub(crate) fn first_owner(&self, frame: FrameId) {
        // Relaxed: no other thread knows the frame yet.
        self.record(frame).count.fetch_or(FROZEN, Ordering::Relaxed);
    }

    // ---- count

    /// Makes the caller the owner of a frame that has no pin. Returns false if the frame is pinned
    /// or has an owner. Freezing clears `WRITER_WAITS`, even if another writer has set it. This
    /// does no harm: the other writer finds the frame frozen, and can set the flag again when it
    /// retries.
    #[inline]
    pub(crate) fn freeze(&self, frame: FrameId) -> bool {
        let count = &self.record(frame).count;
        // Acquire pairs with the Release of `unpin` and `unfreeze`. Relaxed on failure: the caller
        // reads nothing then.
        let freeze = |from| count.compare_exchange(from, FROZEN, Ordering::Acquire, Ordering::Relaxed);
        match freeze(0) {
            // Transition: count, 0 → frozen.
            Ok(_) => true,
            Err(now) => now == WRITER_WAITS && freeze(WRITER_WAITS).is_ok(),
        }
    }

    /// Makes new pinners of a pinned frame step back, until the frame is frozen or
    /// [`let_pinners_in`](Self::let_pinners_in) is called.
    pub(crate) fn keep_pinners_out(&self, frame: FrameId) {
        let set = |now: u32| (now & FROZEN == 0 && now & PINS != 0).then_some(now | WRITER_WAITS);
        // Relaxed: a hint.
        let _ = self.record(frame).count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    pub(crate) fn let_pinners_in(&self, frame: FrameId) {
        // Relaxed: a hint.
        self.record(frame).count.fetch_and(!WRITER_WAITS, Ordering::Relaxed);
    }

    /// Ends ownership of the frame; the former owner keeps `pins` pins.
    #[inline]
    pub(crate) fn unfreeze(&self, frame: FrameId, pins: u32) {
        // Release pairs with the Acquire of `pin` and `freeze`.
        let before = self.record(frame).count.fetch_sub(FROZEN - pins, Ordering::Release);
        // As in `unpin`.
        debug_assert!(before & FROZEN != 0 || before == 0, "not an owner");
    }

    /// Returns whether the frame has an owner. Acquire pairs with the Release of `unfreeze`.
    pub(crate) fn is_frozen(&self, frame: FrameId) -> bool {
        self.record(frame).count.load(Ordering::Acquire) & FROZEN != 0
    }

    pub(crate) fn is_pinned(&self, frame: FrameId) -> bool {
        let count = self.record(frame).count.load(Ordering::Relaxed);
        count & FROZEN == 0 && count & PINS != 0
    }

    // ---- place

    /// Claims a listed frame. If this returns true, the caller must take the frame off its list.
    pub(crate) fn isolate(&self, frame: FrameId) -> bool {
        // Acquire pairs with the Release in `put_back`: this thread sees group, word and links as
        // the last holder left them. Relaxed on failure.
        self.record(frame).place.compare_exchange(LISTED, ISOLATED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn is_listed(&self, frame: FrameId) -> bool {
        // Relaxed: a hint.
        self.record(frame).place.load(Ordering::Relaxed) == LISTED
    }

    /// Returns whether a thread seems to be changing the frame's page, or keeps a guard for
    /// changing it: the frame is listed, and has an owner. A hint.
    pub(crate) fn is_being_changed(&self, frame: FrameId) -> bool {
        self.is_listed(frame) && self.is_frozen(frame)
    }

    /// Makes an isolated frame a listed one. Returns false if the frame was orphaned.
    pub(crate) fn put_back(&self, frame: FrameId) -> bool {
        // Release pairs with the Acquire of `isolate`. Acquire on failure pairs with the Release of
        // `orphan`: the holder sees the remover's writes.
        self.record(frame).place.compare_exchange(ISOLATED, LISTED, Ordering::Release, Ordering::Acquire).is_ok()
    }

    /// Marks a frozen frame as listed. Only the owner knows the frame so far. The caller must have
    /// set the frame's labels.
    pub(crate) fn list_owned(&self, frame: FrameId) {
        // Transition: place, isolated → listed, of an owned frame.
        // Release pairs with the Acquire of `isolate`. From now on, a thread that goes through all
        // frames by number, as a drain does, can isolate this frame; that thread then also sees the
        // frame's labels.
        self.record(frame).place.store(LISTED, Ordering::Release);
    }

    /// Marks an isolated frame, whose page was just removed, as an orphan; its holder frees it.
    /// Returns false if the frame isn't isolated any more.
    pub(crate) fn orphan(&self, frame: FrameId) -> bool {
        // Release pairs with the Acquire of `put_back`.
        self.record(frame).place.compare_exchange(ISOLATED, ORPHANED, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Makes the holder of an orphan its owner.
    pub(crate) fn adopt(&self, frame: FrameId) {
        // Transition: place, orphaned → isolated.
        let place = &self.record(frame).place;
        // Relaxed, also below: the holder is the owner now, so no other thread touches the frame.
        assert_eq!(place.load(Ordering::Relaxed), ORPHANED, "{frame:?} has another holder");
        place.store(ISOLATED, Ordering::Relaxed);
    }

    // ---- what belongs to a stay

    pub(crate) fn generation(&self, frame: FrameId) -> u32 {
        self.record(frame).generation.load(Ordering::Relaxed)
    }

    /// Ends the current stay of the owner's frame (I4). Returns false if the frame is now retired.
    pub(crate) fn next_generation(&self, frame: FrameId) -> bool {
        let next = self.generation(frame) + 1;
        self.record(frame).generation.store(next, Ordering::Relaxed);
        next != RETIRED
    }

    /// Raises the generation of a frame that the caller has frozen, without freeing the frame (I4).
    /// The next stay is that of the same page, which is being settled, or that of another page
    /// (`OwnedFrame::renew`). Returns false, and changes nothing, if the frame's generations are
    /// nearly used up.
    pub(crate) fn begin_next_stay(&self, frame: FrameId) -> bool {
        let next = self.generation(frame) + 1;
        let possible = next < RETIRED - 1;
        if possible {
            self.record(frame).generation.store(next, Ordering::Relaxed);
        }
        possible
    }

    pub(crate) fn is_retired(&self, frame: FrameId) -> bool {
        self.generation(frame) == RETIRED
    }

    #[cfg(all(test, not(pagefold_loom)))]
    pub(crate) fn set_last_generation(&self, frame: FrameId) {
        self.record(frame).generation.store(RETIRED - 1, Ordering::Relaxed);
    }

    pub(crate) fn word(&self, frame: FrameId) -> u64 {
        self.record(frame).word.load(Ordering::Relaxed)
    }

    pub(crate) fn set_word(&self, frame: FrameId, word: u64) {
        self.record(frame).word.store(word, Ordering::Relaxed);
    }

    pub(crate) fn group(&self, frame: FrameId) -> u32 {
        self.record(frame).group.load(Ordering::Relaxed)
    }

    /// Changes the frame's group. The caller must have the frame isolated and frozen (I3).
    pub(crate) fn set_group(&self, frame: FrameId, group: u32) {
        // Relaxed: the Release of `put_back` and `unfreeze` publishes it.
        self.record(frame).group.store(group, Ordering::Relaxed);
    }

    pub(crate) fn owner(&self, frame: FrameId) -> u32 {
        self.record(frame).owner.load(Ordering::Relaxed)
    }

    pub(crate) fn set_labels(&self, frame: FrameId, group: u32, owner: u32, rank: u32) {
        let record = self.record(frame);
        record.group.store(group, Ordering::Relaxed);
        record.owner.store(owner, Ordering::Relaxed);
        record.rank.store(rank, Ordering::Relaxed);
    }

    /// Returns the swap slot that the frame's page keeps, or 0.
    pub(crate) fn slot(&self, frame: FrameId) -> u64 {
        self.record(frame).slot.load(Ordering::Relaxed)
    }

    /// Sets the swap slot that the page of a frozen frame keeps; 0 for none.
    pub(crate) fn set_slot(&self, frame: FrameId, slot: u64) {
        self.record(frame).slot.store(slot, Ordering::Relaxed);
    }

    pub(crate) fn rank(&self, frame: FrameId) -> u32 {
        self.record(frame).rank.load(Ordering::Relaxed)
    }

    pub(crate) fn set_rank(&self, frame: FrameId, rank: u32) {
        self.record(frame).rank.store(rank, Ordering::Relaxed);
    }

    // ---- links

    pub(crate) fn links(&self, frame: FrameId) -> &Links {
        &self.record(frame).links
    }

    pub(crate) fn next_free(&self, frame: FrameId) -> Option<FrameId> {
        FrameId::from_link(self.record(frame).slot.load(Ordering::Relaxed) as u32)
    }

    pub(crate) fn set_next_free(&self, frame: FrameId, next: Option<FrameId>) {
        self.record(frame).slot.store(u64::from(FrameId::to_link(next)), Ordering::Relaxed);
    }

    /// Returns the length of the batch whose first frame is `first`, and the first frame of the
    /// batch below.
    pub(crate) fn batch(&self, first: FrameId) -> (usize, Option<FrameId>) {
        let record = self.record(first);
        let below = FrameId::from_link((record.slot.load(Ordering::Relaxed) >> 32) as u32);
        (record.rank.load(Ordering::Relaxed) as usize, below)
    }

    pub(crate) fn set_batch(&self, first: FrameId, len: usize, below: Option<FrameId>) {
        let record = self.record(first);
        record.rank.store(len as u32, Ordering::Relaxed); // `len` < 2^`FRAME_BITS`.
        let next = record.slot.load(Ordering::Relaxed) & u64::from(u32::MAX);
        record.slot.store(u64::from(FrameId::to_link(below)) << 32 | next, Ordering::Relaxed);
    }

    pub(crate) fn ahead(&self, frame: FrameId) -> Option<FrameId> {
        FrameId::from_link(self.record(frame).ahead.load(Ordering::Relaxed))
    }

    pub(crate) fn set_ahead(&self, frame: FrameId, ahead: FrameId) {
        self.record(frame).ahead.store(FrameId::to_link(Some(ahead)), Ordering::Relaxed);
    }

    /// Asks the CPU to fetch a record that the caller is about to read.
    #[inline]
    pub(crate) fn prefetch(&self, frame: FrameId) {
        sync::prefetch::prefetch(self.record(frame));
    }

    /// Asks the CPU to fetch a record that the caller is about to write.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, frame: FrameId) {
        sync::prefetch::prefetch_to_write(self.record(frame));
    }
}
