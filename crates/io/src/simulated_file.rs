//! A file of the simulated disk: what is on the disk for good, and what a power cut may take.
//!
//! | | what it is | becomes |
//! |---|---|---|
//! | `durable` | the file as the last sync left it, or as it was given | |
//! | `written` | every version of each page written since, in order | the last ones `durable`, with a sync |
//! | `lens` | every length since, `low` being the shortest | the last one `durable`'s |
//!
//! What readers see at an offset below the length is the last version in `written`, or else
//! `durable` below `low`, or else zero. It holds that
//!
//! - S1. `durable` is zero from its length on, and `filled` ends no later.
//! - S2. The last version of a page is zero from the present length on. So what is cut off and
//!   comes back is zeros.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sync::lock::{Mutex, RwLock};
use sync::random::Random;
use sync::{Arc, SharedBytes, Weak};

use crate::IoError;
use crate::simulated_contents::Contents;

/// Bytes that are written, and take room, together.
const PAGE: usize = 4096;

/// Bytes that reach the disk together or not at all.
const SECTOR: usize = 512;

type Page = [u8; PAGE];

/// Room on the disk for pages that weren't there when their files were given to it.
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
    /// The opening that has the lock, and how often the power had been cut by then: a cut ends it.
    locked_by: Mutex<Option<(Weak<()>, u64)>>,
}

struct State {
    durable: Durable,
    written: BTreeMap<u64, Vec<Box<Page>>>,
    /// Never empty; the present one last.
    lens: Vec<u64>,
    low: u64,
    /// The pages that take room.
    taken: BTreeSet<u64>,
    /// The file has its name for good.
    named: bool,
}

/// The file is `len` bytes long: `pages`, where there are any; elsewhere the contents that it was
/// made with as far as `filled`, and then zeros.
struct Durable {
    len: u64,
    filled: u64,
    pages: HashMap<u64, Box<Page>>,
}

impl File {
    /// A file of `len` bytes, there already (`named`) or just made.
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

    /// Takes the lock for an opening. `EBUSY` if another one has it.
    pub(crate) fn lock(&self, opening: &Arc<()>, cuts: u64) -> Result<(), IoError> {
        let mut locked_by = self.locked_by.lock();
        let holder = locked_by.as_ref().filter(|(_, before)| *before == cuts).and_then(|(holder, _)| holder.upgrade());
        if holder.is_some_and(|holder| !Arc::ptr_eq(&holder, opening)) {
            return Err(IoError::BUSY);
        }
        *locked_by = Some((Arc::downgrade(opening), cuts));
        Ok(())
    }

    /// Releases the lock, if this opening has it.
    pub(crate) fn unlock(&self, opening: &Arc<()>) {
        let mut locked_by = self.locked_by.lock();
        if locked_by.as_ref().is_some_and(|(holder, _)| std::ptr::eq(holder.as_ptr(), Arc::as_ptr(opening))) {
            *locked_by = None;
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.state.read().len()
    }

    /// Bytes that it can have in all.
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

    /// How many of `len` bytes at `offset` there are.
    pub(crate) fn bytes_at(&self, offset: u64, len: usize) -> usize {
        self.state.read().bytes_at(offset, len)
    }

    /// Writes until the disk is full, and says how much. `ENOSPC` if that is nothing.
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
                let mut version = self.visible(&state, page);
                slice.copy_to(at, &mut version[within..within + part]);
                state.written.entry(page).or_default().push(Box::new(version));
                (at, done) = (at + part, done + part);
                let longer = state.len().max(offset + done as u64);
                state.note_len(longer);
            }
        }
        Ok(done)
    }

    /// Sets the length to what `len` makes of it.
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

    /// Makes all of it durable.
    pub(crate) fn sync(&self) {
        let mut state = self.state.write();
        let (low, len) = (state.low, state.len());
        state.durable.cut(low);
        let last = |(page, mut versions): (u64, Vec<_>)| Some((page, versions.pop()?));
        let written = std::mem::take(&mut state.written).into_iter().filter_map(last);
        state.durable.pages.extend(written.filter(|&(page, _)| page * (PAGE as u64) < len));
        state.settle(len);
    }

    /// Fails to write back: each sector written since the last sync is forgotten, or not.
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

    /// What was written since the last sync reaches the disk in part. Says whether the file is
    /// still there.
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

    /// Page `page` as readers see it, up to the end of the file and beyond.
    fn visible(&self, state: &State, page: u64) -> Page {
        match state.written.get(&page).and_then(|versions| versions.last()) {
            Some(last) => **last,
            None => cut_page(page, state.durable.page(&self.contents, page), state.low),
        }
    }

    /// Whether there is room for the page, or it has some already.
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

    /// `durable` is all there is, and `len` bytes long.
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

/// The page that `offset` is in, and where in it.
fn place(offset: u64) -> (u64, usize) {
    (offset / PAGE as u64, (offset % PAGE as u64) as usize)
}

/// The page with zeros from the file's offset `len` on.
fn cut_page(page: u64, mut bytes: Page, len: u64) -> Page {
    let there = len.saturating_sub(page * PAGE as u64).min(PAGE as u64) as usize;
    bytes[there..].fill(0);
    bytes
}

/// Each sector of the page stays, or becomes that of any version. In every other page they all do
/// the same.
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
