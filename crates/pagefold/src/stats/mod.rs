//! Statistics: what has happened so far, in numbers.

pub(crate) mod hits;
pub(crate) mod owners;
pub(crate) mod pattern;
#[cfg(feature = "prometheus")]
pub(crate) mod prometheus;
pub(crate) mod swap_areas;

use std::fmt;
use std::path::PathBuf;

use sync::ThreadCounter;
use sync::atomic::{AtomicU64, Ordering};

use crate::size::Size;
use crate::stats::pattern::AccessPattern;
use crate::stats::swap_areas::SwapAreaStats;

/// The events that a group, or a file, counts. Some events happen with every miss. Once such an
/// event has happened more than a few times, each thread adds to its own number
/// ([`ThreadCounter`]). So threads with misses don't contend for a cache line.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Hits of closed handles.
    pub(crate) hits: AtomicU64,
    pub(crate) misses: ThreadCounter,
    pub(crate) bytes_in: ThreadCounter,
    pub(crate) refaults: ThreadCounter,
    pub(crate) waits: AtomicU64,
    pub(crate) evictions: ThreadCounter,
    pub(crate) errors: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Only of files.
    pub(crate) write_requests: AtomicU64,
    /// Only of files.
    pub(crate) write_errors: AtomicU64,
    pub(crate) direct_reclaims: ThreadCounter,
    /// Pages read ahead, and those of them that left memory unused.
    pub(crate) read_ahead: AtomicU64,
    pub(crate) read_ahead_wasted: AtomicU64,
}

impl Counters {
    /// Adds to a shared counter. Relaxed: a statistic.
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts pages loaded with one request of `bytes` bytes. Pages that were read ahead aren't
    /// misses.
    pub(crate) fn loaded_run(&self, pages: u64, bytes: usize, ahead: bool) {
        if ahead {
            Self::add(&self.read_ahead, pages);
        } else {
            self.misses.add(pages);
        }
        self.bytes_in.add(bytes as u64);
    }

    /// Counts a page loaded from `bytes` bytes.
    pub(crate) fn loaded(&self, bytes: usize, refault: bool) {
        self.misses.add(1);
        self.bytes_in.add(bytes as u64);
        if refault {
            self.refaults.add(1);
        }
    }
}

/// The statistics of a whole Pagefold, at about one moment. Sizes are in bytes. `Serialize` needs
/// the feature `serde`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// let stats = mm.stats();
/// assert!(stats.used_bytes <= stats.budget_bytes);
/// println!("{stats}"); // A table; `to_prometheus` (a feature) has the same for a scraper.
/// for group in &stats.groups {
///     println!("{}: {} hits, {} misses", group.name, group.hits, group.misses);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// The budget.
    pub budget_bytes: u64,
    /// What is charged: frames with memory, including free frames; page maps; other metadata.
    pub used_bytes: u64,
    /// The most that was ever charged at once.
    pub peak_bytes: u64,
    /// The part of `used_bytes` that isn't frames.
    pub metadata_bytes: u64,
    /// The part of `metadata_bytes` that is page maps.
    pub map_bytes: u64,
    /// Frames that have memory but hold no page.
    pub free_bytes: u64,
    /// Bytes in a page.
    pub page_bytes: u64,
    /// How often the background reclaimer woke up.
    pub reclaimer_wakeups: u64,
    /// Frames that are out of use for good, because their generations are used up.
    pub retired_frames: u64,
    /// Each swap area.
    pub swap: Vec<SwapAreaStats>,
    /// Each group.
    pub groups: Vec<GroupStats>,
    /// Each open file.
    pub files: Vec<FileStats>,
}

