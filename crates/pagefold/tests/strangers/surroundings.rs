//! A process that forbids itself system calls, locks its memory, has low limits, forks, or is
//! stopped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use pagefold::io::{IoError, Posix};
use pagefold::{Advice, Error, Pagefold, ReadRequest};

use crate::support::WATCHDOG;
use crate::{NOT_HERE, PAGE, a_file_is_used, in_a_process, open, small_fold};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Uses files, after a scenario has changed the process.
fn files_are_used(fold: &Pagefold) {
    let directory = directory();
    a_file_is_used(fold, &directory.path().join("file"), 1);
}

/// The type of a limit's number, which differs between C libraries.
#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

fn limit(resource: Resource, to: u64) {
    set_limit(resource, libc::rlimit { rlim_cur: to, rlim_max: to });
}

fn set_limit(resource: Resource, limit: libc::rlimit) {
    // SAFETY: the limit is this function's own.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0, "{}", std::io::Error::last_os_error());
}

/// From now on, the system call fails with `EPERM` in all threads of this process. Returns false if
/// the kernel has no such filters.
fn forbid(system_call: libc::c_long) -> bool {
    refuse(system_call, None, libc::EPERM)
}

/// As above, with any error. If `third` is given, only calls with this third argument fail.
fn refuse(system_call: libc::c_long, third: Option<i32>, errno: i32) -> bool {
    // The offset of the lower half of the third argument in `struct seccomp_data`, on little-endian
    // machines.
    const THIRD_AT: u32 = 16 + 2 * 8;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let unless = |is, jf| libc::sock_filter { jf, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, is) };
    let answer = [
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let mut program = vec![load(0)];
    match third {
        None => program.push(unless(system_call as u32, 1)),
        Some(third) => program.extend([unless(system_call as u32, 3), load(THIRD_AT), unless(third as u32, 1)]),
    }
    program.extend(answer);
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
    // If the system refuses the lock, opening fails. Without the lock, the file can be used.
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
    files_are_used(&small_fold());
    a_child_has_nothing(&small_fold());
}

/// Regression: a kernel before 4.14, or a sandbox such as gVisor, doesn't support some of
/// Pagefold's precautions. On such systems no Pagefold could be built. It must work without these
/// precautions.
#[test]
fn precautions_that_the_system_refuses_are_done_without() {
    for scenario in ["unwiped", "dumped", "undescribed"] {
        in_a_process(&format!("surroundings::{scenario}"));
    }
}

#[test]
#[ignore = "for a process of its own"]
fn unwiped() {
    // Also checks a Pagefold that was built before, whose memory the kernel does wipe.
    let before = small_fold();
    if !refuse(libc::SYS_madvise, Some(libc::MADV_WIPEONFORK), libc::EINVAL) {
        return;
    }
    let fold = Pagefold::builder().memory("8MiB").compressed_swap("4MiB").build().unwrap();
    files_are_used(&fold);
    [&before, &fold].into_iter().for_each(a_child_has_nothing);
}

#[test]
#[ignore = "for a process of its own"]
fn dumped() {
    if refuse(libc::SYS_madvise, Some(libc::MADV_DONTDUMP), libc::EINVAL) {
        files_are_used(&small_fold());
    }
}

/// The kernel refuses the system calls that describe how a file can be used, where memory is, and
/// what the limits are. Regression: when the kernel didn't report a limit, Pagefold panicked.
#[test]
#[ignore = "for a process of its own"]
fn undescribed() {
    const CALLS: [libc::c_long; 9] = [
        libc::SYS_prlimit64,
        libc::SYS_fstatfs,
        libc::SYS_fadvise64,
        libc::SYS_fallocate,
        libc::SYS_name_to_handle_at,
        libc::SYS_mbind,
        libc::SYS_getcpu,
        libc::SYS_sched_getaffinity,
        libc::SYS_flock,
    ];
    if CALLS.into_iter().all(|call| refuse(call, None, libc::EPERM)) {
        files_are_used(&Pagefold::builder().memory("64MiB").pretouch(true).build().unwrap());
    }
}

