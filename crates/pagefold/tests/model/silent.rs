//! A device that now and then doesn't answer, and an `io_timeout`.
//!
//! Any call may fail with `DeviceTimeout`: because the device doesn't answer, or because a thread
//! of a device that does answer got no CPU for as long as the timeout. So no verdict depends on the
//! clock. But a call must fail in no other way. A call that fails may have done a part of its work,
//! or the device may do it later. Once the device answers, a further call shows which. So does
//! another opening, if the last handle was closed meanwhile.

use std::ops::AddAssign;
use std::path::Path;
use std::time::Duration;

use pagefold::io::{Access, Backend};
use pagefold::{Advice, Error, File, Group, Pagefold, ReadRequest};
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::random::Random;
use test_disks::SimulatedDisk;

use crate::batches::wait_for;
use crate::support::devices::Devices;
use crate::support::{assert_same, bytes_on, eventually, manager_in_time, version};

/// A call to a device that doesn't answer takes this long, unless an earlier call took as long.
const TIME: Duration = Duration::from_millis(20);
const STEPS: u64 = 150;
const FILES: u64 = 2;
const PAGES: u64 = 48;
const PAUSE: Duration = Duration::from_micros(100);

/// A device that can be told not to answer.
enum Device {
    /// All calls wait, or writes and syncs alone.
    Gated { devices: Devices, reads_too: bool },
    /// Requests wait for a thread that answers them by hand, in any order. Other calls don't wait.
    ByHand { disk: SimulatedDisk, is_silent: Arc<AtomicBool>, is_over: Arc<AtomicBool>, thread: Option<Thread> },
}

type Thread = std::thread::JoinHandle<()>;

