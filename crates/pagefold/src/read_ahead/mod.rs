//! Readahead policy: predicts which pages a reader will want next, from its previous accesses.
//!
//! This module does no I/O. Its caller reports each access that missed, and each *marked* page that
//! a reader reached; the module returns pages to load. Hits on other pages aren't reported, so they
//! cost nothing.
//!
//! Pages that are requested together form a *window*. The window's first page is marked when it is
//! loaded. The mark is in the page's frame record, and is checked only when the page is first used.
//!
//! A reader that reaches the mark requests the next window while it still has the rest of the
//! current window to use. So the device and the reader work at the same time. (Linux has the same
//! marker: `mm/readahead.c`, PG_readahead.)
//!
//! A *stream* is a series of accesses that seem to come from one reader. An access can continue a
//! stream in two ways. It continues the stream *in sequence* if it begins where the stream's last
//! access ended. (In a stream that goes backwards, it must end where the last access began.) It
//! continues the stream with a *stride* if its distance from the stream's last access is the same
//! as the distance between the stream's last two accesses. A handle follows several streams at
//! once, because many readers may share the handle.
//!
//! A stream is *believed* after two accesses have continued it, both in sequence or both with the
//! same stride. From then on pages are read ahead for the stream. Each window is twice as large as
//! the one before, from two pages up to a share of what the group may hold.
//!
//! Random accesses sometimes look like a stream by chance. So a stream is believed only after two
//! coincidences in a row. In addition, pages that were read ahead but evicted unused are counted
//! (`Counters::read_ahead_wasted`). If more than a quarter of the pages that were read ahead are
//! wasted, windows are halved, down to two pages, and streams need more continuations to be
//! believed. Both restrictions end once enough pages were read ahead without waste ([`Trust`]).
//!
//! When a stream ends, its last windows are wasted although its pattern was real. So a few wasted
//! windows are allowed from the start. And readahead learns at which lengths streams end, and
//! requests no pages beyond such a length ([`Runs`]). If a stream goes on beyond it, its windows
//! start small and grow again.
//!
//! Pages that are read ahead must stay in memory until they are used. Until then they are on
//! reclaim's lists *young* and *window* (see `lru`), which may hold only a small part of the
//! group's pages. Each page that another reader loads moves the waiting pages closer to eviction.
//!
//! So the size of a window depends on how fast the group evicts. A stream remembers how many pages
//! the group had evicted when the stream's last window was requested. While the reader uses this
//! window, the group has an allowance of evictions: a quarter of the number of pages that can wait
//! on these lists. If the group evicts twice the allowance, the next window is half as large as the
//! last, and so on. So the more readers there are, the smaller their windows.
//!
//! A reader with a stride may reach pages that were read ahead for another reader, which is
//! sequential. Window after window, the reader with the stride then reaches the mark. If readahead
//! took this reader for a sequential one, it would load all pages that the stride leaves out. So
//! before readahead requests the next window, it checks that the reader has used enough of the
//! pages that it has just passed: more than half of those that are in memory.

pub(crate) mod advice;
mod paused;
mod runs;
pub(crate) mod shares;
mod trust;

use std::ops::Range;

use paused::{Direction, Paused, Run};
use runs::Runs;
use trust::Trust;

/// The number of streams that are followed at once.
const STREAMS: usize = 16;
/// This many of them are kept for streams that aren't believed yet.
const CANDIDATES: usize = 4;
/// A believed stream may be replaced by a new one after this many accesses to other streams without
/// an access of its own.
const FORGOTTEN_AFTER: u32 = 256;
/// Continuations after which a stream is believed.
const BELIEVED: u32 = 2;
/// The longest stride in pages.
const STRIDE_MAX: u64 = 1 << 12;
/// The first window, in pages.
const WINDOW_MIN: u64 = 2;
/// The most requests in one window. A disk doesn't process more at once, so further requests would
/// only be submitted too early.
const BLOCKS_MAX: u64 = 64;
/// The group's allowance of evictions, while a reader uses one window, is 1/`WAITING_SHARE` of the
/// number of pages that can wait on the lists. If the group evicts more, the next window shrinks.
/// The allowance is only a part of that number, because a stream has two windows at a time, and
/// other readers may come behind the stream's reader and use the same pages.
const WAITING_SHARE: u64 = 4;
/// The evictions that other readers cause shrink a window to no less than `CROWDED` pages, because
/// a disk's throughput is much lower with smaller windows. If the largest window is small, the
/// bound is 1/`CROWDED_SHARE` of the largest window.
const CROWDED: u64 = 16;
const CROWDED_SHARE: u64 = 4;
/// A stream is over if, since its last window was requested, the group has evicted more than
/// `STALE` × the number of pages that can wait on the lists: the window's pages have left memory.
const STALE: u64 = 4;
/// Before the next window is requested, this many blocks behind the reader are checked.
const LOOKED_AT: i64 = 64;
/// The blocks that a stream is assumed to have so far if its beginning was missed.
const LENGTH_UNKNOWN: u64 = 16;

