//! Pages as futures under tokio: a thousand tasks run on two threads. Each task waits for pages of
//! a file on the disk.
//!
//! Pagefold has no runtime of its own, and works with any executor.
//! ```sh
//! cargo run --release -p pagefold --example tokio
//! ```

use std::time::Instant;

use pagefold::{Error, File, Pagefold};

const PAGES: u64 = 16_384;
const TASKS: u64 = 1_000;
const PAGES_EACH: u64 = 20;

/// Sums up a few pages' first bytes.
async fn visit(file: File, task: u64) -> Result<u64, Error> {
    let mut sum = 0;
    for step in 0..PAGES_EACH {
        let page = file.page_at_async(((task * 7_919 + step * 104_729) % PAGES) * 4096).await?;
        sum += u64::from(page[0]);
    }
    let mut header = [0; 16];
    file.read_at_async(&mut header, 0).await?;
    Ok(sum)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::current_dir()?.join(format!(".pagefold-example-{}", std::process::id()));
    std::fs::write(&path, vec![1; PAGES as usize * 4096])?;
    let mm = Pagefold::builder().memory("32MiB").build()?;
    let tenant = mm.group("tenant").max("16MiB").build()?;
    let file = tenant.open(&path)?;
    std::fs::remove_file(&path)?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let start = Instant::now();
    let sum = runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(visit(file.clone(), task))).collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(sum)
    })?;
    assert_eq!(sum, TASKS * PAGES_EACH);
    println!("{} pages in {:?} by {TASKS} tasks on 2 threads\n{}", sum, start.elapsed(), mm.stats());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
