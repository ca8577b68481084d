//! A file of the simulated disk: its durable contents, and the changes that a power cut may lose.
//!
//! | | what it is | becomes |
//! |---|---|---|
//! | `durable` | the file as of the last sync, or as it was given | |
//! | `written` | all versions of each page written since then, in order | a sync makes the last versions `durable` |
//! | `lens` | all lengths since then, `low` being the shortest | a sync makes the last length `durable`'s |
//!
//! At an offset below the length, readers see the last version of the page in `written`, if there
//! is one. If there is none, they see `durable` at offsets below `low`, and zeros from `low` on.
//! Invariants:
//!
//! - S1. `durable` is zero from its length on, and `filled` is at most its length.
//! - S2. In the last version of each page in `written`, the bytes past the file's current length
//!   are zeros. So if the file is extended again after a truncation, the bytes that were cut off
//!   are zeros.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use io::IoError;
use sync::lock::{Mutex, RwLock};
use sync::random::Random;
use sync::{Arc, SharedBytes, Weak};

use super::contents::Contents;

/// The unit in which bytes are written and take space.
const PAGE: usize = 4096;

/// Bytes that reach the disk together or not at all.
const SECTOR: usize = 512;

type Page = [u8; PAGE];

/// The disk's space for new pages: those that weren't in their files when the files were added.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) pages: u64,
    pub(crate) pages_max: u64,
}

pub(crate) struct File {
    pub(crate) inode: u64,
    contents: Contents,
    state: RwLock<State>,
    space: Arc<Mutex<Space>>,
    /// The opening that holds the lock, and the number of power cuts when it took the lock. A power
    /// cut releases the lock.
    locked_by: Mutex<Option<(Weak<()>, u64)>>,
}

struct State {
    durable: Durable,
    written: BTreeMap<u64, Vec<Box<Page>>>,
    /// Never empty; the current length is last.
    lens: Vec<u64>,
    low: u64,
    /// The pages that take space.
    taken: BTreeSet<u64>,
    /// The file's name is durable.
    named: bool,
}

/// A file of `len` bytes. A page that isn't in `pages` has the file's initial contents up to the
/// offset `filled`, and zeros from there on.
struct Durable {
    len: u64,
    filled: u64,
    pages: HashMap<u64, Box<Page>>,
}

impl File {
    /// Creates a file of `len` bytes. `named` tells whether its name is durable.
    pub(crate) fn new(inode: u64, contents: Contents, len: u64, named: bool, space: &Arc<Mutex<Space>>) -> Self {
        let state = State {
            durable: Durable { len, filled: len, pages: HashMap::new() },
            written: BTreeMap::new(),
            lens: vec![len],
            low: len,
            taken: BTreeSet::new(),
            named,
        };
        let (state, locked_by) = (RwLock::new(state), Mutex::new(None));
        Self { inode, contents, state, space: Arc::clone(space), locked_by }
    }

    /// Takes the lock for an opening. Fails with `EBUSY` if another opening holds it.
    pub(crate) fn lock(&self, opening: &Arc<()>, cuts: u64) -> Result<(), IoError> {
        let mut locked_by = self.locked_by.lock();
        let holder = locked_by.as_ref().filter(|(_, before)| *before == cuts).and_then(|(holder, _)| holder.upgrade());
        if holder.is_some_and(|holder| !Arc::ptr_eq(&holder, opening)) {
            return Err(IoError::BUSY);
        }
        *locked_by = Some((Arc::downgrade(opening), cuts));
        Ok(())
    }

