//! No cache of our own: one system call for each access, served by the kernel's page cache.

use anyhow::Result;

use super::Plan;
use crate::peers::source::Source;
use crate::peers::subject::Pages;

/// A `pread` each time.
pub(super) struct Pread {
    source: Source,
}

impl Pread {
    /// Over the plan's files.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        Ok(Self { source: plan.source()? })
    }
}

impl Pages for Pread {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        self.source.read(page, offset, into)
    }
}
