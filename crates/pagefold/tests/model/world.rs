//! The model, and what doesn't write.

use std::ops::Range;
use std::time::Duration;

use pagefold::io::{Backend, ThreadPool};
use pagefold::{Error, File, Group, Pagefold};
use sync::random::Random;
use test_disks::{Fault, FaultyBackend, Schedule};

use crate::batches::wait_for;
use crate::limits::Ceiling;
use crate::pins::Held;
use crate::sometimes::Sometimes;
use crate::support::{RealFiles, assert_same, bytes_on, disk, manager_in_time, version};
use crate::writes::Earlier;

/// The last of them has to be made.
pub(crate) const FILES: u64 = 3;
pub(crate) const FILE_PAGES: u64 = 300;
/// Not a whole number of pages.
const FILE_LEN: u64 = FILE_PAGES * 4096 - 1234;

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) mm: Pagefold,
    pub(crate) disk: Box<dyn Backend>,
    pub(crate) faulty: FaultyBackend,
    /// One fault in so many calls.
    pub(crate) rate: u64,
    /// No other thread reads what this one has asked for.
    pub(crate) reads_alone: bool,
    pub(crate) groups: Vec<Group>,
    /// What each group may have although its limit was lowered.
    pub(crate) ceilings: Vec<Ceiling>,
    pub(crate) open: Vec<Open>,
    pub(crate) held: Vec<Held>,
    /// Memory that goes back to the system together.
    pub(crate) extent_bytes: u64,
    pub(crate) steps: u64,
    /// The bytes that readers of each file must see; `None` if the file was never created.
    pub(crate) files: Vec<Option<Vec<u8>>>,
    /// The earlier contents of each file's sectors since its last sync. A write in flight may still
    /// put these on the disk.
    pub(crate) earlier: Vec<Earlier>,
    pub(crate) versions: u64,
    pub(crate) seen: Sometimes,
}

