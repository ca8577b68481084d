//! The index of a space, which tells what is mapped at each page. Readers take no lock. `tree` has
//! the layout of the index's words.
//!
//! A thread that changes entries first locks their pages, and checks that the pages are mapped, or
//! are about to be mapped. Then it makes the tables that the change needs. In one case tables are
//! made without a lock: if a single entry covers a page's whole region or more, the first write to
//! the page makes the tables below that entry. Tables are charged to the space (`account`), and
//! freed when nothing is mapped in them (`tidy`).

use std::ops::Range;

use frames::{BeginWrite, MapInWord, PageMaps, TABLE_BYTES, Table, Tables, Writer};
use sync::atomic::{AtomicU64, Ordering, fence};
use sync::lock::Mutex;
use sync::{Arc, Weak};

use super::SpaceState;
use super::account::{Account, Payer};
use super::address::Pages;
use super::entry::Entry;
use super::region::{RECORD_BYTES, REGION_PAGES, Region};
use super::slots::Slots;
use super::tree::{
    self, GRANULE_SHIFT, NOTED, PART_SHIFT, PARTS, REGION_SHIFT, Seen, Trail, Tree, Way, is_link, map_of,
};
use crate::error::Error;
use crate::manager::Manager;

const GRANULE_PAGES: u64 = 1 << GRANULE_SHIFT;
const PART_PAGES: u64 = 1 << PART_SHIFT;
/// Words in a table.
const WORDS: u64 = GRANULE_PAGES;
/// Set in a link of the top level if nothing is mapped in the part of the space that the link
/// covers. The table of that part then has no memory, and its words read as zeros.
const BARE: u64 = NOTED;

/// The index, and the records of its regions.
pub(super) struct Index {
    tree: Tree,
    frames: Arc<frames::Frames>,
    /// Kept at hand for lookups.
    maps: PageMaps,
    regions: Slots<Region>,
    records: Mutex<Records>,
    account: Account,
    /// The space whose index this is.
    space: Weak<SpaceState>,
}

/// The records of regions, by their slot numbers.
#[derive(Default)]
struct Records {
    made: u32,
    /// Records that belong to no region, and may be used again.
    unused: Vec<u32>,
    /// Records that belong to no region now, but had a word in use when last checked (REGION-1).
    in_use: Vec<u32>,
}

/// What a table is made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A change of entries. Their pages are locked.
    Change,
    /// A first touch of a page, without a lock. It makes no table where nothing is mapped any more,
    /// because no thread would free that table later.
    Touch,
}

/// What became of a table that was perhaps not needed any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Close {
    Closed,
    Needed,
}

/// Returns whether `pages`, which must lie in one granule, are the whole granule.
fn is_whole(pages: Range<u64>) -> bool {
    pages.end - pages.start == GRANULE_PAGES
}

impl Index {
    /// Creates the empty index of a new space, whose charges are in `account`.
    pub(super) fn new(manager: &Manager, account: Account, space: Weak<SpaceState>) -> Self {
        let frames = Arc::clone(&manager.memory.frames);
        let maps = PageMaps::new(Arc::clone(&frames));
        Self { tree: Tree::new(), frames, maps, regions: Slots::new(), records: Mutex::default(), account, space }
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    fn tables(&self) -> &Tables {
        self.frames.tables()
    }

    // ---- looking

    /// Returns the way to a page. See [`Tree::way`].
    #[inline(always)]
    pub(super) fn way<'a>(&'a self, maps: &'a PageMaps, page: u64) -> Option<Result<Way<'a>, Seen<'a>>> {
        self.tree.way(maps, page)
    }