/// The statistics of a group. Sizes are in bytes. `Serialize` needs the feature `serde`.
///
/// Hits, misses and waits count lookups of files' pages, so a read of three pages counts as three.
/// Accesses to a space's own memory aren't counted, because counting would take longer than the
/// access itself. When such an access brings a page back from swap, `swap_ins` counts the page.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// let file = group.open("data")?;
/// (0..2).try_for_each(|_| file.read_exact_at(&mut [0; 4096], 0))?;
/// let stats = group.stats();
/// assert_eq!((stats.misses, stats.hits, stats.hit_rate()), (1, 1, 0.5));
/// assert!(stats.charged_bytes <= stats.max_bytes);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GroupStats {
    /// The group's name.
    pub name: String,
    /// Whether all handles of the group were dropped. Such a group exists until its last page
    /// leaves memory. A new group may have the same name.
    pub dropped: bool,
    /// Its limit.
    pub max_bytes: u64,
    /// Memory charged to it now.
    pub charged_bytes: u64,
    /// The part of `charged_bytes` that isn't pages: indexes of spaces, and page words, including
    /// those of swapped pages. This part can't be evicted, but page words that no page needs are
    /// freed before pages are evicted.
    pub metadata_bytes: u64,
    /// The most that was ever charged to it at once.
    pub peak_bytes: u64,
    /// Lookups that found their page in memory. While a handle is being closed, its lookups are
    /// briefly missing.
    pub hits: u64,
    /// Lookups that loaded their page.
    pub misses: u64,
    /// Lookups that waited for another thread's load and got its page or its error.
    pub waits: u64,
    /// Bytes read from files.
    pub bytes_in: u64,
    /// Bytes of whole pages written to files and synced.
    pub bytes_out: u64,
    /// Written data that the files lack, or may lose in a power cut.
    pub unclean_bytes: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Loads of pages that had been evicted before. The number may be too low. A page map remembers
    /// which of its pages were evicted; but when memory is short, the parts of the map that have no
    /// page in memory are freed, and what they remember is lost.
    pub refaults: u64,
    /// How the group's pages are used, as far as the recent loads tell.
    pub pattern: AccessPattern,
    /// The part of the recent loads that 10 % more memory would have avoided, from 0 to 1. A rough
    /// estimate from refault intervals; see `docs/log/policy.md`.
    pub more_memory_saves: f64,
    /// The loads that 10 % less memory would have added, as a part of the recent loads: 0.5 stands
    /// for 50 % more loads. A rough estimate, too.
    pub less_memory_costs: f64,
    /// Loads that failed.
    pub errors: u64,
    /// How often a thread had to reclaim for itself.
    pub direct_reclaims: u64,
    /// Pages loaded by readahead, before any reader asked for them. They don't count as misses. A
    /// reader that reaches such a page after it has arrived has a hit.
    pub read_ahead: u64,
    /// Those of them that left memory unused.
    pub read_ahead_wasted: u64,
    /// Anonymous pages that left memory.
    pub swap_outs: u64,
    /// Those of them that needed no slot, because they repeat one word.
    pub same_filled: u64,
    /// Anonymous pages that were swapped in.
    pub swap_ins: u64,
    /// The pages of `swap_ins` that swap readahead brought in, before any thread asked for them.
    /// While the group's slots are being read in order, a fault on one slot also brings back pages
    /// from the slots next to it.
    pub swap_read_along: u64,
    /// Pages of swap readahead that left memory unused.
    pub swap_read_along_wasted: u64,
    /// Bytes read from swap areas.
    pub swap_bytes_in: u64,
    /// Bytes written to swap areas.
    pub swap_bytes_out: u64,
    /// Memory of the group in swap slots now.
    pub swapped_bytes: u64,
}

/// The statistics of a file. Sizes are in bytes. `Serialize` needs the feature `serde`. See also
/// [`GroupStats`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// let file = group.open_options().write(true).open("data")?;
/// file.write_at(&[1; 4096], 0)?;
/// assert_eq!(file.stats().unclean_bytes, 4096);
/// file.sync()?;
/// assert_eq!((file.stats().unclean_bytes, file.stats().bytes_out), (0, 4096));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FileStats {
    /// The path it was first opened with.
    pub path: PathBuf,
    /// Its length in bytes.
    pub len: u64,
    /// Lookups that found their page in memory. While a handle is being closed, its lookups are
    /// briefly missing.
    pub hits: u64,
    /// Lookups that loaded their page.
    pub misses: u64,
    /// Lookups that waited for another thread's load and got its page or its error.
    pub waits: u64,
    /// Bytes read from the file.
    pub bytes_in: u64,
    /// Bytes written to the file.
    pub bytes_out: u64,
    /// The requests in which these bytes were written.
    pub write_requests: u64,
    /// Written data that the file lacks, or may lose in a power cut.
    pub unclean_bytes: u64,
    /// Whether a call gave up waiting for the file's device
    /// ([`Builder::io_timeout`](crate::Builder::io_timeout)), and the device hasn't answered since.
    pub device_silent: bool,
    /// How often write-back, or a sync, failed.
    pub write_errors: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Loads of pages that had been evicted before. The number may be too low. A page map remembers
    /// which of its pages were evicted; but when memory is short, the parts of the map that have no
    /// page in memory are freed, and what they remember is lost.
    pub refaults: u64,
    /// Loads that failed.
    pub errors: u64,
    /// Pages loaded before any reader asked for them.
    pub read_ahead: u64,
    /// Those of them that left memory unused.
    pub read_ahead_wasted: u64,
}