/// A child process must have none of the parent's pages, and must say so. The same holds for a
/// child of this child.
fn a_child_has_nothing(fold: &Pagefold) {
    let directory = directory();
    let path = directory.path().join("file");
    fs::write(&path, [7; 3 * PAGE as usize]).unwrap();
    let file = open(fold, "parent", &path);
    let mut bytes = [0; 100];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let pinned = file.page_at(PAGE).unwrap();
    in_child(|| {
        let read = file.read_at(&mut [0; 100], 0);
        assert!(matches!(read, Err(Error::Forked)), "{read:?}");
        assert!(pinned.iter().all(|&byte| byte == 0), "the child has the parent's page");
        in_child(|| {
            let read = file.read_at(&mut [0; 100], PAGE);
            assert!(matches!(read, Err(Error::Forked)), "{read:?}");
        });
    });
    drop(pinned);
    file.read_exact_at(&mut bytes, PAGE).unwrap();
    assert_eq!(bytes, [7; 100]);
}

fn in_child(body: impl FnOnce()) {
    // SAFETY: the child may allocate (glibc allows that), and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: touches no memory; the signal ends a child that hangs.
        unsafe { libc::alarm(WATCHDOG.as_secs() as u32) };
        let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        // SAFETY: leaves at once, and runs nothing that belongs to the parent.
        unsafe { libc::_exit(i32::from(!well)) };
    }
    let mut status = 0;
    // SAFETY: the status is this function's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child ended by signal {}, or with {}", status & 0x7f, status >> 8);
}

/// Regression: A directory in which other users may create files, but which they may not list. The
/// kernel could create a file there, but Pagefold failed, because it opened the directory for
/// reading, in order to sync it later.
#[test]
fn a_file_can_be_made_where_the_directory_may_not_be_read() {
    in_a_process("surroundings::drop_box");
}

#[test]
#[ignore = "for a process of its own"]
fn drop_box() {
    use std::os::unix::fs::PermissionsExt as _;
    const NOBODY: u32 = 65_534;
    let directory = directory();
    let inside = directory.path().join("drop box");
    fs::create_dir(&inside).unwrap();
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o333)).unwrap();
    // The way there may be closed to that user.
    std::env::set_current_dir(&inside).unwrap();
    // SAFETY: asks for a number, and sets one, for all threads of this process.
    if unsafe { libc::geteuid() == 0 && libc::setuid(NOBODY) != 0 } {
        return println!("{NOT_HERE}another user ({})", std::io::Error::last_os_error());
    }
    let fold = small_fold();
    let group = fold.group("a").build().unwrap();
    for create in [true, false] {
        let options = group.open_options().write(true).create(create);
        let file = options.open("file").unwrap();
        file.write_at(b"here", 0).unwrap();
        file.sync().unwrap();
    }
    assert_eq!(fs::read("file").unwrap(), b"here");
    // A swap file there as well.
    fold.add_swap(pagefold::SwapArea::unlinked("swap", 1 << 20)).unwrap();
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
    // SAFETY: returns a number. The limit doesn't apply to root.
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
        "a_descriptor_for_each_file",
        "descriptors_are_left",
        "little_address_space",
        "growth_in_4_gib_of_address_space",
        "address_space_for_page_words_alone",
        "little_writable_memory",
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
    limit(libc::RLIMIT_NOFILE, leaves_descriptors(14));
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

