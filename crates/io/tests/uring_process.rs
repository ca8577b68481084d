//! io_uring in real processes: refused by seccomp, without locked memory, after a fork, interrupted
//! by signals, and idle. Each scenario is an ignored test, which another test runs in a process of
//! its own.
#![cfg(not(pagefold_loom))]

mod backends;

use std::process::{Command, Stdio};

use backends::patience::{PATIENCE, wait_until};
use backends::{Batch, FILE_LEN, PAGE};
use pagefold_io::{Access, Backend, BackingFile, DirectIo, IoError, Uring};
use rustix::process::{Pid, Signal, kill_process};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::time::{Duration, Instant};
use sync::{Arc, thread};

/// Runs a scenario in a process of its own, if this machine has io_uring.
fn in_a_process(scenario: &str) {
    if backends::uring().is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", scenario, "--ignored", "--nocapture"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let id = Pid::from_child(&child);
    let (waiter, start) = (thread::spawn("waiter", move || child.wait_with_output()).unwrap(), Instant::now());
    while !waiter.is_finished() {
        if start.elapsed() > 2 * PATIENCE {
            let _ = kill_process(id, Signal::KILL);
            panic!("waited in vain for this: the process of {scenario} ends");
        }
        thread::sleep(Duration::from_millis(2));
    }
    let done = waiter.join().unwrap().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("1 passed"), "{scenario}: {}\n{said}", done.status);
}

/// Files read by submitted requests; `backend` opens them.
fn reads_are_right(backend: &dyn Backend) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    backends::write_file(&path);
    read_all(&*backend.open(&path, Access::Read).unwrap());
}

fn read_all(file: &dyn BackingFile) {
    let batch = Batch::default();
    let queue = file.submit(&mut (0..FILE_LEN / PAGE).map(|page| batch.read(page * PAGE, 1)).collect());
    file.help(queue, &|| batch.is_over());
    assert!(batch.is_over() && batch.results().iter().all(|(_, result)| *result == Ok(4096)));
}

/// Makes the system call fail with `EPERM` from now on, in this thread and in threads that it
/// starts. This can't be undone.
fn forbid(system_call: libc::c_long) {
    install(system_call, 0);
}

/// As above, for all threads of this process.
fn forbid_all(system_call: libc::c_long) {
    install(system_call, libc::SECCOMP_FILTER_FLAG_TSYNC);
}

fn install(system_call: libc::c_long, flags: libc::c_ulong) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        // Loads the system call's number, which is the first field of the filter's input.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, system_call as u32) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is as long as it says, and the kernel copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) as i32
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

const REFUSED: IoError = IoError::Os(libc::EPERM);

#[test]
fn seccomp_that_refuses_a_ring_leaves_threads() {
    in_a_process("ring_refused");
}

#[test]
#[ignore = "for a process of its own"]
fn ring_refused() {
    forbid(libc::SYS_io_uring_setup);
    assert_eq!(Uring::new(DirectIo::Auto).err(), Some(REFUSED));
    let backend = pagefold_io::automatic();
    assert_eq!(backend.name(), "threads");
    reads_are_right(&*backend);
}

#[test]
fn seccomp_that_refuses_to_use_a_ring_leaves_threads() {
    in_a_process("use_refused");
}

#[test]
#[ignore = "for a process of its own"]
fn use_refused() {
    forbid(libc::SYS_io_uring_enter);
    assert_eq!(Uring::new(DirectIo::Auto).err(), Some(REFUSED));
    let backend = pagefold_io::automatic();
    assert_eq!(backend.name(), "threads");
    reads_are_right(&*backend);
}

/// Regression: a server built its resources first and then installed its seccomp filter, as servers
/// do. The next read of several pages never returned: the kernel refused to take the requests, and
/// the thread retried every millisecond, forever.
#[test]
fn seccomp_after_the_start_leaves_threads() {
    for scenario in ["use_refused_later", "waiting_refused_later", "telling_refused_later"] {
        in_a_process(scenario);
    }
}

#[test]
#[ignore = "for a process of its own"]
fn use_refused_later() {
    refused_later(libc::SYS_io_uring_enter);
}

#[test]
#[ignore = "for a process of its own"]
fn waiting_refused_later() {
    #[cfg(target_arch = "x86_64")]
    refused_later(libc::SYS_epoll_wait);
    // Newer architectures have only this system call.
    #[cfg(not(target_arch = "x86_64"))]
    refused_later(libc::SYS_epoll_pwait);
}

#[test]
#[ignore = "for a process of its own"]
fn telling_refused_later() {
    refused_later(libc::SYS_epoll_ctl);
}

fn refused_later(system_call: libc::c_long) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    backends::write_file(&path);
    let backend = Uring::new(DirectIo::Auto).unwrap();
    let file: Arc<dyn BackingFile> = Arc::from(backend.open(&path, Access::Read).unwrap());
    read_all(&*file);
    // Requests that the kernel already has when the filter is installed.
    let before = Batch::default();
    file.submit(&mut (0..200).map(|page| before.read(page * PAGE, 1)).collect());
    forbid_all(system_call);
    read_all(&*file);
    let after = Batch::default();
    file.submit(&mut (0..200).map(|page| after.read(page * PAGE, 1)).collect());
    let theirs = Arc::clone(&file);
    std::thread::spawn(move || read_all(&*theirs)).join().unwrap();
    wait_until("what was submitted is over", || before.is_over() && after.is_over());
    assert!(before.results().iter().chain(&after.results()).all(|(_, result)| *result == Ok(PAGE as usize)));
    drop((file, backend));
}

