//! Tenants that do one thing as fast as they can.

use pagefold::{File, Group, PageRef, Protection, Space};
use sync::atomic::{AtomicBool, Ordering};

use super::devices::{Device, FILE_BYTES};
use crate::random::Random;

const PAGE: u64 = 4096;
/// Bytes that a hog maps, uses and unmaps at a time.
const AREA: u64 = 64 << 10;
/// Files that it opens in turn.
const FILES: u32 = 1000;

/// What a hog does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Hog {
    /// Reads a file from end to end
    Scan,
    /// Reads random pages of a file that is a thousand times as large as the budget
    Sparse,
    /// Overwrites random pages of a file
    Dirty,
    /// The same, on a device that is full
    DirtyFull,
    /// The same, on a device that answers no write
    DirtyStalled,
    /// Keeps as many pages pinned as it may
    Pin,
    /// Maps, touches and unmaps memory
    Map,
    /// Opens files, reads a page of each, closes them
    Open,
    /// Writes to random pages of more memory than the budget has
    Swap,
    /// Makes groups, each with a file of which it reads a few pages
    Groups,
}

impl Hog {
    /// As on the command line.
    pub(super) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether the experiment needs a swap area.
    pub(super) fn swaps(self) -> bool {
        self == Self::Swap
    }

    fn device(self) -> Device {
        match self {
            Self::DirtyFull => Device::Full,
            Self::DirtyStalled => Device::Stalled,
            _ => Device::Healthy,
        }
    }

    /// Works until `stop`, even if calls are refused. Returns the number of steps.
    pub(super) fn run(
        self,
        group: &Group,
        make_group: &dyn Fn(u64) -> Option<Group>,
        pages: u64,
        stop: &AtomicBool,
    ) -> u64 {
        let work = Work { group, pages, stop, random: Random::new(5), steps: 0 };
        match self {
            Self::Scan => work.scan(),
            Self::Sparse => work.read_sparsely(),
            Self::Dirty | Self::DirtyFull | Self::DirtyStalled => work.write(self.device()),
            Self::Pin => work.pin(),
            Self::Map => work.map(),
            Self::Open => work.open(),
            Self::Swap => work.swap(),
            Self::Groups => work.groups(make_group),
        }
    }
}

struct Work<'a> {
    group: &'a Group,
    /// Of the budget.
    pages: u64,
    stop: &'a AtomicBool,
    random: Random,
    steps: u64,
}

impl Work<'_> {
    /// Whether to go on; counts a step.
    fn goes_on(&mut self) -> bool {
        self.steps += 1;
        // Relaxed: the flag alone.
        !self.stop.load(Ordering::Relaxed)
    }

    fn file(&self, device: Device, number: u64, write: bool) -> Option<File> {
        let path = format!("/{}/{number}", device.directory());
        self.group.open_options().write(write).open(path).ok()
    }

    fn below(&mut self, pages: u64) -> u64 {
        u64::from(self.random.below(u32::try_from(pages).unwrap_or(u32::MAX)))
    }

    fn scan(mut self) -> u64 {
        let Some(file) = self.file(Device::Healthy, 0, false) else { return 0 };
        let mut bytes = [0; PAGE as usize];
        while self.goes_on() {
            let _ = file.read_at(&mut bytes, self.steps * PAGE % FILE_BYTES);
        }
        self.steps
    }

    fn read_sparsely(mut self) -> u64 {
        let Some(file) = self.file(Device::Healthy, 0, false) else { return 0 };
        let mut bytes = [0; PAGE as usize];
        while self.goes_on() {
            let page = self.below(FILE_BYTES / PAGE);
            let _ = file.read_at(&mut bytes, page * PAGE);
        }
        self.steps
    }

    fn write(mut self, device: Device) -> u64 {
        let Some(file) = self.file(device, 0, true) else { return 0 };
        while self.goes_on() {
            let page = self.below(2 * self.pages);
            let _ = file.write_at(&[3; PAGE as usize], page * PAGE);
        }
        self.steps
    }

    fn pin(mut self) -> u64 {
        let Some(file) = self.file(Device::Healthy, 0, false) else { return 0 };
        let mut pinned: Vec<PageRef<'_>> = Vec::new();
        while self.goes_on() {
            match file.page_at(self.steps * PAGE) {
                Ok(page) => pinned.push(page),
                Err(_) => pinned.truncate(pinned.len() / 2),
            }
        }
        self.steps
    }

    fn space(&self) -> Option<Space> {
        self.group.space().ok()
    }

    fn map(mut self) -> u64 {
        let Some(space) = self.space() else { return 0 };
        while self.goes_on() {
            let Ok(area) = space.map(AREA, Protection::ReadWrite) else { continue };
            for address in area.clone().step_by(PAGE as usize) {
                let _ = space.write_at(&[7; 8], address);
            }
            let _ = space.unmap(area);
        }
        self.steps
    }

    fn open(mut self) -> u64 {
        let mut bytes = [0; PAGE as usize];
        while self.goes_on() {
            let number = self.below(u64::from(FILES));
            if let Some(file) = self.file(Device::Healthy, number, false) {
                let _ = file.read_at(&mut bytes, 0);
            }
        }
        self.steps
    }

    fn swap(mut self) -> u64 {
        let Some(space) = self.space() else { return 0 };
        let Ok(area) = space.map(2 * self.pages * PAGE, Protection::ReadWrite) else { return 0 };
        while self.goes_on() {
            let page = self.below(2 * self.pages);
            let _ = space.write_at(&self.steps.to_ne_bytes(), area.start + page * PAGE);
        }
        self.steps
    }

    fn groups(mut self, make_group: &dyn Fn(u64) -> Option<Group>) -> u64 {
        let mut bytes = [0; PAGE as usize];
        while self.goes_on() {
            let Some(group) = make_group(self.steps) else { continue };
            let Ok(file) = group.open(format!("/healthy/{}", self.steps)) else { continue };
            for page in 0..4 {
                let _ = file.read_at(&mut bytes, page * PAGE);
            }
        }
        self.steps
    }
}
