//! Read-ahead: which pages a reader will want next, judged from where it has been.
//!
//! Pure policy: it is told of accesses that missed and of *marked* pages that were reached, and
//! answers with pages to load. Hits don't call it, so they cost nothing. The first page of each
//! window is marked when it is loaded (in its frame's record, which only a page's first use looks
//! at). The reader that reaches the mark asks for the next window while it still has the rest of
//! this window to use, so the device works while the reader does. (The marker is Linux's,
//! `mm/readahead.c`, PG_readahead.)
//!
//! An access continues a *stream* if it starts where the stream's last one ended, or as far from it
//! as that was from the one before: forwards, backwards, or with a stride. A handle follows several
//! at once, because many readers may share it. A stream is believed after two continuations in
//! sequence, or two of the same stride, and its window then doubles from two pages up to a share of
//! what the group may hold.
//!
//! Random access makes streams by chance. It takes two coincidences in a row to be believed; and
//! pages that were read ahead but evicted unused are counted (`Counters::read_ahead_wasted`): if
//! they are more than a quarter, windows are halved and belief takes longer, until that was made up
//! for ([`Trust`]). The end of each stream costs its last windows, which says nothing against the
//! next one; so a few are forgiven beforehand.
//!
//! What is read ahead must stay until it is used, and the lists where it waits are a small part of
//! what the group holds, while pages that others load push it on. So a stream remembers how many
//! pages the group had evicted by its last window: if that were more, while one window was used,
//! than a part of what can wait, the next window is as much smaller. Readers so share the room,
//! however many they are, by a clock that is there anyway; fewer read further.
//!
//! A reader in strides may come upon pages that another reader has had read ahead in sequence. It
//! would then go from mark to mark, and have all pages between its reads loaded. So before a stream
//! goes on, read-ahead checks that the reader has used the pages that it comes from.

pub(crate) mod advice;
pub(crate) mod shares;
mod trust;

use std::ops::Range;

use trust::Trust;

/// Streams that are followed at once.
const STREAMS: usize = 16;
/// So many of those are kept for streams that aren't believed yet.
const CANDIDATES: usize = 4;
/// A stream that wasn't heard of while so many others were may be forgotten like a candidate.
const FORGOTTEN_AFTER: u32 = 256;
/// Continuations after which a stream is believed.
const BELIEVED: u32 = 2;
/// The longest stride in pages.
const STRIDE_MAX: u64 = 1 << 12;
/// The first window, in pages.
const WINDOW_MIN: u64 = 2;
/// Requests that one window is made of, at most: more than a disk does at once only come too early.
const BLOCKS_MAX: u64 = 64;
/// While one window is used, this part of what can wait on the lists may be evicted: a stream has
/// two windows at a time, and others may follow behind its reader.
const WAITING_SHARE: u64 = 4;
/// Pages that a window may have however many readers there are: with fewer a disk does much less.
const CROWDED: u64 = 16;
/// So many blocks that a reader comes from are looked at,
const LOOKED_AT: i64 = 64;
/// and this part of those in memory is to have been used.
const USED_SHARE: u32 = 3;

/// How eager to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eagerness {
    /// As described above.
    Normal,
    /// The user says that accesses are in sequence: the first one is believed, and windows are
    /// twice as large.
    Sequential,
}

/// What may be read ahead at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Pages of the file.
    pub(crate) pages: u64,
    /// Pages of the largest window; twice as many for eager ones.
    pub(crate) window: u64,
    pub(crate) eagerness: Eagerness,
    /// Pages of the file that were read ahead so far, and those of them that were evicted unused.
    pub(crate) read: u64,
    pub(crate) wasted: u64,
    /// Pages that the group has evicted so far.
    pub(crate) evicted: u64,
    /// Pages that can wait on its lists for their first use without taking room from those that
    /// proved themselves.
    pub(crate) waiting: u64,
}

impl Bounds {
    fn window_max(&self, doubt: u32) -> u64 {
        let eager = u32::from(self.eagerness == Eagerness::Sequential);
        self.window << eager >> doubt
    }

    fn believed(&self, doubt: u32) -> u32 {
        if self.eagerness == Eagerness::Sequential { 0 } else { BELIEVED + doubt }
    }
}