/// A handle.
pub(crate) struct Open {
    pub(crate) number: usize,
    pub(crate) file: File,
    pub(crate) writable: bool,
    /// The number of the file's failures that the handle has certainly reported, and the number
    /// that it may have reported.
    pub(crate) told: (u64, u64),
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let rate = [0, 1000, 200, 32][random.below(4) as usize];
        // Requests are executed by the disk itself, by a thread pool, or by io_uring.
        let (disk, backend): (Box<dyn Backend>, Box<dyn Backend>) = if is_on_real_files(seed) {
            let files = RealFiles::new(FILES - 1, FILE_LEN);
            (Box::new(files.clone()), Box::new(files))
        } else {
            let disk = disk(FILES - 1, FILE_LEN);
            if random.one_in(2) {
                disk.reorder(seed);
            }
            let in_threads = || Box::new(ThreadPool::new(disk.clone(), 3).unwrap());
            (Box::new(disk.clone()), if backend_has_threads(seed) { in_threads() } else { Box::new(disk) })
        };
        let files = (0..FILES).map(|number| (number + 1 < FILES).then(|| bytes_on(&disk, format!("f{number}"))));
        let files = files.collect();
        let earlier = (0..FILES).map(|_| Earlier::default()).collect();
        let faulty = FaultyBackend::new(backend, faults(rate, seed));
        // With an `io_timeout`, other threads do work that a call otherwise does itself.
        let time = (seed % 3 == 1).then_some(Duration::from_secs(3600));
        let reads_alone = !backend_has_threads(seed) && time.is_none();
        let mm = manager_in_time(64 + random.below(400), faulty.clone(), time);
        let groups: Vec<_> = (0..1 + random.below(3))
            .map(|i| {
                let group = mm.group(&format!("g{i}"));
                let group = if random.one_in(3) { group } else { group.max((16 + random.below(200)) * 4096) };
                group.build().unwrap()
            })
            .collect();
        Self {
            random,
            disk,
            faulty,
            rate,
            reads_alone,
            ceilings: groups.iter().map(|_| Ceiling::default()).collect(),
            groups,
            open: Vec::new(),
            held: Vec::new(),
            extent_bytes: 1 << (mm.budget() / 32).ilog2().clamp(12, 21),
            steps: 0,
            mm,
            files,
            earlier,
            versions: seed << 20,
            seen: Sometimes::default(),
        }
    }

    pub(crate) fn step(&mut self) {
        self.steps += 1;
        self.drop_old_pins();
        match self.random.below(100) {
            0..8 => self.open(),
            8..12 => self.close(),
            12..16 => self.advise(),
            82 if self.steps.is_multiple_of(2) => self.build_group_again(),
            82 => self.recharge(),
            83..85 => self.look(),
            16..18 => self.resize(),
            18..20 => self.set_max(),
            20..25 => self.pin_some(),
            25..50 => self.write(),
            50..55 => self.change_page(),
            55..60 => self.set_len(),
            60..64 => self.sync(),
            64..67 => self.sync_range(),
            67..71 => self.read_batch(),
            71..74 => self.write_batch(),
            74..76 => self.prefetch(),
            76..79 => self.page_async(),
            79..81 => self.scan(),
            81 if self.steps.is_multiple_of(2) => self.squeeze(),
            _ => self.read(),
        }
        self.check_pins();
        self.check_limits();
    }

    /// Does something without faults.
    pub(crate) fn in_peace<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        self.faulty.set_schedule(Schedule::Never);
        let result = act(self);
        self.faulty.set_schedule(faults(self.rate, self.random.next_u64()));
        result
    }

    pub(crate) fn open(&mut self) {
        let number = self.random.below(FILES) as usize;
        let group = self.groups[self.random.below(self.groups.len() as u64) as usize].clone();
        let writable = self.files[number].is_none() || self.random.one_in(2);
        let truncate = writable && self.random.one_in(12) && !self.is_pinned(number, 0..u64::MAX);
        let options = group.open_options().write(writable).create(writable).truncate(truncate);
        match self.ask(&group, 0, || options.open(format!("f{number}"))) {
            Ok(file) => {
                let bytes = self.files[number].get_or_insert_default();
                if truncate {
                    self.earlier[number].note(bytes, 0..bytes.len());
                    bytes.clear();
                }
                assert_eq!(file.len(), bytes.len() as u64, "opened f{number}");
                let failures = file.stats().write_errors;
                self.open.push(Open { number, file, writable, told: (0, failures) });
            }
            Err(Error::OpenFailed { error, .. }) => self.was_made(error),
            Err(error) => self.tolerate(&error),
        }
    }

    pub(crate) fn pick(&mut self, writable: bool) -> Option<(usize, File)> {
        let fitting: Vec<_> = self.open.iter().filter(|open| open.writable || !writable).collect();
        let at = self.random.below(fitting.len() as u64) as usize;
        fitting.get(at).map(|open| (open.number, open.file.clone()))
    }

    /// Changes what a file's readers have to see, in `range`.
    pub(crate) fn change(&mut self, number: usize, range: Range<usize>, change: impl FnOnce(&mut Vec<u8>)) {
        let bytes = self.files[number].as_mut().expect("an open file was made");
        self.earlier[number].note(bytes, range);
        change(bytes);
    }

    pub(crate) fn bytes(&mut self, number: usize) -> &mut Vec<u8> {
        self.files[number].as_mut().expect("an open file was made")
    }

    /// Skewed, so that there are hits.
    pub(crate) fn offset(&mut self, number: usize) -> u64 {
        let len = self.bytes(number).len() as u64;
        let reach = if self.random.one_in(3) { len + 5000 } else { len / 8 + 100 };
        self.random.below(reach)
    }

    pub(crate) fn size(&mut self) -> u64 {
        match self.random.below(4) {
            0 => self.random.below(20),
            1 => 4096,
            2 => self.random.below(4096),
            _ => self.random.below(40_000),
        }
    }

    fn read(&mut self) {
        if let Some((number, file)) = self.pick(false) {
            self.read_from(number, &file);
        }
    }

    pub(crate) fn read_from(&mut self, number: usize, file: &File) {
        let (offset, len) = (self.offset(number), self.size() as usize);
        let mut buf = vec![0xa5; len];
        let waits = self.random.one_in(4);
        let read =
            || if waits { wait_for(file.read_at_async(&mut buf, offset)) } else { file.read_at(&mut buf, offset) };
        match self.ask(file.group(), 1, read) {
            Ok(n) => {
                let bytes = self.bytes(number);
                let expected = &bytes[bytes.len().min(offset as usize)..bytes.len().min(offset as usize + len)];
                assert_same(&buf[..n], expected, &format!("f{number} from {offset} on"));
                assert!(buf[n..].iter().all(|&byte| byte == 0xa5), "bytes past the end were touched");
            }
            Err(error) => self.tolerate(&error),
        }
    }

    pub(crate) fn new_bytes(&mut self, offset: u64, len: usize) -> Vec<u8> {
        self.versions += 1;
        version(self.versions, offset, len)
    }
}

/// By io_uring, where there is one.
fn is_on_real_files(seed: u64) -> bool {
    seed % 8 == 5
}

fn backend_has_threads(seed: u64) -> bool {
    is_on_real_files(seed) || seed % 4 == 3
}

fn faults(rate: u64, seed: u64) -> Schedule {
    let faults = vec![
        Fault::Errno(5),
        Fault::Errno(28),
        Fault::Interrupted,
        Fault::Again,
        Fault::Short(512),
        Fault::Short(3584),
        Fault::ShortThenErrno(512, 5),
        Fault::Errno(12),
    ];
    Schedule::OneIn { n: rate, seed, faults }
}
