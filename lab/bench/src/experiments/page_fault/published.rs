//! What was published: million faults a second on 44 cores, 88 threads.

use super::{PRIVATE, SHARED};
use crate::scaling::experiment::{Figure, Published};

const SOURCE: &str = "Daniel Jordan, \"[RFC PATCH v2 0/8] lru_lock scalability and SMP list functions\", \
                      linux-kernel, 11 September 2018";

const fn figure(scheme: &'static str, cpus: usize, value: f64) -> Figure {
    Figure { scheme, cpus, value }
}

const fn table(workload: &'static str, about: &'static str, figures: &'static [Figure]) -> Published {
    let (machine, unit) = ("xeon-e5-2699v4", "M/s");
    Published { machine, workload, source: SOURCE, about, unit, higher_is_better: true, figures }
}

/// The tables.
pub(super) const ALL: &[Published] = &[
    table(
        PRIVATE.name,
        "will-it-scale page_fault1, each task with its own space",
        &[
            figure("baseline", 1, 0.627),
            figure("baseline", 22, 7.57),
            figure("baseline", 44, 13.45),
            figure("baseline", 88, 10.32),
            figure("free-frames", 1, 0.740),
            figure("free-frames", 22, 7.80),
            figure("free-frames", 44, 13.88),
            figure("free-frames", 88, 10.91),
            figure("lru", 1, 0.627),
            figure("lru", 22, 7.79),
            figure("lru", 44, 13.72),
            figure("lru", 88, 10.33),
            figure("both", 1, 0.736),
            figure("both", 22, 9.75),
            figure("both", 44, 15.95),
            figure("both", 88, 17.94),
        ],
    ),
    table(
        SHARED.name,
        "the same, all tasks threads of one process",
        &[
            figure("baseline", 1, 0.626),
            figure("baseline", 22, 3.13),
            figure("baseline", 44, 2.37),
            figure("baseline", 88, 2.82),
            figure("both", 1, 0.733),
            figure("both", 22, 3.37),
            figure("both", 44, 2.54),
            figure("both", 88, 2.72),
        ],
    ),
];
