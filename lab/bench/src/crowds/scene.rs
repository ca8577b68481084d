//! The objects: ten that are hot, and as many others as a crowd has.

use std::ops::Range;

use pagefold::{Advice, File, Group, Pagefold, Protection, Space};
use test_disks::SimulatedDisk;

/// Objects of each kind that operations are measured on.
pub(super) const HOT: usize = 10;
pub(super) const PAGE: u64 = 4096;
/// Pages of each file, and of each mapping.
pub(super) const PAGES: u64 = 16;
/// Bytes of the sparse file.
const SPARSE_BYTES: u64 = 1 << 40;
/// Pages of it that are read.
const SPARSE_PAGES: u64 = 1000;
/// Files that nothing has open.
pub(super) const CLOSED_FILES: usize = 10_000;

/// How many objects there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) files: usize,
    pub(super) spaces: usize,
    pub(super) groups: usize,
    /// One of each space's own memory, the others of files.
    pub(super) mappings: usize,
    /// Mappings of files in the first space; the others are spread evenly.
    pub(super) in_one: usize,
    /// Spaces in which a page is written.
    pub(super) written: usize,
}

impl Sizes {
    /// The hot objects alone.
    pub(super) const HOT: Self =
        Self { files: HOT, spaces: HOT, groups: HOT, mappings: 3 * HOT, in_one: 0, written: HOT };

    /// The whole crowd, or `1 / part` of it.
    pub(super) fn crowd(part: usize) -> Self {
        let (spaces, mappings) = (20_000 / part, 65_000 / part);
        let in_one = (mappings - spaces) / 2;
        Self { files: 100_000 / part, spaces, groups: 10_000 / part, mappings, in_one, written: spaces }
    }

    /// Files that are open for writing.
    pub(super) fn for_writing(self) -> usize {
        (self.files / 2).max(HOT)
    }

    /// All objects together.
    pub(super) fn objects(self) -> usize {
        self.files + self.spaces + self.groups + self.mappings
    }
}

/// A space's index, and the addresses in it at which something is mapped.
pub(super) type Place = (usize, Range<u64>);

/// The objects. The first [`HOT`] of each kind are the hot ones.
pub(super) struct Scene {
    pub(super) fold: Pagefold,
    pub(super) groups: Vec<Group>,
    pub(super) files: Vec<File>,
    pub(super) spaces: Vec<Space>,
    /// Memory of each space's own, of which the first page was written.
    pub(super) own: Vec<Range<u64>>,
    /// Mappings of files.
    pub(super) mapped: Vec<Place>,
    _sparse: Option<File>,
}

/// Steps of making a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Groups,
    Files,
    FilesForWriting,
    Spaces,
    Mappings,
    OwnMemory,
    PagesOfFiles,
    Sparse,
    /// Every CPU uses every object.
    EveryCpu,
}

impl Step {
    /// As in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Groups => "groups",
            Self::Files => "files for reading",
            Self::FilesForWriting => "files for writing",
            Self::PagesOfFiles => "a page of each file",
            Self::Spaces => "spaces with memory",
            Self::OwnMemory => "a written page of some spaces",
            Self::Mappings => "mappings of files",
            Self::Sparse => "a sparse file of 1 TiB",
            Self::EveryCpu => "used by every CPU",
        }
    }

    /// Returns whether the step makes objects that have a counter on each CPU. The counter is
    /// counted in this step, but becomes resident only when the CPU uses the object.
    pub(super) fn makes_counters(self) -> bool {
        matches!(self, Self::Files | Self::FilesForWriting | Self::Mappings)
    }
}

/// The name of a file that is open.
pub(super) fn open_path(number: usize) -> String {
    format!("/open/{number}")
}

/// The name of a file that isn't.
pub(super) fn closed_path(number: usize) -> String {
    format!("/closed/{number}")
}

/// The files, in as many as `sizes` says.
pub(super) fn disk(sizes: Sizes) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    (0..sizes.files).for_each(|file| disk.add_generated(open_path(file), file as u64, PAGES * PAGE));
    (0..CLOSED_FILES).for_each(|file| disk.add_generated(closed_path(file), file as u64, PAGES * PAGE));
    disk.add_generated("/sparse", 1, SPARSE_BYTES);
    disk
}

impl Scene {
    /// Makes all objects, in steps; `made` is called after each.
    pub(super) fn new(
        disk: SimulatedDisk,
        sizes: Sizes,
        budget: u64,
        made: &mut dyn FnMut(Step, &Pagefold),
    ) -> Result<Self, pagefold::Error> {
        let fold = Pagefold::builder().memory(budget).memory_max(budget).backend(disk).build()?;
        let groups = (0..sizes.groups).map(|group| fold.group(&format!("group {group}")).build());
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        made(Step::Groups, &fold);
        let mut scene = Self {
            groups,
            files: Vec::with_capacity(sizes.files),
            spaces: Vec::with_capacity(sizes.spaces),
            own: Vec::with_capacity(sizes.spaces),
            mapped: Vec::with_capacity(sizes.mappings),
            _sparse: None,
            fold,
        };
        scene.open_files(sizes, made)?;
        scene.make_spaces(sizes, made)?;
        scene.map_files(sizes)?;
        made(Step::Mappings, &scene.fold);
        for (space, own) in scene.spaces.iter().zip(&scene.own).take(sizes.written) {
            space.write_at(&[1; 8], own.start)?;
        }
        made(Step::OwnMemory, &scene.fold);
        for file in &scene.files {
            file.read_at(&mut [0; 8], 0)?;
        }
        made(Step::PagesOfFiles, &scene.fold);
        if sizes.files > HOT {
            let sparse = scene.groups[0].open_options().write(true).open("/sparse")?;
            sparse.advise(0..0, Advice::Random)?;
            for page in 0..SPARSE_PAGES {
                sparse.read_at(&mut [0; 8], page * (SPARSE_BYTES / SPARSE_PAGES))?;
            }
            scene._sparse = Some(sparse);
            made(Step::Sparse, &scene.fold);
        }
        Ok(scene)
    }

    fn open_files(&mut self, sizes: Sizes, made: &mut dyn FnMut(Step, &Pagefold)) -> Result<(), pagefold::Error> {
        for number in 0..sizes.files {
            let group = &self.groups[number % sizes.groups];
            let file = group.open_options().write(number < sizes.for_writing()).open(open_path(number))?;
            file.advise(0..0, Advice::Random)?;
            self.files.push(file);
            if number + 1 == sizes.for_writing() {
                made(Step::FilesForWriting, &self.fold);
            }
        }
        made(Step::Files, &self.fold);
        Ok(())
    }

    fn make_spaces(&mut self, sizes: Sizes, made: &mut dyn FnMut(Step, &Pagefold)) -> Result<(), pagefold::Error> {
        for number in 0..sizes.spaces {
            let space = self.groups[number % sizes.groups].space()?;
            self.own.push(space.map(PAGES * PAGE, Protection::ReadWrite)?);
            self.spaces.push(space);
        }
        made(Step::Spaces, &self.fold);
        Ok(())
    }

    fn map_files(&mut self, sizes: Sizes) -> Result<(), pagefold::Error> {
        for number in 0..sizes.mappings - sizes.spaces {
            let at = if number < sizes.in_one { 0 } else { number % sizes.spaces };
            let file = &self.files[number % sizes.files];
            let range = self.spaces[at].map_file(file, 0, PAGES * PAGE, Protection::Read)?;
            self.mapped.push((at, range));
        }
        Ok(())
    }
}
