//! A space four times as large as the memory budget. Pages that aren't used are swapped out to
//! compressed memory. Pages that have been there longest move on to a file. Pages that don't
//! compress well go to the file directly.
//! ```sh
//! cargo run --release -p pagefold --example swap
//! ```

use pagefold::{Pagefold, Protection};

const PAGE: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir();
    let mm = Pagefold::builder()
        .memory("16MiB")
        .compressed_swap("4MiB")
        .swap(&directory, "128MiB") // The file has no name, so it is gone when the process ends.
        .build()?;
    // A group has a limit for its pages in memory, and another one for its pages in swap.
    let tenant = mm.group("tenant-a").swap_max("96MiB").build()?;
    let space = tenant.space()?;
    let heap = space.map(64 << 20, Protection::ReadWrite)?;

    for address in heap.clone().step_by(PAGE as usize) {
        space.write_at(&address.to_le_bytes(), address)?;
    }
    let mut bytes = [0; 8];
    for address in heap.clone().step_by(PAGE as usize) {
        space.read_at(&mut bytes, address)?;
        assert_eq!(u64::from_le_bytes(bytes), address);
    }

    let stats = mm.stats();
    assert!(stats.used_bytes <= stats.budget_bytes);
    println!("{stats}");
    space.unmap(heap)?; // What is in swap goes, too.
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
