//! Generated accesses: the reads that a thread issues when there is no trace.

use std::fmt;
use std::str::FromStr;

use sync::random::{Random, mix};

use crate::zipf::Zipf;

/// The exponent that storage benchmarks use since YCSB.
const EXPONENT_DEFAULT: f64 = 0.99;

/// Beyond this exponent nearly every access goes to one place.
const EXPONENT_MAX: f64 = 100.0;

/// How a thread chooses the place of its next read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pattern {
    /// A few places are hot; they are drawn for each group.
    Zipf(f64),
    /// Every place is equally likely.
    Uniform,
    /// One place after the other, then from the start again.
    Seq,
    /// Every other read is the next one of a scan; the rest are as in `Zipf`.
    ScanZipf(f64),
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, exponent) = match text.split_once(':') {
            Some((name, exponent)) => (name, Some(exponent)),
            None => (text, None),
        };
        let exponent_or_default = || exponent.map_or(Ok(EXPONENT_DEFAULT), parse_exponent);
        match name.trim() {
            "zipf" => exponent_or_default().map(Self::Zipf),
            "scan+zipf" => exponent_or_default().map(Self::ScanZipf),
            "uniform" | "seq" if exponent.is_some() => Err(format!("`{name}` takes no exponent")),
            "uniform" => Ok(Self::Uniform),
            "seq" => Ok(Self::Seq),
            _ => Err("expected zipf:EXPONENT, uniform, seq or scan+zipf:EXPONENT".to_owned()),
        }
    }
}

fn parse_exponent(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(exponent) if (0.0..=EXPONENT_MAX).contains(&exponent) => Ok(exponent),
        _ => Err(format!("the exponent `{text}` isn't a number from 0 to {EXPONENT_MAX}, as in zipf:0.99")),
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Self::Uniform => f.write_str("uniform"),
            Self::Seq => f.write_str("seq"),
            Self::ScanZipf(exponent) => write!(f, "scan+zipf:{exponent}"),
        }
    }
}

/// The thread and group for which reads are generated. They determine where the hot places are and
/// where a scan begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The user's `--seed`.
    pub(crate) seed: u64,
    /// The group; its threads share their hot places.
    pub(crate) group: usize,
    /// The thread, and the number of threads: scans start at equal distances.
    pub(crate) thread: usize,
    pub(crate) threads: usize,
}

/// The places that one thread reads for one group, as numbers below `places`.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    pattern: Pattern,
    places: u64,
    zipf: Zipf,
    scramble: Scramble,
    random: Random,
    scan_at: u64,
    scan_next: bool,
}

impl Generator {
    /// Creates the reads of `stream` over `places` places; `places` is at least 1.
    pub(crate) fn new(pattern: Pattern, places: u64, stream: Stream) -> Self {
        let places = places.max(1);
        let exponent = match pattern {
            Pattern::Zipf(exponent) | Pattern::ScanZipf(exponent) => exponent,
            Pattern::Uniform | Pattern::Seq => 0.0,
        };
        let group_seed = mix(stream.seed.wrapping_add(mix(stream.group as u64 + 1)));
        let part = stream.thread as u128 * u128::from(places) / stream.threads.max(1) as u128;
        Self {
            pattern,
            places,
            zipf: Zipf::new(places, exponent),
            scramble: Scramble::new(places, group_seed),
            random: Random::seeded(mix(group_seed.wrapping_add(stream.thread as u64 + 1))),
            scan_at: part as u64 % places,
            scan_next: false,
        }
    }

    /// Returns the next place.
    pub(crate) fn next(&mut self) -> u64 {
        match self.pattern {
            Pattern::Uniform => self.random.below(self.places),
            Pattern::Seq => self.scan(),
            Pattern::Zipf(_) => self.hot(),
            Pattern::ScanZipf(_) => {
                self.scan_next = !self.scan_next;
                if self.scan_next { self.scan() } else { self.hot() }
            }
        }
    }

    fn scan(&mut self) -> u64 {
        let at = self.scan_at;
        self.scan_at = if at + 1 == self.places { 0 } else { at + 1 };
        at
    }

    fn hot(&mut self) -> u64 {
        self.scramble.apply(self.zipf.sample(&mut self.random))
    }
}