/// Pages to load: `blocks` times `block` pages, the blocks `stride` pages apart. The first one
/// comes to be used first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    first: u64,
    block: u64,
    stride: i64,
    blocks: u64,
}

impl Window {
    /// The page that is used first.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// How many pages on either side of `page` are its first ones, and follow each other: after
    /// that, or before it.
    pub(crate) fn next_to(&self, page: u64) -> (u64, u64) {
        let is_next = |distance| self.first == page.wrapping_add_signed(distance);
        let pages = |there: bool| if there { self.blocks } else { 0 };
        let single = self.block == 1;
        (pages(single && self.stride == 1 && is_next(1)), pages(single && self.stride == -1 && is_next(-1)))
    }

    /// All its pages, in ascending order. (A window lies within the file.)
    pub(crate) fn ascending(self) -> impl Iterator<Item = u64> {
        let backwards = self.stride < 0;
        (0..self.blocks).flat_map(move |turn| {
            let number = if backwards { self.blocks - 1 - turn } else { turn };
            let start = self.first.wrapping_add_signed(self.stride.wrapping_mul(number as i64));
            start..start + self.block
        })
    }
}

/// One reader's way through the file.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The pages of its last access, as far as we know.
    last: Range2,
    /// From one access to the next; 0 if that isn't known. In sequence: 1 or −1.
    stride: i64,
    /// How often that was so.
    matches: u32,
    /// Blocks after `last` that were asked for already, and of how many the last window was.
    ahead: u64,
    window: u64,
    /// Pages that the group had evicted when that was asked for.
    evicted: u64,
    heard: u32,
}

/// A `Range` that is `Copy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range2 {
    start: u64,
    end: u64,
}

impl Range2 {
    fn len(self) -> u64 {
        self.end - self.start
    }
}

/// How an access continues a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continues {
    /// So many blocks after the last one, at its stride.
    After(u64),
    /// As the second access, in sequence.
    InSequence(i64),
}

impl Stream {
    /// Pages in a block: in sequence they are one piece.
    fn block(&self) -> u64 {
        if self.stride.unsigned_abs() == 1 { 1 } else { self.last.len() }
    }

    /// Whether an access that starts, or ends, at these pages goes on with the stream.
    fn continues(&self, access: Range2) -> Option<Continues> {
        let Range2 { start, end } = access;
        // Accesses that aren't to whole pages share one with their neighbours.
        let forwards = start == self.last.end || (start + 1 == self.last.end && end > self.last.end);
        let backwards = end == self.last.start || (end == self.last.start + 1 && start < self.last.start);
        match self.stride {
            // Hits aren't told: the reader may have come as far as we read ahead, and a window
            // further.
            1 if start >= self.last.end.saturating_sub(1) && end > self.last.end => {
                let distance = (start + 1).saturating_sub(self.last.end);
                (distance <= self.reach()).then_some(Continues::After(distance))
            }
            -1 if end <= self.last.start + 1 && start < self.last.start => {
                let distance = (self.last.start + 1).saturating_sub(end);
                (distance <= self.reach()).then_some(Continues::After(distance))
            }
            1 | -1 => None,
            _ if forwards => Some(Continues::InSequence(1)),
            _ if backwards => Some(Continues::InSequence(-1)),
            0 => None,
            stride => {
                let distance = start.wrapping_sub(self.last.start).cast_signed();
                let whole = distance % stride == 0 && access.len() == self.last.len();
                let blocks = u64::try_from(distance / stride).ok().filter(|&blocks| whole && blocks > 0)?;
                (blocks <= self.reach()).then_some(Continues::After(blocks))
            }
        }
    }

    /// How many blocks from the last access the next one that we hear of can be.
    fn reach(&self) -> u64 {
        if self.window == 0 { 1 } else { self.ahead + self.window + 1 }
    }

    /// Whether a reader that comes to `access` left out most of what was read ahead for it on the
    /// way.
    fn is_left_out(&self, access: Range2, is_used: IsUsed<'_>) -> bool {
        let from = if self.stride == -1 { access.end - 1 } else { access.start };
        let before = |blocks: i64| from.checked_add_signed(self.stride.checked_mul(-blocks)?);
        let (mut used, mut unused) = (0, 0);
        for fate in (1..=LOOKED_AT).map_while(before).filter_map(is_used) {
            *if fate { &mut used } else { &mut unused } += 1;
        }
        unused > (USED_SHARE - 1) * used
    }

