//! Memory and a file at addresses of one space: `cargo run -p pagefold --example space`.

use pagefold::{Advice, Error, Pagefold, Protection};

const PAGE: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("pagefold-space-{}", std::process::id()));
    let mm = Pagefold::builder().memory("64MiB").build()?;
    let tenant = mm.group("tenant-a").max("16MiB").build()?;
    let file = tenant.open_options().write(true).create_new(true).open(&path)?;
    file.write_at(&[7; 100_000], 0)?;

    let space = tenant.space()?;
    let heap = space.map(1 << 20, Protection::ReadWrite)?; // Zeros; memory is taken page by page, when written to.
    let data = space.map_file(&file, 0, 40 * PAGE, Protection::ReadWrite)?;
    drop(file); // The mapping keeps it open.

    space.write_at(b"hello", heap.start + 5_000)?;
    space.write_at(b"hello", data.start + 5_000)?; // To the file.
    let before = space.update_u64(heap.start, |number| Some(number + 1))?; // Atomic among threads.
    assert_eq!(before, 0);
    assert_eq!(space.page_at(data.start + PAGE)?[5_000 - PAGE as usize], b'h'); // Pinned, while the guard lives.

    // Any part can be changed on its own.
    space.protect(data.start + 8 * PAGE..data.start + 16 * PAGE, Protection::Read)?;
    space.advise(data.start + 12 * PAGE..data.end, Advice::Random)?;
    let heap = space.grow(heap.clone(), 2 << 20).or_else(|_| space.move_anywhere(heap))?;
    space.unmap(heap.start..heap.start + PAGE)?;
    for area in space.areas() {
        println!("{area}");
    }

    // The error names the address. The file has 100,000 bytes, and a write through a mapping never
    // makes a file longer.
    let error = space.write_at(b"beyond", data.start + 100_000).unwrap_err();
    println!("{error}");
    assert!(matches!(error.cause(), Error::PastEnd { .. }));

    space.sync(data)?;
    assert_eq!(&std::fs::read(&path)?[5_000..5_005], b"hello");
    std::fs::remove_file(&path)?;
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
