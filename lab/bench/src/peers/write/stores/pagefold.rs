//! Pagefold: one group with all of the budget.

use anyhow::{Context, Result};
use pagefold::{File, Group};

use super::{Store, WrittenBack};
use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::scratch::Scratch;

/// `write_at` and `sync`.
pub(crate) struct PagefoldStore {
    pub(crate) file: File,
    pub(crate) group: Group,
}

impl PagefoldStore {
    /// With `budget_pages` pages, metadata included.
    pub(crate) fn new(file: &Scratch, budget_pages: u32) -> Result<Self> {
        let budget = offset_of(budget_pages);
        // All memory is touched before the measurement, because a machine may take long to provide
        // memory that was never used.
        let builder = pagefold::Pagefold::builder().memory(budget).memory_max(budget).page_size(PAGE).pretouch(true);
        let fold = builder.build().with_context(|| format!("pagefold refuses a budget of {budget} bytes"))?;
        let group = fold.group("bench").max(budget).build().context("pagefold refuses the group")?;
        let file = group.open_options().write(true).open(file.path()).context("pagefold cannot open the file")?;
        Ok(Self { file, group })
    }
}

impl Store for PagefoldStore {
    fn write(&self, page: u32, bytes: &Page) -> Result<()> {
        Ok(self.file.write_at(bytes, offset_of(page))?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.file.sync()?)
    }

    fn written_back(&self) -> Option<WrittenBack> {
        let stats = self.file.stats();
        Some(WrittenBack { pages: stats.bytes_out / PAGE as u64, requests: stats.write_requests })
    }
}