impl GroupStats {
    /// Returns the number of lookups of files' pages.
    fn lookups(&self) -> u64 {
        self.hits + self.misses + self.waits
    }

    /// Returns hits as a share of all lookups of files' pages, from 0 to 1; 0 before the first
    /// lookup.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let lookups = self.lookups();
        if lookups == 0 { 0.0 } else { self.hits as f64 / lookups as f64 }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes| Size(bytes).to_string();
        writeln!(
            f,
            "memory {} of {} (peak {}): {} free, {} metadata of which {} page maps",
            size(self.used_bytes),
            size(self.budget_bytes),
            size(self.peak_bytes),
            size(self.free_bytes),
            size(self.metadata_bytes),
            size(self.map_bytes),
        )?;
        writeln!(
            f,
            "{:<16} {:>10} {:>10} {:>10} {:>12} {:>12} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "group",
            "charged",
            "metadata",
            "max",
            "hits",
            "misses",
            "hit rate",
            "in",
            "out",
            "unclean",
            "evictions",
            "refaults"
        )?;
        for group in &self.groups {
            let counted = group.lookups() > 0;
            let or_dash = |text: String| if counted { text } else { "–".to_owned() };
            writeln!(
                f,
                "{:<16} {:>10} {:>10} {:>10} {:>12} {:>12} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10}",
                group.name,
                size(group.charged_bytes),
                size(group.metadata_bytes),
                size(group.max_bytes),
                or_dash(group.hits.to_string()),
                or_dash(group.misses.to_string()),
                or_dash(format!("{:.2}%", 100.0 * group.hit_rate())),
                size(group.bytes_in),
                size(group.bytes_out),
                size(group.unclean_bytes),
                group.evictions,
                group.refaults,
            )?;
        }
        for group in self.groups.iter().filter(|group| group.pattern != AccessPattern::Fits) {
            writeln!(
                f,
                "{}: {}; about {:.0}% of the loads less with 10% more memory, {:.0}% more with 10% less",
                group.name,
                group.pattern,
                100.0 * group.more_memory_saves,
                100.0 * group.less_memory_costs
            )?;
        }
        for group in self.groups.iter().filter(|group| group.swap_outs > 0) {
            writeln!(
                f,
                "{}: {} swapped, {} pages out ({} same-filled), {} in ({} read along, {} of them unused)",
                group.name,
                size(group.swapped_bytes),
                group.swap_outs,
                group.same_filled,
                group.swap_ins,
                group.swap_read_along,
                group.swap_read_along_wasted
            )?;
        }
        for area in &self.swap {
            write!(
                f,
                "swap {} ({}): {} of {}, priority {}, {} ({})",
                area.number,
                area.name,
                size(area.used_bytes),
                size(area.bytes),
                area.priority,
                area.placement,
                area.placement_reason
            )?;
            if let Some(compressed) = &area.compressed {
                write!(
                    f,
                    "; {} compressed to {} in {} of {}, {} pages by zstd, {} refused, {} spilled",
                    size(compressed.original_bytes),
                    size(compressed.compressed_bytes),
                    size(compressed.memory_bytes),
                    size(compressed.limit_bytes),
                    compressed.zstd_pages,
                    compressed.incompressible_pages + compressed.no_room_pages,
                    compressed.spilled_pages
                )?;
            }
            writeln!(f)?;
        }
        for file in &self.files {
            writeln!(
                f,
                "{}: {}, {} hits, {} misses, {} read, {} written, {} unclean, {} evictions",
                file.path.display(),
                size(file.len),
                file.hits,
                file.misses,
                size(file.bytes_in),
                size(file.bytes_out),
                size(file.unclean_bytes),
                file.evictions
            )?;
        }
        Ok(())
    }
}
