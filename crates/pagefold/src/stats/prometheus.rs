//! Exports the statistics in Prometheus' text format.

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use prometheus_client::registry::Registry;
use sync::atomic::AtomicU64;

use crate::stats::swap_areas::{CompressedSwapStats, SwapAreaStats};
use crate::stats::{FileStats, GroupStats, Stats};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct GroupLabel {
    group: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AreaLabel {
    area: u32,
    name: String,
}

/// The labels of a metric whose value is always 1.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PlacementLabel {
    area: u32,
    name: String,
    placement: String,
    reason: String,
}

impl PlacementLabel {
    fn of(area: &SwapAreaStats) -> Self {
        let (placement, reason) = (area.placement.to_string(), area.placement_reason.to_string());
        Self { area: area.number, name: area.name.clone(), placement, reason }
    }
}

impl AreaLabel {
    fn of(area: &SwapAreaStats) -> Self {
        Self { area: area.number, name: area.name.clone() }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FileLabel {
    file: String,
}

type AreaGet = fn(&SwapAreaStats) -> u64;
type CompressedGet = fn(&CompressedSwapStats) -> u64;
/// Returns a share from a group's statistics.
type GroupShare = fn(&GroupStats) -> f64;
type GroupGet = fn(&GroupStats) -> u64;
type FileGet = fn(&FileStats) -> u64;

impl Stats {
    /// Returns the statistics as a Prometheus server scrapes them: OpenMetrics text, names with the
    /// prefix `pagefold_`, sizes in bytes. Serve it with the content type
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`. Needs the feature
    /// `prometheus`.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut registry = Registry::with_prefix("pagefold");
        self.register_whole(&mut registry);
        self.register_groups(&mut registry);
        self.register_swap(&mut registry);
        self.register_files(&mut registry);
        let mut text = String::new();
        // Writing to a string doesn't fail.
        let _ = encode(&mut text, &registry);
        text
    }

    fn register_whole(&self, registry: &mut Registry) {
        for (name, help, value) in [
            ("budget_bytes", "The memory budget", self.budget_bytes),
            ("used_bytes", "Memory charged to the budget", self.used_bytes),
            ("peak_bytes", "The most memory that was ever charged", self.peak_bytes),
            ("metadata_bytes", "Memory charged that isn't page frames", self.metadata_bytes),
            ("map_bytes", "Memory charged for page maps", self.map_bytes),
            ("free_bytes", "Frames that hold no page", self.free_bytes),
        ] {
            let gauge = Gauge::<i64>::default();
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            registry.register(name, help, gauge);
        }
    }

    fn register_groups(&self, registry: &mut Registry) {
        let gauges: [(&str, &str, GroupGet); 6] = [
            ("group_charged_bytes", "Memory charged to the group", |group| group.charged_bytes),
            ("group_metadata_bytes", "Memory charged to the group that isn't pages", |group| group.metadata_bytes),
            ("group_max_bytes", "The group's limit", |group| group.max_bytes),
            ("group_unclean_bytes", "Memory of the group that its files don't have yet", |group| group.unclean_bytes),
            ("group_swapped_bytes", "Memory of the group that is in swap slots", |group| group.swapped_bytes),
            ("group_peak_bytes", "The most that was ever charged to the group", |group| group.peak_bytes),
        ];
        for (name, help, get) in gauges {
            let family = Family::<GroupLabel, Gauge<i64>>::default();
            for group in self.groups.iter().filter(|group| !group.dropped) {
                let label = GroupLabel { group: group.name.clone() };
                family.get_or_create(&label).set(i64::try_from(get(group)).unwrap_or(i64::MAX));
            }
            registry.register(name, help, family);
        }
        let forecasts: [(&str, &str, GroupShare); 2] = [
            ("group_more_memory_saves", "Part of the recent loads that 10 % more memory would have avoided", |group| {
                group.more_memory_saves
            }),
            (
                "group_less_memory_costs",
                "Loads that 10 % less memory would have added, as a part of the recent ones",
                |group| group.less_memory_costs,
            ),
        ];
        for (name, help, get) in forecasts {
            let family = Family::<GroupLabel, Gauge<f64, AtomicU64>>::default();
            for group in self.groups.iter().filter(|group| !group.dropped) {
                family.get_or_create(&GroupLabel { group: group.name.clone() }).set(get(group));
            }
            registry.register(name, help, family);
        }
        let counters: [(&str, &str, GroupGet); 18] = [
            ("group_hits", "Page lookups that found the page in memory", |group| group.hits),
            ("group_misses", "Page lookups that loaded the page", |group| group.misses),
            ("group_waits", "Page lookups that waited for another thread's load", |group| group.waits),
            ("group_read_bytes", "Bytes read from files", |group| group.bytes_in),
            ("group_written_bytes", "Bytes written to files", |group| group.bytes_out),
            ("group_evictions", "Pages evicted", |group| group.evictions),
            ("group_refaults", "Pages loaded again after an eviction", |group| group.refaults),
            ("group_errors", "Loads that failed", |group| group.errors),
            ("group_direct_reclaims", "Times a thread had to reclaim for itself", |group| group.direct_reclaims),
            ("group_read_ahead", "Pages read ahead of their use", |group| group.read_ahead),
            ("group_swap_outs", "Pages without a file that left memory", |group| group.swap_outs),
            ("group_same_filled", "Pages swapped out without a slot: they repeat one word", |group| group.same_filled),
            ("group_swap_ins", "Pages without a file that came back", |group| group.swap_ins),
            ("group_swap_read_along", "Pages brought back by swap readahead", |group| group.swap_read_along),
            ("group_swap_read_along_wasted", "Swap readahead evicted unused", |group| group.swap_read_along_wasted),
            ("group_swap_read_bytes", "Bytes read from swap areas", |group| group.swap_bytes_in),
            ("group_swap_written_bytes", "Bytes written to swap areas", |group| group.swap_bytes_out),
            ("group_read_ahead_wasted", "Pages read ahead and evicted unused", |group| group.read_ahead_wasted),
        ];
        for (name, help, get) in counters {
            let family = Family::<GroupLabel, Counter>::default();
            for group in self.groups.iter().filter(|group| !group.dropped) {
                family.get_or_create(&GroupLabel { group: group.name.clone() }).inc_by(get(group));
            }
            registry.register(name, help, family);
        }
    }

    fn register_swap(&self, registry: &mut Registry) {
        let gauges: [(&str, &str, AreaGet); 2] = [
            ("swap_bytes", "Size of the swap area", |area| area.bytes),
            ("swap_used_bytes", "Used part of the swap area", |area| area.used_bytes),
        ];
        for (name, help, get) in gauges {
            let family = Family::<AreaLabel, Gauge<i64>>::default();
            for area in &self.swap {
                family.get_or_create(&AreaLabel::of(area)).set(i64::try_from(get(area)).unwrap_or(i64::MAX));
            }
            registry.register(name, help, family);
        }
        let placements = Family::<PlacementLabel, Gauge<i64>>::default();
        for area in &self.swap {
            placements.get_or_create(&PlacementLabel::of(area)).set(1);
        }
        registry.register("swap_placement", "1; its labels say how CPUs share the area's slots, and why", placements);
        let compressed = || self.swap.iter().filter_map(|area| Some((AreaLabel::of(area), area.compressed.as_ref()?)));
        let gauges: [(&str, &str, CompressedGet); 5] = [
            ("swap_compressed_max_bytes", "Memory that compressed pages may take", |area| area.limit_bytes),
            ("swap_compressed_memory_bytes", "Memory that compressed pages have taken", |area| area.memory_bytes),
            ("swap_compressed_original_bytes", "Original size of the compressed pages", |area| area.original_bytes),
            ("swap_compressed_bytes", "Compressed size of the compressed pages", |area| area.compressed_bytes),
            ("swap_zstd_pages", "Pages that are compressed with Zstandard", |area| area.zstd_pages),
        ];
        for (name, help, get) in gauges {
            let family = Family::<AreaLabel, Gauge<i64>>::default();
            for (label, area) in compressed() {
                family.get_or_create(&label).set(i64::try_from(get(area)).unwrap_or(i64::MAX));
            }
            registry.register(name, help, family);
        }
        let counters: [(&str, &str, CompressedGet); 3] = [
            ("swap_spilled", "Compressed pages that went on to other areas", |area| area.spilled_pages),
            ("swap_incompressible", "Pages refused as they don't shrink enough", |area| area.incompressible_pages),
            ("swap_no_room", "Pages refused as there was no memory for them", |area| area.no_room_pages),
        ];
        for (name, help, get) in counters {
            let family = Family::<AreaLabel, Counter>::default();
            for (label, area) in compressed() {
                family.get_or_create(&label).inc_by(get(area));
            }
            registry.register(name, help, family);
        }
    }

    fn register_files(&self, registry: &mut Registry) {
        let counters: [(&str, &str, FileGet); 10] = [
            ("file_hits", "Page lookups that found the page in memory", |file| file.hits),
            ("file_misses", "Page lookups that loaded the page", |file| file.misses),
            ("file_read_bytes", "Bytes read from the file", |file| file.bytes_in),
            ("file_written_bytes", "Bytes written to the file", |file| file.bytes_out),
            ("file_write_requests", "Write requests to the file", |file| file.write_requests),
            ("file_write_errors", "Times that writing back failed", |file| file.write_errors),
            ("file_evictions", "Pages of the file evicted", |file| file.evictions),
            ("file_errors", "Loads that failed", |file| file.errors),
            ("file_read_ahead", "Pages of the file read ahead of their use", |file| file.read_ahead),
            ("file_read_ahead_wasted", "Pages read ahead and evicted unused", |file| file.read_ahead_wasted),
        ];
        for (name, help, get) in counters {
            let family = Family::<FileLabel, Counter>::default();
            for file in &self.files {
                family.get_or_create(&FileLabel { file: file.path.display().to_string() }).inc_by(get(file));
            }
            registry.register(name, help, family);
        }
    }
}
