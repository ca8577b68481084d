//! A process that forbids itself system calls, locks its memory, has few of everything, forks, or is stopped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pagefold::io::{IoError, Posix};
use pagefold::{Error, Pagefold};

use crate::support::WATCHDOG;
use crate::{NOT_HERE, PAGE, a_file_is_used, in_a_process, open, small_fold};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// What a scenario goes on with when the process is as it should be.
fn files_are_used(fold: &Pagefold) {
    let directory = directory();
    a_file_is_used(fold, &directory.path().join("file"), 1);
}

fn limit(resource: libc::__rlimit_resource_t, to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: the limit is this function's own.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0, "{}", std::io::Error::last_os_error());
}

/// From now on all threads of this process get `EPERM` for the system call. False if the system has no such filters.
fn forbid(system_call: libc::c_long) -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, system_call as u32) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is as long as it says, and the kernel copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const program,
            ) as i32
    };
    if done != 0 {
        println!("{NOT_HERE}seccomp ({})", std::io::Error::last_os_error());
    }
    done == 0
}

#[test]
fn a_filter_of_system_calls_after_the_start_is_put_up_with() {
    for scenario in ["io_uring_forbidden", "locks_forbidden", "giving_back_forbidden"] {
        in_a_process(&format!("surroundings::{scenario}"));
    }
}

#[test]
#[ignore = "for a process of its own"]
fn io_uring_forbidden() {
    let fold = small_fold();
    files_are_used(&fold);
    if !forbid(libc::SYS_io_uring_enter) {
        return;
    }
    files_are_used(&small_fold());
    let directory = directory();
    let file = open(&fold, "third", &directory.path().join("file"));
    file.write_at(&[7; 100_000], 5).unwrap();
    file.sync().unwrap();
    assert_eq!(fs::read(directory.path().join("file")).unwrap()[5..], [7; 100_000]);
}

#[test]
#[ignore = "for a process of its own"]
fn locks_forbidden() {
    if !forbid(libc::SYS_flock) {
        return;
    }
    let directory = directory();
    let fold = small_fold();
    let group = fold.group("a").build().unwrap();
    let options = group.open_options().write(true).create(true);
    // A lock that the system refuses is an error; without one, the file can be used.
    let refused = options.open(directory.path().join("file"));
    assert!(matches!(refused, Ok(_) | Err(Error::OpenFailed { .. } | Error::FileInUse { .. })), "{refused:?}");
    drop(refused);
    let file = group.open_options().write(true).create(true).lock(false).open(directory.path().join("file")).unwrap();
    file.write_at(b"here", 0).unwrap();
    file.sync().unwrap();
}

#[test]
#[ignore = "for a process of its own"]
fn giving_back_forbidden() {
    let fold = Pagefold::builder().memory("64MiB").build().unwrap();
    files_are_used(&fold);
    if !forbid(libc::SYS_madvise) {
        return;
    }
    let _ = fold.resize("32MiB");
    files_are_used(&fold);
    let refused = Pagefold::builder().memory("1MiB").build();
    assert!(matches!(refused, Err(Error::System { .. })), "{refused:?}");
}

#[test]
fn locked_memory_is_put_up_with() {
    in_a_process("surroundings::all_is_locked");
}

#[test]
#[ignore = "for a process of its own"]
fn all_is_locked() {
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut most) }, 0);
    // SAFETY: asks for a number. To root the limit doesn't apply.
    if most.rlim_cur != libc::RLIM_INFINITY && unsafe { libc::geteuid() } != 0 {
        return println!("{NOT_HERE}locked memory without a limit");
    }
    // SAFETY: no memory of Rust's is concerned.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } != 0 {
        return println!("{NOT_HERE}mlockall ({})", std::io::Error::last_os_error());
    }
    let fold = Pagefold::builder().memory("8MiB").build().unwrap();
    files_are_used(&fold);
    fold.resize("4MiB").unwrap();
}

#[test]
fn small_limits_are_errors_and_nothing_is_lost() {
    for scenario in [
        "few_descriptors",
        "little_address_space",
        "growth_in_4_gib_of_address_space",
        "no_locked_memory",
        "short_files",
    ] {
        in_a_process(&format!("surroundings::{scenario}"));
    }
}

