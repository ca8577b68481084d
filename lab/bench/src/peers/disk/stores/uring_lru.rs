//! A typical cache over io_uring: pages in an LRU map behind a mutex, and one thread that submits
//! the misses to a ring and keeps the ring full. It bypasses the kernel's page cache, so that its
//! budget is all the memory that it uses.
//!
//! Invariant U1: the kernel accesses a slot of `memory` only between the submission of the slot's
//! request and its completion. During this time the slot is in no map and in no list, so no other
//! code accesses it. [`UringLru::run`] doesn't return before all requests are completed.

use std::collections::VecDeque;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::slice;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, opcode, types};
use lru::LruCache;
use parking_lot::Mutex;

use super::Store;
use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::direct::Aligned;
use crate::peers::disk::log::Log;
use crate::peers::disk::pages;
use crate::peers::disk::workload::{Operation, Operations};
use crate::peers::mapping::{Backing, Mapping};
use crate::peers::scratch::Scratch;

/// Requests that a ring has room for: 64 operations of one page, or one of 16.
const RING: u32 = 128;

/// Pages in a map, and a ring to get them with.
pub(super) struct UringLru {
    cache: Mutex<Cache>,
    memory: Mapping,
    file: File,
}

struct Cache {
    /// From pages to slots of the memory.
    map: LruCache<u32, u32>,
    free: Vec<u32>,
}

/// An operation some of whose pages are on the way.
struct Pending {
    operation: Operation,
    start: Instant,
    /// Requests that aren't completed.
    left: u32,
    buffer: Box<[Aligned<PAGE>]>,
}

/// One request.
#[derive(Clone, Copy)]
struct Request {
    pending: usize,
    page: u32,
    slot: u32,
}

/// Whether the system has rings to give.
pub(crate) fn has_io_uring() -> bool {
    IoUring::new(RING).is_ok()
}

impl UringLru {
    /// As many pages as the budget holds; those on the way are extra.
    pub(super) fn new(file: &Scratch, budget_pages: u32) -> Result<Self> {
        let pages = NonZeroUsize::new(budget_pages as usize).context("a budget of no pages")?;
        let slots = budget_pages + RING;
        let memory = Mapping::anonymous(slots, Backing::Ordinary)?;
        let cache = Cache { map: LruCache::new(pages), free: (0..slots).rev().collect() };
        Ok(Self { cache: Mutex::new(cache), memory, file: file.open_direct()? })
    }

    /// Takes a free slot for a page to be loaded. If there is none, evicts the least recently used
    /// page and takes its slot.
    fn take_slot(&self) -> Result<u32> {
        let mut cache = self.cache.lock();
        let slot = cache.free.pop().or_else(|| cache.map.pop_lru().map(|(_, slot)| slot));
        slot.context("more pages are on the way than there is room for")
    }

    /// Makes a page that has come findable.
    fn insert(&self, page: u32, slot: u32) {
        let mut cache = self.cache.lock();
        if let Some((_, evicted)) = cache.map.push(page, slot) {
            cache.free.push(evicted);
        }
    }

    /// Copies the page if it is there.
    fn copy(&self, page: u32, into: &mut Page) -> bool {
        let mut cache = self.cache.lock();
        let Some(&slot) = cache.map.get(&page) else { return false };
        self.copy_slot(slot, into);
        true
    }

    fn copy_slot(&self, slot: u32, into: &mut Page) {
        // SAFETY: a slot that is in the map, or just completed, has no other user (U1), and lies
        // within the memory.
        into.copy_from_slice(unsafe { slice::from_raw_parts(self.memory.page(slot), PAGE) });
    }

    fn fill_slot(&self, slot: u32, page: u32, version: u64) {
        // SAFETY: a slot that was taken has no other user (U1), and lies within the memory.
        let bytes: &mut Page = unsafe { &mut *self.memory.page(slot).cast() };
        pages::fill(page, version, bytes);
    }
}

/// The ring of one thread, and what is on the way in it.
struct Flight<'a> {
    store: &'a UringLru,
    ring: IoUring,
    pending: Vec<Option<Pending>>,
    requests: Vec<Option<Request>>,
    /// Buffers of operations that are over.
    buffers: VecDeque<Box<[Aligned<PAGE>]>>,
    version: u64,
    log: Log,
}

