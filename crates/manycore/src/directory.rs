//! The directory of cache lines: which cores hold each line, which CPUs wait for it, and until when
//! it is busy.
//!
//! A line is the aligned 64 bytes around an address. Lines are numbered in the order of first
//! touch; the number is the line's *name*. Results depend only on names, never on addresses:
//! addresses are only looked up in the table, one by one. The table is never iterated over, because
//! its order depends on the addresses.
//!
//! Caches belong to cores, so the directory tracks copies per core. The two hardware threads of a
//! core share the core's copies. A core loses a line to another core's write, or because its cache
//! is full (see [`line_caches`](crate::line_caches)).
//!
//! | state | `holders` | `modified` |
//! |---|---|---|
//! | never touched, or evicted by all cores | empty | no |
//! | exclusive | one core | yes, once written |
//! | shared | several | no |

use crate::host;
use crate::ledger::Table;
use crate::ticks::Ticks;

/// The name of a line.
pub(crate) type LineId = u32;

/// No CPU.
pub(crate) const NOBODY: u16 = u16::MAX;

/// A set of up to 256 cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreSet([u64; 4]);

impl CoreSet {
    #[inline]
    pub(crate) fn only(core: u16) -> Self {
        let mut set = Self::default();
        set.add(core);
        set
    }

    #[inline]
    pub(crate) fn add(&mut self, core: u16) {
        self.0[usize::from(core >> 6)] |= 1 << (core & 63);
    }

    #[inline]
    pub(crate) fn remove(&mut self, core: u16) {
        self.0[usize::from(core >> 6)] &= !(1 << (core & 63));
    }

    #[inline]
    pub(crate) fn has(&self, core: u16) -> bool {
        self.0[usize::from(core >> 6)] & (1 << (core & 63)) != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Returns whether the sets have a core in common.
    #[inline]
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    /// Returns the first core of the set that `other` doesn't have.
    #[inline]
    pub(crate) fn first_beyond(&self, other: &Self) -> Option<u16> {
        let parts = self.0.iter().zip(&other.0).map(|(a, b)| a & !b);
        let found = parts.enumerate().find(|&(_, part)| part != 0);
        found.map(|(at, part)| at as u16 * 64 + part.trailing_zeros() as u16)
    }
}

/// The state of a line. It is aligned so that it occupies exactly two of the host's lines, which
/// the host fetches together.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
pub(crate) struct Line {
    /// Cores that hold a copy.
    pub(crate) holders: CoreSet,
    /// The end of the transfer in progress.
    pub(crate) busy: Ticks,
    /// Until this time, the cores in `before` can still use the line, because the request hasn't
    /// reached them.
    pub(crate) leaves: Ticks,
    /// The cores that had the line before the transfer in progress.
    pub(crate) before: CoreSet,
    /// When it was last used.
    pub(crate) used: Ticks,
    /// The number of changes of values in the line.
    pub(crate) version: u32,
    /// The line's subject in the profile; 0 is none.
    pub(crate) subject: u32,
    /// The CPU that touched it last.
    pub(crate) last: u16,
    /// The socket in whose memory it is: that of the core that touched it first.
    pub(crate) home: u16,
    /// If no core has it: the socket in whose cache it was put.
    pub(crate) sank_in: u16,
    /// The only holder has written it.
    pub(crate) modified: bool,
    /// CPUs spin until the line changes.
    pub(crate) has_waiters: bool,
    /// For shared bytes: the block's `filled` when the line was last looked up.
    pub(crate) filled: u32,
    /// For shared bytes: if no core has the line, the requesting CPU's socket cache does.
    pub(crate) in_socket_cache: bool,
}

const _: () = assert!(size_of::<Line>() == 128, "two lines of the host");

impl Line {
    const FRESH: Self = Self {
        holders: CoreSet([0; 4]),
        busy: 0,
        leaves: 0,
        before: CoreSet([0; 4]),
        used: 0,
        version: 0,
        subject: 0,
        last: NOBODY,
        home: NOBODY,
        sank_in: NOBODY,
        modified: false,
        has_waiters: false,
        filled: 0,
        in_socket_cache: false,
    };
}

impl Line {
    /// Records that a core gets a copy, or the only copy if it `writes`.
    #[inline]
    pub(crate) fn come_to(&mut self, core: u16, writes: bool) {
        if writes {
            self.holders = CoreSet::only(core);
        } else {
            self.holders.add(core);
            self.modified = false;
        }
    }
}

/// All lines touched so far.
#[derive(Debug)]
pub(crate) struct Directory {
    lines: Vec<Line>,
    /// Open addressing over the address's line number; 0 is empty (no program has memory at address
    /// 0).
    slots: Vec<(u64, LineId)>,
    /// `64 - log2(slots)`.
    shift: u32,
    /// For each line with `has_waiters`: the CPUs that wait, in the order in which they began to
    /// wait.
    waiters: Table<LineId, Vec<u16>>,
}

impl Directory {
    pub(crate) fn new() -> Self {
        const BITS: u32 = 12;
        Self { lines: Vec::new(), slots: vec![(0, 0); 1 << BITS], shift: 64 - BITS, waiters: Table::default() }
    }

