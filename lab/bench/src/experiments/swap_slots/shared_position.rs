//! Before the change and after it: where the next free slot is looked for is all the difference.

use super::trunked::{Position, Trunked};
use super::{held_ns, measure};
use crate::scaling::experiment::Scheme;

/// The design before.
pub(super) const BEFORE: Scheme = Scheme {
    name: "shared-position",
    about: "all CPUs look for a free slot from the same place on; the swap cache has a lock for each 64 MiB",
    hidden: false,
    measure: |job| measure(job, |tasks| Trunked::new(Position::Shared, tasks, held_ns(job))),
};

/// The published one.
pub(super) const AFTER: Scheme = Scheme {
    name: "cpu-positions",
    about: "each CPU looks from its own place on, which jumps to a random 64 MiB when it comes to others",
    hidden: false,
    measure: |job| measure(job, |tasks| Trunked::new(Position::Own, tasks, held_ns(job))),
};
