//! One area: a file, a block device or memory, with a header in slot 0 and pages in the other
//! slots; or compressed pages.

use std::path::PathBuf;

use arrayvec::ArrayVec;
use io::{
    Access, Backend, BackingFile, Copies, Copy, IoError, UnderWay, read_full, read_full_vectored, uninterrupted,
    write_full,
};
use sync::atomic::{AtomicBool, AtomicU64};
use sync::lock::OnceCell;
use sync::time::Duration;
use sync::{Arc, CachePadded, SharedBytes};

use crate::allowance::{Memory, Need};
use crate::compressed::Compressed;
use crate::disk;
use crate::encryption::{self, Encryption};
use crate::error::{AddError, SwapInError, size};
use crate::header::{self, Header};
use crate::memory_file::MemoryFile;
use crate::page_out::PageOut;
use crate::placement::{Placement, PlacementReason};
use crate::seal::seal;
use crate::slot_table::StaleSlot;
use crate::slot_word::{BATCH_MAX, NUMBER_BITS, Note, SlotBatch, SlotState};
use crate::slots::Slots;
use crate::{Owner, SlotId};

/// A device counts as stalled if it has had writes pending for this long, and has completed none.
/// Pages go to a stalled device only if no other area takes them. Without this rule, one swapping
/// thread after the other would wait for that device. A disk that is merely busy completes some
/// request in a fraction of this time. If a busy disk takes longer, a few batches go to another
/// area, which does no harm.
const STALLED_AFTER: Duration = Duration::from_millis(100);

/// Where the pages of an area are kept.
#[derive(Debug)]
pub enum Source {
    /// A new file without a name, of `bytes` bytes. No other process can open it, and the system
    /// deletes it when this process ends. The file takes disk space only as it fills.
    Unlinked {
        /// The directory to create it in, or an unused name in that directory.
        at: PathBuf,
        /// Size in bytes, including the header.
        bytes: u64,
    },
    /// This file or block device. The area is as large as the file, so an empty file has no room
    /// for pages. The file is [opened alone](Access::Alone): no other area can use it, in this
    /// process or another one.
    Path(PathBuf),
    /// Memory, for tests and measurements.
    Memory {
        /// Size in bytes, including the header.
        bytes: u64,
    },
    /// Memory that keeps pages compressed. A page is refused if its compressed size is more than
    /// three quarters of a page.
    Compressed {
        /// The maximum number of bytes that compressed pages may take.
        limit: u64,
        /// The part of `limit` that is charged in advance, and kept for pages of an extent of
        /// frames that is being drained ([`Need::Drain`]).
        reserve: u64,
        /// The budget that the memory is charged to.
        memory: Arc<dyn Memory>,
    },
}

impl Source {
    fn name(&self) -> String {
        match self {
            Self::Unlinked { at, .. } => at.display().to_string(),
            Self::Path(path) => path.display().to_string(),
            Self::Memory { .. } => "memory".to_owned(),
            Self::Compressed { .. } => "compressed".to_owned(),
        }
    }
}

/// How an area is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaOptions {
    /// Areas of higher priority are filled first; areas of equal priority are used round robin.
    pub priority: i32,
    /// How slots are distributed over CPUs. `None` stands for the placement that suits the disk
    /// (see [`PlacementReason`]).
    pub placement: Option<Placement>,
    /// Creates an area in a file or device that isn't an area yet. Its old contents are lost.
    pub overwrite: bool,
    /// Encrypts the pages that are written to the area, with a key that is only in memory. Has no
    /// effect on an area of compressed memory, whose pages stay in memory unencrypted. Its old
    /// pages may move to other areas. These areas encrypt the pages only if they have this option,
    /// too.
    pub encrypted: bool,
}

/// An area in use.
pub(crate) struct Area {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) priority: i32,
    pub(crate) slots: Slots,
    pub(crate) placement_reason: PlacementReason,
    /// A thread is removing the area. Changed under `Swap::changing`.
    pub(crate) leaving: AtomicBool,
    page_size: usize,
    store: Store,
    /// For encrypted pages: the key, and what decryption needs for each slot.
    encryption: Option<Box<Encryption>>,
    /// Buffers for a device that doesn't tolerate changes to the bytes while it writes them. Pages
    /// are copied into a buffer first, and written from there. Encrypted pages don't need these
    /// buffers, because encryption has copied them already.
    copies: OnceCell<Arc<Copies>>,
    under_way: CachePadded<UnderWay>,
}