impl Device {
    fn new(random: &mut Random) -> Self {
        let add = |disk: &SimulatedDisk| {
            (0..FILES).for_each(|at| disk.add_generated(format!("f{at}"), at, PAGES * 4096 - 100));
        };
        if random.one_in(2) {
            let devices = Devices::new(1);
            add(&devices.device(0).disk);
            return Self::Gated { devices, reads_too: random.one_in(2) };
        }
        let disk = SimulatedDisk::default();
        add(&disk);
        disk.reorder(random.next_u64());
        disk.answer_by_hand();
        let (is_silent, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (its, silent, over) = (disk.clone(), Arc::clone(&is_silent), Arc::clone(&is_over));
        let answer = move || {
            while !over.load(Ordering::SeqCst) {
                if silent.load(Ordering::SeqCst) || !its.answer_next() {
                    std::thread::sleep(PAUSE);
                }
            }
        };
        Self::ByHand { disk, is_silent, is_over, thread: Some(std::thread::spawn(answer)) }
    }

    fn silence(&self, silent: bool) {
        match self {
            Self::Gated { devices, .. } if !silent => devices.device(0).silence(false),
            Self::Gated { devices, reads_too: true } => devices.device(0).silence(true),
            Self::Gated { devices, .. } => devices.device(0).stall(true),
            Self::ByHand { is_silent, .. } => is_silent.store(silent, Ordering::SeqCst),
        }
    }

    fn disk(&self) -> &SimulatedDisk {
        match self {
            Self::Gated { devices, .. } => &devices.device(0).disk,
            Self::ByHand { disk, .. } => disk,
        }
    }

    fn path(&self, at: usize) -> String {
        match self {
            Self::Gated { .. } => format!("0/f{at}"),
            Self::ByHand { .. } => format!("f{at}"),
        }
    }

    fn manager(&self, pages: u64) -> Pagefold {
        match self {
            Self::Gated { devices, .. } => manager_in_time(pages, devices.clone(), Some(TIME)),
            Self::ByHand { disk, .. } => manager_in_time(pages, disk.clone(), Some(TIME)),
        }
    }
}

/// Lets the device answer, so that a test that fails doesn't hang.
impl Drop for Device {
    fn drop(&mut self) {
        self.silence(false);
        if let Self::ByHand { disk, is_over, thread, .. } = self {
            is_over.store(true, Ordering::SeqCst);
            let _ = thread.take().map(Thread::join);
            while disk.answer_next() {}
        }
    }
}

fn is_timeout<T>(result: &Result<T, Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::DeviceTimeout { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Repeats a call that times out, until the device's answers have arrived.
fn again<T>(what: &str, mut call: impl FnMut() -> Result<T, Error>) -> T {
    let mut done = None;
    eventually(what, || {
        let result = call();
        if !is_timeout(&result) {
            done = result.ok();
        }
        done.is_some()
    });
    done.expect("it is done")
}

struct Model {
    at: usize,
    /// `None` from the closing of the last handle until the device is made to answer.
    file: Option<File>,
    /// What the file may hold. There is more than one possibility after a change that timed out.
    may_be: Vec<Vec<u8>>,
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) timeouts: u64,
    pub(crate) synced: u64,
    pub(crate) changed_late: u64,
    pub(crate) opened_again: u64,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        self.timeouts += more.timeouts;
        self.synced += more.synced;
        self.changed_late += more.changed_late;
        self.opened_again += more.opened_again;
    }
}

struct World {
    device: Device,
    random: Random,
    group: Group,
    files: Vec<Model>,
    versions: u64,
    seen: Seen,
}

/// Opens a file while the device answers: opening has no timeout. The worker that has just closed
/// the file may not have released its lock yet.
fn open(device: &Device, group: &Group, at: usize) -> File {
    let mut file = None;
    eventually("no file is opened", || {
        file = match group.open_options().write(true).open(device.path(at)) {
            Err(Error::FileInUse { .. } | Error::DeviceTimeout { .. }) => None,
            opened => Some(opened.expect("no other failure")),
        };
        file.is_some()
    });
    file.expect("it is open")
}

pub(crate) fn run(seed: u64) -> Seen {
    let mut random = Random::seeded(seed);
    let device = Device::new(&mut random);
    let mm = device.manager(64 + random.below(256));
    let group = mm.group("a").build().unwrap();
    let model = |at: usize| {
        let file = Some(open(&device, &group, at));
        Model { at, file, may_be: vec![bytes_on(device.disk(), format!("f{at}"))] }
    };
    let files = (0..FILES as usize).map(model).collect();
    let mut world = World { device, random, group, files, versions: seed << 20, seen: Seen::default() };
    for _ in 0..STEPS {
        world.step();
    }
    world.answer();
    let World { device, files, group, seen, .. } = world;
    for Model { at, file, may_be } in &files {
        let file = file.as_ref().expect("all are open");
        again("no sync is answered", || file.sync());
        assert_eq!(file.stats().unclean_bytes, 0, "f{at} is synced");
        assert_same(&bytes_on(device.disk(), format!("f{at}")), &may_be[0], &format!("f{at} on disk"));
    }
    drop(files);
    eventually("charges are leaked", || group.charged() == 0 && mm.stats().files.is_empty());
    drop(group);
    eventually("frames are lost", || {
        let stats = mm.stats();
        stats.free_bytes + stats.retired_frames * stats.page_bytes == stats.used_bytes - stats.metadata_bytes
    });
    seen
}

impl World {
    fn step(&mut self) {
        let at = self.random.below(FILES) as usize;
        let Some(file) = self.files[at].file.clone() else {
            self.look_at_lock(at);
            return self.answer();
        };
        let len = self.files[at].may_be[0].len() as u64;
        let offset = self.random.below(len + 5000);
        let size = if self.random.one_in(2) { self.random.below(300) } else { self.random.below(20_000) };
        let is_settled = self.files[at].may_be.len() == 1;
        match self.random.below(24) {
            0 => self.device.silence(true),
            1 | 2 => self.answer(),
            3..8 if is_settled => self.write(at, &file, offset, size as usize),
            8 if is_settled => self.set_len(at, &file, (len + size).saturating_sub(offset / 4)),
            9 if is_settled => self.change_page(at, &file, offset / 4096),
            10 | 11 => {
                let result = if self.random.one_in(2) { file.sync() } else { file.close() };
                if !self.timed_out(&result) {
                    self.seen.synced += 1;
                    self.is_on_disk(at, 0..u64::MAX);
                }
            }
            12 => {
                let result = file.sync_range(offset..offset + size);
                if !self.timed_out(&result) {
                    self.is_on_disk(at, offset..offset + size);
                }
            }
            13 => file.prefetch(offset..offset + 10 * size),
            14 => {
                let advice = [Advice::DontNeed, Advice::WillNeed, Advice::Random, Advice::Normal, Advice::PageOut];
                let result = file.advise(offset..offset + 10 * size, advice[self.random.below(5) as usize]);
                self.timed_out(&result);
            }
            15 => {
                let path = self.device.path(at);
                let result = self.group.open_options().write(true).open(path);
                if !self.timed_out(&result) {
                    self.files[at].file = result.ok();
                }
            }
            16 => {
                let mut buffers = vec![vec![0xa5; 5000]; 6];
                let places: Vec<_> = (0..6).map(|_| self.random.below(len + 5000)).collect();
                let requests = places.iter().zip(&mut buffers);
                let mut batch: Vec<_> = requests.map(|(&offset, into)| ReadRequest::new(offset, into)).collect();
                file.read_batch(&mut batch);
                for ReadRequest { offset, into, result } in batch {
                    if !self.timed_out(&result) {
                        self.is_there(at, offset, &into[..result.expect("no timeout")], 5000);
                    }
                }
            }
            17 => {
                let mut bytes = vec![0xa5; size as usize];
                let result = wait_for(file.read_at_async(&mut bytes, offset));
                if !self.timed_out(&result) {
                    self.is_there(at, offset, &bytes[..result.expect("no timeout")], size);
                }
            }
            18 | 19 if !is_settled || self.random.one_in(6) => self.close_last(at, file),
            _ => {
                let mut bytes = vec![0xa5; size as usize];
                let result = file.read_at(&mut bytes, offset);
                if !self.timed_out(&result) {
                    self.is_there(at, offset, &bytes[..result.expect("no timeout")], size);
                }
            }
        }
    }

