//! One tenant's device doesn't answer, or answers slowly, and other tenants wait for it.

use pagefold::io::{Backend, DirectIo, ThreadPool, Uring};
use pagefold::{File, Pagefold};

use crate::hooked::Answer;
use crate::support::gate::{OpenAtEnd, TwoDevices, in_time};
use crate::support::{check, eventually, manager};

const LEN: u64 = 1 << 20;

struct Tenants {
    _mm: Pagefold,
    /// On the device behind the gate.
    gated: File,
    other: File,
}

fn tenants(backend: impl Backend) -> Tenants {
    let mm = manager(1024, backend);
    let open = |group: &str, path: &str| mm.group(group).build().unwrap().open(path).unwrap();
    Tenants { gated: open("a", "gated/f0"), other: open("b", "other/f1"), _mm: mm }
}

/// Without io_uring, all requests waited in one queue. A reader that waited for its pages took the
/// oldest request of the queue and performed it. Here the oldest request was another tenant's,
/// whose device didn't answer, so the reader never returned.
#[test]
fn a_reader_does_no_other_tenants_requests() {
    let devices = TwoDevices::new(2, LEN);
    let gate = devices.gate.clone();
    let tenants = tenants(ThreadPool::new(devices, 2).unwrap());
    let _open = OpenAtEnd(gate.clone());
    gate.close();
    // Every second page, so that there is a request for each: more requests than threads.
    for page in (0..LEN / 4096).step_by(2) {
        tenants.gated.prefetch(page * 4096..page * 4096 + 1);
    }
    gate.await_waiting(1);
    let other = tenants.other.clone();
    in_time("a read on another device", move || {
        let mut bytes = vec![0; 128 << 10];
        other.read_exact_at(&mut bytes, 0).unwrap();
        check(1, 0, &bytes);
    });
    // Also requests for which no reader waits.
    tenants.other.prefetch(512 << 10..1 << 20);
    let all_is_there = || tenants._mm.stats().files.iter().any(|file| file.bytes_in == (128 << 10) + (512 << 10));
    eventually("what was prefetched isn't there", all_is_there);
    assert!(gate.waiting() > 0);
    gate.open();
}

/// Tenant A dropped a file's last handle while a page of the file was loading; meanwhile tenant B
/// opened the file. The drop waited until the file had no load in flight at all, and with B's reads
/// there always was one. It must wait only for loads that began before it.
#[test]
fn closing_a_file_does_not_wait_for_later_readers() {
    let devices = TwoDevices::new(2, LEN);
    let gate = devices.gate.clone();
    let mm = manager(1024, ThreadPool::new(devices, 4).unwrap());
    let open = |group: &str| mm.group(group).build().unwrap().open("gated/f0").unwrap();
    let first = open("a");
    gate.close();
    first.prefetch(0..1);
    gate.await_waiting(1);
    let closing = Answer::of(move || drop(first));
    // The handle is gone, and the thread waits for the load.
    closing.thread().await_sleep();
    let second = open("b");
    // Locals are dropped in reverse order, so the gate opens before `second` is dropped, which
    // waits for its load.
    let _open = OpenAtEnd(gate.clone());
    second.prefetch(LEN / 2..LEN / 2 + 1);
    closing.wait().expect("closing hangs");
    gate.await_waiting(2);
    gate.open();
    second.read_exact_at(&mut [0; 8], 0).unwrap();
}

/// Whether files in this directory are in memory. The CPU copies such files, so nothing is read
/// ahead.
fn is_memory(directory: &std::path::Path) -> bool {
    let path = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: a `statfs` is plain numbers, and the call fills it in; the path ends with a zero.
    let stat = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::statfs(path.as_ptr(), &raw mut stat), 0);
        stat
    };
    // The type of these constants differs between C libraries.
    const RAMFS: u64 = 0x8584_58f6;
    [libc::TMPFS_MAGIC as u64, RAMFS].contains(&(stat.f_type as u64))
}

/// On file systems without direct I/O, nothing was read ahead, and a batch was read page by page,
/// each with the device's whole latency. Pagefold had assumed that such a read is only a copy by
/// the CPU, as on tmpfs.
#[test]
fn buffered_files_are_read_ahead_and_in_parallel() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if is_memory(directory.path()) {
        println!("not here: a build directory on a disk");
        return;
    }
    let path = directory.path().join("file");
    std::fs::write(&path, vec![7; 4 << 20]).unwrap();
    let uring = Uring::new(DirectIo::Never);
    let refusal = uring.as_ref().err().and_then(|error| error.errno());
    if let Some(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP) = refusal {
        println!("not here: io_uring");
        return;
    }
    let mm = manager(2048, uring.unwrap());
    let file = mm.group("a").build().unwrap().open(&path).unwrap();
    let mut page = [0; 4096];
    for at in (0..2 << 20).step_by(4096) {
        file.read_exact_at(&mut page, at).unwrap();
        assert_eq!(page, [7; 4096]);
    }
    assert!(file.stats().read_ahead > 256, "{} pages read ahead", file.stats().read_ahead);
}
