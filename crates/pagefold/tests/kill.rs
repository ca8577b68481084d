//! A process that writes is killed. Afterwards, the file must have what `sync` guaranteed.
//!
//! The child process runs this test again, as an environment variable tells it. Beside the file, it
//! writes a second file, the ledger, with two words for each page: the version that it is about to
//! write, and the last version that a `sync` has made durable. It writes the ledger with `pwrite`,
//! so the kernel has the words even if the process is killed.
#![cfg(not(pagefold_loom))]

mod support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pagefold::{Error, Pagefold};
use support::eventually;
use sync::random::{Random, seeds};

const PAGES: u64 = 400;
const PAGE: u64 = 4096;
const DIRECTORY: &str = "PAGEFOLD_KILL_IN";
const SEED: &str = "PAGEFOLD_KILL_SEED";
const ROUNDS: u64 = 12;
/// The child is killed after a random number of writes, from `WRITES[0]` to less than `WRITES[0] +
/// WRITES[1]`.
const WRITES: [u64; 2] = [300, 3_000];

/// Word `at` of version `number` of page `page`. It differs for each of these.
fn word(page: u64, number: u64, at: u64) -> u64 {
    page << 44 | number << 9 | at
}

fn page_bytes(page: u64, number: u64) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|at| word(page, number, at).to_le_bytes()).collect()
}

/// The offset of a page's two words in the ledger: the pending version, and the one that was
/// synced.
fn ledger_at(page: u64) -> u64 {
    page * 16
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Run by the child process: writes until it is killed.
#[test]
#[ignore = "for a process of its own"]
fn write_until_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let directory = Path::new(&directory);
    let mut random = Random::seeded(seed);
    let ledger = OpenOptions::new().read(true).write(true).open(directory.join("ledger")).unwrap();
    let mm = Pagefold::builder().memory("1MiB").build().unwrap();
    // The kernel keeps the lock of the last child until its requests have ended.
    let group = mm.group("a").build().unwrap();
    let mut open = None;
    eventually("the file stays locked", || {
        open = match group.open_options().write(true).create(true).open(directory.join("data")) {
            Err(Error::FileInUse { .. }) => None,
            opened => Some(opened.unwrap()),
        };
        open.is_some()
    });
    let file = open.unwrap();
    let mut bytes = vec![0; (PAGES * 16) as usize];
    ledger.read_exact_at(&mut bytes, 0).unwrap();
    let mut versions: Vec<u64> = words(&bytes).chunks_exact(2).map(|page| page[0]).collect();
    let mut unsynced = Vec::new();
    loop {
        let page = random.below(PAGES);
        let number = versions[page as usize] + 1;
        versions[page as usize] = number;
        ledger.write_all_at(&number.to_le_bytes(), ledger_at(page)).unwrap();
        let new = page_bytes(page, number);
        if random.one_in(8) && file.len() > page * PAGE + PAGE {
            file.page_mut_at(page * PAGE).unwrap().copy_from_slice(&new);
        } else {
            file.write_at(&new, page * PAGE).unwrap();
        }
        unsynced.push(page);
        if random.one_in(60) {
            file.sync().unwrap();
            for page in unsynced.drain(..) {
                ledger.write_all_at(&versions[page as usize].to_le_bytes(), ledger_at(page) + 8).unwrap();
            }
        }
    }
}

/// Checks the file against the ledger. Returns how many pages have been synced, and how many have
/// newer bytes than those that were synced.
fn check(directory: &Path) -> (u64, u64) {
    let ledger = words(&fs::read(directory.join("ledger")).unwrap());
    let data = fs::read(directory.join("data")).unwrap_or_default();
    let (mut promised_pages, mut newer_pages) = (0, 0);
    for page in 0..PAGES {
        let [pending, promised] = [0, 1].map(|which| ledger[page as usize * 2 + which]);
        assert!(promised <= pending);
        let start = data.len().min((page * PAGE) as usize);
        let found = words(&data[start..data.len().min(start + PAGE as usize)]);
        assert!(promised == 0 || found.len() as u64 == PAGE / 8, "page {page} is cut off");
        for (at, &found) in found.iter().enumerate() {
            let (its_page, number, its_at) = (found >> 44, found >> 9 & 0x7_ffff_ffff, found & 0x1ff);
            let zero = found == 0 && promised == 0;
            assert!(zero || (its_page, its_at) == (page, at as u64), "page {page}: a foreign word, {found:#x}");
            assert!((promised..=pending).contains(&number), "page {page}: {number}, not {promised} to {pending}");
        }
        promised_pages += u64::from(promised > 0);
        newer_pages += u64::from(found.first().is_some_and(|&first| first != word(page, promised, 0) && first > 0));
    }
    (promised_pages, newer_pages)
}

/// Checks the file that a killed child left. `cargo xtask kernels` runs this after it has killed
/// the child's whole virtual machine.
#[test]
#[ignore = "for a process of its own"]
fn what_was_promised_is_there() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let (promised, newer) = check(Path::new(&directory));
    println!("{promised} pages promised, {newer} newer");
}

/// A child process that is killed when this is dropped, even if the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The sums of the pending and of the synced versions of all pages.
fn versions(directory: &Path) -> [u64; 2] {
    let ledger = words(&fs::read(directory.join("ledger")).unwrap());
    [0, 1].map(|which| ledger.iter().skip(which).step_by(2).sum())
}

/// Kills a child in each round. Returns how many pages were synced in the end, and how many had
/// newer bytes when a child was killed.
fn kill_in_rounds() -> (u64, u64) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(directory.path().join("ledger"), vec![0; (PAGES * 16) as usize]).unwrap();
    let mut random = Random::seeded(1);
    let (mut promised, mut newer, mut promised_sum) = (0, 0, 0);
    let seeds = seeds(ROUNDS);
    for seed in seeds.clone() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "write_until_killed", "--ignored", "--nocapture"]).stdout(Stdio::null());
        child.env(DIRECTORY, directory.path()).env(SEED, seed.to_string());
        let mut child = Killed(child.spawn().unwrap());
        let [wanted, promised_before] =
            [versions(directory.path())[0] + WRITES[0] + random.below(WRITES[1]), promised_sum];
        eventually("the child has written, and synced", || {
            assert!(child.0.try_wait().unwrap().is_none(), "it ended by itself");
            let [pending, promised] = versions(directory.path());
            pending >= wanted && promised > promised_before
        });
        child.0.kill().unwrap();
        let status = child.0.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "it ended by itself: {status}");
        let (now_promised, now_newer) = check(directory.path());
        (promised, newer) = (now_promised, newer + now_newer);
        promised_sum = versions(directory.path())[1];
    }
    let times = seeds.end - seeds.start;
    println!("{times} times killed: {promised} pages promised, {newer} were newer");
    (promised, newer)
}

#[test]
fn what_sync_promised_survives_being_killed() {
    let (promised, _) = kill_in_rounds();
    assert!(promised > PAGES / 4, "it didn't get far");
}

/// Pages are also written back without a sync, so some pages must be newer than the version that
/// was synced.
#[test]
#[ignore = "chance: cargo xtask prove times"]
fn chance_a_killed_process_leaves_pages_that_are_newer() {
    let (promised, newer) = kill_in_rounds();
    assert!(promised > PAGES / 4 && newer > 0, "{promised} pages were promised, {newer} were newer");
}
