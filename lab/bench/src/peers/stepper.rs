//! Executes a part of another process one instruction at a time and counts what it executes.
//!
//! The child is this program again, stopped by the kernel at every instruction between two
//! breakpoints of its main thread (`ptrace`, which needs no privilege for a child). Slow, some
//! microseconds an instruction, but exact, and it needs no performance counters.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::peers::instruction::{Instruction, LENGTH_MAX};

/// What was executed between the breakpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// All instructions, a repeated one once.
    pub(crate) instructions: u64,
    /// Atomic read-modify-writes.
    pub(crate) atomics: u64,
    /// Calls into the kernel.
    pub(crate) system_calls: u64,
}

/// What `ptrace` is asked for, whose type C libraries don't agree on.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// Where the traced part begins and ends, in the child. Without a tracer it ends the process.
#[cfg(target_arch = "x86_64")]
pub(crate) fn breakpoint() {
    // SAFETY: the instruction changes nothing; the tracer continues behind it.
    unsafe { std::arch::asm!("int3", options(nostack)) };
}

/// Other processors aren't decoded; see [`count`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn breakpoint() {}

/// Starts `command`, which calls [`breakpoint`] twice, and counts what its main thread does in
/// between.
#[cfg(target_arch = "x86_64")]
pub(crate) fn count(command: &mut Command) -> Result<Count> {
    let trace_me = || {
        // SAFETY: takes no pointers; asks for this process to be traced by its parent.
        let done = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes one system call and no allocation.
    unsafe { command.pre_exec(trace_me) };
    let mut child = command.spawn().context("cannot start the process to be counted; is ptrace forbidden here?")?;
    let tracee = Tracee(i32::try_from(child.id()).context("a process number beyond i32")?);
    let counted = count_between_breakpoints(tracee);
    if counted.is_err() {
        // Best effort: it may be gone already, and the error that we have is the better one.
        let _ = child.kill();
        let _ = child.wait();
    }
    counted
}

/// Only x86-64 is understood.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn count(_command: &mut Command) -> Result<Count> {
    bail!("instructions can only be counted on x86-64")
}

fn count_between_breakpoints(tracee: Tracee) -> Result<Count> {
    ensure!(tracee.wait()? == Stop::Signal(libc::SIGTRAP), "the process did not stop at its start");
    tracee.run_to_breakpoint()?;
    // Only now: what the child has set up should be what it sets up on all CPUs of the machine.
    let _together = OneCpu::share_with(tracee)?;
    let mut count = Count::default();
    let mut known = HashMap::new();
    let mut before = 0;
    loop {
        let at = tracee.instruction_pointer()?;
        let instruction = match known.get(&at) {
            Some(&instruction) => instruction,
            None => *known.entry(at).or_insert(Instruction::decode(&tracee.code(at)?)),
        };
        if instruction.breakpoint {
            break;
        }
        if !(instruction.repeats && at == before) {
            count.instructions += 1;
            count.atomics += u64::from(instruction.atomic);
            count.system_calls += u64::from(instruction.system_call);
        }
        before = at;
        tracee.step()?;
    }
    tracee.run_to_breakpoint()?;
    tracee.run_to_exit()?;
    Ok(count)
}

/// Tracer and child on one CPU: on two, each step would wait for two wake-ups of the other. Ends
/// with the value.
struct OneCpu(CpuSet);

impl OneCpu {
    fn share_with(tracee: Tracee) -> Result<Self> {
        let all = sched_getaffinity(None).context("cannot ask for the CPUs of this process")?;
        let mut one = CpuSet::new();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).context("no CPU to run on")?;
        one.set(first);
        sched_setaffinity(Pid::from_raw(tracee.0), &one).context("cannot choose a CPU for the traced process")?;
        sched_setaffinity(None, &one).context("cannot choose a CPU for the tracer")?;
        Ok(Self(all))
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        // Best effort: staying on one CPU would slow later experiments down, but nothing can be
        // done about it here.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// A stopped child.
#[derive(Clone, Copy, Debug)]
struct Tracee(libc::pid_t);

/// Why a child stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Signal(i32),
    Exit(i32),
}

impl Tracee {
    fn wait(self) -> Result<Stop> {
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        ensure!(waited == self.0, "cannot wait for the traced process: {}", io::Error::last_os_error());
        if libc::WIFSTOPPED(status) {
            Ok(Stop::Signal(libc::WSTOPSIG(status)))
        } else {
            Ok(Stop::Exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }))
        }
    }

    /// Continues until SIGTRAP; other signals are handed on.
    fn go_on(self, request: Request) -> Result<Stop> {
        let mut signal = 0;
        loop {
            // SAFETY: no pointers; the process is stopped and ours.
            let done = unsafe { libc::ptrace(request, self.0, 0, libc::c_long::from(signal)) };
            ensure!(done == 0, "cannot continue the traced process: {}", io::Error::last_os_error());
            match self.wait()? {
                Stop::Signal(other) if other != libc::SIGTRAP => signal = other,
                stop => return Ok(stop),
            }
        }
    }

    fn run_to_breakpoint(self) -> Result<()> {
        match self.go_on(libc::PTRACE_CONT)? {
            Stop::Signal(_) => Ok(()),
            Stop::Exit(code) => bail!("the traced process ended early, with code {code}"),
        }
    }

    fn run_to_exit(self) -> Result<()> {
        match self.go_on(libc::PTRACE_CONT)? {
            Stop::Exit(0) => Ok(()),
            stop => bail!("the traced process did not end well: {stop:?}"),
        }
    }

    fn step(self) -> Result<()> {
        match self.go_on(libc::PTRACE_SINGLESTEP)? {
            Stop::Signal(_) => Ok(()),
            Stop::Exit(code) => bail!("the traced process ended within the counted part, with code {code}"),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn instruction_pointer(self) -> Result<u64> {
        let offset = std::mem::offset_of!(libc::user_regs_struct, rip);
        // SAFETY: `errno` is this thread's.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: reads a word of the stopped child's registers; `user` begins with
        // `user_regs_struct`.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.0, offset, 0) };
        let error = io::Error::last_os_error();
        ensure!(word != -1 || error.raw_os_error() == Some(0), "cannot read registers: {error}");
        Ok(word.cast_unsigned())
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn instruction_pointer(self) -> Result<u64> {
        bail!("instructions can only be counted on x86-64")
    }

    /// The bytes at `address`, as many as an instruction may have; fewer at the end of a mapping.
    fn code(self, address: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; LENGTH_MAX];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: LENGTH_MAX };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: LENGTH_MAX };
        // SAFETY: `local` describes `bytes`; the remote address is the child's and checked by the
        // kernel.
        let read = unsafe { libc::process_vm_readv(self.0, &raw const local, 1, &raw const remote, 1, 0) };
        let read = usize::try_from(read).ok().filter(|&read| read > 0);
        let len = read.with_context(|| format!("cannot read code at {address:#x}: {}", io::Error::last_os_error()))?;
        bytes.truncate(len);
        Ok(bytes)
    }
}