impl Store for UringLru {
    fn run(&self, operations: &Operations, depth: usize, version: u64) -> Result<Log> {
        let mut flight = Flight {
            store: self,
            ring: IoUring::new(RING).context("io_uring isn't to be had")?,
            pending: (0..depth).map(|_| None).collect(),
            requests: vec![None; RING as usize],
            buffers: (0..depth).map(|_| Aligned::<PAGE>::zeroed_slice(operations.pages_at_once())).collect(),
            version,
            log: Log::default(),
        };
        let done = flight.run(operations);
        // Whatever happened, the kernel has to be done with our memory.
        let drained = flight.drain();
        done.and(drained).map(|()| flight.log)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().context("cannot sync")
    }
}

impl Flight<'_> {
    fn run(&mut self, operations: &Operations) -> Result<()> {
        loop {
            while let Some(free) = self.pending.iter().position(Option::is_none) {
                match operations.next() {
                    Some(operation) => self.start(free, operation)?,
                    None => return self.drain(),
                }
            }
            self.wait()?;
        }
    }

    /// Waits until all requests are completed. Returns the first error, and drops later ones.
    fn drain(&mut self) -> Result<()> {
        let mut result = Ok(());
        while self.requests.iter().any(Option::is_some) {
            if let Err(error) = self.wait() {
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Copies the pages that are there, and requests the others.
    fn start(&mut self, place: usize, operation: Operation) -> Result<()> {
        let start = Instant::now();
        let mut buffer = self.buffers.pop_front().context("no buffer is left")?;
        let mut left = 0;
        for (page, bytes) in (operation.page..).zip(&mut buffer).take(operation.pages as usize) {
            if operation.write || !self.store.copy(page, &mut bytes.0) {
                self.submit(Request { pending: place, page, slot: self.store.take_slot()? }, operation.write)?;
                left += 1;
            }
        }
        self.pending[place] = Some(Pending { operation, start, left, buffer });
        if left == 0 { self.finish(place) } else { Ok(()) }
    }

    fn submit(&mut self, request: Request, write: bool) -> Result<()> {
        let number = self.requests.iter().position(Option::is_none).context("the ring is full")?;
        let (fd, offset) = (types::Fd(self.store.file.as_raw_fd()), offset_of(request.page));
        let memory = self.store.memory.page(request.slot);
        let entry = if write {
            self.store.fill_slot(request.slot, request.page, self.version);
            opcode::Write::new(fd, memory, PAGE as u32).offset(offset).build()
        } else {
            opcode::Read::new(fd, memory, PAGE as u32).offset(offset).build()
        };
        // SAFETY: the slot was taken for this request, and no other code gets it before the request
        // is completed (U1). The file stays open as long as the store.
        unsafe { self.ring.submission().push(&entry.user_data(number as u64)) }.context("the ring is full")?;
        self.requests[number] = Some(request);
        Ok(())
    }

    /// Submits all requests, waits for at least one completion, and takes all completions.
    fn wait(&mut self) -> Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            submitted => submitted.map(drop).context("cannot wait for io_uring")?,
        }
        let completed: Vec<_> = self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        let mut result = Ok(());
        for (number, outcome) in completed {
            if let Err(error) = self.complete(number as usize, outcome) {
                result = result.and(Err(error));
            }
        }
        result
    }

    fn complete(&mut self, number: usize, outcome: i32) -> Result<()> {
        let Some(request) = self.requests.get_mut(number).and_then(Option::take) else { return Ok(()) };
        let Some(pending) = &mut self.pending[request.pending] else { return Ok(()) };
        pending.left -= 1;
        ensure!(outcome == PAGE as i32, "the disk answers {outcome} for page {}", request.page);
        if !pending.operation.write {
            let at = (request.page - pending.operation.page) as usize;
            self.store.copy_slot(request.slot, &mut pending.buffer[at].0);
        }
        self.store.insert(request.page, request.slot);
        if pending.left == 0 { self.finish(request.pending) } else { Ok(()) }
    }

    fn finish(&mut self, place: usize) -> Result<()> {
        let Some(pending) = self.pending[place].take() else { return Ok(()) };
        let Pending { operation, start, mut buffer, .. } = pending;
        let checked = if operation.write {
            self.log.wrote(operation);
            Ok(())
        } else {
            self.log.read(operation, Aligned::bytes_of(&mut buffer[..operation.pages as usize]), start.elapsed())
        };
        self.buffers.push_back(buffer);
        checked
    }
}
