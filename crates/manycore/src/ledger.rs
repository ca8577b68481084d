//! Records how CPUs spend their time. These are the counts behind a [`Report`](crate::Report): by
//! source line, by subject (a lock, or a line that was given a name), and by named work.
//!
//! Every advance of a CPU's clock is entered here once, under exactly one [`Spent`]. So the entries
//! add up to the CPU time. CPU time and idle time add up to `CPUs × elapsed`.

use crate::latency::Latencies;
use crate::ticks::Ticks;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;

/// A source line.
pub(crate) type At = &'static Location<'static>;

/// The ways in which a CPU spends time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    /// Spinning, or queueing for a line or the memory bus.
    Waiting,
    /// Moving a line here from another core.
    Transferring,
    /// Work that a CPU without others would do, too.
    Working,
    /// In the operating system: parking, waking, switching.
    System,
}

/// Ticks by [`Spent`], and the counts that go with them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) time: [Ticks; 4],
    pub(crate) events: u64,
    pub(crate) transfers: u64,
    pub(crate) shared_writes: u64,
}

/// A source line, within a region.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) at: At,
    pub(crate) region: u32,
    pub(crate) sums: Sums,
}

/// A lock, or a named line. All locks created at one source line are one subject. All locks, or all
/// lines, with the same name are one subject, too.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) label: String,
    pub(crate) kind: &'static str,
    pub(crate) sums: Sums,
    /// How often threads took the lock, and how often the first attempt failed.
    pub(crate) taken: u64,
    pub(crate) contended: u64,
    /// The time for which threads were parked for the lock. Meanwhile their CPUs ran other threads,
    /// or were idle.
    pub(crate) parked: Ticks,
}

/// A subject within a region.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) subject: u32,
    pub(crate) region: u32,
    /// Time spent waiting and transferring.
    pub(crate) lost: Ticks,
}

/// Work with a name.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) time: Ticks,
    pub(crate) waited: Ticks,
}

/// A hasher that multiplies, for keys that are addresses or numbers. The order of the entries has
/// no effect, because no table with this hasher is ever iterated over.
#[derive(Debug, Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
}

