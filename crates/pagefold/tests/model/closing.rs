//! Closing and dropping handles, and the contents of files after their last handle is gone.

use test_disks::{Fault, FaultKind, Schedule};

use crate::sometimes::Sometimes;
use crate::support::{bytes_on, eventually};
use crate::world::{Open, World};
use crate::writes::SECTOR;

/// How devices behave while a handle is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Devices {
    Good,
    AsEver,
    /// They fail at every call.
    Broken,
}

impl World {
    pub(crate) fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let number = self.open[at].number;
        if self.open.iter().filter(|open| open.number == number).count() > 1 {
            self.let_go(at);
            return;
        }
        let devices = match self.random.below(4) {
            0 | 1 => Devices::Good,
            2 if self.rate > 0 => Devices::Broken,
            _ => Devices::AsEver,
        };
        self.close_last(at, devices);
    }

    /// Closes or drops a handle. Returns true if all changes are known to be written afterwards.
    fn let_go(&mut self, at: usize) -> bool {
        let is_dropped = self.random.one_in(2);
        let writes = self.open[at].writable && !is_dropped;
        let is_written = writes && self.told_as_it_should(at, |file| file.clone().close());
        self.seen.closes_failed += u64::from(writes && !is_written);
        let Open { file, .. } = self.open.swap_remove(at);
        if is_dropped {
            self.seen.handles_dropped += 1;
        } else if !writes {
            file.close().expect("a reader has nothing to be told");
        }
        is_written
    }

    /// Closes the last handle of a file.
    fn close_last(&mut self, at: usize, devices: Devices) {
        let Open { number, ref file, .. } = self.open[at];
        let name = format!("f{number}");
        let before = bytes_on(&self.disk, &name);
        self.seen.written_in_the_background += u64::from(file.stats().bytes_out > 0);
        let close = |world: &mut Self| {
            let is_written = world.let_go(at);
            // Pins keep a file in use.
            world.drop_pins_of(number);
            eventually("a file outlived its handles", || {
                world.mm.stats().files.iter().all(|file| !file.path.ends_with(&name))
            });
            is_written
        };
        let is_written = match devices {
            Devices::Good => self.in_peace(close),
            Devices::AsEver => close(self),
            Devices::Broken => {
                self.faulty.set_schedule(Schedule::From(1, Fault::Errno(5)));
                let is_written = close(self);
                self.in_peace(|_| ());
                is_written
            }
        };
        if is_written || self.rate == 0 || devices == Devices::Good {
            self.is_on_disk(number);
        } else {
            self.nothing_foreign_came(number, &before);
        }
    }

    /// Changes that couldn't be written are lost. But each sector must have contents that the file
    /// had at some time: those on the disk before, the newest ones, or earlier ones, which a write
    /// in flight may bring.
    fn nothing_foreign_came(&mut self, number: usize, before: &[u8]) {
        let after = bytes_on(&self.disk, format!("f{number}"));
        let (bytes, earlier) = (self.files[number].as_mut().expect("it was open"), &self.earlier[number]);
        let lens = before.len().min(bytes.len())..=before.len().max(bytes.len());
        assert!(lens.contains(&after.len()), "{} bytes of {lens:?}", after.len());
        for (at, sector) in after.chunks(SECTOR).enumerate() {
            let is = |bytes: &[u8]| {
                let known = bytes.get(at * SECTOR..).unwrap_or_default();
                let (known, beyond) = sector.split_at(known.len().min(sector.len()));
                bytes[bytes.len().min(at * SECTOR)..].starts_with(known) && beyond.iter().all(|&byte| byte == 0)
            };
            assert!(
                is(before) || is(bytes) || earlier.knows(at, sector, before.chunks(SECTOR).nth(at).unwrap_or_default()),
                "f{number} after a close that failed: foreign bytes in sector {at}"
            );
        }
        let lost = after != *bytes;
        *bytes = after;
        self.earlier[number] = Default::default();
        self.seen.lost_at_close += u64::from(lost);
    }

    /// Syncs each file through each handle, without faults, until nothing is unclean.
    pub(crate) fn sync_all(&mut self) {
        for at in 0..self.open.len() {
            // The first sync may report an earlier error, and the second one an error of a write
            // that was in flight.
            let tries = (0..3).filter(|_| !self.sync_open(at)).count();
            assert!(tries < 3, "nothing fails any more");
        }
        let stats = self.mm.stats();
        assert!(stats.files.iter().all(|file| file.unclean_bytes == 0), "{stats}");
        assert!(stats.groups.iter().all(|group| group.unclean_bytes == 0), "{stats}");
    }

    pub(crate) fn end(mut self) -> Sometimes {
        self.count();
        if self.random.one_in(2) {
            self.drop_pins();
        }
        match self.random.below(4) {
            0 | 1 => {
                self.faulty.set_schedule(Schedule::Never);
                self.sync_all();
                self.all_is_on_disk();
            }
            2 => self.drop_all(),
            _ => {
                while !self.open.is_empty() {
                    self.close();
                }
            }
        }
        self.open.clear();
        self.drop_pins();
        for group in &self.groups {
            eventually("a page outlived its file", || group.charged() == 0);
            assert_eq!(group.stats().unclean_bytes, 0, "an unclean page that isn't there");
        }
        self.groups.clear();
        eventually("a page map outlived its file", || self.mm.stats().map_bytes == 0);
        let stats = self.mm.stats();
        assert!(stats.groups.is_empty() && stats.files.is_empty());
        self.no_frame_is_lost();
        self.seen
    }

    fn count(&mut self) {
        for group in &self.groups {
            let stats = group.stats();
            self.seen.evictions += stats.evictions;
            self.seen.refaults += stats.refaults;
            self.seen.errors += stats.errors;
            self.seen.direct_reclaims += stats.direct_reclaims;
            self.seen.read_ahead += stats.read_ahead;
            self.seen.read_ahead_wasted += stats.read_ahead_wasted;
        }
        self.seen.short_transfers += self.faulty.fired(FaultKind::Short);
        self.seen.interrupts += self.faulty.fired(FaultKind::Interrupted);
    }

    fn all_is_on_disk(&mut self) {
        for number in 0..self.files.len() {
            if self.open.iter().any(|open| open.number == number) {
                self.is_on_disk(number);
            }
        }
    }

    /// Drops all handles at once. Afterwards all bytes are in the files, although nothing was
    /// synced.
    fn drop_all(&mut self) {
        self.faulty.set_schedule(Schedule::Never);
        let numbers: Vec<_> = self.open.drain(..).map(|open| open.number).collect();
        self.drop_pins();
        eventually("a file outlived its handles", || self.mm.stats().files.is_empty());
        numbers.into_iter().for_each(|number| self.is_on_disk(number));
    }

    /// Once there are no pages, each frame that has memory must be free.
    fn no_frame_is_lost(&self) {
        let stats = self.mm.stats();
        let frames = stats.used_bytes - stats.metadata_bytes;
        assert_eq!(stats.free_bytes + stats.retired_frames * stats.page_bytes, frames, "{stats}");
    }
}