    /// Releases the lock, if this opening holds it.
    pub(crate) fn unlock(&self, opening: &Arc<()>) {
        let mut locked_by = self.locked_by.lock();
        if locked_by.as_ref().is_some_and(|(holder, _)| std::ptr::eq(holder.as_ptr(), Arc::as_ptr(opening))) {
            *locked_by = None;
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.state.read().len()
    }

    /// Returns the number of bytes that the file can have in total.
    pub(crate) fn room(&self) -> u64 {
        let state = self.state.read();
        let there = state.taken.len() as u64 + state.durable.filled.min(state.low).div_ceil(PAGE as u64);
        let space = self.space.lock();
        (space.pages_max - space.pages.min(space.pages_max)).saturating_add(there).saturating_mul(PAGE as u64)
    }

    pub(crate) fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> usize {
        let state = self.state.read();
        let mut done = 0;
        for slice in into {
            let n = offset.checked_add(done as u64).map_or(0, |start| state.bytes_at(start, slice.len()));
            let mut at = 0;
            while at < n {
                let (page, within) = place(offset + (done + at) as u64);
                let part = (PAGE - within).min(n - at);
                slice.copy_from_device(at, &self.visible(&state, page)[within..within + part]);
                at += part;
            }
            done += n;
            if n < slice.len() {
                break;
            }
        }
        done
    }

    /// Returns how many of `len` bytes at `offset` exist.
    pub(crate) fn bytes_at(&self, offset: u64, len: usize) -> usize {
        self.state.read().bytes_at(offset, len)
    }

    /// Writes until the disk is full. Returns the number of bytes written, or `ENOSPC` if there
    /// were none.
    pub(crate) fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let mut state = self.state.write();
        let mut done = 0;
        for slice in from {
            let mut at = 0;
            while at < slice.len() && done < len {
                let (page, within) = place(offset + done as u64);
                let part = (PAGE - within).min(slice.len() - at).min(len - done);
                if !self.take_room(&mut state, page) {
                    return if done > 0 { Ok(done) } else { Err(IoError::NO_SPACE) };
                }
                let is_whole = part == PAGE;
                let mut version = Box::new(if is_whole { [0; PAGE] } else { self.visible(&state, page) });
                slice.copy_to(at, &mut version[within..within + part]);
                state.written.entry(page).or_default().push(version);
                (at, done) = (at + part, done + part);
                let longer = state.len().max(offset + done as u64);
                state.note_len(longer);
            }
        }
        Ok(done)
    }

    /// Sets a new length. `len` is called with the current length, and returns the new one.
    pub(crate) fn set_len(&self, len: impl FnOnce(u64) -> u64) {
        let mut state = self.state.write();
        let len = len(state.len());
        if len < state.len() {
            for (&page, versions) in state.written.range_mut(len / PAGE as u64..) {
                let last = versions.last().map(|last| Box::new(cut_page(page, **last, len)));
                versions.extend(last);
            }
            let freed = state.taken.split_off(&len.div_ceil(PAGE as u64));
            self.space.lock().pages -= freed.len() as u64;
            state.low = state.low.min(len);
        }
        state.note_len(len);
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&self) {
        let mut state = self.state.write();
        let (low, len) = (state.low, state.len());
        state.durable.cut(low);
        let last = |(page, mut versions): (u64, Vec<_>)| Some((page, versions.pop()?));
        let written = std::mem::take(&mut state.written).into_iter().filter_map(last);
        state.durable.pages.extend(written.filter(|&(page, _)| page * (PAGE as u64) < len));
        state.settle(len);
    }

    /// Simulates a failed writeback: each sector written since the last sync is lost or kept, at
    /// random.
    pub(crate) fn lose_writes(&self, random: &mut Random) {
        let mut state = self.state.write();
        let State { durable, written, low, .. } = &mut *state;
        for (&page, versions) in written {
            let mut mixture = cut_page(page, durable.page(&self.contents, page), *low);
            let last = versions.split_off(versions.len().saturating_sub(1));
            mix_sectors(&mut mixture, &last, random);
            *versions = vec![Box::new(mixture)];
        }
    }