/// A table whose keys are addresses or numbers, or pairs of these.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// All counts of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) sites: Vec<Site>,
    site_of: Table<(usize, u32), u32>,
    /// The last result of `site`: the next lookup often has the same key.
    last: (usize, u32, u32),
    /// Subject 0 is none.
    pub(crate) subjects: Vec<Subject>,
    pub(crate) chains: Vec<Chain>,
    chain_of: Table<(u32, u32), u32>,
    pub(crate) works: Vec<Work>,
    /// Region 0 is outside of all regions.
    pub(crate) regions: Vec<String>,
    pub(crate) total: Sums,
    pub(crate) operations: u64,
    /// Operations in a second, of all tasks whose windows have ended.
    pub(crate) rate: f64,
    /// The number of these windows. `memory` adds up the fraction of the memory bandwidth that was
    /// used in each window.
    pub(crate) windows: u32,
    pub(crate) memory: f64,
    /// The times of the operations.
    pub(crate) latencies: Latencies,
    pub(crate) switches: u64,
    pub(crate) wakeups: u64,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            sites: Vec::new(),
            site_of: Table::default(),
            last: (0, 0, 0),
            subjects: vec![Subject::new(String::new(), "")],
            chains: Vec::new(),
            chain_of: Table::default(),
            works: Vec::new(),
            regions: vec![String::new()],
            total: Sums::default(),
            operations: 0,
            rate: 0.0,
            windows: 0,
            memory: 0.0,
            latencies: Latencies::default(),
            switches: 0,
            wakeups: 0,
        }
    }

    /// Sets every count to zero; names stay.
    pub(crate) fn reset(&mut self) {
        self.sites.iter_mut().for_each(|site| site.sums = Sums::default());
        for subject in &mut self.subjects {
            *subject = Subject::new(std::mem::take(&mut subject.label), subject.kind);
        }
        self.chains.iter_mut().for_each(|chain| chain.lost = 0);
        self.works.clear();
        self.total = Sums::default();
        (self.operations, self.switches, self.wakeups) = (0, 0, 0);
        (self.rate, self.windows, self.memory) = (0.0, 0, 0.0);
        self.latencies = Latencies::default();
    }

    /// Returns the number of a source line within a region.
    #[inline]
    pub(crate) fn site(&mut self, at: At, region: u32) -> u32 {
        let key = (std::ptr::from_ref(at).addr(), region);
        if (self.last.0, self.last.1) == key {
            return self.last.2;
        }
        let sites = &mut self.sites;
        let id = *self.site_of.entry(key).or_insert_with(|| {
            sites.push(Site { at, region, sums: Sums::default() });
            u32::try_from(sites.len() - 1).expect("fewer than 2^32 source lines")
        });
        self.last = (key.0, key.1, id);
        id
    }

    /// Enters time under a site, and under a subject if there is one.
    #[inline]
    pub(crate) fn enter(&mut self, site: u32, subject: u32, spent: Spent, ticks: Ticks) {
        let lost = matches!(spent, Spent::Waiting | Spent::Transferring);
        let spent = spent as usize;
        self.total.time[spent] += ticks;
        self.sites[site as usize].sums.time[spent] += ticks;
        if subject != 0 {
            self.subjects[subject as usize].sums.time[spent] += ticks;
            if lost {
                self.lose(subject, self.sites[site as usize].region, ticks);
            }
        }
    }

    fn lose(&mut self, subject: u32, region: u32, ticks: Ticks) {
        let chains = &mut self.chains;
        let id = *self.chain_of.entry((subject, region)).or_insert_with(|| {
            chains.push(Chain { subject, region, lost: 0 });
            u32::try_from(chains.len() - 1).expect("fewer than 2^32 chains")
        });
        self.chains[id as usize].lost += ticks;
    }

    /// Counts an event under a site, and under a subject if there is one.
    #[inline]
    pub(crate) fn count(&mut self, site: u32, subject: u32, transfers: u64, shared_writes: u64) {
        let count = |sums: &mut Sums| {
            sums.events += 1;
            sums.transfers += transfers;
            sums.shared_writes += shared_writes;
        };
        count(&mut self.total);
        count(&mut self.sites[site as usize].sums);
        if subject != 0 {
            count(&mut self.subjects[subject as usize].sums);
        }
    }

    /// Returns the number of a subject, by kind and label.
    pub(crate) fn subject(&mut self, kind: &'static str, label: &str) -> u32 {
        let found = self.subjects.iter().position(|subject| subject.kind == kind && subject.label == label);
        let id = found.unwrap_or_else(|| {
            self.subjects.push(Subject::new(label.to_owned(), kind));
            self.subjects.len() - 1
        });
        u32::try_from(id).expect("fewer than 2^32 locks")
    }

    /// Returns the number of the region `name` within the region `outer`.
    pub(crate) fn region(&mut self, outer: u32, name: &str) -> u32 {
        let outer = &self.regions[outer as usize];
        let path = if outer.is_empty() { name.to_owned() } else { format!("{name}.{outer}") };
        let id = self.regions.iter().position(|region| *region == path).unwrap_or_else(|| {
            self.regions.push(path);
            self.regions.len() - 1
        });
        u32::try_from(id).expect("fewer than 2^32 regions")
    }

    /// Returns the record of named work.
    pub(crate) fn work(&mut self, name: &'static str) -> &mut Work {
        let at = self.works.iter().position(|work| work.name == name).unwrap_or_else(|| {
            self.works.push(Work { name, count: 0, bytes: 0, time: 0, waited: 0 });
            self.works.len() - 1
        });
        &mut self.works[at]
    }
}

impl Subject {
    fn new(label: String, kind: &'static str) -> Self {
        Self { label, kind, sums: Sums::default(), taken: 0, contended: 0, parked: 0 }
    }

    /// Returns the subject's name for messages.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.kind, self.label)
    }
}
