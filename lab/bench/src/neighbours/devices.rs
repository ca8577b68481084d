//! Devices without contents. Each request takes the same time. A device serves as many requests at
//! once as there are threads for them.
//!
//! A path is `/DEVICE/NUMBER`. Files are long, read as zeros, and forget what is written to them.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use sync::lock::{Condvar, Mutex};
use sync::thread::sleep;
use sync::time::Duration;
use sync::{Arc, SharedBytes};

/// What a request takes: that of a solid-state disk.
pub(super) const LATENCY: Duration = Duration::from_micros(100);
/// Bytes of each file.
pub(super) const FILE_BYTES: u64 = 1 << 34;

/// A device of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// The quiet tenant's.
    Quiet,
    /// One that works.
    Healthy,
    /// One that refuses writes with `ENOSPC`.
    Full,
    /// One that answers no write until it is released.
    Stalled,
}

impl Device {
    /// The directory of its files.
    pub(super) fn directory(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Healthy => "healthy",
            Self::Full => "full",
            Self::Stalled => "stalled",
        }
    }

    fn of(path: &Path) -> Option<Self> {
        let directory = path.parent()?.file_name()?.to_str()?;
        [Self::Quiet, Self::Healthy, Self::Full, Self::Stalled]
            .into_iter()
            .find(|device| device.directory() == directory)
    }
}

/// All devices. Clones are the same ones.
#[derive(Clone, Default)]
pub(super) struct Devices {
    stall: Arc<Stall>,
}

/// Where writes to the stalled device wait.
#[derive(Default)]
struct Stall {
    is_over: Mutex<bool>,
    ended: Condvar,
}

impl Devices {
    /// Lets the stalled device answer.
    pub(super) fn release(&self) {
        *self.stall.is_over.lock() = true;
        self.stall.ended.notify_all();
    }
}

impl Backend for Devices {
    fn name(&self) -> &'static str {
        "devices"
    }

    fn open(&self, path: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let device = Device::of(path).ok_or(IoError::NOT_FOUND)?;
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok()).ok_or(IoError::NOT_FOUND)?;
        Ok(Box::new(File { device, number, stall: Arc::clone(&self.stall) }))
    }
}

struct File {
    device: Device,
    number: u64,
    stall: Arc<Stall>,
}

impl File {
    fn wait(&self) {
        if self.device == Device::Stalled {
            let mut is_over = self.stall.is_over.lock();
            while !*is_over {
                self.stall.ended.wait(&mut is_over);
            }
        }
        sleep(LATENCY);
    }
}

impl BackingFile for File {
    fn identity(&self) -> Identity {
        Identity { device: self.device as u64 + 1, inode: self.number }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(FILE_BYTES)
    }

    fn read(&self, _: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        sleep(LATENCY);
        into.iter().for_each(|slice| slice.zero_from(0));
        Ok(into.iter().map(SharedBytes::len).sum())
    }

    fn write(&self, _: u64, _: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.wait();
        if self.device == Device::Full { Err(IoError::NO_SPACE) } else { Ok(len) }
    }

    fn sync(&self) -> Result<(), IoError> {
        self.wait();
        Ok(())
    }
}
