//! Calls that gave up although they could have succeeded.

use pagefold::{Error, File, PageRef, Pagefold};

use crate::support::disk;

const PAGE: u64 = 4096;

/// Pins pages of a file, from `first` on, until `page_at` fails with `LimitReached`.
fn pin_all(file: &File, first: u64) -> Vec<PageRef<'_>> {
    let mut pins = Vec::new();
    for page in first.. {
        match file.page_at(page * PAGE) {
            Ok(pin) => pins.push(pin),
            Err(Error::LimitReached { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    pins
}

/// All pages of a tenant were pinned, so its next read failed. Reclaim remembered for a while that
/// it had found no page to evict. The tenant dropped its pins and read again, and this read failed
/// as well, because of what reclaim remembered. It must succeed.
#[test]
fn what_was_unpinned_can_go_at_once() {
    const PAGES: u64 = 40_000;
    for has_limit in [true, false] {
        let mm = Pagefold::builder().memory(if has_limit { "256MiB" } else { "160MiB" });
        let mm = mm.backend(disk(1, 2 * PAGES * PAGE)).build().unwrap();
        let group = mm.group("tenant");
        let group = if has_limit { group.max(PAGES * PAGE) } else { group }.build().unwrap();
        let file = group.open("f0").unwrap();
        for round in 0..2 {
            let pins = pin_all(&file, 0);
            assert!(pins.len() as u64 > PAGES * 9 / 10, "{}", pins.len());
            drop(pins);
            let read = file.read_at(&mut [0; 8], (2 * PAGES - 1 - round) * PAGE);
            assert!(read.is_ok(), "limit: {has_limit}: {read:?}");
        }
    }
}
