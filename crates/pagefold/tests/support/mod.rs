//! What the tests share: files whose every byte says where it belongs.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use pagefold::io::{SimulatedDisk, generated_word};
use pagefold::{Error, File, Group, Pagefold};

/// A disk with `files` files of `len` bytes: `f0`, `f1`, …; the number is the contents' seed.
pub fn disk(files: u64, len: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    for file in 0..files {
        disk.add_generated(format!("f{file}"), file, len);
    }
    disk
}

/// A Pagefold of `pages` pages, more or less, over a disk.
pub fn manager(pages: u64, backend: impl pagefold::io::Backend) -> Pagefold {
    Pagefold::builder().memory(pages * 4096 + (256 << 10)).backend(backend).build().unwrap()
}

/// Fails unless `bytes` are the file's at `offset`.
pub fn check(seed: u64, offset: u64, bytes: &[u8]) {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = generated_word(seed, at & !7).to_le_bytes();
        let expected = &word[(at & 7) as usize..];
        let (now, later) = rest.split_at(expected.len().min(rest.len()));
        assert_eq!(now, &expected[..now.len()], "file {seed}, byte {at} (page {}): foreign bytes", at / 4096);
        at += now.len() as u64;
        rest = later;
    }
}

/// Reads and checks.
pub fn read(file: &File, seed: u64, offset: u64, len: usize) -> Result<usize, Error> {
    let mut buf = vec![0xa5; len];
    let n = file.read_at(&mut buf, offset)?;
    check(seed, offset, &buf[..n]);
    assert!(buf[n..].iter().all(|&byte| byte == 0xa5), "bytes past the end were touched");
    Ok(n)
}

/// Whether a group is within its limit.
pub fn within_limit(group: &Group) -> bool {
    group.charged() <= group.max()
}
