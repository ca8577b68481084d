//! Misses on public traces, beside those of libCacheSim, the simulator of the authors of S3-FIFO.

mod data;

use data::{CS, LOOP, ZIGZAG};
use pagefold_policies::{Accesses, Policy, misses};

fn trace(runs: &str) -> Accesses {
    Accesses::of(data::pages(runs)).unwrap()
}

fn all(accesses: &Accesses, room: usize) -> [u64; 6] {
    Policy::ALL.map(|policy| misses(policy, accesses, room))
}

/// LRU, ARC, S3-FIFO and LIRS miss exactly as often as in libCacheSim 0.3.
#[test]
fn misses_are_those_of_libcachesim() {
    let [cycle, zigzag, cs] = [LOOP, ZIGZAG, CS].map(trace);
    for (accesses, len, pages) in [(&cycle, 505_500, 1011), (&zigzag, 52_001, 2001), (&cs, 6781, 1409)] {
        assert_eq!((accesses.len(), accesses.pages()), (len, pages));
    }
    for (accesses, room, [lru, arc, s3_fifo, lirs]) in [
        (&cycle, 100, [505_500, 505_500, 460_590, 456_099]),
        (&cycle, 900, [505_500, 505_500, 194_111, 60_891]),
        (&cycle, 1000, [505_500, 505_500, 53_577, 11_490]),
        (&zigzag, 100, [49_526, 49_636, 51_776, 52_001]),
        (&zigzag, 500, [39_526, 40_036, 50_776, 51_901]),
        (&zigzag, 1000, [27_026, 28_025, 49_526, 51_776]),
        (&cs, 100, [6657, 6657, 6346, 6422]),
        (&cs, 500, [6657, 6657, 4953, 4849]),
        (&cs, 1000, [6657, 6657, 4111, 2799]),
    ] {
        let found = all(accesses, room);
        assert_eq!([found[0], found[1], found[2], found[4]], [lru, arc, s3_fifo, lirs], "{room} pages");
    }
}

/// The misses of W-TinyLFU depend on hash functions, and libCacheSim counts uses in another way.
/// Its W-TinyLFU misses 17.4 %, 52.8 %, 70.6 % and 42.0 %. The misses of OPT are the same in each
/// implementation.
#[test]
fn misses_of_w_tiny_lfu_and_opt() {
    for (runs, room, w_tiny_lfu, opt) in
        [(LOOP, 900, 106_615, 56_400), (ZIGZAG, 1000, 31_209, 27_026), (CS, 500, 4812, 4657), (CS, 1000, 2841, 2657)]
    {
        let found = all(&trace(runs), room);
        assert_eq!((found[3], found[5]), (w_tiny_lfu, opt), "{room} pages");
    }
}
