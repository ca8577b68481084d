//! Advice that pages will be needed soon. In a group with a limit of 16 MiB, [`Advice::WillNeed`]
//! for a file of 512 MiB read the whole file: each part evicted the part that was read before it,
//! and also pages that the group was using. The advice must read no more than fits, and must not
//! evict pages in use. If a load of several pages fails, it must also load each of them alone.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Helping, Identity, IoError, Queue, Request};
use pagefold::{Advice, Error, File, Group, Pagefold, Protection};
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{Arc, SharedBytes};
use test_disks::SimulatedDisk;

use crate::hooked::fill;
use crate::support::{disk, manager};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const LIMIT: u64 = 16 * MIB;
const LARGE: u64 = 512 * MIB;

struct World {
    disk: SimulatedDisk,
    /// The files of this manager's backend have 512 MiB each.
    mm: Pagefold,
    group: Group,
    hot: File,
    large: File,
}

/// A way to say that a range of a file will be needed.
type Advise = fn(&World, u64);
const WAYS: [(&str, Advise); 3] = [
    ("advise", |world, len| world.large.advise(0..len, Advice::WillNeed).unwrap()),
    ("prefetch", |world, len| world.large.prefetch(0..len)),
    ("a space's advise", |world, len| {
        let space = world.group.space().unwrap();
        let area = space.map_file(&world.large, 0, len, Protection::Read).unwrap();
        space.advise(area, Advice::WillNeed).unwrap();
    }),
];

impl World {
    /// If `is_group_limited`, the group has a limit of 16 MiB; otherwise, the whole budget is 17
    /// MiB.
    fn new(is_group_limited: bool) -> Self {
        let disk = disk(2, LARGE);
        disk.answer_by_hand();
        let memory = if is_group_limited { 4 * LIMIT } else { LIMIT + MIB };
        let mm = Pagefold::builder().memory(memory).backend(disk.clone()).build().unwrap();
        let builder = mm.group("ours");
        let group = if is_group_limited { builder.max(LIMIT) } else { builder }.build().unwrap();
        let (hot, large) = (group.open("f0").unwrap(), group.open("f1").unwrap());
        hot.advise(0..0, Advice::Random).unwrap();
        Self { disk, mm, group, hot, large }
    }

    /// Uses the hot file's first `pages` pages. Returns how many of them had to be read.
    fn use_hot(&self, pages: u64) -> u64 {
        let before = self.disk.stats().requests;
        (0..pages).for_each(|page| self.hot.read_exact_at(&mut [0; 100], page * PAGE).unwrap());
        self.disk.stats().requests - before
    }

    /// Gives the advice. Returns how many bytes were read for it.
    fn bytes_read(&self, advise: Advise, len: u64) -> u64 {
        let before = self.disk.stats().bytes;
        advise(self, len);
        while self.disk.answer_next() {}
        self.disk.stats().bytes - before
    }
}

#[test]
fn pages_in_use_stay_when_more_is_advised_than_fits() {
    for (name, advise) in WAYS {
        for is_group_limited in [true, false] {
            // Half of the limit, and nearly all of it.
            for pages in [LIMIT / PAGE / 2, LIMIT / PAGE * 15 / 16] {
                let world = World::new(is_group_limited);
                for _ in 0..4 {
                    world.use_hot(pages);
                }
                assert_eq!(world.use_hot(pages), 0, "there is room for them");
                let read = world.bytes_read(advise, LARGE);
                assert!(read <= LIMIT, "{name}: {} MiB were read", read / MIB);
                assert_eq!(world.use_hot(pages), 0, "{name}, {is_group_limited}, {pages} pages: pages in use went");
                assert!(world.mm.stats().used_bytes <= world.mm.stats().budget_bytes);
            }
        }
    }
}

/// Advice doesn't evict pages that another tenant is using, either.
#[test]
fn anothers_pages_in_use_stay() {
    for (name, advise) in WAYS {
        let world = World::new(false);
        let other = world.mm.group("other").build().unwrap().open("f0").unwrap();
        let pages = LIMIT / PAGE * 14 / 16;
        let use_all = || {
            let before = world.disk.stats().requests;
            (0..pages).for_each(|page| other.read_exact_at(&mut [0; 100], page * PAGE).unwrap());
            world.disk.stats().requests - before
        };
        other.advise(0..0, Advice::Random).unwrap();
        for _ in 0..4 {
            use_all();
        }
        assert_eq!(use_all(), 0, "there is room for them");
        world.bytes_read(advise, LARGE);
        assert_eq!(use_all(), 0, "{name}: pages in use went");
    }
}

/// In a full group, advice evicts pages that were used only once.
#[test]
fn pages_that_were_used_once_give_way() {
    for (name, advise) in WAYS {
        let world = World::new(true);
        world.use_hot(2 * LIMIT / PAGE);
        let read = world.bytes_read(advise, 4 * MIB);
        assert!(read >= 4 * MIB, "{name}: {} KiB", read >> 10);
        let before = world.disk.stats().requests;
        world.large.read_exact_at(&mut vec![0; 4 * MIB as usize], 0).unwrap();
        assert_eq!(world.disk.stats().requests, before, "{name}: it wasn't kept");
    }
}

/// A file of eight pages. Requests are performed only when a thread waits for them. A read of
/// several pages fails, and so does each read of page 0.
#[derive(Clone, Default)]
struct BadFirstPage {
    submitted: Arc<Mutex<Vec<Request>>>,
    reads: Arc<AtomicU64>,
}

impl Backend for BadFirstPage {
    fn name(&self) -> &'static str {
        "bad first page"
    }

    fn open(&self, _: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(self.clone()))
    }
}

impl BackingFile for BadFirstPage {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: 7 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(8 * PAGE)
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match into {
            [page] if offset > 0 => Ok(fill(offset, *page, 8 * PAGE, 7)),
            _ => Err(IoError::IO),
        }
    }

    fn submit(&self, requests: &mut Vec<Request>) -> Queue {
        self.submitted.lock().append(requests);
        Queue::default()
    }

    fn help_as(&self, _: &Queue, _: Helping, _: &dyn Fn() -> bool) {
        let submitted = std::mem::take(&mut *self.submitted.lock());
        submitted.into_iter().for_each(|request| request.run(self));
    }
}

/// While `advise` waited for a page, the page's load failed together with that of its neighbours.
/// `advise` left the page out, and returned no error. It must load such a page alone.
#[test]
fn a_page_whose_run_fails_while_advice_waits_for_it_is_loaded_alone() {
    let backend = BadFirstPage::default();
    let mm = manager(64, backend.clone());
    let file = mm.group("ours").build().unwrap().open("file").unwrap();
    let told = file.advise(0..8 * PAGE, Advice::WillNeed);
    assert!(matches!(told, Err(Error::ReadFailed { page: 0, .. })), "{told:?}");
    file.advise(PAGE..8 * PAGE, Advice::WillNeed).unwrap();
    let reads = backend.reads.load(Ordering::SeqCst);
    file.read_exact_at(&mut [0; 7 * PAGE as usize], PAGE).unwrap();
    assert_eq!(backend.reads.load(Ordering::SeqCst), reads, "a page isn't in memory");
}