/// A permutation of `0..n` that spreads the hot ranks over the file. A permutation preserves the
/// distribution of accesses; a hash wouldn't, because it would map several ranks to one place.
///
/// The steps permute the numbers below 2^b, where b is the number of bits that `n - 1` needs. A
/// result of `n` or more is permuted again, until it is below `n`. More than half of the numbers
/// are below `n`, so this takes fewer than two rounds on average.
#[derive(Clone, Copy, Debug)]
struct Scramble {
    n: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 3],
}

impl Scramble {
    fn new(n: u64, seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mask = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
        Self { n, mask, shift: (bits / 2).max(1), keys: [0; 3].map(|_: u64| random.next_u64()) }
    }

    fn apply(&self, rank: u64) -> u64 {
        let mut x = rank & self.mask;
        loop {
            for key in self.keys {
                x = (x ^ key) & self.mask;
                x = x.wrapping_mul(key | 1) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream { seed: 1, group: 0, thread: 0, threads: 1 };

    fn counts(pattern: Pattern, places: usize, samples: usize) -> Vec<usize> {
        let mut generator = Generator::new(pattern, places as u64, STREAM);
        let mut counts = vec![0; places];
        for _ in 0..samples {
            counts[usize::try_from(generator.next()).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn patterns_parse_and_print() {
        for text in ["zipf:0.99", "uniform", "seq", "scan+zipf:1.2"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        assert_eq!("zipf".parse(), Ok(Pattern::Zipf(0.99)));
        assert_eq!("scan+zipf".parse(), Ok(Pattern::ScanZipf(0.99)));
        for bad in ["", "zip", "zipf:", "zipf:-1", "zipf:NaN", "zipf:inf", "zipf:101", "seq:1", "uniform:0.5"] {
            assert!(bad.parse::<Pattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn scrambling_is_one_to_one() {
        for n in (1..70).chain([127, 128, 129, 1000, 4097]) {
            let scramble = Scramble::new(n, n);
            let mut seen = vec![false; usize::try_from(n).unwrap()];
            for rank in 0..n {
                assert!(!std::mem::replace(&mut seen[usize::try_from(scramble.apply(rank)).unwrap()], true));
            }
        }
        assert!(Scramble::new(u64::MAX, 3).apply(u64::MAX - 1) < u64::MAX);
    }

    #[test]
    fn hot_places_are_spread() {
        let mut hottest: Vec<u64> = (0..64).map(|rank| Scramble::new(1 << 20, 9).apply(rank)).collect();
        hottest.sort_unstable();
        let neighbours = hottest.windows(2).filter(|pair| pair[1] - pair[0] < 64).count();
        assert!(neighbours < 5, "{neighbours} of 64 hot places lie close together");
    }

    #[test]
    fn uniform_reaches_everything_alike() {
        let counts = counts(Pattern::Uniform, 100, 100_000);
        assert!(counts.iter().all(|&n| (850..1150).contains(&n)), "{counts:?}");
    }

    #[test]
    fn zipf_has_the_share_it_should() {
        let mut counts = counts(Pattern::Zipf(1.0), 1000, 100_000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // 1/H(1000) = 13.4 % go to the hottest place, H(10)/H(1000) = 39.1 % to the ten hottest.
        assert!((12_900..13_900).contains(&counts[0]), "{}", counts[0]);
        assert!((38_300..39_900).contains(&counts[..10].iter().sum::<usize>()), "{:?}", &counts[..10]);
    }

    #[test]
    fn seq_goes_round_and_threads_start_apart() {
        assert_eq!(counts(Pattern::Seq, 10, 30), [3; 10]);
        let mut second = Generator::new(Pattern::Seq, 10, Stream { thread: 1, threads: 2, ..STREAM });
        assert_eq!([second.next(), second.next()], [5, 6]);
    }

    #[test]
    fn every_other_read_scans() {
        let mut generator = Generator::new(Pattern::ScanZipf(0.99), 1000, STREAM);
        let places: Vec<u64> = (0..20).map(|_| generator.next()).collect();
        assert_eq!(places.iter().step_by(2).copied().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn streams_repeat_and_groups_differ() {
        let take = |stream| {
            let mut generator = Generator::new(Pattern::Zipf(0.99), 1 << 20, stream);
            (0..50).map(|_| generator.next()).collect::<Vec<_>>()
        };
        assert_eq!(take(STREAM), take(STREAM));
        assert_ne!(take(STREAM), take(Stream { group: 1, ..STREAM }));
        assert_ne!(take(STREAM), take(Stream { thread: 1, ..STREAM }));
        assert_ne!(take(STREAM), take(Stream { seed: 2, ..STREAM }));
    }
}
