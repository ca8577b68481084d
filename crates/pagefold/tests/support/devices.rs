//! Several devices. Each of them can be stopped, or made to refuse writes.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};
use sync::{Arc, SharedBytes};
use test_disks::SimulatedDisk;

/// The devices. The path `1/name` means the file `name` on device 1.
#[derive(Clone)]
pub struct Devices(Vec<Arc<Device>>);

pub struct Device {
    pub disk: SimulatedDisk,
    /// Calls made so far, refused ones included.
    writes: AtomicU64,
    syncs: AtomicU64,
    /// Writes and syncs fail.
    dead: AtomicBool,
    /// Writes that include this page of any file fail. `u64::MAX` means none.
    bad_page: AtomicU64,
    stalled: Mutex<bool>,
    /// If set, reads, and calls that query or set a length, wait as well.
    is_silent: AtomicBool,
    reads: AtomicU64,
    /// The number of calls that are waiting now.
    waiting: AtomicU64,
    goes_on: Condvar,
}

impl Devices {
    pub fn new(count: usize) -> Self {
        let device = || Device {
            disk: SimulatedDisk::default(),
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            bad_page: AtomicU64::new(u64::MAX),
            stalled: Mutex::new(false),
            is_silent: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            goes_on: Condvar::new(),
        };
        Self((0..count).map(|_| Arc::new(device())).collect())
    }

    pub fn device(&self, number: usize) -> &Device {
        &self.0[number]
    }

    /// Lets all devices continue when the returned value is dropped. At the end of a test, drops of
    /// other values may wait for a device.
    pub fn going_on_at_last(&self) -> impl Drop + use<> {
        struct GoOn(Devices);
        impl Drop for GoOn {
            fn drop(&mut self) {
                self.0.0.iter().for_each(|device| device.silence(false));
            }
        }
        GoOn(self.clone())
    }
}

impl Device {
    /// Blocks writes and syncs from now on, or lets them continue.
    pub fn stall(&self, stalled: bool) {
        *self.stalled.lock() = stalled;
        self.goes_on.notify_all();
    }

    /// Blocks all calls from now on, or lets them continue.
    pub fn silence(&self, silent: bool) {
        self.is_silent.store(silent, Ordering::SeqCst);
        self.stall(silent);
    }

    /// Reads begun so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// Calls that wait for the device to go on.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::SeqCst)
    }

    pub fn kill(&self, dead: bool) {
        self.dead.store(dead, Ordering::SeqCst);
    }

    pub fn spoil(&self, page: u64) {
        self.bad_page.store(page, Ordering::SeqCst);
    }

    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    fn wait(&self, if_stalled: bool) {
        let mut stalled = self.stalled.lock();
        while *stalled && (if_stalled || self.is_silent.load(Ordering::SeqCst)) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.goes_on.wait(&mut stalled);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn pass(&self, count: &AtomicU64) -> Result<(), IoError> {
        count.fetch_add(1, Ordering::SeqCst);
        self.wait(true);
        if self.dead.load(Ordering::SeqCst) { Err(IoError::IO) } else { Ok(()) }
    }
}

impl Backend for Devices {
    fn name(&self) -> &'static str {
        "devices"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let mut parts = path.components();
        let number = parts.next().and_then(|part| part.as_os_str().to_str()).and_then(|part| part.parse().ok());
        let device = number.and_then(|number: usize| self.0.get(number)).ok_or(IoError::NOT_FOUND)?;
        let file = device.disk.open(parts.as_path(), access)?;
        Ok(Box::new(DeviceFile { device: Arc::clone(device), file }))
    }
}

struct DeviceFile {
    device: Arc<Device>,
    file: Box<dyn BackingFile>,
}

impl BackingFile for DeviceFile {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.device.wait(false);
        self.file.len()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.device.reads.fetch_add(1, Ordering::SeqCst);
        self.device.wait(false);
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.device.pass(&self.device.writes)?;
        let bad = self.device.bad_page.load(Ordering::SeqCst);
        if (offset / 4096..(offset + len as u64).div_ceil(4096)).contains(&bad) {
            return Err(IoError::IO);
        }
        self.file.write(offset, from, len)
    }

    fn sync(&self) -> Result<(), IoError> {
        self.device.pass(&self.device.syncs)?;
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.device.wait(false);
        self.file.set_len(len)
    }

    fn lock(&self) -> Result<(), IoError> {
        self.file.lock()
    }

    fn unlock(&self) {
        self.file.unlock();
    }
}
