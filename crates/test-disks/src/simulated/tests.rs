use io::read_full;
use sync::atomic::AtomicU64;

use super::*;

/// Reads pages at `offset` into memory that was filled with ones.
fn read(file: &dyn BackingFile, offset: u64, pages: usize) -> (usize, Vec<u8>) {
    let words: Vec<_> = (0..pages * 512).map(|_| AtomicU64::new(u64::MAX)).collect();
    let shared = SharedBytes::new(&words);
    let n = read_full(file, offset, shared).unwrap();
    let mut bytes = vec![0; shared.len()];
    shared.copy_to(0, &mut bytes);
    (n, bytes)
}

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(len, 0);
    padded
}

#[test]
fn given_bytes_come_back() {
    let disk = SimulatedDisk::default();
    for len in [0, 1, 511, 513, 4096, 10_001] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 256) as u8).collect();
        disk.add_bytes("a", bytes.clone());
        let file = disk.open(Path::new("a"), Access::Read).unwrap();
        assert_eq!(file.len(), Ok(len as u64));
        assert_eq!(read(&*file, 0, 3), (len, padded(&bytes, 3 * 4096)));
        let rest = bytes.get(4096..).unwrap_or_default();
        assert_eq!(read(&*file, 4096, 2), (rest.len(), padded(rest, 2 * 4096)));
    }
}

#[test]
fn a_tebibyte_costs_nothing_and_every_word_is_its_own() {
    let disk = SimulatedDisk::default();
    disk.add_generated("big", 5, 1 << 40);
    disk.add_with("offsets", 3, 1 << 40, |seed, offset| seed + offset);
    for offset in [0, 1 << 20, (1 << 40) - 8192] {
        let (n, bytes) = read(&*disk.open(Path::new("big"), Access::Read).unwrap(), offset, 2);
        let (_, offsets) = read(&*disk.open(Path::new("offsets"), Access::Read).unwrap(), offset, 2);
        assert_eq!(n, 8192);
        for (at, (word, own)) in bytes.chunks(8).zip(offsets.chunks(8)).enumerate() {
            let at = offset + at as u64 * 8;
            assert_eq!(word, generated_word(5, at).to_ne_bytes());
            assert_eq!(own, (3 + at).to_ne_bytes());
        }
    }
    assert_ne!(generated_word(5, 0), generated_word(6, 0));
    assert_ne!(generated_word(5, 0), generated_word(5, 8));
}

#[test]
fn what_was_cut_off_comes_back_as_zeros() {
    let disk = SimulatedDisk::default();
    disk.add_bytes("given", vec![0xab; 8192]);
    disk.add_with("made", 0, 8192, |_, _| u64::from_ne_bytes([0xab; 8]));
    for path in ["given", "made"] {
        let file = disk.open(Path::new(path), Access::Read).unwrap();
        disk.truncate(path, 1001).unwrap();
        disk.truncate(path, 5000).unwrap();
        assert_eq!(file.len(), Ok(1001));
        assert_eq!(read(&*file, 0, 2), (1001, padded(&[0xab; 1001], 8192)));
        disk.grow(path, 6000).unwrap();
        disk.grow(path, 100).unwrap();
        assert_eq!(file.len(), Ok(6000));
        assert_eq!(read(&*file, 0, 2), (6000, padded(&[0xab; 1001], 8192)));
        assert_eq!(read(&*file, 8192, 1), (0, vec![0; 4096]));
    }
}

#[test]
fn time_and_statistics_follow_the_requests() {
    let disk =
        SimulatedDisk::new(Timing { latency_ns: 1000, bytes_per_second: 4_096_000_000, queue_depth: 1, sync_ns: 0 });
    disk.add_generated("f", 0, 5000);
    let file = disk.open(Path::new("f"), Access::Read).unwrap();
    let words: Vec<_> = (0..512).map(|_| AtomicU64::new(0)).collect();
    assert_eq!(file.read(0, &[SharedBytes::new(&words)]), Ok(4096));
    assert_eq!(disk.now_ns(), 2000);
    disk.idle(500);
    assert_eq!(file.read(4096, &[SharedBytes::new(&words)]), Ok(904));
    assert_eq!(file.read(u64::MAX - 4095, &[SharedBytes::new(&words)]), Ok(0));
    assert_eq!(
        disk.clone().stats(),
        DiskStats { requests: 3, bytes: 5000, busy_ns: 2000 + 1220 + 1000, ..DiskStats::default() }
    );
    assert_eq!(disk.now_ns(), 2000 + 500 + 1220 + 1000);
}

#[test]
fn files_are_told_apart_and_outlive_their_names() {
    let (disk, other) = (SimulatedDisk::default(), SimulatedDisk::default());
    assert_eq!(disk.open(Path::new("a"), Access::Read).err(), Some(IoError::NOT_FOUND));
    assert_eq!(disk.truncate("a", 0), Err(IoError::NOT_FOUND));
    assert_eq!(disk.grow("a", 0), Err(IoError::NOT_FOUND));
    disk.add_bytes("a", [1; 10]);
    other.add_bytes("a", [1; 10]);
    let first = disk.open(Path::new("a"), Access::Read).unwrap();
    assert_eq!(first.identity(), disk.open(Path::new("a"), Access::Read).unwrap().identity());
    assert_ne!(first.identity(), other.open(Path::new("a"), Access::Read).unwrap().identity());
    disk.add_bytes("a", [2; 10]);
    assert_ne!(first.identity(), disk.open(Path::new("a"), Access::Read).unwrap().identity());
    assert_eq!(read(&*first, 0, 1).1[..10], [1; 10]);
}
