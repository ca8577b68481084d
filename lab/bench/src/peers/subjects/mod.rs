//! Everything that is compared: the raw baselines, our clean ones, the peers, and Pagefold.

mod array;
mod bare_copies;
mod bare_lookup;
mod dashmap;
mod foyer;
mod mmap;
mod moka;
mod mutex_lru;
mod pagefold;
mod pread;
mod quick_cache;
mod space;
mod vmcache;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::peers::data_file::DataFile;
use crate::peers::mapping::Backing;
use crate::peers::source::Source;
use crate::peers::subject::Subject;

/// All peers use one hash function, the fastest of those that they ship, so that the tables don't
/// compare hash functions.
type Hasher = ::quick_cache::DefaultHashBuilder;

/// A subject by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A raw array in ordinary 4 KiB pages
    #[value(name = "array")]
    Array,
    /// A raw array in huge pages
    #[value(name = "array-huge")]
    ArrayHuge,
    /// An array in huge pages behind a word for each page: the minimum that a lookup must do
    BareLookup,
    /// The same with a pin: two atomic operations on a cache line that belongs to the page
    BarePin,
    /// The file mapped, all of it resident
    Mmap,
    /// One pread for each access
    Pread,
    /// The minimum of a cache of pages: one pread and a copy into memory for each miss, a copy out
    /// of it for each hit
    BareCopies,
    /// One pread past the kernel's page cache for each access
    PreadDirect,
    /// One pwrite for each access
    Pwrite,
    /// vmcache-style, optimistic readers
    Vmcache,
    /// vmcache-style, readers take a shared lock
    VmcacheShared,
    /// The dashmap crate (never evicts)
    Dashmap,
    /// The quick_cache crate
    #[value(name = "quick_cache")]
    QuickCache,
    /// The foyer-memory crate with S3-FIFO
    #[value(name = "foyer-s3fifo")]
    Foyer,
    /// The moka crate
    Moka,
    /// One mutex around an LRU map
    MutexLru,
    /// io_uring and an LRU map behind a mutex
    UringLru,
    /// The fio program, past the kernel's page cache
    Fio,
    /// Pagefold's read_at
    Pagefold,
    /// Pagefold's page(n), a pinned guard
    PagefoldPage,
    /// Pagefold's ReadQueue, many reads in one thread
    PagefoldQueue,
    /// Pagefold's page_at_async, many futures in one thread
    PagefoldAsync,
    /// Pagefold's read_at in many threads
    PagefoldThreads,
    /// Pagefold where io_uring is refused
    PagefoldNoUring,
    /// Pagefold's read_batch, 64 reads at a time
    PagefoldBatch,
    /// Pagefold's Space::read_at of a mapped file
    PagefoldMapped,
    /// Pagefold's Space::read_at of anonymous memory
    PagefoldAnonymous,
    /// The same, written to more than once
    PagefoldRewritten,
}

/// What a subject is built for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    /// The file whose pages come first.
    pub(crate) data: &'a DataFile,
    /// A second file, numbered on from the first.
    pub(crate) scanned: Option<&'a DataFile>,
    /// How many pages a subject may keep.
    pub(crate) budget_pages: u32,
}

impl Plan<'_> {
    /// Pages of all files.
    fn pages(&self) -> u32 {
        self.data.pages() + self.scanned.map_or(0, DataFile::pages)
    }

    fn source(&self) -> Result<Source> {
        Source::new(self.data, self.scanned)
    }
}

impl Kind {
    /// All that are read from memory, in the order of the tables.
    pub(crate) fn all() -> Vec<Self> {
        Self::value_variants().iter().copied().filter(|kind| !Self::APART.contains(kind)).collect()
    }

    /// Those of the experiments on a disk, or of `miss`, alone.
    const APART: [Self; 9] = [
        Self::BareCopies,
        Self::Pwrite,
        Self::PreadDirect,
        Self::UringLru,
        Self::Fio,
        Self::PagefoldQueue,
        Self::PagefoldAsync,
        Self::PagefoldThreads,
        Self::PagefoldNoUring,
    ];