    /// Simulates a power cut: some of the changes since the last sync reach the disk. Returns
    /// whether the file still exists.
    pub(crate) fn power_cut(&self, random: &mut Random) -> bool {
        let mut state = self.state.write();
        let len = state.lens[random.below(state.lens.len() as u64) as usize];
        let (low, written) = (state.low, std::mem::take(&mut state.written));
        if random.one_in(2) {
            state.durable.cut(low);
        }
        for (page, versions) in written {
            let mut mixture = state.durable.page(&self.contents, page);
            mix_sectors(&mut mixture, &versions, random);
            state.durable.pages.insert(page, Box::new(mixture));
        }
        state.durable.cut(len);
        let there = state.named || random.one_in(2);
        state.settle(len);
        let filled = state.durable.filled;
        let taken: BTreeSet<u64> =
            state.durable.pages.keys().copied().filter(|&page| page * (PAGE as u64) >= filled).collect();
        let before = std::mem::replace(&mut state.taken, taken).len() as u64;
        let mut space = self.space.lock();
        space.pages = space.pages - before + state.taken.len() as u64;
        there
    }

    /// Returns page `page` as readers see it. Bytes past the end of the file are included.
    fn visible(&self, state: &State, page: u64) -> Page {
        match state.written.get(&page).and_then(|versions| versions.last()) {
            Some(last) => **last,
            None => cut_page(page, state.durable.page(&self.contents, page), state.low),
        }
    }

    /// Takes space for the page, unless the page has space already. Returns false if no space is
    /// left.
    fn take_room(&self, state: &mut State, page: u64) -> bool {
        let there = page * (PAGE as u64) < state.durable.filled.min(state.low) || state.taken.contains(&page);
        if !there {
            let mut space = self.space.lock();
            if space.pages >= space.pages_max {
                return false;
            }
            space.pages += 1;
            state.taken.insert(page);
        }
        true
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let taken = self.state.read().taken.len() as u64;
        self.space.lock().pages -= taken;
    }
}

impl State {
    fn len(&self) -> u64 {
        self.lens.last().copied().unwrap_or(self.durable.len)
    }

    fn bytes_at(&self, offset: u64, len: usize) -> usize {
        len.min(usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX))
    }

    fn note_len(&mut self, len: u64) {
        if len != self.len() {
            self.lens.push(len);
        }
    }

    /// Records that `durable` is the complete state, with a length of `len`.
    fn settle(&mut self, len: u64) {
        self.durable.len = len;
        (self.lens, self.low, self.named) = (vec![len], len, true);
    }
}

impl Durable {
    fn page(&self, contents: &Contents, page: u64) -> Page {
        if let Some(bytes) = self.pages.get(&page) {
            return **bytes;
        }
        let mut bytes = [0; PAGE];
        let start = page * PAGE as u64;
        let there = self.filled.saturating_sub(start).min(PAGE as u64) as usize;
        contents.fill(start, &mut bytes[..there]);
        bytes
    }

    /// Zeroes everything from `len` on.
    fn cut(&mut self, len: u64) {
        self.filled = self.filled.min(len);
        self.pages.retain(|&page, _| page * (PAGE as u64) < len);
        let (last, within) = place(len);
        if let Some(bytes) = self.pages.get_mut(&last) {
            bytes[within..].fill(0);
        }
    }
}

/// Returns the page that contains `offset`, and the position in that page.
fn place(offset: u64) -> (u64, usize) {
    (offset / PAGE as u64, (offset % PAGE as u64) as usize)
}

/// Returns the page with zeros from the file's offset `len` on.
fn cut_page(page: u64, mut bytes: Page, len: u64) -> Page {
    let there = len.saturating_sub(page * PAGE as u64).min(PAGE as u64) as usize;
    bytes[there..].fill(0);
    bytes
}

/// Randomly sets each sector of the page to its contents in one of `versions`, or leaves it
/// unchanged. In half of the calls, on average, the choice is made for each sector independently.
/// In the other half, one choice applies to all sectors.
fn mix_sectors(page: &mut Page, versions: &[Box<Page>], random: &mut Random) {
    let torn = random.one_in(2);
    let mut choose = || random.below(versions.len() as u64 + 1) as usize;
    let whole = choose();
    for (sector, bytes) in page.chunks_mut(SECTOR).enumerate() {
        let choice = if torn { choose() } else { whole };
        if let Some(version) = versions.get(choice) {
            bytes.copy_from_slice(&version[sector * SECTOR..(sector + 1) * SECTOR]);
        }
    }
}
