//! Executes a part of another process one instruction at a time, and counts instructions and their
//! kinds.
//!
//! The other process is this program again, as a child. Between two breakpoints of its main thread,
//! the kernel stops it at every instruction (`ptrace`, which needs no privilege for a child). This
//! takes some microseconds per instruction, but is exact, and needs no performance counters.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// No instruction is longer.
const LENGTH_MAX: usize = 15;
/// Bytes of a cache line.
const LINE: u64 = 64;

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

/// What was executed between two breakpoints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) count: Count,
    /// How many atomic read-modify-writes went to which cache line, by the line's address.
    pub(crate) lines: BTreeMap<u64, u64>,
}

/// What `ptrace` is asked for, whose type C libraries don't agree on.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// Marks the beginning or the end of the traced part, in the child. Without a tracer, this ends the
/// process.
#[cfg(target_arch = "x86_64")]
pub(crate) fn breakpoint() {
    // SAFETY: the instruction changes nothing; the tracer continues behind it.
    unsafe { std::arch::asm!("int3", options(nostack)) };
}

/// Other processors aren't decoded; see [`count`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn breakpoint() {}

/// Starts `command`, which must call [`breakpoint`] twice. Counts what its main thread executes
/// between these calls.
pub(crate) fn count(command: &mut Command) -> Result<Count> {
    Ok(sections(command, 1)?[0].count)
}

/// Starts `command`, which must call [`breakpoint`] before and after each of `number` sections.
/// Returns what its main thread executes in each section. During a section, the thread stays on one
/// CPU: the first of those that it may use when the section begins.
#[cfg(target_arch = "x86_64")]
pub(crate) fn sections(command: &mut Command, number: usize) -> Result<Vec<Section>> {
    let trace_me = || {
        // SAFETY: takes no pointers; asks for this process to be traced by its parent.
        let done = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes one system call and no allocation.
    unsafe { command.pre_exec(trace_me) };
    let mut child = command.spawn().context("cannot start the process to be counted; is ptrace forbidden here?")?;
    let tracee = Tracee(i32::try_from(child.id()).context("a process number beyond i32")?);
    let stepped = step_through(tracee, number);
    if stepped.is_err() {
        // Best effort: the child may be gone already, and the error that we have is more useful.
        let _ = child.kill();
        let _ = child.wait();
    }
    stepped
}

/// Only x86-64 is understood.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn sections(_command: &mut Command, _number: usize) -> Result<Vec<Section>> {
    bail!("instructions can only be counted on x86-64")
}

#[cfg(target_arch = "x86_64")]
fn step_through(tracee: Tracee, number: usize) -> Result<Vec<Section>> {
    ensure!(tracee.wait()? == Stop::Signal(libc::SIGTRAP), "the process did not stop at its start");
    let sections = (0..number).map(|_| section_between_breakpoints(tracee)).collect::<Result<_>>()?;
    tracee.run_to_exit()?;
    Ok(sections)
}

#[cfg(target_arch = "x86_64")]
fn section_between_breakpoints(tracee: Tracee) -> Result<Section> {
    tracee.run_to_breakpoint()?;
    // The child is kept on one CPU only from here on. Until now it had to see all CPUs, so that it
    // set up what it usually does.
    let _together = OneCpu::share_with(tracee)?;
    let Section { mut count, mut lines } = Section::default();
    let mut known = HashMap::new();
    let mut before = 0;
    loop {
        let at = tracee.instruction_pointer()?;
        let instruction: Instruction = match known.get(&at) {
            Some(&instruction) => instruction,
            None => *known.entry(at).or_insert(decode(&tracee.code(at)?, at)),
        };
        if instruction.code() == Code::Int3 {
            break;
        }
        let repeats =
            instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
        if !(repeats && at == before) {
            count.instructions += 1;
            count.system_calls += u64::from(instruction.code() == Code::Syscall);
            if is_atomic(&instruction) {
                count.atomics += 1;
                *lines.entry(tracee.address(&instruction)? & !(LINE - 1)).or_default() += 1;
            }
        }
        before = at;
        tracee.step()?;
    }
    tracee.run_to_breakpoint()?;
    Ok(Section { count, lines })
}

fn decode(code: &[u8], at: u64) -> Instruction {
    Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode()
}

/// An atomic read-modify-write. `xchg` with memory locks without the prefix.
fn is_atomic(instruction: &Instruction) -> bool {
    let exchanges = instruction.mnemonic() == Mnemonic::Xchg && instruction.op0_kind() == OpKind::Memory;
    instruction.has_lock_prefix() || exchanges
}

