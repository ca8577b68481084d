//! The kernel of this machine: a process whose memory is limited to the budget, and swap in zram or
//! in a file.
//!
//! The process is this program again, with a hidden command, in a memory cgroup of its own. A
//! second process, its keeper, makes the cgroup and the swap device. When this program ends for any
//! reason, the keeper removes both, so nothing is left. Other processes swap to that device only if
//! memory is short.

use std::fs;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use pagefold::Size;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use super::{Memory, PAGE, SWAP, Sizes, measure};
use crate::output::say;
use crate::peers::confined::{self, Cell};
use crate::peers::swap_device::Wanted;
use crate::scaling::device::Device;
use crate::scaling::experiment::Scheme;
use crate::scaling::job::{Choices, Job};
use crate::scaling::sample::{Counts, Sample, Unavailable};
use crate::scaling::stage::Stage;

/// The hidden command.
pub(crate) const COMMAND: &str = "swap-kernel";

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "kernel",
    about: "this machine's kernel: threads of a process in a memory cgroup of the budget, without huge pages; swap in \
            zram, or \
            in a file",
    hidden: false,
    measure: confine,
};

/// What the process is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProcessArgs {
    #[arg(long)]
    workload: String,
    #[arg(long)]
    tasks: usize,
    #[arg(long)]
    time_ns: u64,
    #[arg(long)]
    memory_per_cpu: Option<Size>,
    #[arg(long)]
    quick: bool,
    #[arg(long)]
    cgroup: PathBuf,
}

/// Has a process of its own measure.
fn confine(job: &Job<'_>) -> Result<Sample> {
    let sizes = Sizes::of(job);
    if sizes.own_spaces {
        return Err(Unavailable("the kernel's tasks are threads of one process".to_owned()).into());
    }
    let bytes = (sizes.area + 1) * PAGE;
    let wanted = match job.choices.device {
        Device::Memory | Device::Compressed => Wanted::Zram { bytes },
        Device::Disk => Wanted::File { bytes },
        Device::Simulated | Device::Rotating => {
            return Err(Unavailable("the kernel can't swap to a simulated disk".to_owned()).into());
        }
    };
    job.measure_elsewhere(|time| {
        let cell = Cell::with_swap(confined::limit(sizes.budget * PAGE), &wanted)?.map_err(Unavailable)?;
        let mut command = confined::this_program()?;
        command.args([COMMAND, "--workload", job.workload.name, "--tasks", &job.tasks.to_string()]);
        command.args(["--time-ns", &time.as_nanos().to_string(), "--cgroup"]).arg(cell.path());
        if let Some(size) = job.choices.memory_per_cpu {
            command.arg(format!("--memory-per-cpu={}", size.0));
        }
        if job.choices.quick {
            command.arg("--quick");
        }
        confined::result_of(command).map_err(|error| Unavailable(format!("{error:#}")).into())
    })
}

/// What the process does.
pub(crate) fn run(args: &ProcessArgs) -> Result<()> {
    confined::join(Some(&args.cgroup))?;
    let workload = SWAP.workloads.iter().find(|workload| workload.name == args.workload);
    let stage = Stage { time: Duration::from_nanos(args.time_ns), placement: None };
    let choices = Choices { memory_per_cpu: args.memory_per_cpu, quick: args.quick, ..Choices::default() };
    let job = Job::new(workload.context("no such workload")?, args.tasks, choices, &stage);
    let sample = measure(&job, |_| Mapped)?;
    say(&serde_json::to_string(&sample)?)
}

struct Mapped;

impl Memory for Mapped {
    fn map(&self, _: usize, pages: u64) -> u64 {
        let len = (pages * PAGE) as usize;
        // SAFETY: a new mapping of its own, which no other code knows of.
        unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let area = mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)
                .expect("the system has addresses");
            let _ = madvise(area, len, Advice::LinuxNoHugepage);
            area.expose_provenance() as u64
        }
    }

    fn fill(&self, _: usize, address: u64, page: &[u8; PAGE as usize]) {
        // SAFETY: the page is within a mapping of ours that is never unmapped. A task fills only
        // its own pages, before any task reads them.
        unsafe { std::ptr::with_exposed_provenance_mut::<[u8; PAGE as usize]>(address as usize).write(*page) }
    }

    fn discard(&self, _: usize, address: u64) {
        // SAFETY: as above; no reference to it is left.
        unsafe {
            let page = std::ptr::with_exposed_provenance_mut(address as usize);
            madvise(page, PAGE as usize, Advice::LinuxDontNeed).expect("it is mapped");
        }
    }

    #[inline]
    fn read(&self, _: usize, address: u64) -> u64 {
        self.word(address).load(Ordering::Relaxed)
    }

    #[inline]
    fn write(&self, _: usize, address: u64, word: u64) {
        self.word(address).store(word, Ordering::Relaxed);
    }

    fn count(&self) -> Counts {
        // The name of the program may contain blanks, so the fields are counted from behind its
        // closing parenthesis: `majflt` is the tenth there (proc(5)).
        let of_process = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields = of_process.rsplit(')').next().unwrap_or_default();
        let faults = fields.split_whitespace().nth(9).and_then(|field| field.parse().ok()).unwrap_or(0);
        // Of the whole machine: what other processes swap isn't told apart.
        let of_machine = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let bytes = |name: &str| {
            let pages = of_machine.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            pages.unwrap_or(0) * PAGE
        };
        Counts { faults, bytes_in: bytes("pswpin "), bytes_out: bytes("pswpout ") }
    }
}

impl Mapped {
    fn word(&self, address: u64) -> &AtomicU64 {
        // SAFETY: within a mapping of ours that is never unmapped, and aligned.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(address as usize)) }
    }
}