/// How much to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eagerness {
    /// As described above.
    Normal,
    /// The user has announced sequential accesses: the first access is believed, and windows are
    /// twice as large.
    Sequential,
}

/// The limits of readahead at the moment, and the counts that they follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The file's length in pages.
    pub(crate) pages: u64,
    /// The size of the largest window in pages; twice as much if sequential.
    pub(crate) window: u64,
    pub(crate) eagerness: Eagerness,
    /// `read` is the number of the file's pages that were read ahead so far. `wasted` is how many
    /// of them were evicted unused.
    pub(crate) read: u64,
    pub(crate) wasted: u64,
    /// The number of pages that the group has evicted so far.
    pub(crate) evicted: u64,
    /// The number of pages that can wait on the group's lists for their first use, without taking
    /// room from the list *main*.
    pub(crate) waiting: u64,
}

impl Bounds {
    /// Returns the size of the largest window for a stream whose smallest window has `least` pages.
    /// However large the doubt is, the result is at least `least`, unless `self.window` itself
    /// allows fewer pages. If nothing were read ahead, nothing could lessen the doubt.
    fn window_max(&self, doubt: u32, least: u64) -> u64 {
        let eager = u32::from(self.eagerness == Eagerness::Sequential);
        let most = self.window << eager;
        (most >> doubt).max(least.min(most))
    }

    fn believed(&self, doubt: u32) -> u32 {
        if self.eagerness == Eagerness::Sequential { 0 } else { BELIEVED + doubt }
    }
}

/// Pages to load: `blocks` blocks of `block` pages, whose starts are `stride` pages apart. The
/// reader will use the block at `first` first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    first: u64,
    block: u64,
    stride: i64,
    blocks: u64,
}

impl Window {
    /// Returns the page that will be used first.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns two numbers: how many of the window's pages directly follow `page`, and how many
    /// directly precede it. Both are 0 unless the window is in sequence and begins next to `page`.
    pub(crate) fn next_to(&self, page: u64) -> (u64, u64) {
        let is_next = |distance| self.first == page.wrapping_add_signed(distance);
        let pages = |there: bool| if there { self.blocks } else { 0 };
        let single = self.block == 1;
        (pages(single && self.stride == 1 && is_next(1)), pages(single && self.stride == -1 && is_next(-1)))
    }

    /// Returns all pages of the window, in ascending order. (A window lies within the file.)
    pub(crate) fn ascending(self) -> impl Iterator<Item = u64> {
        let backwards = self.stride < 0;
        (0..self.blocks).flat_map(move |turn| {
            let number = if backwards { self.blocks - 1 - turn } else { turn };
            let start = self.first.wrapping_add_signed(self.stride.wrapping_mul(number as i64));
            start..start + self.block
        })
    }
}

/// The accesses of one reader, as far as they form a sequence or a stride.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The pages of the last known access.
    last: Range2,
    /// The distance from one access to the next, in pages; 0 if unknown, 1 or −1 in sequence.
    stride: i64,
    /// The number of blocks from the first access to the end of `last`. If the stream's beginning
    /// was missed, this is an assumed number (`LENGTH_UNKNOWN`) plus the blocks since the stream
    /// was found.
    length: u64,
    /// Whether `length` will tell where the reader ended. It will if the stream is followed from
    /// its first access on, and no window was cut short because its last pages couldn't be loaded.
    tells_length: bool,
    /// How often an access continued the stream.
    matches: u32,
    /// The number of blocks after `last` that were requested already, and the size of the last
    /// window in blocks.
    ahead: u64,
    window: u64,
    /// The number of pages that the group had evicted when the stream's last window was requested.
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
    /// The access lies this many blocks after the stream's last access, at the stream's stride.
    After(u64),
    /// The access directly follows the last one (1) or directly precedes it (−1), and the stream
    /// wasn't in sequence before. The two accesses begin a new sequence.
    InSequence(i64),
}

impl Stream {
    /// Returns the number of pages in a block: 1 if the stream is in sequence.
    fn block(&self) -> u64 {
        if self.is_in_sequence() { 1 } else { self.last.len() }
    }

    fn is_in_sequence(&self) -> bool {
        self.stride.unsigned_abs() == 1
    }