    fn timed_out<T>(&mut self, result: &Result<T, Error>) -> bool {
        let timed_out = is_timeout(result);
        self.seen.timeouts += u64::from(timed_out);
        timed_out
    }

    /// These bytes were read, with a call for `wanted` bytes. If a worker is making the file
    /// shorter meanwhile, they may end anywhere from the new end to the old one.
    fn is_there(&self, at: usize, offset: u64, found: &[u8], wanted: u64) {
        let there = |bytes: &Vec<u8>| {
            let start = bytes.len().min(offset as usize);
            start..bytes.len().min(offset as usize + wanted as usize)
        };
        let may_be = &self.files[at].may_be;
        let shortest = may_be.iter().map(|bytes| there(bytes).len()).min().unwrap_or(0);
        let is_it = |bytes: &Vec<u8>| found.len() >= shortest && bytes[there(bytes)].starts_with(found);
        assert!(may_be.iter().any(is_it), "f{at} from {offset} on: other bytes, of {} possibilities", may_be.len());
    }

    /// A range was synced. If a change may still be under way, nothing is sure about the disk.
    fn is_on_disk(&self, at: usize, range: std::ops::Range<u64>) {
        let [bytes] = &self.files[at].may_be[..] else { return };
        let mut disk = bytes_on(self.device.disk(), format!("f{at}"));
        if range.end == u64::MAX {
            return assert_same(&disk, bytes, &format!("f{at} on disk"));
        }
        disk.resize(disk.len().max(bytes.len()), 0); // Zeros at the end may be missing.
        let range = (range.start as usize).min(bytes.len())..(range.end as usize).min(bytes.len());
        assert_same(&disk[range.clone()], &bytes[range], &format!("f{at}, a range on disk"));
    }

    fn new_bytes(&mut self, offset: u64, len: usize) -> Vec<u8> {
        self.versions += 1;
        version(self.versions, offset, len)
    }

