//! What metrics are called in words, and which way is better.

/// A metric as a reader wants to see it.
pub(crate) struct Words {
    /// `CPU time, × raw array in ordinary pages`.
    pub(crate) name: String,
    /// `lower is better`.
    pub(crate) better: &'static str,
}

const LOWER: &str = "lower is better";
const HIGHER: &str = "higher is better";

/// Words for the headline metrics; others keep their names.
pub(crate) fn words(metric: &str) -> Words {
    let (name, better) = match metric {
        "cpu_ratio_ordinary" => ("CPU time, × raw array in ordinary pages", LOWER),
        "cpu_ratio_pread" => ("CPU time, × one pread per access", LOWER),
        "miss_ratio" => ("accesses that missed, %", LOWER),
        "hot_hit_ratio" => ("reads of hot pages that hit, %", HIGHER),
        "writes_per_second" => ("4 KiB overwrites per second, the last sync included", HIGHER),
        "ratio_disk" => ("throughput, × 1 MiB writes past the kernel, 16 at once", HIGHER),
        "worst_ratio_disk" => ("longest write, × the disk's longest 1 MiB write", LOWER),
        "rate_ratio_quiet" => ("hits per second, × those without write-back", HIGHER),
        "p99_ratio_alone" => ("p99, × that of the same tenant alone", LOWER),
        "rate_ratio_fio" => ("throughput, × fio's in the same round", HIGHER),
        "atomic_rmw" => ("atomic read-modify-writes per hit", LOWER),
        other => (other, LOWER),
    };
    Words { name: name.to_owned(), better }
}
