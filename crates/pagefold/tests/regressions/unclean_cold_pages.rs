//! Writers who found no frame though most pages were clean.
//!
//! New pages go through the cold list, and cold is where reclaim looks for pages to evict. Once it held nothing but pages
//! that had just been written, reclaim found that none of them could go, and main, which was below its share because cold
//! had grown, gave up none either. The flusher saw no reason to write, so few were unclean. So the writer slept, and after
//! four seconds was told that its group's limit was reached.

use std::time::{Duration, Instant};

use pagefold::Pagefold;

const PAGE: usize = 4096;
const BUDGET_PAGES: u64 = 16_384;

#[test]
fn new_pages_find_frames_while_cold_is_full_of_unclean_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::File::create(&path).unwrap().set_len(8 * BUDGET_PAGES * PAGE as u64).unwrap();
    let fold = Pagefold::builder().memory(BUDGET_PAGES * PAGE as u64).build().unwrap();
    let file = fold.group("writer").build().unwrap().open_options().write(true).open(&path).unwrap();
    let mut buf = [0; 8];
    // Clean pages that were used again and again: main is full of them.
    for _ in 0..4 {
        for page in 0..BUDGET_PAGES * 3 / 4 {
            file.read_at(&mut buf, page * PAGE as u64).unwrap();
        }
    }
    for page in 0..2 * BUDGET_PAGES {
        file.read_at(&mut buf, page * PAGE as u64).unwrap();
    }
    // Fewer than those from which on the flusher writes by itself.
    let start = Instant::now();
    for page in 0..BUDGET_PAGES / 5 {
        file.write_at(&[1; PAGE], (4 * BUDGET_PAGES + page) * PAGE as u64).unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?} for writing to memory", start.elapsed());
}