    /// Returns the trail to a page's entry. See [`Tree::trail`].
    #[inline]
    pub(super) fn trail(&self, page: u64) -> Option<Trail<'_>> {
        self.tree.trail(&self.maps, page)
    }

    /// Returns the record of the region that a trail goes through.
    pub(super) fn region_of(&self, trail: &Trail<'_>) -> &Region {
        self.record(trail.link())
    }

    /// Starts to write to the page of own memory that a trail leads to.
    #[inline(always)]
    pub(super) fn begin_write(&self, trail: &Trail<'_>, page: u64) -> BeginWrite<'_> {
        self.maps.begin_write(MapInWord(trail.link()), page)
    }

    /// Returns a writer of the page of own memory that a trail leads to. Called by threads that may
    /// wait until the page can be written.
    #[inline]
    pub(super) fn writer(&self, trail: &Trail<'_>, page: u64) -> Writer<'_> {
        self.maps.writer(MapInWord(trail.link()), page)
    }

    /// Returns a page's entry, as it is at one moment.
    pub(super) fn entry(&self, page: u64) -> Entry {
        Entry(self.tree.look(&self.maps, page).entry)
    }

    /// Returns a page's entry, as it is at one moment, and the record of the page's region. If the
    /// region has no record, none of its pages was ever written.
    pub(super) fn look(&self, page: u64) -> (Entry, Option<&Region>) {
        let found = self.tree.look(&self.maps, page);
        (Entry(found.entry), found.region.map(|link| self.record(link)))
    }

    /// Returns a page's entry, and the end of a run of pages that begins with this page. All pages
    /// of the run are known to have this entry.
    pub(super) fn run(&self, page: u64) -> (Entry, u64) {
        self.run_up_to(page, page + 1)
    }

    /// Returns what [`run`](Self::run) returns, or a longer run. If the entry is in a leaf, this
    /// also compares the words of the pages that follow, up to `end`, so it may find more pages
    /// with that entry.
    fn run_up_to(&self, page: u64, end: u64) -> (Entry, u64) {
        let (found, end) = self.tree.look_up_to(&self.maps, page, end);
        (Entry(found.entry), end)
    }

    /// Returns a page's entry, and the first page of a run that ends with this page. All pages of
    /// the run have this entry. Pages before the run may have it, too.
    pub(super) fn run_back(&self, page: u64) -> (Entry, u64) {
        let found = self.tree.look(&self.maps, page);
        (Entry(found.entry), page >> found.shift << found.shift)
    }

    /// Returns the runs of pages with the same entry, in order. Unmapped pages form runs, too.
    pub(super) fn runs(&self, pages: Pages) -> impl Iterator<Item = (Pages, Entry)> {
        let mut at = pages.first;
        std::iter::from_fn(move || {
            let first = at;
            let mut same = None;
            while at < pages.end {
                let (entry, end) = self.run_up_to(at, pages.end);
                if *same.get_or_insert(entry) != entry {
                    break;
                }
                at = end.min(pages.end);
            }
            Some((Pages { first, end: at }, same?))
        })
    }

    /// Returns the record of the region that a link leads to.
    fn record(&self, link: u64) -> &Region {
        // Relaxed: the slot was stored before the link (Release), and the caller has loaded the
        // link (Acquire).
        let slot = self.tables().note_of_map(map_of(link)).load(Ordering::Relaxed);
        let region = self.regions.get(slot).expect("a region's map has its slot");
        region.linked(link); // REGION-3
        region
    }

    /// Returns the records of the regions that `pages` overlap, each with the part of `pages` that
    /// lies in the region. The part's pages are numbered from the region's first page.
    pub(super) fn regions(&self, pages: Pages) -> impl Iterator<Item = (&Region, Range<u64>)> {
        let mut at = pages.first;
        std::iter::from_fn(move || {
            while at < pages.end {
                let first = at;
                let part = self.tree.top(at)?.load(Ordering::Acquire);
                if !is_link(part) || part & BARE != 0 {
                    at = (at | (PART_PAGES - 1)) + 1;
                    continue;
                }
                at = (at | (REGION_PAGES - 1)) + 1;
                let link = self.tables().word(Table::from_bits(part), first >> REGION_SHIFT).load(Ordering::Acquire);
                if is_link(link) {
                    let base = first & !(REGION_PAGES - 1);
                    return Some((self.record(link), first - base..at.min(pages.end) - base));
                }
            }
            None
        })
    }

    /// All pages that a space may have.
    pub(super) const ALL: Pages = Pages { first: 0, end: (PARTS as u64) << PART_SHIFT };

    /// Returns a record, and the first page of the region that it serves now. Returns `None` if the
    /// record serves no region.
    pub(super) fn region_of_slot(&self, slot: u32) -> Option<(&Region, u64)> {
        let region = self.regions.get(slot)?;
        Some((region, region.first())).filter(|(_, first)| *first < Self::ALL.end)
    }

    /// Removes the space's regions from the table of page owners (`manager::page_owners`), so that
    /// no page word leads to the space any more.
    pub(super) fn forget(&self, manager: &Manager) {
        let made = self.records.lock().made;
        (0..made)
            .filter_map(|slot| self.regions.get(slot))
            .for_each(|region| manager.spaces.forget(region.map.first_word()));
    }

    // ---- tables

    /// Makes all tables that a change of the entries of `pages` needs, so that the change can't
    /// fail. The caller has locked the pages.
    pub(super) fn prepare(&self, payer: Payer<'_>, pages: Pages) -> Result<(), Error> {
        if pages.first >> GRANULE_SHIFT == pages.end >> GRANULE_SHIFT {
            return self.split(payer, pages.end); // One leaf has both ends.
        }
        for at in (pages.first & !(PART_PAGES - 1)..pages.end).step_by(PART_PAGES as usize) {
            let is_cut = at < pages.first || pages.end - at < PART_PAGES;
            let word = self.top_word(at);
            if is_cut || is_link(word.load(Ordering::Acquire)) {
                self.part(payer, at, Cause::Change)?;
            }
        }
        [pages.first, pages.end].into_iter().try_for_each(|at| self.split(payer, at))
    }

    /// Makes tables so that the pages on both sides of `at` have different words.
    fn split(&self, payer: Payer<'_>, at: u64) -> Result<(), Error> {
        if at.is_multiple_of(PART_PAGES) {
            return Ok(());
        }
        let part = self.part(payer, at, Cause::Change)?;
        let Some(part) = part.filter(|_| !at.is_multiple_of(REGION_PAGES)) else { return Ok(()) };
        let link = self.region_link(payer, part, at, Cause::Change)?;
        let Some(link) = link.filter(|_| !at.is_multiple_of(GRANULE_PAGES)) else { return Ok(()) };
        self.leaf(payer, link, at)
    }

    /// Returns the record of a page's region, which has the page's word. Makes the record if there
    /// is none. Returns `None` if nothing is mapped at the page.
    pub(super) fn region_for_page(&self, payer: Payer<'_>, page: u64) -> Result<Option<&Region>, Error> {
        match self.look(page) {
            (_, Some(region)) => return Ok(Some(region)),
            (Entry::NONE, None) => return Ok(None),
            (_, None) => {}
        }
        // If the page was unmapped meanwhile, no table is needed. This thread, which has no lock,
        // must not make one.
        let Some(part) = self.part(payer, page, Cause::Touch)? else { return Ok(None) };
        let link = self.region_link(payer, part, page, Cause::Touch)?;
        Ok(link.map(|link| self.record(link)))
    }

    fn top_word(&self, page: u64) -> &AtomicU64 {
        self.tree.top(page).expect("the page is in the space")
    }

    /// Returns the table of the part that contains a page. If the part has no table, makes one. If
    /// its table is `BARE`, charges the table's memory. Exception: if the cause is a touch, and
    /// nothing is mapped in the part, makes nothing and returns `None`.
    fn part(&self, payer: Payer<'_>, page: u64, cause: Cause) -> Result<Option<Table>, Error> {
        let word = self.top_word(page);
        loop {
            let now = word.load(Ordering::Acquire);
            if is_link(now) && now & BARE == 0 {
                return Ok(Some(Table::from_bits(now)));
            }
            if cause == Cause::Touch && (now == 0 || is_link(now)) {
                return Ok(None);
            }
            self.account.charge(payer, TABLE_BYTES)?;
            let linked = if is_link(now) {
                // AcqRel, here and below: a table is filled before the link to it is stored
                // (TREE-2).
                word.compare_exchange(now, now & !BARE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            } else {
                self.link_table(payer, word, now)?
            };
            if !linked {
                self.account.uncharge(payer, TABLE_BYTES); // Another thread was faster, or changed what is mapped.
            }
        }
    }

    fn link_table(&self, payer: Payer<'_>, word: &AtomicU64, entry: u64) -> Result<bool, Error> {
        tree::link_table(self.tables(), word, entry).map_err(|error| {
            self.account.uncharge(payer, TABLE_BYTES);
            Error::no_memory(error)
        })
    }

    fn leaf(&self, payer: Payer<'_>, link: u64, page: u64) -> Result<(), Error> {
        let word = self.tables().word_of_map(map_of(link), page >> GRANULE_SHIFT);
        loop {
            let now = word.load(Ordering::Acquire);
            if is_link(now) {
                return Ok(());
            }
            self.account.charge(payer, TABLE_BYTES)?;
            if !self.link_table(payer, word, now)? {
                self.account.uncharge(payer, TABLE_BYTES);
            }
        }
    }

    /// Returns the link to a page's region, and makes the region's record if need be. Returns
    /// `None` if the cause is a touch, and nothing is mapped in the region.
    fn region_link(&self, payer: Payer<'_>, part: Table, page: u64, cause: Cause) -> Result<Option<u64>, Error> {
        let word = self.tables().word(part, page >> REGION_SHIFT);
        loop {
            let now = word.load(Ordering::Acquire);
            if is_link(now) {
                return Ok(Some(now));
            }
            if cause == Cause::Touch && now == 0 {
                return Ok(None);
            }
            let (slot, region) = self.take_record(payer)?;
            let table = |at| self.tables().word_of_map(region.map_number(), at);
            (0..WORDS).for_each(|at| table(at).store(now, Ordering::Release)); // As in `link_table`.
            let link = region.begin(page >> REGION_SHIFT);
            if word.compare_exchange(now, link, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(Some(link));
            }
            self.end_record(payer, slot, region);
        }
    }

    /// Takes a record that belongs to no region, or makes one. Charges its table.
    fn take_record(&self, payer: Payer<'_>) -> Result<(u32, &Region), Error> {
        self.account.charge(payer, TABLE_BYTES)?;
        let uncharge = |bytes| self.account.uncharge(payer, bytes);
        {
            let mut records = self.records.lock();
            let Records { unused, in_use, .. } = &mut *records;
            in_use.retain(|&slot| {
                let is_in_use = self.regions.get(slot).is_some_and(Region::is_in_use);
                if !is_in_use {
                    unused.push(slot);
                }
                is_in_use
            });
            if let Some(slot) = unused.pop() {
                return Ok((slot, self.regions.get(slot).expect("a record that was made")));
            }
        }
        self.account.charge(payer, RECORD_BYTES).inspect_err(|_| uncharge(TABLE_BYTES))?;
        let region = Region::new(payer.manager);
        let region = region.and_then(|region| payer.prepare_place(region.map.first_word()).map(|()| region));
        let region = region.inspect_err(|_| uncharge(TABLE_BYTES + RECORD_BYTES))?;
        let slot = {
            let mut records = self.records.lock();
            records.made += 1;
            records.made - 1
        };
        self.tables().note_of_map(region.map_number()).store(slot, Ordering::Relaxed);
        self.regions.fill(slot, region);
        let region = self.regions.get(slot).expect("it was filled");
        if let Some(space) = self.space.upgrade() {
            payer.manager.spaces.note(region.map.first_word(), space, slot, payer.group.id);
            payer.group.parts.add_map(region.map.first_word());
        } else {
            debug_assert!(false, "a space that is gone gets a record: a part would be charged to no group");
        }
        Ok((slot, region))
    }

    /// Gives back a record to which no link leads, and the memory of its table.
    fn end_record(&self, payer: Payer<'_>, slot: u32, region: &Region) {
        let again = region.end();
        fence(Ordering::SeqCst); // REGION-1
        let is_in_use = region.is_in_use();
        payer.manager.give_back_idle_parts(&region.map);
        self.tables().discard_of_map(region.map_number());
        self.account.uncharge(payer, TABLE_BYTES);
        if again {
            let mut records = self.records.lock();
            if is_in_use { records.in_use.push(slot) } else { records.unused.push(slot) }
        }
    }

    // ---- changing

    /// Changes the entries of pages. The caller has locked and [prepared](Self::prepare) them.
    pub(super) fn change(&self, payer: Payer<'_>, pages: Pages, to: impl Fn(Entry) -> Entry) {
        let to = |entry: u64| to(Entry(entry)).0;
        let mut at = pages.first;
        while at < pages.end {
            let top = self.top_word(at);
            let part = top.load(Ordering::Acquire);
            if !is_link(part) {
                // Release pairs with the Acquire of `look`. The exchange fails if a first touch,
                // which takes no lock, has made the word a link.
                if top.compare_exchange(part, to(part), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    at = (at | (PART_PAGES - 1)) + 1;
                }
                continue;
            }
            let word = self.tables().word(Table::from_bits(part), at >> REGION_SHIFT);
            let link = word.load(Ordering::Acquire);
            if !is_link(link) {
                let new = to(link);
                if new == link || word.compare_exchange(link, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    at = (at | (REGION_PAGES - 1)) + 1;
                }
                continue;
            }
            let granule = self.tables().word_of_map(map_of(link), at >> GRANULE_SHIFT);
            let end = ((at | (GRANULE_PAGES - 1)) + 1).min(pages.end);
            let leaf = granule.load(Ordering::Acquire);
            if is_link(leaf) {
                self.change_leaf(payer, granule, leaf, at..end, to);
            } else {
                // All of the granule is locked, so no other thread changes the word. If the caller
                // had locked only a part of the granule, `prepare` would have given the granule a
                // leaf.
                debug_assert!(is_whole(at..end), "a part of a granule without a leaf");
                granule.store(to(leaf), Ordering::Release);
            }
            at = end;
        }
    }

    /// Changes pages of a leaf. If they are all pages of the leaf, and have the same entry
    /// afterwards, gives the leaf back.
    fn change_leaf(
        &self,
        payer: Payer<'_>,
        granule: &AtomicU64,
        leaf: u64,
        pages: Range<u64>,
        to: impl Fn(u64) -> u64,
    ) {
        let word = |page| self.maps.table_word(Table::from_bits(leaf), page);
        let is_whole = is_whole(pages.clone());
        let (mut last, mut changed) = (u64::MAX, 0); // No entry.
        for page in pages {
            let word = word(page);
            // Relaxed: only a thread that has locked the page changes its word. Release pairs with
            // the Acquire of `look`.
            let entry = word.load(Ordering::Relaxed);
            if entry != last {
                (last, changed) = (entry, to(entry));
            }
            word.store(changed, Ordering::Release);
        }
        if is_whole {
            self.close_leaf(payer, granule, leaf);
        }
    }

    /// Replaces a granule's leaf by one entry if all pages of the granule have the same entry. The
    /// caller must have locked the whole granule.
    fn close_leaf(&self, payer: Payer<'_>, granule: &AtomicU64, leaf: u64) -> Close {
        if !tree::close_leaf(self.tables(), granule, leaf) {
            return Close::Needed;
        }
        self.account.uncharge(payer, TABLE_BYTES);
        Close::Closed
    }

    // ---- what isn't needed any more: see `tidy`

    /// Returns the first page of each part with a table, among the parts that `pages` touch.
    pub(super) fn parts(&self, pages: Pages) -> impl Iterator<Item = u64> {
        let parts = (pages.first & !(PART_PAGES - 1)..pages.end).step_by(PART_PAGES as usize);
        parts.filter(|&first| {
            let part = self.top_word(first).load(Ordering::Acquire);
            is_link(part) && part & BARE == 0
        })
    }

    /// Marks the smallest table that covers `page`, for [`close`](Self::close). Returns the base-2
    /// logarithm of the number of pages that the table covers, and the first of these pages.
    /// Returns `None` if there is no table, or if the table was marked already. Exception: a table
    /// directly below the top level can't be marked, so it is returned each time. The caller must
    /// have locked at least one page of the granule that contains `page`.
    pub(super) fn mark(&self, page: u64) -> Option<(u32, u64)> {
        let part = self.top_word(page).load(Ordering::Acquire);
        if !is_link(part) || part & BARE != 0 {
            return None;
        }
        let region = self.tables().word(Table::from_bits(part), page >> REGION_SHIFT);
        let link = region.load(Ordering::Acquire);
        if !is_link(link) {
            return Some((PART_SHIFT, page >> PART_SHIFT << PART_SHIFT));
        }
        let granule = self.tables().word_of_map(map_of(link), page >> GRANULE_SHIFT);
        let leaf = granule.load(Ordering::Acquire);
        let (word, now, shift) =
            if is_link(leaf) { (granule, leaf, GRANULE_SHIFT) } else { (region, link, REGION_SHIFT) };
        // Relaxed: the mark is a hint.
        let is_new = now & NOTED == 0 && word.fetch_or(NOTED, Ordering::Relaxed) & NOTED == 0;
        is_new.then_some((shift, page >> shift << shift))
    }

    /// Frees the table that has the words for the 2^`shift` pages from `first` on, if the table
    /// isn't needed any more. The caller must have locked all of these pages.
    pub(super) fn close(&self, payer: Payer<'_>, shift: u32, first: u64) -> Close {
        let top = self.top_word(first);
        let part = top.load(Ordering::Acquire);
        if !is_link(part) || part & BARE != 0 {
            return Close::Needed;
        }
        let table = Table::from_bits(part);
        if shift == PART_SHIFT {
            if (0..WORDS).any(|at| self.tables().word(table, at).load(Ordering::Acquire) != 0) {
                return Close::Needed;
            }
            top.fetch_or(BARE, Ordering::AcqRel);
            self.tables().discard(table);
            self.account.uncharge(payer, TABLE_BYTES);
            return Close::Closed;
        }
        let word = self.tables().word(table, first >> REGION_SHIFT);
        let link = word.load(Ordering::Acquire);
        if !is_link(link) {
            return Close::Needed;
        }
        let granule = |at| self.tables().word_of_map(map_of(link), at);
        if shift == GRANULE_SHIFT {
            let word = granule(first >> GRANULE_SHIFT);
            let leaf = word.load(Ordering::Acquire);
            if !is_link(leaf) {
                return Close::Needed;
            }
            word.fetch_and(!NOTED, Ordering::Relaxed);
            return self.close_leaf(payer, word, leaf);
        }
        word.fetch_and(!NOTED, Ordering::Relaxed);
        if (0..WORDS).any(|at| granule(at).load(Ordering::Acquire) != 0) {
            return Close::Needed;
        }
        let region = self.record(link);
        let slot = self.tables().note_of_map(map_of(link)).load(Ordering::Relaxed);
        word.store(0, Ordering::Release);
        self.end_record(payer, slot, region);
        Close::Closed
    }

    /// Gives everything back when the space is dropped.
    pub(super) fn clear(&self, payer: Payer<'_>) {
        for first in (0..Self::ALL.end).step_by(PART_PAGES as usize) {
            let part = self.top_word(first).load(Ordering::Acquire);
            if !is_link(part) {
                continue;
            }
            let table = Table::from_bits(part);
            let links = (0..WORDS).filter(|_| part & BARE == 0).map(|at| self.tables().word(table, at));
            for link in links.map(|word| word.load(Ordering::Acquire)).filter(|&word| is_link(word)) {
                let leaves = (0..WORDS).map(|at| self.tables().word_of_map(map_of(link), at).load(Ordering::Acquire));
                leaves.filter(|&leaf| is_link(leaf)).for_each(|leaf| self.tables().give_back(Table::from_bits(leaf)));
                self.tables().discard_of_map(map_of(link));
            }
            self.tables().give_back(table);
        }
        let made = self.records.lock().made;
        for region in (0..made).filter_map(|slot| self.regions.get(slot)) {
            payer.manager.give_back_parts(&region.map);
            payer.group.parts.remove_map(region.map.first_word());
        }
        self.account.uncharge_all(payer);
    }
}