    /// Returns how an access to these pages continues the stream, if it does.
    fn continues(&self, access: Range2) -> Option<Continues> {
        let Range2 { start, end } = access;
        // Two neighbouring accesses that don't cover whole pages share a page.
        let forwards = start == self.last.end || (start + 1 == self.last.end && end > self.last.end);
        let backwards = end == self.last.start || (end == self.last.start + 1 && start < self.last.start);
        match self.stride {
            // Hits aren't reported, so the next reported access may be far from the last one: the
            // reader may have used all pages that were read ahead, and found further pages in
            // memory. So an access is in sequence if it is at most one window past the pages that
            // were read ahead (`reach`).
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

    /// Returns the largest distance, in blocks, of the next reported access from the last one.
    fn reach(&self) -> u64 {
        if self.window == 0 { 1 } else { self.ahead + self.window + 1 }
    }

    /// Moves the stream over the blocks ahead that the reader has used: hits aren't reported.
    fn catch_up(&mut self, is_used: IsUsed<'_>) {
        let used = self.used_ahead(is_used);
        let Some(start) = self.block_after(used) else { return };
        if used > 0 {
            self.last = Range2 { start, end: start + self.block() };
            (self.length, self.ahead) = (self.length.saturating_add(used), self.ahead - used);
        }
    }

    /// Returns the start of the block that comes so many blocks after the last one.
    fn block_after(&self, blocks: u64) -> Option<u64> {
        let from = if self.stride == 1 { self.last.end - 1 } else { self.last.start };
        from.checked_add_signed(self.stride.checked_mul(blocks.try_into().ok()?)?)
    }

    /// Returns how many of the blocks ahead the reader has used.
    fn used_ahead(&self, is_used: IsUsed<'_>) -> u64 {
        (1..=self.ahead)
            .map_while(|blocks| self.block_after(blocks))
            .take_while(|&page| is_used(page) == Some(true))
            .count() as u64
    }

    /// Returns whether a reader that makes `access` has skipped most of the pages that were read
    /// ahead for it.
    fn is_left_out(&self, access: Range2, is_used: IsUsed<'_>) -> bool {
        let from = if self.stride == -1 { access.end - 1 } else { access.start };
        let before = |blocks: i64| from.checked_add_signed(self.stride.checked_mul(-blocks)?);
        let (mut used, mut unused) = (0, 0);
        for fate in (1..=LOOKED_AT).map_while(before).filter_map(is_used) {
            *if fate { &mut used } else { &mut unused } += 1;
        }
        unused >= used && unused > 0
    }

    /// Notes that the reader makes `access`. `blocks` is the distance in blocks from the stream's
    /// last access to the start of `access` or, if the stream goes backwards, to the end of
    /// `access`.
    fn advance(&mut self, access: Range2, blocks: u64) {
        let used = if self.block() == 1 { (blocks + access.len()).saturating_sub(1) } else { blocks };
        self.matches += 1;
        self.length = self.length.saturating_add(used);
        self.last = access;
        self.ahead = self.ahead.saturating_sub(used);
    }

    /// Returns whether the page was requested already.
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

    /// Returns the largest size that the next window may have, in pages. A window of this size will
    /// probably stay in memory until it is used, although other readers load pages as well.
    fn kept(&self, bounds: &Bounds) -> u64 {
        let room = self.window * self.block() * bounds.waiting / WAITING_SHARE;
        match bounds.evicted.saturating_sub(self.evicted) {
            evicted if evicted > 0 && self.window > 0 => {
                (room / evicted).max(CROWDED.min(bounds.window / CROWDED_SHARE)).max(WINDOW_MIN)
            }
            _ => u64::MAX,
        }
    }

    /// Returns whether the stream's pages that were read ahead have left memory. If they have, a
    /// miss near them doesn't continue the stream.
    fn is_stale(&self, bounds: &Bounds) -> bool {
        self.window > 0 && bounds.evicted.saturating_sub(self.evicted) > STALE * bounds.waiting
    }

    /// Returns how many blocks a window of that many pages has.
    fn blocks(&self, window: u64) -> u64 {
        if self.is_in_sequence() { window.max(1) } else { (window / self.block()).clamp(1, BLOCKS_MAX) }
    }

    /// Returns the next window, within the file, of at most `most` blocks. Notes it as requested.
    fn ask(&mut self, most: u64, pages: u64) -> Option<Window> {
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
        let blocks = (1..=most).rev().find(|&blocks| at(self.ahead + blocks).is_some())?;
        self.window = blocks;
        self.ahead += blocks;
        Some(Window { first, block, stride, blocks })
    }
}

/// Returns whether a page has been used; `None` if it isn't in memory.
pub(crate) type IsUsed<'a> = &'a dyn Fn(u64) -> Option<bool>;

/// The streams of a handle's readers on a few CPUs.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    /// The number of accesses reported.
    clock: u32,
    trust: Trust,
    /// The lengths, in blocks, at which streams in sequence ended, and those with strides.
    ends: [Runs; 2],
    paused: Paused,
}

impl Streams {
    /// Notes an access to `pages`, of which `missing` is the first that isn't in memory. Returns
    /// the window to read ahead, if any.
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
        let found = found.filter(|&(at, _)| !self.streams[at].is_stale(bounds));
        let found = found.max_by_key(|&(at, _)| self.streams[at].matches);
        let found = found.filter(|&(at, _)| self.is_followed(at, access, is_used));
        let at = match found {
            Some((at, how)) => {
                self.goes_on(at, how, access, missing, is_used);
                at
            }
            None => {
                let at = self.begin(access, is_used);
                if bounds.eagerness == Eagerness::Sequential {
                    let stream = &mut self.streams[at];
                    (stream.stride, stream.length) = (1, access.len());
                    return self.ask(at, bounds.window_max(self.trust.doubt, WINDOW_MIN) / 4, bounds);
                }
                at
            }
        };
        let stream = &mut self.streams[at];
        stream.heard = self.clock.max(1);
        let grown = (stream.window * 2 * stream.block()).max(access.len()).max(WINDOW_MIN);
        if stream.matches >= bounds.believed(self.trust.doubt) { self.ask(at, grown, bounds) } else { None }
    }