#[test]
fn no_locked_memory_and_few_descriptors_are_lived_with() {
    in_a_process("little_allowed");
}

#[test]
#[ignore = "for a process of its own"]
fn little_allowed() {
    let limit = |resource, most| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the kernel copies the limit.
        assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
    };
    limit(libc::RLIMIT_MEMLOCK, 0);
    let backend = pagefold_io::automatic();
    reads_are_right(&*backend);
    // There is a descriptor for the file, but none for a ring for each thread.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    backends::write_file(&path);
    let file: Arc<dyn BackingFile> = Arc::from(backend.open(&path, Access::Read).unwrap());
    drop(directory);
    limit(libc::RLIMIT_NOFILE, 1);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let file = Arc::clone(&file);
            std::thread::spawn(move || read_all(&*file))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_forked_child_does_its_requests_itself() {
    in_a_process("forked");
}

#[test]
#[ignore = "for a process of its own"]
fn forked() {
    for backend in [Box::new(Uring::new(DirectIo::Auto).unwrap()) as Box<dyn Backend>, backends::threads()] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("file");
        backends::write_file(&path);
        let file = backend.open(&path, Access::Read).unwrap();
        read_all(&*file);
        // SAFETY: the child goes on in this thread alone, takes no lock that another thread may
        // have held, and ends.
        match unsafe { libc::fork() } {
            0 => {
                let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read_all(&*file))).is_ok();
                drop(file);
                drop(backend);
                // SAFETY: ends the process, without what the test harness does at the end.
                unsafe { libc::_exit(i32::from(!read)) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the status is written to a place of ours.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "{}", backend.name());
            }
        }
        read_all(&*file);
    }
}

#[test]
fn signals_interrupt_waits_and_lose_nothing() {
    in_a_process("interrupted");
}

#[test]
#[ignore = "for a process of its own"]
fn interrupted() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an action without flags, so that system calls aren't restarted, whose handler does
    // nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    // Signals need the thread's number in the kernel. The C library's identifier of a thread may be
    // a pointer instead.
    // SAFETY: no arguments.
    let (process, reader) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (told, count) = (Arc::clone(&over), Arc::clone(&sent));
    let signals = std::thread::spawn(move || {
        while !told.load(Ordering::Relaxed) {
            // SAFETY: three numbers. The reader joins this thread before it ends.
            unsafe { libc::syscall(libc::SYS_tgkill, process, reader, libc::SIGUSR1) };
            count.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(20));
        }
    });
    let backend = Uring::new(DirectIo::Auto).unwrap();
    let mut rounds = 0;
    // Runs until enough signals were sent, because the other thread may send only a few in each
    // round.
    while rounds < 50 || sent.load(Ordering::Relaxed) <= 100 {
        reads_are_right(&backend);
        rounds += 1;
    }
    over.store(true, Ordering::Relaxed);
    signals.join().unwrap();
}

/// No thread may wake up without a reason. How much CPU time an idle process uses is measured by
/// `timed_an_idle_process_uses_no_cpu`.
#[test]
fn an_idle_process_with_ten_files_comes_to_rest() {
    in_a_process("idle");
}

#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_an_idle_process_uses_no_cpu() {
    in_a_process("idle_by_the_clock");
}

/// Returns ten files, all of which have been read completely. Some of their pages were read a
/// second time, by requests with which no thread helped.
fn ten_files(backend: &dyn Backend, directory: &std::path::Path) -> Vec<Box<dyn BackingFile>> {
    let left_alone = Batch::default();
    let files = (0..10)
        .map(|number| {
            let path = directory.join(number.to_string());
            backends::write_file(&path);
            let file = backend.open(&path, Access::Read).unwrap();
            read_all(&*file);
            file.submit(&mut (0..8).map(|page| left_alone.read(page * PAGE, 1)).collect());
            file
        })
        .collect();
    wait_until("the requests that were left alone are over", || left_alone.is_over());
    files
}

#[test]
#[ignore = "for a process of its own"]
fn idle() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let backend = Uring::new(DirectIo::Auto).unwrap();
    let files = ten_files(&backend, directory.path());
    let is_at_rest = || {
        let before = wake_ups();
        thread::sleep(Duration::from_secs(1));
        before == wake_ups()
    };
    wait_until("no other thread wakes up for a second", is_at_rest);
    drop(files);
}

/// For each of the other threads of this process, how often it has gone to sleep so far.
fn wake_ups() -> Vec<(String, u64)> {
    let me = rustix::thread::gettid().as_raw_pid().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let ids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap()).filter(|id| *id != me);
    let mut wake_ups: Vec<_> = ids
        .filter_map(|id| {
            // One that has ended meanwhile doesn't count.
            let status = std::fs::read_to_string(format!("/proc/self/task/{id}/status")).ok()?;
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            Some((id, count.trim().parse().unwrap()))
        })
        .collect();
    wake_ups.sort();
    wake_ups
}

#[test]
#[ignore = "for a process of its own: takes ten seconds"]
fn idle_by_the_clock() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let backend = Uring::new(DirectIo::Auto).unwrap();
    let files = ten_files(&backend, directory.path());
    thread::sleep(Duration::from_millis(500));
    let (start, used) = (Instant::now(), cpu_ns());
    thread::sleep(Duration::from_secs(10));
    assert!(start.elapsed() >= Duration::from_secs(10));
    let used = cpu_ns() - used;
    // Only the sleep itself, and the test harness, may use CPU time.
    assert!(used < 2_000_000, "{used} ns of CPU");
    drop(files);
}

/// CPU time that this process has used.
fn cpu_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
