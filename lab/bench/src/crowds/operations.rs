//! The operations on objects, and how long they take.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::time::Instant;

use pagefold::{Advice, Error, Protection};

use super::scene::{CLOSED_FILES, HOT, PAGE, PAGES, Scene, closed_path, open_path};
use crate::random::Random;

/// An operation on one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Hit,
    Write,
    Miss,
    Reopen,
    Open,
    Group,
    SpaceHit,
    MappedHit,
    Touch,
    Map,
    MapFile,
}

pub(super) const ALL: [Operation; 11] = [
    Operation::Hit,
    Operation::Write,
    Operation::Miss,
    Operation::Reopen,
    Operation::Open,
    Operation::Group,
    Operation::SpaceHit,
    Operation::MappedHit,
    Operation::Touch,
    Operation::Map,
    Operation::MapFile,
];

/// Which objects are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The hot objects, in turn.
    Hot,
    /// All objects, in no order.
    Random,
}

/// Nanoseconds that operations took, by their names.
pub(super) type Times = BTreeMap<String, f64>;

impl Operation {
    /// As in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Write => "overwrite",
            Self::Miss => "miss",
            Self::Reopen => "open and close a file that is open",
            Self::Open => "open and close a file that isn't",
            Self::Group => "make and drop a group",
            Self::SpaceHit => "hit through a space, own memory",
            Self::MappedHit => "hit through a space, mapped file",
            Self::Touch => "first touch",
            Self::Map => "map and unmap",
            Self::MapFile => "map and unmap a file",
        }
    }

    /// Objects that it can be done to.
    pub(super) fn population(self, scene: &Scene) -> usize {
        match self {
            Self::Hit | Self::Miss | Self::Reopen => scene.files.len(),
            Self::Write => (scene.files.len() / 2).max(HOT),
            Self::Open => CLOSED_FILES,
            Self::Group => scene.groups.len(),
            Self::SpaceHit | Self::Touch | Self::Map | Self::MapFile => scene.spaces.len(),
            Self::MappedHit => scene.mapped.len(),
        }
    }

    /// Operations that are timed together.
    fn count(self) -> usize {
        match self {
            Self::Hit | Self::Write | Self::SpaceHit | Self::MappedHit => 20_000,
            // One for each page of the hot objects.
            Self::Miss | Self::Touch => HOT * (PAGES as usize - 1),
            _ => 2000,
        }
    }

    /// Nanoseconds that one takes.
    pub(super) fn time(self, scene: &Scene, choice: Choice, random: &mut Random) -> Result<f64, Error> {
        let population = self.population(scene);
        let objects: Vec<usize> = (0..self.count()).map(|turn| choose(turn, population, choice, random)).collect();
        let start = Instant::now();
        for (turn, &object) in objects.iter().enumerate() {
            self.run(scene, object, 1 + (turn / HOT) as u64 % (PAGES - 1))?;
        }
        let ns = start.elapsed().as_nanos() as f64 / objects.len() as f64;
        for object in objects {
            self.undo(scene, object)?;
        }
        Ok(ns)
    }

    fn run(self, scene: &Scene, object: usize, page: u64) -> Result<(), Error> {
        let mut bytes = [0; 8];
        let len = PAGES * PAGE;
        match self {
            Self::Hit => drop(scene.files[object].read_at(&mut bytes, 0)?),
            Self::Write => scene.files[object].write_at(&bytes, 0)?,
            Self::Miss => drop(scene.files[object].read_at(&mut bytes, page * PAGE)?),
            Self::Reopen => drop(scene.groups[object % scene.groups.len()].open(open_path(object))?),
            Self::Open => drop(scene.groups[object % scene.groups.len()].open(closed_path(object))?),
            Self::Group => drop(scene.fold.group(&format!("another {object}")).build()?),
            Self::SpaceHit => scene.spaces[object].read_at(&mut bytes, scene.own[object].start)?,
            Self::MappedHit => {
                let (space, range) = &scene.mapped[object];
                scene.spaces[*space].read_at(&mut bytes, range.start)?;
            }
            Self::Touch => scene.spaces[object].write_at(&bytes, scene.own[object].start + page * PAGE)?,
            Self::Map => {
                let space = &scene.spaces[object];
                space.unmap(space.map(len, Protection::ReadWrite)?)?;
            }
            Self::MapFile => {
                let space = &scene.spaces[object];
                space.unmap(space.map_file(&scene.files[object], 0, len, Protection::Read)?)?;
            }
        }
        black_box(bytes);
        Ok(())
    }

    /// Restores the state in which this round began.
    fn undo(self, scene: &Scene, object: usize) -> Result<(), Error> {
        match self {
            Self::Miss => scene.files[object].advise(PAGE..PAGES * PAGE, Advice::DontNeed),
            Self::Touch => {
                let own = &scene.own[object];
                scene.spaces[object].discard(own.start + PAGE..own.end)
            }
            _ => Ok(()),
        }
    }
}

fn choose(turn: usize, population: usize, choice: Choice, random: &mut Random) -> usize {
    match choice {
        Choice::Hot => turn % HOT,
        Choice::Random => random.below(u32::try_from(population).unwrap_or(u32::MAX)) as usize,
    }
}

/// What operations on random objects are compared with.
pub(super) struct Yardstick<const BYTES: usize> {
    entries: HashMap<u64, Box<[u8; BYTES]>>,
}

/// Lookups that are timed together.
const LOOKUPS: usize = 20_000;

impl<const BYTES: usize> Yardstick<BYTES> {
    /// A map with so many entries.
    pub(super) fn new(entries: usize) -> Self {
        Self { entries: (0..entries as u64).map(|key| (key, Box::new([key as u8; BYTES]))).collect() }
    }

    /// Nanoseconds that one lookup takes.
    pub(super) fn time(&self, choice: Choice, random: &mut Random) -> f64 {
        let keys: Vec<_> = (0..LOOKUPS).map(|turn| choose(turn, self.entries.len(), choice, random) as u64).collect();
        let start = Instant::now();
        for key in keys {
            black_box(self.entries.get(&key).map(|bytes| bytes[7]));
        }
        start.elapsed().as_nanos() as f64 / LOOKUPS as f64
    }
}