#[test]
#[ignore = "for a process of its own"]
fn few_descriptors() {
    let directory = directory();
    let fold = small_fold();
    // What was inherited is open, too.
    let open: Vec<u64> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    let few = (0..).filter(|number| !open.contains(number)).nth(14).unwrap();
    limit(libc::RLIMIT_NOFILE, few);
    let group = fold.group("a").build().unwrap();
    let open =
        |number: u32| group.open_options().write(true).create(true).open(directory.path().join(number.to_string()));
    let mut files = Vec::new();
    let refused = loop {
        match open(files.len() as u32) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
        assert!(files.len() < 24);
    };
    assert!(matches!(refused, Error::OpenFailed { .. }), "{refused}");
    for file in &files {
        file.write_at(b"here", 0).unwrap();
    }
    files.pop().unwrap().close().unwrap();
    files.pop().unwrap().close().unwrap();
    open(0).unwrap().read_exact_at(&mut [0; 4], 0).unwrap();
    files.iter().for_each(|file| file.sync().unwrap());
}

#[test]
#[ignore = "for a process of its own"]
fn little_address_space() {
    limit(libc::RLIMIT_AS, 512 << 20);
    match Pagefold::builder().memory("1MiB").build() {
        Ok(fold) => files_are_used(&fold),
        Err(error) => assert!(matches!(error, Error::System { .. }), "{error}"),
    }
}

/// Files grow in the address space that there is, which is reserved at the start. Where it ends, a file isn't found shorter than it is, and
/// other files can be opened and read.
#[test]
#[ignore = "for a process of its own"]
fn growth_in_4_gib_of_address_space() {
    const GIB: u64 = 1 << 30;
    limit(libc::RLIMIT_AS, 4 * GIB);
    let fold = Pagefold::builder().memory("64MiB").memory_max("64MiB").build().unwrap();
    let directory = directory();
    let path = directory.path().join("file");
    fs::write(&path, [1; PAGE as usize]).unwrap();
    let file = open(&fold, "a", &path);
    file.write_at(&[2; PAGE as usize], 100 * GIB).unwrap();
    let mut bytes = [9; PAGE as usize];
    file.read_exact_at(&mut bytes, 100 * GIB).unwrap();
    assert!(bytes == [2; PAGE as usize]);
    file.set_len(8 << 40).unwrap();
    let refused = (0..8 << 10).find_map(|gib| file.read_exact_at(&mut bytes, gib * GIB + 5).err());
    assert!(matches!(refused, Some(Error::FileTooLarge { .. })), "{refused:?}");
    file.read_exact_at(&mut bytes, 100 * GIB).unwrap();
    assert!(bytes == [2; PAGE as usize]);
    // As large as it is now.
    let other = directory.path().join("other");
    fs::write(&other, [3; 10]).unwrap();
    fs::OpenOptions::new().write(true).open(&other).unwrap().set_len(8 << 40).unwrap();
    let other = open(&fold, "b", &other);
    other.read_exact_at(&mut bytes[..10], 0).unwrap();
    assert_eq!(bytes[..10], [3; 10]);
    drop(file);
    other.read_exact_at(&mut bytes, 5 << 40).unwrap();
    files_are_used(&fold);
}

#[test]
#[ignore = "for a process of its own"]
fn no_locked_memory() {
    limit(libc::RLIMIT_MEMLOCK, 0);
    files_are_used(&small_fold());
}