    /// After a write that timed out, its first pages are written. If it began past the end, the
    /// file may have become longer before that.
    fn write(&mut self, at: usize, file: &File, offset: u64, len: usize) {
        let new = self.new_bytes(offset, len);
        let result = file.write_at(&new, offset);
        let timed_out = self.timed_out(&result);
        let Model { may_be, .. } = &mut self.files[at];
        let (before, offset) = (may_be[0].clone(), offset as usize);
        let after = |written: usize| {
            let mut bytes = before.clone();
            if written > 0 {
                bytes.resize(bytes.len().max(offset + written), 0);
                bytes[offset..offset + written].copy_from_slice(&new[..written]);
            }
            bytes
        };
        if !timed_out {
            *may_be = vec![after(len)];
            return;
        }
        let first_page_end = (offset / 4096 + 1) * 4096 - offset;
        may_be.extend((first_page_end..len).step_by(4096).chain([len]).map(after));
        if offset > before.len() {
            let gap = |end: usize| {
                let mut bytes = before.clone();
                bytes.resize(end, 0);
                bytes
            };
            may_be.extend([offset, offset + first_page_end.min(len)].map(gap));
        }
    }

    fn set_len(&mut self, at: usize, file: &File, len: u64) {
        let result = file.set_len(len);
        let timed_out = self.timed_out(&result);
        let Model { may_be, .. } = &mut self.files[at];
        let mut after = may_be[0].clone();
        after.resize(len as usize, 0);
        may_be.push(after);
        if !timed_out {
            may_be.remove(0);
        }
    }

    fn change_page(&mut self, at: usize, file: &File, page: u64) {
        let is_past_end = page * 4096 >= self.files[at].may_be[0].len() as u64;
        let mut guard = match file.page_mut_at(page * 4096) {
            Err(Error::PastEnd { .. }) if is_past_end => return,
            result if self.timed_out(&result) => return,
            result => result.expect("no timeout"),
        };
        let new = self.new_bytes(page * 4096, guard.len());
        guard.copy_from_slice(&new);
        self.files[at].may_be[0][page as usize * 4096..][..new.len()].copy_from_slice(&new);
    }

    /// Closes the last handle of a file. If that takes too long, a worker goes on.
    fn close_last(&mut self, at: usize, file: File) {
        self.files[at].file = None;
        if self.random.one_in(2) {
            drop(file);
        } else {
            let result = file.close();
            if !self.timed_out(&result) {
                self.is_on_disk(at, 0..u64::MAX);
            }
        }
        self.look_at_lock(at);
    }

    /// The last handle of a file is closed. If the file's lock is free, another Pagefold may have
    /// the file. So no change may come to the disk any more.
    fn look_at_lock(&mut self, at: usize) {
        let path = format!("f{at}");
        let other = self.device.disk().open(Path::new(&path), Access::Write).expect("it exists");
        if other.lock().is_ok() {
            let (found, may_be) = (bytes_on(self.device.disk(), path), &mut self.files[at].may_be);
            assert!(may_be.contains(&found), "f{at} on disk is none of {} possibilities", may_be.len());
            *may_be = vec![found];
            other.unlock();
        }
    }

    /// The device answers.
    fn answer(&mut self) {
        self.device.silence(false);
        (0..self.files.len()).for_each(|at| self.settle(at));
    }

    /// Finds out whether the last change of a file was made. Setting the length waits for any
    /// change of it that is under way.
    fn settle(&mut self, at: usize) {
        let len = self.random.below(PAGES * 4096);
        let Model { file, may_be, .. } = &mut self.files[at];
        self.seen.opened_again += u64::from(file.is_none());
        let file = &*file.get_or_insert_with(|| open(&self.device, &self.group, at));
        if may_be.len() == 1 {
            return;
        }
        again("no length is set", || file.set_len(len));
        let mut found = vec![0; len as usize];
        again("no page is read", || file.read_exact_at(&mut found, 0));
        may_be.iter_mut().for_each(|bytes| bytes.resize(len as usize, 0));
        let which = may_be.iter().position(|bytes| *bytes == found);
        let which = which.unwrap_or_else(|| panic!("f{at} is none of {} possibilities", may_be.len()));
        self.seen.changed_late += u64::from(which > 0);
        *may_be = vec![found];
    }
}
