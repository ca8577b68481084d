//! The kernel of this machine: mmap, touch, munmap. A space is a process: tasks in one space are
//! threads of one process, and a task with a space of its own is a process.

use std::ptr::null_mut;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::{Memory, measure};
use crate::scaling::experiment::Scheme;

/// The scheme with pages of 4 KiB.
pub(super) const PLAIN: Scheme = Scheme {
    name: "kernel",
    about: "this machine's kernel, without huge pages; a task with a space of its own is a process, tasks in one \
            space are threads",
    hidden: false,
    measure: |job| measure::<Mapped<false>>(job),
};

/// The scheme with huge pages.
pub(super) const HUGE: Scheme = Scheme {
    name: "kernel-huge",
    about: "the same with huge pages, as far as the kernel gives them",
    hidden: false,
    measure: |job| measure::<Mapped<true>>(job),
};

/// Bytes of an area.
struct Mapped<const HUGE_PAGES: bool>(usize);

impl<const HUGE_PAGES: bool> Memory for Mapped<HUGE_PAGES> {
    const SPACE_IS_PROCESS: bool = true;

    fn new(_: usize, _: bool, area: u64) -> Self {
        Self(area as usize)
    }

    fn map(&self, _: usize) -> u64 {
        let advice = if HUGE_PAGES { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: a new mapping of its own, which no other code knows of.
        unsafe {
            let area = mmap_anonymous(null_mut(), self.0, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
                .expect("the system has memory");
            let _ = madvise(area, self.0, advice);
            area.expose_provenance() as u64
        }
    }

    fn unmap(&self, _: usize, area: u64) {
        // SAFETY: the task's own mapping, of which no reference is left.
        unsafe { munmap(std::ptr::with_exposed_provenance_mut(area as usize), self.0).expect("it is mapped") }
    }

    fn touch(&self, _: usize, address: u64) {
        // SAFETY: within the task's own mapping, and aligned.
        unsafe { std::ptr::with_exposed_provenance_mut::<u64>(address as usize).write_volatile(1) }
    }

    fn read(&self, _: usize, address: u64) {
        // SAFETY: as above.
        std::hint::black_box(unsafe { std::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() });
    }
}
