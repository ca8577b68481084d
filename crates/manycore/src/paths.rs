//! The paths on which bytes travel between chips: each socket's memory bus, and its links to the
//! other sockets. Each serves one request after the other.

use crate::ticks::Ticks;

/// When each bus and each socket's links are free.
#[derive(Debug)]
pub(crate) struct Paths {
    buses: Vec<Ticks>,
    /// How long all buses together have been reserved so far.
    pub(crate) reserved: Ticks,
    links: Vec<Ticks>,
}

impl Paths {
    pub(crate) fn new(sockets: usize) -> Self {
        Self { buses: vec![0; sockets], reserved: 0, links: vec![0; sockets] }
    }

    /// Reserves the memory bus of a socket for `time`, from `now` on at the earliest. Returns the
    /// start of the reservation.
    pub(crate) fn bus(&mut self, socket: u16, now: Ticks, time: Ticks) -> Ticks {
        let free = &mut self.buses[usize::from(socket)];
        let start = now.max(*free);
        *free = start + time;
        self.reserved += time;
        start
    }

    /// Reserves the links of two sockets for `time`, for a message that is ready at `ready`.
    /// Returns the time at which the message is sent. The reservation begins as soon as the links
    /// are free after `now` or `ready`, whichever is earlier. So it may begin before the message is
    /// ready. Each link serves its messages in order: if it were reserved from `ready` on, it would
    /// carry no other message until `ready`.
    pub(crate) fn link(&mut self, sockets: [u16; 2], now: Ticks, ready: Ticks, time: Ticks) -> Ticks {
        let first = ready.min(now);
        let start = sockets.iter().fold(first, |start, &socket| start.max(self.links[usize::from(socket)]));
        sockets.iter().for_each(|&socket| self.links[usize::from(socket)] = start + time);
        start.max(ready)
    }
}
