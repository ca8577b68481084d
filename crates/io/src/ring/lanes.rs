//! Which request gets the next slot: each device has a lane, and the lanes take turns.
//!
//! Let `s` be the number of slots that other devices don't occupy. A device with `n` requests in
//! flight may start another only if `n < 3 (s − n)`. So it occupies at most about `3s/4`. The last
//! quarter stays free for other devices, even if this device never answers.

use std::collections::VecDeque;

use super::in_flight::{InFlight, Submitted};
use crate::BackingFile as _;

/// A device may start a request while it has fewer requests in flight than `SLOT_SHARE` times the
/// number of free slots.
const SLOT_SHARE: usize = 3;

/// The requests of one ring, in lanes and in slots. A request of a device waits in the device's
/// lane.
pub(super) struct Lanes {
    /// The devices that have requests in flight or waiting.
    lanes: Vec<Lane>,
    /// The lane to check first.
    turn: usize,
    slots: Box<[Option<InFlight>]>,
    free: Vec<usize>,
}

struct Lane {
    device: u64,
    in_flight: usize,
    line: VecDeque<Submitted>,
}

impl Lanes {
    /// Creates `slots` free slots.
    pub(super) fn new(slots: usize) -> Self {
        let free = (0..slots).rev().collect();
        Self { lanes: Vec::new(), turn: 0, slots: (0..slots).map(|_| None).collect(), free }
    }

    fn lane(&mut self, device: u64) -> &mut Lane {
        let at = self.lanes.iter().position(|lane| lane.device == device).unwrap_or_else(|| {
            self.lanes.push(Lane { device, in_flight: 0, line: VecDeque::new() });
            self.lanes.len() - 1
        });
        &mut self.lanes[at]
    }

    /// Returns whether requests of this device may wait here: a slot is free, or will become free
    /// when the device answers.
    pub(super) fn may_wait(&mut self, device: u64) -> bool {
        !self.free.is_empty() || self.lane(device).in_flight > 0
    }

    /// Adds requests to the device's lane.
    pub(super) fn wait(&mut self, device: u64, requests: impl Iterator<Item = Submitted>) {
        self.lane(device).line.extend(requests);
    }

    /// Returns a lane with a waiting request that may use a slot.
    fn startable(&self) -> Option<usize> {
        let may_start = |lane: &Lane| !lane.line.is_empty() && lane.in_flight < SLOT_SHARE * self.free.len();
        let lanes = self.lanes.len();
        (0..lanes).map(|at| (self.turn + at) % lanes).find(|&at| may_start(&self.lanes[at]))
    }

    /// Returns whether a waiting request may use a slot.
    pub(super) fn can_start(&self) -> bool {
        self.startable().is_some()
    }

    /// Returns the next request and a slot for it, which no longer counts as free.
    pub(super) fn next(&mut self) -> Option<(usize, Submitted)> {
        let at = self.startable()?;
        let submitted = self.lanes[at].line.pop_front()?;
        let slot = self.free.pop()?;
        self.lanes[at].in_flight += 1;
        self.turn = at + 1;
        Some((slot, submitted))
    }

    /// Puts a request into the slot that [`next`](Self::next) returned for it.
    pub(super) fn occupy(&mut self, slot: usize, in_flight: InFlight) {
        self.slots[slot] = Some(in_flight);
    }

    /// Returns the number of slots that aren't free.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes the request out of a slot, and frees the slot.
    pub(super) fn take(&mut self, slot: usize) -> Option<InFlight> {
        let in_flight = self.slots[slot].take()?;
        self.free.push(slot);
        let device = in_flight.submitted.file.identity().device;
        if let Some(at) = self.lanes.iter().position(|lane| lane.device == device) {
            self.lanes[at].in_flight -= 1;
            if self.lanes[at].in_flight == 0 && self.lanes[at].line.is_empty() {
                self.lanes.swap_remove(at);
            }
        }
        Some(in_flight)
    }

    /// Removes the lanes that have no request.
    pub(super) fn forget_unused(&mut self) {
        self.lanes.retain(|lane| lane.in_flight > 0 || !lane.line.is_empty());
    }

    /// Takes all waiting requests out of the lanes.
    pub(super) fn drain(&mut self) -> Vec<Submitted> {
        let waiting = self.lanes.iter_mut().flat_map(|lane| lane.line.drain(..)).collect();
        self.forget_unused();
        waiting
    }
}
