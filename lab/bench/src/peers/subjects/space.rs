//! Pagefold's spaces, read by address: the file is mapped, or its bytes are in anonymous memory.

use anyhow::{Context, Result};
use pagefold::{Protection, Space};

use super::Plan;
use crate::peers::contents::{PAGE, offset_of};
use crate::peers::subject::Pages;

/// All pages of the data file, in one area.
pub(super) struct SpaceArea {
    space: Space,
    start: u64,
}

impl SpaceArea {
    /// The file mapped.
    pub(super) fn mapped(plan: &Plan<'_>) -> Result<Self> {
        Self::new(plan, |space| {
            let file = space.group().open(plan.data.path()).context("pagefold cannot open the data file")?;
            Ok(space.map_file(&file, 0, offset_of(plan.data.pages()), Protection::Read)?.start)
        })
    }

    /// The file's bytes copied, so many times.
    pub(super) fn anonymous(plan: &Plan<'_>, times: u32) -> Result<Self> {
        Self::new(plan, |space| {
            let source = plan.source()?;
            let start = space.map(offset_of(plan.data.pages()), Protection::ReadWrite)?.start;
            let mut bytes = [0; PAGE];
            for page in (0..times).flat_map(|_| 0..plan.data.pages()) {
                source.read(page, 0, &mut bytes)?;
                space.write_at(&bytes, start + offset_of(page))?;
            }
            Ok(start)
        })
    }

    fn new(plan: &Plan<'_>, fill: impl FnOnce(&Space) -> Result<u64>) -> Result<Self> {
        // Anonymous memory isn't evicted here, so the budget must have room for page words, too.
        let budget = offset_of(plan.budget_pages) + offset_of(plan.data.pages()) / 4 + (64 << 20);
        let fold = pagefold::Pagefold::builder().memory(budget).page_size(PAGE).build();
        let fold = fold.with_context(|| format!("pagefold refuses a budget of {budget} bytes"))?;
        let space = fold.group("bench").build()?.space()?;
        let start = fill(&space)?;
        Ok(Self { space, start })
    }
}

impl Pages for SpaceArea {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        Ok(self.space.read_at(into, self.start + offset_of(page) + offset as u64)?)
    }
}