    /// Notes that the reader of the stream `at` makes `access`.
    fn goes_on(&mut self, at: usize, how: Continues, access: Range2, missing: u64, is_used: IsUsed<'_>) {
        match how {
            Continues::InSequence(stride) => {
                // Before `end`, which moves the stream over what its reader has used.
                let last = self.streams[at].last;
                self.end(at, is_used);
                let length = if stride == 1 { access.end - last.start } else { last.end - access.start };
                let (tells_length, matches) = (true, 1);
                self.streams[at] = Stream { last: access, stride, length, tells_length, matches, ..Stream::default() };
            }
            Continues::After(blocks) => {
                let stream = &mut self.streams[at];
                let lost = stream.is_ahead(missing);
                stream.advance(access, blocks);
                if lost {
                    // The page was requested and isn't in memory: there is too little room, or it
                    // couldn't be read.
                    (stream.ahead, stream.window) = (0, stream.window / 4);
                }
            }
        }
    }

    /// Notes that the caller won't load the last `blocks` blocks of the window that was just
    /// returned.
    pub(crate) fn ends_early(&mut self, blocks: u64) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.heard == self.clock) {
            stream.ahead = stream.ahead.saturating_sub(blocks);
            stream.tells_length &= blocks == 0;
        }
    }

    /// Notes that a reader has reached a page that was marked when it was read ahead. Returns the
    /// next window to load. `followers` returns how many pages directly after the marked page are
    /// in memory or being loaded. `followers` is called only if no known stream leads to the page.
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
                self.begin(access, is_used);
                return None;
            }
            self.streams[at].advance(access, blocks);
            at
        } else {
            let ahead = followers();
            let (evicted, matches) = (bounds.evicted, BELIEVED);
            let (window, heard) = (ahead, 0);
            let stream =
                Stream { last: access, stride: 1, matches, ahead, window, evicted, heard, ..Stream::default() };
            if ahead == 0 || stream.is_left_out(access, is_used) {
                return None;
            }
            let goes_on = self.paused.take_reached(page, &mut self.ends);
            let length = goes_on.map_or(LENGTH_UNKNOWN, |run| run.length + run.ahead - (run.next - page) + 1);
            let at = self.begin(access, is_used);
            self.streams[at] = Stream { length, tells_length: goes_on.is_some(), ..stream };
            at
        };
        let stream = &mut self.streams[at];
        stream.heard = self.clock;
        let grown = stream.window * 2 * stream.block();
        self.ask(at, grown, bounds)
    }

    fn ask(&mut self, at: usize, pages: u64, bounds: &Bounds) -> Option<Window> {
        self.trust.reckon(bounds.read, bounds.wasted);
        let stream = &mut self.streams[at];
        let least = WINDOW_MIN.max(stream.block());
        let max = bounds.window_max(self.trust.doubt, least);
        if max < least {
            return None;
        }
        let mut blocks = stream.blocks(pages.min(max).min(stream.kept(bounds)));
        if bounds.eagerness == Eagerness::Normal {
            blocks = self.ends[ends_of(stream)].worth(stream.length, stream.ahead, blocks);
        }
        if blocks == 0 {
            stream.window = stream.window.min(1);
            return None;
        }
        stream.evicted = bounds.evicted;
        stream.ask(blocks, bounds.pages)
    }

    /// Returns whether the reader of the stream `at`, which now makes `access`, uses the pages that
    /// are read ahead for it. If the reader doesn't, resets the stream to the reader's last
    /// position.
    fn is_followed(&mut self, at: usize, access: Range2, is_used: IsUsed<'_>) -> bool {
        let stream = &mut self.streams[at];
        let is_followed = stream.window == 0 || !stream.is_left_out(access, is_used);
        if !is_followed {
            let (last, heard) = (stream.last, stream.heard);
            self.end(at, is_used);
            self.streams[at] = Stream { last, heard, ..Stream::default() };
        }
        is_followed
    }

    /// Notes that the stream `at` has ended, as far as is known.
    fn end(&mut self, at: usize, is_used: IsUsed<'_>) {
        self.streams[at].catch_up(is_used);
        let stream = &self.streams[at];
        if stream.tells_length && stream.matches >= BELIEVED {
            let direction = match stream.stride {
                1 => Direction::Forwards,
                -1 => Direction::Backwards,
                _ => Direction::Strided,
            };
            // The next access to be reported is the first one to a page that isn't in memory.
            let is_there = stream.block_after(1).is_some_and(|page| is_used(page).is_some());
            let next = stream.block_after(if is_there { stream.ahead + 1 } else { 1 });
            let next = next.unwrap_or(u64::MAX); // The run can't go on.
            let ahead = if is_there { stream.ahead } else { 0 };
            self.paused.add(Run { length: stream.length, direction, next, ahead }, &mut self.ends);
        }
    }

    fn is_alive(&self, at: usize) -> bool {
        self.streams[at].heard != 0
    }

    fn age(&self, at: usize) -> u32 {
        if self.is_alive(at) { self.clock.wrapping_sub(self.streams[at].heard) } else { u32::MAX }
    }

    /// Begins a new stream in place of an old one: the oldest that isn't believed yet, or has had
    /// no access for long (`FORGOTTEN_AFTER`). If there are fewer than `CANDIDATES` such streams,
    /// replaces the oldest stream of all. Returns the new stream's index.
    fn begin(&mut self, access: Range2, is_used: IsUsed<'_>) -> usize {
        // The reader that made the previous access has probably come to its end. How far it came
        // can be seen only while its pages are in memory.
        let before = self.clock.wrapping_sub(1);
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.heard == before && before != 0) {
            stream.catch_up(is_used);
        }
        let is_candidate = |at: &usize| self.streams[*at].window == 0 || self.age(*at) > FORGOTTEN_AFTER;
        let oldest = |places: &mut dyn Iterator<Item = usize>| places.max_by_key(|&at| self.age(at));
        let enough = (0..STREAMS).filter(is_candidate).count() >= CANDIDATES;
        let at = oldest(&mut (0..STREAMS).filter(|at| !enough || is_candidate(at))).unwrap_or(0);
        // The distance from the nearest earlier access is tried as the new stream's stride. The
        // reader's next access shows whether that was right.
        let strides = self.streams.iter().filter(|stream| stream.heard != 0 && stream.window == 0);
        let strides = strides.map(|stream| access.start.wrapping_sub(stream.last.start).cast_signed());
        let nearest = strides.min_by_key(|stride| stride.unsigned_abs());
        let stride = nearest.filter(|stride| (2..=STRIDE_MAX).contains(&stride.unsigned_abs())).unwrap_or(0);
        self.end(at, is_used);
        let (length, tells_length, heard) = (1, true, self.clock.max(1));
        let new = Stream { last: access, stride, length, tells_length, heard, ..Stream::default() };
        let goes_on = self.paused.take_missed(access.start, access.end, &mut self.ends);
        // The reader has used all pages that were read ahead for it before this access.
        let length = goes_on.map_or(1, |run| run.length.saturating_add(run.ahead).saturating_add(access.len()));
        self.streams[at] = match goes_on.map(|run| run.direction) {
            Some(Direction::Forwards) => Stream { stride: 1, length, matches: 1, ..new },
            Some(Direction::Backwards) => Stream { stride: -1, length, matches: 1, ..new },
            // The stride isn't remembered.
            Some(Direction::Strided) | None => new,
        };
        at
    }
}

/// Returns the index in [`Streams::ends`] for a stream.
fn ends_of(stream: &Stream) -> usize {
    usize::from(!stream.is_in_sequence())
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
