//! What the tasks of a run do.

/// What the tasks of a run do.
#[derive(Debug)]
pub(crate) struct Workload {
    /// On the command line and in records.
    pub(crate) name: &'static str,
    /// In a sentence.
    pub(crate) about: &'static str,
}

impl Workload {
    /// The names of two workloads: each task in a memory group of its own, and all tasks in one
    /// group.
    pub(crate) const GROUPS: &str = "groups";
    pub(crate) const ONE_GROUP: &str = "one-group";
}
