//! A crash test: a log on a simulated disk whose power is cut again and again.
//!
//! When the power is cut, the simulated disk loses what a real disk may lose: each sector that was
//! written but not synced is kept or lost at random. So a record may be torn; its checksum reveals
//! that. A seed determines which sectors are lost, so a run that fails can be repeated. The disk
//! comes from the crate `pagefold-test-disks`, which this workspace calls `test_disks`.
//! ```sh
//! cargo run --release -p pagefold --example crash_test
//! ```

use pagefold::{Error, File, Pagefold};
use test_disks::SimulatedDisk;

const CRASHES: u64 = 200;
const RECORDS: u64 = 60;
/// The length of a record: 200 bytes that repeat the record's number, and their checksum.
const RECORD: usize = 208;

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn append(log: &File, number: u64) -> Result<(), Error> {
    let mut record = number.to_le_bytes().repeat(RECORD / 8 - 1);
    record.extend(sum(&record).to_le_bytes());
    log.write_at(&record, number * RECORD as u64)
}

/// Returns how many intact records the log begins with.
fn recover(log: &File) -> Result<u64, Error> {
    let mut record = [0; RECORD];
    for number in 0.. {
        let offset = number * RECORD as u64;
        if log.read_at(&mut record, offset)? < RECORD {
            return Ok(number);
        }
        let (bytes, their_sum) = record.split_at(RECORD - 8);
        if sum(bytes).to_le_bytes() != their_sum || !bytes.starts_with(&number.to_le_bytes()) {
            return Ok(number);
        }
    }
    unreachable!("files end")
}

/// Writes records, and cuts the power. Returns how many records were synced, and how many exist
/// afterwards.
fn crash(seed: u64) -> Result<(u64, u64), Error> {
    let disk = SimulatedDisk::default();
    let start = || Pagefold::builder().memory("1MiB").backend(disk.clone()).build();

    let (mm, mut synced) = (start()?, 0);
    let log = mm.group("log").build()?.open_options().write(true).create(true).open("log")?;
    for number in 0..seed % RECORDS {
        append(&log, number)?;
        if number % 7 == 6 {
            log.sync()?;
            synced = number + 1;
        }
    }
    drop(log); // Writes everything to the disk, without a sync.
    disk.power_cut(seed);
    drop(mm);

    let mm = start()?;
    let again = mm.group("log").build()?.open_options().write(true).create(true).open("log")?;
    Ok((synced, recover(&again)?))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut unsynced = 0;
    for seed in 0..CRASHES {
        let (synced, found) = crash(seed)?;
        assert!(found >= synced, "seed {seed}: {synced} records were synced, {found} are there");
        unsynced += found - synced;
    }
    println!("{CRASHES} crashes: every synced record was there, and {unsynced} more");
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