    /// The reader has come to `access`, which starts `blocks` further than the last one did, or
    /// ended.
    fn advance(&mut self, access: Range2, blocks: u64) {
        let used = if self.block() == 1 { (blocks + access.len()).saturating_sub(1) } else { blocks };
        self.matches += 1;
        self.last = access;
        self.ahead = self.ahead.saturating_sub(used);
    }

    /// Whether the page was asked for already.
    fn is_ahead(&self, page: u64) -> bool {
        let distance = match self.stride {
            0 => return false,
            -1 => self.last.start.wrapping_sub(page),
            1 => (page + 1).wrapping_sub(self.last.end),
            stride => {
                let distance = page.wrapping_sub(self.last.start).cast_signed();
                let within = distance.rem_euclid(stride) < self.block().cast_signed();
                if within { distance.div_euclid(stride).cast_unsigned() } else { 0 }
            }
        };
        (1..=self.ahead).contains(&distance)
    }

    /// Pages in the next window that will probably wait for their use, as others load pages, too.
    fn kept(&self, bounds: &Bounds) -> u64 {
        let room = self.window * self.block() * bounds.waiting / WAITING_SHARE;
        match bounds.evicted.saturating_sub(self.evicted) {
            evicted if evicted > 0 && self.window > 0 => (room / evicted).max(CROWDED),
            _ => u64::MAX,
        }
    }

    /// The next window, within the file.
    fn ask(&mut self, window: u64, pages: u64) -> Option<Window> {
        let (block, stride) = (self.block(), self.stride);
        let from = match stride {
            1 => self.last.end - 1,
            _ => self.last.start,
        };
        let at = |number: u64| {
            let distance = i64::try_from(number).ok().and_then(|number| stride.checked_mul(number))?;
            from.checked_add_signed(distance).filter(|start| start.checked_add(block).is_some_and(|end| end <= pages))
        };
        let first = at(self.ahead + 1)?;
        let most = if block == 1 && stride.unsigned_abs() == 1 { window } else { (window / block).min(BLOCKS_MAX) };
        let blocks = (1..=most.max(1)).rev().find(|&blocks| at(self.ahead + blocks).is_some())?;
        self.window = blocks;
        self.ahead += blocks;
        Some(Window { first, block, stride, blocks })
    }
}

/// Whether a page has been used, if it is in memory.
pub(crate) type IsUsed<'a> = &'a dyn Fn(u64) -> Option<bool>;

/// The streams of a handle, or of those of its readers that share a few CPUs.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    /// Accesses heard of.
    clock: u32,
    trust: Trust,
}

impl Streams {
    /// An access to `pages` has missed, first at `missing`. Says what to load besides.
    pub(crate) fn missed(
        &mut self,
        pages: Range<u64>,
        missing: u64,
        is_used: IsUsed<'_>,
        bounds: &Bounds,
    ) -> Option<Window> {
        let access = Range2 { start: pages.start, end: pages.end.max(pages.start + 1) };
        self.clock = self.clock.wrapping_add(1);
        let continued = |at: usize| self.streams[at].continues(access).map(|how| (at, how));
        let found = (0..STREAMS).filter(|&at| self.is_alive(at)).filter_map(continued);
        let found = found.max_by_key(|&(at, _)| self.streams[at].matches);
        let Some((at, how)) = found.filter(|&(at, _)| self.is_followed(at, access, is_used)) else {
            let at = self.begin(access);
            if bounds.eagerness == Eagerness::Sequential {
                self.streams[at].stride = 1;
                return self.ask(at, bounds.window_max(self.trust.doubt) / 4, bounds);
            }
            return None;
        };
        let stream = &mut self.streams[at];
        match how {
            Continues::InSequence(stride) => {
                *stream = Stream { stride, ..Stream::default() };
                stream.advance(access, 0);
            }
            Continues::After(blocks) => {
                let lost = stream.is_ahead(missing);
                stream.advance(access, blocks);
                if lost {
                    // It was asked for, and isn't there: there is too little room, or it couldn't
                    // be read.
                    (stream.ahead, stream.window) = (0, stream.window / 4);
                }
            }
        }
        stream.heard = self.clock;
        let grown = (stream.window * 2 * stream.block()).max(access.len()).max(WINDOW_MIN);
        if stream.matches >= bounds.believed(self.trust.doubt) { self.ask(at, grown, bounds) } else { None }
    }