/// Why an area hasn't written pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotWritten {
    /// There is no room for the contents of a page. Another page may fit.
    NoRoom,
    /// No buffer became free in [`STALLED_AFTER`]. The next page would have to wait as well.
    NoBuffer,
    /// The device reports an error.
    Failed(IoError),
}

/// Where the pages of an area are.
enum Store {
    File(Box<dyn BackingFile>),
    Compressed(Box<Compressed>),
}

/// The smallest page size: the unit in which headers are read and written.
const HEADER_PAGE: usize = if cfg!(pagefold_loom) { 64 } else { 4096 };

/// Aligned as direct I/O requires.
#[repr(align(4096))]
struct HeaderPage([AtomicU64; HEADER_PAGE / 8]);

impl Area {
    /// Opens or creates the area that `source` describes, for pages of `page_size` bytes.
    pub(crate) fn open(
        number: u32,
        source: &Source,
        backend: &dyn Backend,
        options: AreaOptions,
        page_size: usize,
        admit: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Self, AddError> {
        let name = source.name();
        let failed = |error| AddError::OpenFailed { area: name.clone(), error };
        if options.encrypted && !encryption::IS_COMPILED_IN {
            return Err(AddError::NoEncryption { area: name });
        }
        let file = match source {
            Source::Unlinked { at, bytes } => {
                let file = uninterrupted(|| backend.open(at, Access::Unnamed)).map_err(failed)?;
                uninterrupted(|| file.set_len(*bytes)).map_err(failed)?;
                file
            }
            Source::Path(path) => uninterrupted(|| backend.open(path, Access::Alone)).map_err(|error| match error {
                IoError::BUSY => AddError::InUse { area: name.clone() },
                error => failed(error),
            })?,
            Source::Memory { bytes } => {
                let no_memory = || AddError::NoMemory { area: name.clone(), bytes: *bytes };
                Box::new(MemoryFile::new(*bytes).ok_or_else(no_memory)?)
            }
            Source::Compressed { limit, reserve, memory } => {
                let limits = (*limit, *reserve);
                return Self::open_compressed(number, name, limits, memory, options, page_size, admit);
            }
        };
        if file.is_open_to_others() {
            tracing::warn!(
                area = name,
                "other users may read what is swapped out, or change it: the swap file's mode isn't 0600"
            );
        }
        let bytes = uninterrupted(|| file.len()).map_err(failed)?;
        if let Some(room) = file.room().filter(|&room| room < bytes) {
            let [room, bytes] = [room, bytes].map(size);
            tracing::warn!(
                target: "pagefold::room",
                area = name, room, bytes,
                "a swap area that its file system has less room for"
            );
        }
        let slots = bytes / page_size as u64;
        let min = (2 * page_size).max(HEADER_PAGE) as u64;
        if bytes < min {
            return Err(AddError::TooSmall { area: name, bytes, min });
        }
        if slots > 1 << NUMBER_BITS {
            return Err(too_large(name, slots));
        }
        let is_theirs = matches!(source, Source::Path(_)) && !options.overwrite;
        let slots = if is_theirs { promised(&*file, &name, bytes, page_size)? } else { slots };
        let (placement, reason) = PlacementReason::decide(options.placement, || match source {
            Source::Memory { .. } => PlacementReason::Memory,
            _ => disk::look_up(file.identity()),
        });
        let bytes = Slots::bytes(slots) + if options.encrypted { Encryption::bytes(slots, page_size) } else { 0 };
        let no_memory = || AddError::NoMemory { area: name.clone(), bytes };
        if !admit(bytes) {
            return Err(AddError::NoRoom { area: name, bytes });
        }
        let table = Slots::new(number, slots, placement).ok_or_else(no_memory)?.with_reserve();
        let encryption = options.encrypted.then(|| Encryption::new(&name, slots, page_size)).transpose()?;
        // An encrypted area writes from buffers anyway.
        let needs_copies = file.needs_stable_bytes() && encryption.is_none();
        let copies = if needs_copies { Some(Copies::for_pages(page_size).ok_or_else(no_memory)?) } else { None };
        write_header(&*file, slots, page_size).map_err(|error| AddError::HeaderFailed { area: name.clone(), error })?;
        let area = Self::of(number, name, options.priority, page_size, table, reason, Store::File(file));
        copies.into_iter().for_each(|copies| area.needs(copies));
        Ok(Self { encryption: encryption.map(Box::new), ..area })
    }

    /// Creates an area of compressed pages, whose memory is charged to `memory`. The area takes at
    /// most `limits.0` bytes, of which `limits.1` are kept in stock. See also [`open`](Self::open).
    fn open_compressed(
        number: u32,
        name: String,
        limits: (u64, u64),
        memory: &Arc<dyn Memory>,
        options: AreaOptions,
        page_size: usize,
        admit: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Self, AddError> {
        let (limit, reserve) = limits;
        let min = Compressed::limit_min(page_size);
        if limit < min {
            return Err(AddError::TooSmall { area: name, bytes: limit, min });
        }
        if limit > memory.max() {
            return Err(AddError::BeyondMemory { area: name, bytes: limit, max: memory.max() });
        }
        let slots = Compressed::slots(limit, page_size);
        if slots > 1 << NUMBER_BITS {
            return Err(too_large(name, slots));
        }
        let bytes = Slots::bytes(slots) + Compressed::bytes(limit, page_size);
        if !admit(bytes) {
            return Err(AddError::NoRoom { area: name, bytes });
        }
        let (placement, reason) = PlacementReason::decide(options.placement, || PlacementReason::Memory);
        let table = Slots::new(number, slots, placement);
        let store = Compressed::new(limit, reserve, page_size, Arc::clone(memory));
        let (Some(table), Some(store)) = (table, store) else {
            return Err(AddError::NoMemory { area: name, bytes });
        };
        let (table, store) = (table.with_reserve(), Store::Compressed(Box::new(store)));
        Ok(Self::of(number, name, options.priority, page_size, table, reason, store))
    }

    fn of(
        number: u32,
        name: String,
        priority: i32,
        page_size: usize,
        slots: Slots,
        placement_reason: PlacementReason,
        store: Store,
    ) -> Self {
        let (leaving, under_way) = (AtomicBool::new(false), CachePadded::new(UnderWay::default()));
        let (encryption, copies) = (None, OnceCell::new());
        Self {
            number,
            name,
            priority,
            slots,
            placement_reason,
            leaving,
            page_size,
            store,
            encryption,
            copies,
            under_way,
        }
    }

    /// Returns whether both areas have their pages in the same file.
    pub(crate) fn is_where(&self, other: &Self) -> bool {
        match (&self.store, &other.store) {
            (Store::File(one), Store::File(other)) => io::is_same_file(&**one, &**other),
            _ => false,
        }
    }

    fn needs(&self, copies: Arc<Copies>) {
        let _ = self.copies.set(copies);
    }

    /// Allocates up to `want` slots, and returns how many.
    pub(crate) fn allocate(&self, want: usize, into: &mut SlotBatch) -> usize {
        let taken = self.slots.allocate(want, into);
        if taken == 0 {
            self.compressed().inspect(|compressed| compressed.becomes_crowded());
        }
        taken
    }

    /// Returns whether pages in these slots are written in one request.
    pub(crate) fn joins(&self, slot: SlotId, next: SlotId) -> bool {
        matches!(self.store, Store::File(_)) && slot.number() + 1 == next.number()
    }

    /// Writes pages to slots that are [written together](Self::joins). Each slot becomes *cached*,
    /// even if the write fails. The caller frees the slots after a failure.
    pub(crate) fn write(&self, slots: &[SlotId], pages: &[PageOut<'_>], need: Need) -> Result<(), NotWritten> {
        let mut encrypted = None;
        let mut bytes = ArrayVec::<SharedBytes<'_>, BATCH_MAX>::new();
        for (&slot, page) in slots.iter().zip(pages) {
            // Transition: slot, taken → cached.
            // The slot was allocated just now, so its number isn't stale.
            let _ = self.slots.set_cached(slot, page.frame);
            if let Store::Compressed(compressed) = &self.store
                && !compressed.write(slot.number(), page.bytes, need)
            {
                return Err(NotWritten::NoRoom);
            }
            if self.encryption.is_none() {
                self.slots.set_seal(slot, seal(page.bytes, slot, page.owner, page.group));
                bytes.push(page.bytes);
            }
        }
        let (Store::File(file), Some(first)) = (&self.store, slots.first()) else { return Ok(()) };
        if let Some(encryption) = &self.encryption {
            let pages = encryption.encrypt(slots, pages, STALLED_AFTER).ok_or(NotWritten::NoBuffer)?;
            bytes = encrypted.insert(pages).pages();
        }
        // Encrypted pages have been copied already.
        let copies = self.copies.get().filter(|_| self.encryption.is_none());
        let copy = copies.map(|copies| copies.wait_for(STALLED_AFTER).ok_or(NotWritten::NoBuffer)).transpose()?;
        // The write counts as a task of the device only after the wait for a buffer. The end of a
        // task counts as progress of the device, and a wait that ends without a buffer isn't
        // progress.
        let _under_way = self.has_device().then(|| self.under_way.begin());
        if let Some(copy) = copy {
            return self.write_from(copy, &**file, *first, &bytes);
        }
        let written = write_full(&**file, self.offset(*first), &bytes, bytes.len() * self.page_size);
        let is_changed = |(&slot, page): (&SlotId, &PageOut<'_>)| {
            seal(page.bytes, slot, page.owner, page.group) != self.slots.seal(slot)
        };
        if written.is_err_and(IoError::may_be_about_changed_bytes)
            && self.encryption.is_none()
            && slots.iter().zip(pages).any(is_changed)
            && let Some(copies) = Copies::for_pages(self.page_size)
            && let Some(copy) = copies.take()
        {
            // Sometimes: a swap device turns out to need copies.
            self.write_from(copy, &**file, *first, &bytes)?;
            self.needs(copies);
            return Ok(());
        }
        written.map_err(NotWritten::Failed)
    }

    /// Writes pages from `copy`, a buffer: copies as many pages as fit into it, writes them, and
    /// repeats this until all pages are written.
    fn write_from(
        &self,
        mut copy: Copy,
        file: &dyn BackingFile,
        first: SlotId,
        mut pages: &[SharedBytes<'_>],
    ) -> Result<(), NotWritten> {
        let mut offset = self.offset(first);
        while !pages.is_empty() {
            let some = copy.fill(pages.iter().copied());
            let bytes = copy.bytes();
            write_full(file, offset, &[bytes], bytes.len()).map_err(NotWritten::Failed)?;
            (pages, offset) = (&pages[some..], offset + bytes.len() as u64);
        }
        Ok(())
    }

    /// Reads a swapped page, verifies that it is the page that was written, and returns its note.
    pub(crate) fn read(&self, slot: SlotId, page: Owner, into: SharedBytes<'_>) -> Result<Note, SwapInError> {
        let is_read = match &self.store {
            _ if !self.holds(slot, page) => false, // The note and checksum aren't this page's.
            Store::File(file) => {
                let read = read_full(&**file, self.offset(slot), into);
                read.map(|_| true).map_err(|error| SwapInError::ReadFailed { page, error })?
            }
            Store::Compressed(compressed) => compressed.read(slot.number(), into),
        };
        let note = if is_read { self.sealed(slot, page, into) } else { None };
        note.ok_or_else(|| {
            tracing::error!(area = self.name, ?slot, page = page.number(), "a page in swap isn't what was written");
            SwapInError::SwapCorrupt { page }
        })
    }

    /// Reads pages in consecutive slots, in one request. Then calls `tell` for each page, with the
    /// page's index and with true if it is the page that was written.
    pub(crate) fn read_run(
        &self,
        run: &[(SlotId, Owner)],
        into: &[SharedBytes<'_>],
        mut tell: impl FnMut(usize, bool),
    ) -> Result<(), IoError> {
        let (Store::File(file), Some((first, _))) = (&self.store, run.first()) else { return Ok(()) };
        read_full_vectored(&**file, self.offset(*first), into)?;
        let is_page = |slot, page, bytes| self.holds(slot, page) && self.sealed(slot, page, bytes).is_some();
        let sealed = run.iter().zip(into).map(|(&(slot, page), &bytes)| is_page(slot, page, bytes));
        sealed.enumerate().for_each(|(at, is_sealed)| tell(at, is_sealed));
        Ok(())
    }

    /// Returns whether a page is in a slot.
    fn holds(&self, slot: SlotId, page: Owner) -> bool {
        self.slots.lookup(slot) == Ok(SlotState::Swapped { owner: page })
    }

    /// Decrypts `bytes`, if the area is encrypted, and verifies that they are the bytes of `page`
    /// in `slot`. If they are, returns the page's note (its group and its shadow); otherwise
    /// returns `None`.
    fn sealed(&self, slot: SlotId, page: Owner, bytes: SharedBytes<'_>) -> Option<Note> {
        let note = self.slots.note(slot).ok();
        note.filter(|note| match &self.encryption {
            Some(encryption) => encryption.decrypt(slot, page, note.group(), bytes),
            None => seal(bytes, slot, page, note.group()) == self.slots.seal(slot),
        })
    }

    /// Returns whether pages are encrypted when they are written there.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.encryption.is_some()
    }

    /// Prefetches the metadata of a slot.
    pub(crate) fn prefetch(&self, slot: SlotId) {
        self.slots.prefetch(slot);
        self.encryption.iter().for_each(|encryption| encryption.prefetch(slot));
    }

    /// Returns whether the pages are read from a device, where one request for several pages is
    /// cheaper.
    pub(crate) fn has_device(&self) -> bool {
        matches!(&self.store, Store::File(file) if !file.reads_by_copy())
    }

    /// Returns whether the device seems not to answer.
    pub(crate) fn is_stalled(&self) -> bool {
        self.under_way.has_stopped_for(STALLED_AFTER)
    }

    /// Frees a slot, which the caller must own.
    pub(crate) fn free(&self, slot: SlotId) -> Result<(), StaleSlot> {
        if let Store::Compressed(compressed) = &self.store {
            self.slots.lookup(slot)?;
            compressed.forget(slot.number());
        }
        self.slots.free(slot)
    }

    /// Makes all freed slots available, and releases memory that isn't in use.
    pub(crate) fn drain(&self) {
        self.slots.drain();
        self.compressed().inspect(|compressed| compressed.release_idle());
    }

    /// Returns whether a page that is read back may keep its slot. Two conditions must hold: the
    /// area isn't compressed memory, where the kept slot would still take memory, and at least
    /// about half of its slots are free.
    pub(crate) fn may_keep(&self, slot: SlotId) -> bool {
        self.compressed().is_none() && self.slots.may_keep(slot)
    }

    /// Returns the store of the pages, if they are compressed.
    pub(crate) fn compressed(&self) -> Option<&Compressed> {
        match &self.store {
            Store::Compressed(compressed) => Some(compressed),
            Store::File(_) => None,
        }
    }

    /// Returns the bytes that the area's tables take.
    pub(crate) fn table_bytes(&self) -> u64 {
        let slots = self.slots.table_len();
        let encryption = if self.is_encrypted() { Encryption::bytes(slots, self.page_size) } else { 0 };
        Slots::bytes(slots) + self.compressed().map_or(0, Compressed::table_bytes) + encryption
    }

    fn offset(&self, slot: SlotId) -> u64 {
        u64::from(slot.number()) * self.page_size as u64
    }
}

fn too_large(area: String, pages: u64) -> AddError {
    AddError::TooLarge { area, pages, max: 1 << NUMBER_BITS }
}

/// Reads the header of an area, and returns the number of slots that it declares.
fn promised(file: &dyn BackingFile, name: &str, bytes: u64, page_size: usize) -> Result<u64, AddError> {
    let area = || name.to_owned();
    let page = header_page();
    let shared = SharedBytes::new(&page.0);
    read_full(file, 0, shared).map_err(|error| AddError::HeaderFailed { area: area(), error })?;
    let mut encoded = [0; header::LEN];
    shared.copy_to(0, &mut encoded);
    let header = Header::decode(&encoded).map_err(|error| AddError::BadHeader { area: area(), error })?;
    if header.page_size as usize != page_size {
        let page_size = page_size as u32;
        return Err(AddError::OtherPageSize { area: area(), found: header.page_size, page_size });
    }
    let wanted = header.slots.saturating_mul(page_size as u64);
    if wanted > bytes {
        return Err(AddError::Truncated { area: area(), bytes, wanted });
    }
    if header.slots < 2 {
        return Err(AddError::TooSmall { area: area(), bytes: wanted, min: 2 * page_size as u64 });
    }
    Ok(header.slots)
}

fn write_header(file: &dyn BackingFile, slots: u64, page_size: usize) -> Result<(), IoError> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let id = sync::random::mix(now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32);
    let header = Header { page_size: page_size as u32, slots, id };
    let page = header_page();
    let shared = SharedBytes::new(&page.0);
    shared.copy_from(0, &header.encode());
    write_full(file, 0, &[shared], HEADER_PAGE)
}

fn header_page() -> Box<HeaderPage> {
    Box::new(HeaderPage(std::array::from_fn(|_| AtomicU64::new(0))))
}