/// Keeps tracer and child on one CPU until it is dropped. On two CPUs, each step would wait for two
/// wake-ups.
struct OneCpu(CpuSet);

impl OneCpu {
    fn share_with(tracee: Tracee) -> Result<Self> {
        let all = sched_getaffinity(None).context("cannot ask for the CPUs of this process")?;
        let its =
            sched_getaffinity(Pid::from_raw(tracee.0)).context("cannot ask for the CPUs of the traced process")?;
        let mut one = CpuSet::new();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| its.is_set(cpu)).context("no CPU to run on")?;
        one.set(first);
        sched_setaffinity(Pid::from_raw(tracee.0), &one).context("cannot choose a CPU for the traced process")?;
        sched_setaffinity(None, &one).context("cannot choose a CPU for the tracer")?;
        Ok(Self(all))
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        // Best effort. If it fails, later experiments run on one CPU and are slow.
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

    /// The address of an instruction's first operand, which is in memory.
    #[cfg(target_arch = "x86_64")]
    fn address(self, instruction: &Instruction) -> Result<u64> {
        let mut all = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
        // SAFETY: `all` is where the kernel writes the registers of the stopped child.
        let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0, 0, all.as_mut_ptr()) };
        ensure!(done == 0, "cannot read registers: {}", io::Error::last_os_error());
        // SAFETY: zeroed before, and any bytes are registers.
        let all = unsafe { all.assume_init() };
        let value = |register: Register, _, _| match register.full_register() {
            Register::RAX => Some(all.rax),
            Register::RBX => Some(all.rbx),
            Register::RCX => Some(all.rcx),
            Register::RDX => Some(all.rdx),
            Register::RSI => Some(all.rsi),
            Register::RDI => Some(all.rdi),
            Register::RBP => Some(all.rbp),
            Register::RSP => Some(all.rsp),
            Register::R8 => Some(all.r8),
            Register::R9 => Some(all.r9),
            Register::R10 => Some(all.r10),
            Register::R11 => Some(all.r11),
            Register::R12 => Some(all.r12),
            Register::R13 => Some(all.r13),
            Register::R14 => Some(all.r14),
            Register::R15 => Some(all.r15),
            Register::FS => Some(all.fs_base),
            Register::GS => Some(all.gs_base),
            // The other segments begin at 0.
            _ => Some(0),
        };
        instruction
            .virtual_address(0, 0, value)
            .with_context(|| format!("no address in memory: {:?}", instruction.code()))
    }

    /// Returns the bytes at `address`, as many as the longest instruction has, or fewer at the end
    /// of a mapping.
    fn code(self, address: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; LENGTH_MAX];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: LENGTH_MAX };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: LENGTH_MAX };
        // SAFETY: `local` describes `bytes`. The remote address is the child's, and the kernel
        // checks it.
        let read = unsafe { libc::process_vm_readv(self.0, &raw const local, 1, &raw const remote, 1, 0) };
        let read = usize::try_from(read).ok().filter(|&read| read > 0);
        let len = read.with_context(|| format!("cannot read code at {address:#x}: {}", io::Error::last_os_error()))?;
        bytes.truncate(len);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atomic(code: &[u8]) -> bool {
        is_atomic(&decode(code, 0))
    }

    #[test]
    fn atomics_are_recognised_behind_all_prefixes() {
        assert!(atomic(&[0xF0, 0x48, 0x0F, 0xB1, 0x0F]), "lock cmpxchg [rdi], rcx");
        assert!(atomic(&[0x66, 0xF0, 0x0F, 0xC1, 0x07]), "lock xadd [rdi], ax");
        assert!(atomic(&[0x64, 0xF0, 0x48, 0xFF, 0x00]), "lock inc fs:[rax]");
        assert!(atomic(&[0x48, 0x87, 0x07]), "xchg [rdi], rax");
        assert!(atomic(&[0x86, 0x07]), "xchg [rdi], al");
    }

    #[test]
    fn others_are_not() {
        assert!(!atomic(&[0x48, 0x87, 0xC7]), "xchg rdi, rax");
        assert!(!atomic(&[0x0F, 0xB1, 0x0F]), "cmpxchg without lock");
        assert!(!atomic(&[0x48, 0x8B, 0xF0]), "mov rsi, rax: F0 is its ModRM");
        assert!(!atomic(&[0xC3]));
        assert!(!atomic(&[]));
    }
}