/// A limit that leaves so many descriptors.
fn leaves_descriptors(count: usize) -> u64 {
    // What was inherited is open, too.
    let open: Vec<u64> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    (0..).filter(|number| !open.contains(number)).nth(count).unwrap()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Regression: A file that was opened for writing took three descriptors: its own, one for its last
/// page, and one for its directory until the first sync.
#[test]
#[ignore = "for a process of its own"]
fn a_descriptor_for_each_file() {
    const FILES: usize = 50;
    let directory = directory();
    let fold = small_fold();
    let group = fold.group("a").build().unwrap();
    let before = descriptors();
    let open = |number: usize| {
        group.open_options().write(true).create(true).open(directory.path().join(number.to_string())).unwrap()
    };
    let files: Vec<_> = (0..FILES).map(open).collect();
    // And one for the directory.
    assert_eq!(descriptors() - before, FILES + 1);
    let again: Vec<_> = (0..FILES).map(open).collect();
    assert_eq!(descriptors() - before, FILES + 1);
    for file in &files {
        file.write_at(&[7; 5000], 0).unwrap();
        file.sync().unwrap();
    }
    assert!(descriptors() - before <= FILES + 1);
    drop((files, again));
    assert!(descriptors() <= before);
}

/// Regression: There were as many threads as free descriptors. Each thread opened a descriptor for
/// its requests, so the program had none left.
#[test]
#[ignore = "for a process of its own"]
fn descriptors_are_left() {
    const THREADS: u64 = 40;
    const PAGES: u64 = 8;
    let directory = directory();
    let fold = small_fold();
    let file = open(&fold, "a", &directory.path().join("file"));
    file.write_at(&vec![7; (THREADS * PAGES * PAGE) as usize], 0).unwrap();
    file.sync().unwrap();
    file.advise(0..0, Advice::DontNeed).unwrap();
    let few = leaves_descriptors(12);
    limit(libc::RLIMIT_NOFILE, few);
    let all_are_there = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for first in (0..THREADS * PAGES).step_by(PAGES as usize) {
            let (file, all_are_there) = (&file, &all_are_there);
            scope.spawn(move || {
                let mut pages = [[0; PAGE as usize]; PAGES as usize];
                let mut batch: Vec<_> =
                    (first..).zip(&mut pages).map(|(page, into)| ReadRequest::new(page * PAGE, into)).collect();
                all_are_there.wait();
                file.read_batch(&mut batch);
                batch.into_iter().for_each(|request| assert_eq!(request.result.unwrap(), PAGE as usize));
            });
        }
    });
    let is_ring = |number: u64| {
        fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to| to.to_string_lossy().contains("io_uring"))
    };
    let rings: Vec<u64> = (0..few).filter(|&number| is_ring(number)).collect();
    assert!(rings.iter().all(|&number| number < few - few / 4), "{rings:?} of {few}");
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

/// Regression: if the process could reserve as many page words as ever exist, it did so, even if no
/// address space was left for frames.
#[test]
#[ignore = "for a process of its own"]
fn address_space_for_page_words_alone() {
    const GIB: u64 = 1 << 30;
    for beside in [10 * GIB, 3 * GIB] {
        limit(libc::RLIMIT_AS, 1024 * GIB + beside);
        files_are_used(&Pagefold::builder().memory("4GiB").build().unwrap());
    }
}