    /// Returns the line at an address, and names it if it has no name yet.
    #[inline]
    pub(crate) fn find(&mut self, address: usize) -> LineId {
        let number = (address as u64) >> 6;
        let mask = self.slots.len() - 1;
        let mut at = self.home(number);
        loop {
            let (found, id) = self.slots[at];
            if found == number {
                return id;
            }
            if found == 0 {
                return self.name(number, at);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn home(&self, number: u64) -> usize {
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[cold]
    fn name(&mut self, number: u64, at: usize) -> LineId {
        let id = LineId::try_from(self.lines.len()).expect("fewer than 2^32 lines");
        self.lines.push(Line::FRESH);
        self.slots[at] = (number, id);
        if self.lines.len() * 2 > self.slots.len() {
            self.grow();
        }
        id
    }

    fn grow(&mut self) {
        let bigger = vec![(0, 0); self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, bigger);
        self.shift -= 1;
        let mask = self.slots.len() - 1;
        for (number, id) in old.into_iter().filter(|slot| slot.0 != 0) {
            let mut at = self.home(number);
            while self.slots[at].0 != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = (number, id);
        }
    }

    #[inline]
    pub(crate) fn line(&mut self, id: LineId) -> &mut Line {
        &mut self.lines[id as usize]
    }

    /// Prefetches, on the host, the slot in which the line at an address is looked up.
    #[inline]
    pub(crate) fn expect(&self, address: usize) {
        host::prefetch(&self.slots[self.home((address as u64) >> 6)]);
    }

    /// Prefetches, on the host, the state of the line at an address, if the line is in the slot
    /// where it is expected. Returns the line's name.
    #[inline]
    pub(crate) fn expect_line(&self, address: usize) -> Option<LineId> {
        let number = (address as u64) >> 6;
        let (found, id) = self.slots[self.home(number)];
        if found != number {
            return None;
        }
        host::prefetch_all(self.lines.get(id as usize)?);
        Some(id)
    }

    /// Adds a CPU to those that spin until the line changes.
    pub(crate) fn add_waiter(&mut self, id: LineId, cpu: u16) {
        self.line(id).has_waiters = true;
        self.waiters.entry(id).or_default().push(cpu);
    }

    /// Records that the CPU doesn't wait for the line any longer. Does nothing if it didn't wait.
    pub(crate) fn remove_waiter(&mut self, id: LineId, cpu: u16) {
        if let Some(waiters) = self.waiters.get_mut(&id) {
            waiters.retain(|&waiter| waiter != cpu);
            if waiters.is_empty() {
                self.waiters.remove(&id);
                self.line(id).has_waiters = false;
            }
        }
    }

    /// Removes all CPUs that wait for the line, and returns them.
    pub(crate) fn take_waiters(&mut self, id: LineId) -> Vec<u16> {
        self.line(id).has_waiters = false;
        self.waiters.remove(&id).unwrap_or_default()
    }

    /// Forgets the states of the lines in a range of addresses, because the range is new memory
    /// from now on.
    pub(crate) fn forget(&mut self, address: usize, bytes: usize) {
        let first = (address as u64) >> 6;
        let last = (address as u64 + bytes.max(1) as u64 - 1) >> 6;
        let mask = self.slots.len() - 1;
        for number in first..=last {
            let mut at = self.home(number);
            while self.slots[at].0 != 0 {
                if self.slots[at].0 == number {
                    let id = self.slots[at].1 as usize;
                    // CPUs that still spin on the line are kept: only a later change can wake them.
                    let Line { has_waiters, version, .. } = self.lines[id];
                    self.lines[id] = Line { has_waiters, version, ..Line::FRESH };
                    break;
                }
                at = (at + 1) & mask;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_named_in_order_of_first_touch() {
        let mut directory = Directory::new();
        for i in 0..10_000_usize {
            assert_eq!(directory.find(0x7000_0000 - i * 64), u32::try_from(i).unwrap());
        }
        for i in 0..10_000_usize {
            assert_eq!(directory.find(0x7000_0000 - i * 64 + 63), u32::try_from(i).unwrap());
        }
    }

    #[test]
    fn a_forgotten_line_is_fresh() {
        let mut directory = Directory::new();
        let id = directory.find(4096);
        directory.line(id).holders.add(200);
        directory.forget(4096 + 32, 64);
        assert!(directory.line(id).holders.is_empty());
        assert_eq!(directory.find(4096), id);
    }

    #[test]
    fn cpus_that_wait_for_a_line_are_taken_in_order_and_once() {
        let mut directory = Directory::new();
        let id = directory.find(4096);
        [7, 2, 9].into_iter().for_each(|cpu| directory.add_waiter(id, cpu));
        directory.remove_waiter(id, 2);
        directory.forget(4096, 64);
        assert!(directory.line(id).has_waiters, "only a change wakes them");
        assert_eq!(directory.take_waiters(id), [7, 9]);
        assert!(!directory.line(id).has_waiters && directory.take_waiters(id).is_empty());
        directory.add_waiter(id, 5);
        directory.remove_waiter(id, 5);
        assert!(!directory.line(id).has_waiters);
    }

    #[test]
    fn core_sets_know_their_sockets() {
        let mut socket = CoreSet::default();
        (66..88).for_each(|core| socket.add(core));
        let mut set = CoreSet::only(70);
        assert!(set.meets(&socket) && set.first_beyond(&socket).is_none());
        set.add(3);
        assert!(set.meets(&socket) && set.first_beyond(&socket) == Some(3));
        assert!(!CoreSet::only(255).meets(&socket));
    }
}