    /// Those that keep to a budget.
    pub(crate) fn evicting() -> Vec<Self> {
        Self::all().into_iter().filter(|kind| kind.evicts()).collect()
    }

    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no kind is skipped").get_name().to_owned()
    }

    /// Whose row it is: all ways to use Pagefold are one subject.
    pub(crate) fn subject(self) -> String {
        if self.way().is_empty() { self.name() } else { "pagefold".to_owned() }
    }

    /// How the subject is used, as text before the workload's name; empty for the usual way.
    pub(crate) fn way(self) -> &'static str {
        match self {
            Self::PagefoldPage => "page(n), ",
            Self::PagefoldBatch => "read_batch, ",
            Self::PagefoldMapped => "a mapped file, ",
            Self::PagefoldAnonymous => "anonymous memory, ",
            Self::PagefoldRewritten => "anonymous memory written twice, ",
            _ => "",
        }
    }

    /// One of each kind: readers of a resident page evict like the others.
    fn evicts(self) -> bool {
        use Kind::{Foyer, Moka, MutexLru, Pagefold, QuickCache, Vmcache};
        matches!(self, Vmcache | QuickCache | Foyer | Moka | MutexLru | Pagefold)
    }

    /// The subject, empty unless it has no notion of that.
    pub(crate) fn build(self, plan: &Plan<'_>) -> Result<Box<dyn Subject>> {
        Ok(match self {
            Self::Array => Box::new(array::Array::new(plan, Backing::Ordinary)?),
            Self::ArrayHuge => Box::new(array::Array::new(plan, Backing::Huge)?),
            Self::BareLookup => Box::new(bare_lookup::BareLookup::<false>::new(plan)?),
            Self::BarePin => Box::new(bare_lookup::BareLookup::<true>::new(plan)?),
            Self::Mmap => Box::new(mmap::Mmap::new(plan)?),
            Self::Pread => Box::new(pread::Pread::new(plan)?),
            Self::BareCopies => Box::new(bare_copies::BareCopies::new(plan)?),
            Self::Vmcache => Box::new(vmcache::VmCache::<false>::new(plan)?),
            Self::VmcacheShared => Box::new(vmcache::VmCache::<true>::new(plan)?),
            Self::Dashmap => Box::new(dashmap::Dashmap::new(plan)?),
            Self::QuickCache => Box::new(quick_cache::QuickCache::new(plan)?),
            Self::Foyer => Box::new(foyer::Foyer::new(plan)?),
            Self::Moka => Box::new(moka::Moka::new(plan)?),
            Self::MutexLru => Box::new(mutex_lru::MutexLru::new(plan)?),
            Self::Pagefold if plan.scanned.is_some() => Box::new(pagefold::Pagefold::<true>::new(plan)?),
            Self::Pagefold => Box::new(pagefold::Pagefold::<false>::new(plan)?),
            Self::PagefoldPage => Box::new(pagefold::PinnedPages::new(plan)?),
            Self::PagefoldBatch => Box::new(pagefold::Batches::new(plan)?),
            Self::PagefoldMapped => Box::new(space::SpaceArea::mapped(plan)?),
            Self::PagefoldAnonymous => Box::new(space::SpaceArea::anonymous(plan, 1)?),
            Self::PagefoldRewritten => Box::new(space::SpaceArea::anonymous(plan, 2)?),
            // The others of `APART`.
            other => bail!("{} needs a disk", other.name()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::peers::contents::Contents;
    use crate::peers::subject::verify;
    use crate::popularity::{Distribution, Popularity};

    #[test]
    fn every_subject_hands_out_the_right_bytes_of_resident_pages() {
        let data = DataFile::new(None, 256, Contents::Pattern).unwrap();
        let plan = Plan { data: &data, scanned: None, budget_pages: 1024 };
        let sample: Vec<u32> = (0..256).rev().chain(0..256).collect();
        for kind in Kind::all() {
            let subject = kind.build(&plan).unwrap();
            verify(&*subject, &kind.name(), Contents::Pattern, &sample).unwrap();
        }
    }

    #[test]
    fn bare_copies_hand_out_the_right_bytes_and_miss_what_is_not_in_the_array() {
        let data = DataFile::new(None, 256, Contents::Pattern).unwrap();
        let subject = Kind::BareCopies.build(&Plan { data: &data, scanned: None, budget_pages: 64 }).unwrap();
        let before = subject.misses().main;
        verify(&*subject, "bare-copies", Contents::Pattern, &(0..256).collect::<Vec<_>>()).unwrap();
        assert_eq!(subject.misses().main - before, 192, "one of the three reads of each is of the whole page");
    }

    #[test]
    fn every_evicting_subject_hands_out_the_right_bytes_to_two_threads() {
        let data = DataFile::new(None, 4096, Contents::Pattern).unwrap();
        let plan = Plan { data: &data, scanned: None, budget_pages: 1024 };
        let popularity = Popularity::new(Distribution::Uniform, 4096);
        for kind in Kind::evicting() {
            let subject = kind.build(&plan).unwrap();
            thread::scope(|scope| {
                for seed in 0..2 {
                    let (subject, popularity) = (&*subject, &popularity);
                    let sample = popularity.accesses(10_000, seed);
                    scope.spawn(move || verify(subject, &kind.name(), Contents::Pattern, &sample).unwrap());
                }
            });
            // Three quarters of the 20,000 accesses are to absent pages. `verify` reads each page
            // three times. The second and third read hit, unless the policy hasn't admitted the
            // page.
            let misses = subject.misses();
            assert!((10_000..50_000).contains(&misses.main), "{}: {misses:?}", kind.name());
            assert_eq!(misses.scanned, 0);
        }
    }

    #[test]
    fn misses_are_told_apart_by_file() {
        let main = DataFile::new(None, 512, Contents::Pattern).unwrap();
        let scanned = DataFile::new(None, 2048, Contents::Zeros).unwrap();
        let plan = Plan { data: &main, scanned: Some(&scanned), budget_pages: 1024 };
        for kind in Kind::evicting() {
            let subject = kind.build(&plan).unwrap();
            verify(&*subject, &kind.name(), Contents::Pattern, &[5, 511]).unwrap();
            let mut bytes = [1; 8];
            subject.read_once(512, 0, &mut bytes).unwrap();
            subject.read_once(512 + 2047, 0, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 8]);
            let misses = subject.misses();
            assert_eq!((misses.main, misses.scanned), (2, 2), "{}", kind.name());
        }
    }
}
