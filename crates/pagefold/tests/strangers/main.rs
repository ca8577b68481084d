//! Pagefold in difficult surroundings: other processes change and lock its files, the process lacks
//! permissions or resources or is stopped, and file systems are unusual.
//!
//! A test that changes its process permanently is an ignored test, which another test runs in a
//! process of its own.
#![cfg(all(target_os = "linux", not(any(pagefold_loom, pagefold_manycore))))]

mod file_systems;
mod fuse;
mod meddlers;
#[path = "../support/mod.rs"]
mod support;
mod surroundings;

use std::fs;
use std::path::Path;
use std::process::Command;

use pagefold::{File, Pagefold};
use sync::random::Random;

const PAGE: u64 = 4096;
/// The start of a line that says what this machine, or this process, lacks.
const NOT_HERE: &str = "not here: ";

/// Runs an ignored test in a process of its own. Prints what that process lacked.
fn in_a_process(scenario: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let done = child.args(["--exact", scenario, "--ignored", "--nocapture"]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("1 passed"), "{scenario}: {}\n{said}", done.status);
    // The test harness prints the test's name, without an end of line, before the first line.
    let lacks = said.lines().filter_map(|line| line.find(NOT_HERE).map(|at| &line[at..]));
    lacks.for_each(|line| println!("{line} ({scenario})"));
}

fn small_fold() -> Pagefold {
    Pagefold::builder().memory("1MiB").build().unwrap()
}

fn open(fold: &Pagefold, group: &str, path: &Path) -> File {
    let group = fold.group(group).max("256KiB").build().unwrap();
    group.open_options().write(true).create(true).open(path).unwrap()
}

fn random_bytes(random: &mut Random, len: u64) -> Vec<u8> {
    (0..len.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).take(len as usize).collect()
}

/// Writes to a new file, reads it, syncs it and opens it again. Pagefold and the kernel must return
/// the bytes that were written.
fn a_file_is_used(fold: &Pagefold, path: &Path, seed: u64) {
    const LEN: u64 = 100 * PAGE + 77;
    let mut random = Random::seeded(seed);
    let mut expected = vec![0; LEN as usize];
    let file = open(fold, "user", path);
    file.set_len(LEN).unwrap();
    for _ in 0..300 {
        let at = random.below(LEN);
        let len = (1 + random.below(3 * PAGE)).min(LEN - at);
        let bytes = random_bytes(&mut random, len);
        file.write_at(&bytes, at).unwrap();
        expected[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        let (at, mut bytes) = (random.below(LEN), [0; 64]);
        let there = file.read_at(&mut bytes, at).unwrap();
        assert_eq!(bytes[..there], expected[at as usize..][..there]);
        if random.one_in(60) {
            file.sync().unwrap();
        }
    }
    file.sync().unwrap();
    assert!(fs::read(path).unwrap() == expected, "what was synced isn't what is in the file");
    file.close().unwrap();
    let mut bytes = vec![0; LEN as usize];
    open(fold, "another user", path).read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected, "what was synced isn't what is read");
}