/// Files grow within a range of address space that is reserved at the start. When this range is
/// used up, a file must not seem shorter than it is, and other files can still be opened and read.
#[test]
#[ignore = "for a process of its own"]
fn growth_in_4_gib_of_address_space() {
    const GIB: u64 = 1 << 30;
    limit(libc::RLIMIT_AS, 4 * GIB);
    let fold = Pagefold::builder().memory("64MiB").build().unwrap();
    fold.resize("128MiB").unwrap();
    let beyond = fold.resize("4GiB").unwrap_err();
    assert!(matches!(beyond, Error::BudgetTooLarge { max, .. } if max.0 >= 128 << 20 && max.0 < GIB), "{beyond}");
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

/// Regression: Memory for the largest possible budget was reserved as writable memory, although it
/// was never written. With a limit on such memory, or with `vm.overcommit_memory=2`, no Pagefold
/// could be built.
#[test]
#[ignore = "for a process of its own"]
fn little_writable_memory() {
    // With all page words, their tables would take more than 1 GiB.
    for mib in [2_048, 1_536, 1_200, 1_100] {
        limit(libc::RLIMIT_DATA, mib << 20);
        let fold = Pagefold::builder().memory("64MiB").build().unwrap();
        fold.resize("128MiB").unwrap();
        files_are_used(&fold);
    }
}

#[test]
#[ignore = "for a process of its own"]
fn no_locked_memory() {
    limit(libc::RLIMIT_MEMLOCK, 0);
    files_are_used(&small_fold());
}

/// Writes beyond the process's limit on the length of files. Those beyond the limit must make the
/// sync fail, those below it must succeed, and other files must work. Before, the kernel's signal
/// (SIGXFSZ) ended the process, as it does after any `pwrite` beyond the limit.
#[test]
#[ignore = "for a process of its own"]
fn short_files() {
    const TOO_LARGE: IoError = IoError::FILE_TOO_LARGE;
    let directory = directory();
    let folds = [small_fold(), Pagefold::builder().memory("1MiB").backend(Posix::default()).build().unwrap()];
    // The limit is within a block, at the end of a block, or at the end of a page.
    let limits = [16 * PAGE + 2049, 16 * PAGE + 2048, 16 * PAGE];
    for (number, (max, fold)) in
        limits.into_iter().flat_map(|max| folds.iter().map(move |fold| (max, fold))).enumerate()
    {
        set_limit(libc::RLIMIT_FSIZE, libc::rlimit { rlim_cur: max, rlim_max: libc::RLIM_INFINITY });
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
    // A program that measures its test coverage writes a longer file when it ends.
    limit(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
}

/// Signals interrupt the system calls of all threads again and again.
#[test]
fn signals_to_all_threads_lose_nothing() {
    in_a_process("surroundings::signals");
}

#[test]
#[ignore = "for a process of its own"]
fn signals() {
    const SIGNALS: usize = 2000;
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the action has no flags, so system calls aren't restarted, and its handler does
    // nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    let sender = thread::spawn(|| {
        let mut sent = 0;
        while sent < SIGNALS {
            for task in fs::read_dir("/proc/self/task").unwrap() {
                let thread: libc::c_long = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
                // SAFETY: passes three numbers. If the thread has ended, the call does nothing.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
                sent += 1;
            }
            thread::sleep(Duration::from_micros(500));
        }
    });
    let folds = [small_fold(), Pagefold::builder().memory("1MiB").backend(Posix::default()).build().unwrap()];
    let mut rounds = 0;
    while rounds < 2 || !sender.is_finished() {
        files_are_used(&folds[rounds % 2]);
        rounds += 1;
    }
    sender.join().unwrap();
}

/// Children that exit, or execute another program, must not change files, locks and rings of the
/// parent.
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
                // SAFETY: both strings end with a zero byte, and nothing of the child continues.
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

/// Name of the variable with the child's `io_timeout`, in milliseconds.
const IO_TIMEOUT_MS: &str = "PAGEFOLD_IO_TIMEOUT_MS";

#[test]
fn a_stopped_process_goes_on() {
    is_stopped(WATCHDOG, Duration::from_millis(100));
}

/// A process was stopped for longer than its `io_timeout`. This isn't a wait for a device, so no
/// call may time out when the process continues. The `io_timeout` is longer than a sync takes on a
/// shared disk of a quiet machine.
#[test]
#[ignore = "timed: cargo xtask prove times"]
fn timed_a_process_that_is_stopped_for_longer_than_its_timeout_goes_on() {
    let io_timeout = Duration::from_secs(3);
    is_stopped(io_timeout, io_timeout + Duration::from_millis(100));
}

/// Runs a process with this `io_timeout`, and stops it for the duration `stopped`, several times.
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
            // SAFETY: sends a signal to a child that hasn't been waited for.
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