    /// A reader has come to a page that was marked when it was read ahead. `followers` says how
    /// many pages after it are in memory, or on the way there, for a stream that began elsewhere.
    pub(crate) fn reached(
        &mut self,
        page: u64,
        followers: impl FnOnce() -> u64,
        is_used: IsUsed<'_>,
        bounds: &Bounds,
    ) -> Option<Window> {
        let access = Range2 { start: page, end: page + 1 };
        self.clock = self.clock.wrapping_add(1);
        let continued = |stream: &Stream| {
            let access = Range2 { end: page + stream.block(), ..access };
            if stream.window == 0 { None } else { stream.continues(access).map(|how| (access, how)) }
        };
        let found = (0..STREAMS).find_map(|at| continued(&self.streams[at]).map(|(access, how)| (at, access, how)));
        let at = if let Some((at, access, Continues::After(blocks))) = found {
            if !self.is_followed(at, access, is_used) {
                self.begin(access);
                return None;
            }
            self.streams[at].advance(access, blocks);
            at
        } else {
            let ahead = followers();
            let (evicted, matches) = (bounds.evicted, BELIEVED);
            let stream = Stream { last: access, stride: 1, matches, ahead, window: ahead, evicted, heard: 0 };
            if ahead == 0 || stream.is_left_out(access, is_used) {
                return None;
            }
            let at = self.begin(access);
            self.streams[at] = stream;
            at
        };
        let stream = &mut self.streams[at];
        stream.heard = self.clock;
        let grown = stream.window * 2 * stream.block();
        self.ask(at, grown, bounds)
    }

    fn ask(&mut self, at: usize, pages: u64, bounds: &Bounds) -> Option<Window> {
        self.trust.reckon(bounds.read, bounds.wasted);
        let max = bounds.window_max(self.trust.doubt);
        let stream = &mut self.streams[at];
        if max < WINDOW_MIN.max(stream.block()) {
            return None;
        }
        let pages = pages.min(max).min(stream.kept(bounds));
        stream.evicted = bounds.evicted;
        stream.ask(pages, bounds.pages)
    }

    /// Whether the reader of a stream that comes to `access` uses what is read ahead for it. If
    /// not, there is nothing more to the stream than where the reader was.
    fn is_followed(&mut self, at: usize, access: Range2, is_used: IsUsed<'_>) -> bool {
        let stream = &mut self.streams[at];
        let is_followed = stream.window == 0 || !stream.is_left_out(access, is_used);
        if !is_followed {
            *stream = Stream { last: stream.last, heard: stream.heard, ..Stream::default() };
        }
        is_followed
    }

    fn is_alive(&self, at: usize) -> bool {
        self.streams[at].heard != 0
    }

    fn age(&self, at: usize) -> u32 {
        if self.is_alive(at) { self.clock.wrapping_sub(self.streams[at].heard) } else { u32::MAX }
    }

    /// Follows a new stream, in the place of one that isn't believed yet or was forgotten.
    fn begin(&mut self, access: Range2) -> usize {
        let is_candidate = |at: &usize| self.streams[*at].window == 0 || self.age(*at) > FORGOTTEN_AFTER;
        let oldest = |places: &mut dyn Iterator<Item = usize>| places.max_by_key(|&at| self.age(at));
        let enough = (0..STREAMS).filter(is_candidate).count() >= CANDIDATES;
        let at = oldest(&mut (0..STREAMS).filter(|at| !enough || is_candidate(at))).unwrap_or(0);
        // Perhaps the third access is as far away as this one is from the nearest before.
        let strides = self.streams.iter().filter(|stream| stream.heard != 0 && stream.window == 0);
        let strides = strides.map(|stream| access.start.wrapping_sub(stream.last.start).cast_signed());
        let nearest = strides.min_by_key(|stride| stride.unsigned_abs());
        let stride = nearest.filter(|stride| (2..=STRIDE_MAX).contains(&stride.unsigned_abs())).unwrap_or(0);
        self.streams[at] = Stream { last: access, stride, heard: self.clock.max(1), ..Stream::default() };
        at
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