/// What doesn't fit isn't written, and the sync says so; what does fit is there, and other files go on. The system's signal
/// (SIGXFSZ) ended the process, as it does for any `pwrite`.
#[test]
#[ignore = "for a process of its own"]
fn short_files() {
    const TOO_LARGE: IoError = IoError::FILE_TOO_LARGE;
    let directory = directory();
    limit(libc::RLIMIT_FSIZE, 16 * PAGE);
    let folds = [small_fold(), Pagefold::builder().memory("1MiB").backend(Posix::default()).build().unwrap()];
    for (number, fold) in folds.iter().enumerate() {
        let [path, other] = ["file", "other"].map(|name| directory.path().join(format!("{name}{number}")));
        let (file, other) = (open(fold, "a", &path), open(fold, "b", &other));
        file.write_at(&[1; 8 * PAGE as usize], 0).unwrap();
        file.sync().unwrap();
        let refused = file.write_at(&[2; PAGE as usize], 40 * PAGE).and_then(|()| file.sync());
        assert!(matches!(refused, Err(Error::WriteFailed { error: TOO_LARGE, .. })), "{refused:?}");
        assert!(fs::read(&path).unwrap().starts_with(&[1; 8 * PAGE as usize]));
        // Begins below the limit, and ends beyond.
        let refused = other.write_at(&[3; 3 * PAGE as usize], 14 * PAGE).and_then(|()| other.sync());
        assert!(matches!(refused, Err(Error::WriteFailed { error: TOO_LARGE, .. })), "{refused:?}");
        other.set_len(16 * PAGE).unwrap();
        other.sync().unwrap();
        let longer = other.set_len(17 * PAGE);
        assert!(matches!(longer, Err(Error::WriteFailed { error: TOO_LARGE, .. })), "{longer:?}");
        let _ = file.close();
        other.close().unwrap();
    }
}

/// Children that exit, or execute another program, leave files, locks and rings as they are.
#[test]
fn children_change_nothing() {
    in_a_process("surroundings::forks");
}

#[test]
#[ignore = "for a process of its own"]
fn forks() {
    let fold = small_fold();
    let directory = directory();
    let file = open(&fold, "parent", &directory.path().join("file"));
    for turn in 0..10_u8 {
        file.write_at(&[turn; 3 * PAGE as usize], u64::from(turn) * PAGE).unwrap();
        // SAFETY: the child executes another program at once, or exits.
        match unsafe { libc::fork() } {
            0 if turn % 2 == 0 => {
                // SAFETY: both strings end with a zero; nothing of the child's goes on.
                unsafe {
                    libc::execl(c"/bin/true".as_ptr(), c"true".as_ptr(), std::ptr::null::<libc::c_char>());
                    libc::_exit(0);
                }
            }
            // SAFETY: the child is over.
            0 => unsafe { libc::_exit(0) },
            child => {
                assert!(child > 0);
                file.sync().unwrap();
                let mut status = 0;
                // SAFETY: the status is this function's own.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
    }
    files_are_used(&fold);
}

/// How long the process that is stopped waits for a device, in milliseconds.
const IO_TIMEOUT_MS: &str = "PAGEFOLD_IO_TIMEOUT_MS";

#[test]
fn a_stopped_process_goes_on() {
    is_stopped(WATCHDOG, Duration::from_millis(100));
}

/// A process that was stopped for a while hasn't waited for a device: no time-out is over when it goes on. The time is
/// more than what a disk takes to sync that others use as well, on a quiet machine.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_process_that_is_stopped_for_longer_than_its_timeout_goes_on() {
    let io_timeout = Duration::from_secs(3);
    is_stopped(io_timeout, io_timeout + Duration::from_millis(100));
}

/// Runs a process with that time-out, which is stopped for `stopped` again and again.
fn is_stopped(io_timeout: Duration, stopped: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "surroundings::works_for_a_while", "--ignored", "--nocapture"]);
    child.env(IO_TIMEOUT_MS, io_timeout.as_millis().to_string());
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let id = child.id() as i32;
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut passed = false;
    for line in lines.map(Result::unwrap) {
        if line.contains("turn") {
            // SAFETY: a signal to a child that hasn't been waited for.
            unsafe { libc::kill(id, libc::SIGSTOP) };
            thread::sleep(stopped);
            // SAFETY: as above.
            unsafe { libc::kill(id, libc::SIGCONT) };
        }
        passed |= line.contains("1 passed");
    }
    assert!(child.wait().unwrap().success() && passed);
}

#[test]
#[ignore = "for a process of its own"]
fn works_for_a_while() {
    let io_timeout = std::env::var(IO_TIMEOUT_MS).map_or(WATCHDOG, |ms| Duration::from_millis(ms.parse().unwrap()));
    let fold = Pagefold::builder().memory("1MiB").io_timeout(io_timeout).build().unwrap();
    let directory = directory();
    for turn in 0..3 {
        println!("turn {turn}");
        let path: PathBuf = directory.path().join(turn.to_string());
        a_file_is_used(&fold, &path, turn);
    }
}
