//! Ranks with Zipf's distribution: the probability of rank `k` of `n` is proportional to 1 /
//! k^exponent.
//!
//! The algorithm is rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate
//! variates from monotone discrete distributions", ACM TOMACS 6(3), 1996). It draws a random area
//! under the smooth curve `h(x) = x^-exponent`, finds the `x` up to which the curve has this area,
//! and rounds `x` to the nearest rank. The curve's area around a rank is a little larger than the
//! rank's weight; if the drawn area lies in this excess, it is rejected and another one is drawn.
//!
//! The method is exact for every exponent, needs no table, and takes at most 1.1 rounds on average.
//! The usual approximation (Gray et al., SIGMOD '94) fails at exponents of 1 and above.

use sync::random::Random;

/// The distribution over ranks `0..n`.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    n: f64,
    exponent: f64,
    /// The interval from which areas are drawn. `area_first` is the integral of `h` from 1 to 1.5
    /// (half a rank past the first rank), minus the first rank's weight. `area_last` is the
    /// integral from 1 to half a rank past the last rank.
    area_first: f64,
    area_last: f64,
    /// Points this close below their rank are accepted without evaluating the curve.
    shortcut: f64,
}

impl Zipf {
    /// Creates a distribution of ranks below `n`, which is at least 1. The exponent is finite and
    /// not negative.
    pub(crate) fn new(n: u64, exponent: f64) -> Self {
        let n = n.max(1) as f64;
        let mut zipf = Self { n, exponent, area_first: 0.0, area_last: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(n + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse_area(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// Returns a rank; 0 is the most frequent one.
    pub(crate) fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let x = self.inverse_area(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.n);
            if rank - x <= self.shortcut || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64 - 1;
            }
        }
    }

    /// `h(x) = x^-exponent`.
    fn height(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of `h` from 1 to `x`: `(x^(1-e) - 1) / (1-e)`, and `ln x` where `e` is 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        ratio_exp_m1((1.0 - self.exponent) * log) * log
    }

    /// The `x` up to which the integral is `area`.
    fn inverse_area(&self, area: f64) -> f64 {
        // `ln(1 + t)` has a pole at -1. A rounding error may put `t` slightly below it.
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (ratio_ln_1p(t) * area).exp()
    }
}

/// `(e^x - 1) / x`, accurate close to 0 as well.
fn ratio_exp_m1(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// `ln(1 + x) / x`, accurate close to 0 as well.
fn ratio_ln_1p(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square against the exact probabilities, over ranks with an expected count of at least
    /// 10.
    fn chi_square_per_degree(n: u64, exponent: f64) -> f64 {
        let samples = 200_000;
        let zipf = Zipf::new(n, exponent);
        let mut random = Random::seeded(42);
        let mut seen = vec![0_u64; usize::try_from(n).unwrap()];
        for _ in 0..samples {
            seen[usize::try_from(zipf.sample(&mut random)).unwrap()] += 1;
        }
        let total: f64 = (1..=n).map(|k| (k as f64).powf(-exponent)).sum();
        let (mut sum, mut degrees) = (0.0, 0.0);
        for (k, &seen) in (1..=n).zip(&seen) {
            let expected = (k as f64).powf(-exponent) / total * f64::from(samples);
            if expected >= 10.0 {
                sum += (seen as f64 - expected).powi(2) / expected;
                degrees += 1.0;
            }
        }
        sum / degrees
    }

    #[test]
    fn frequencies_are_the_exact_ones() {
        for n in [2, 3, 100, 5_000] {
            for exponent in [0.0, 0.5, 0.99, 1.0, 1.000_000_001, 1.2, 2.0] {
                let chi = chi_square_per_degree(n, exponent);
                assert!(chi < if n < 10 { 8.0 } else { 1.5 }, "n {n}, exponent {exponent}: {chi}");
            }
        }
    }

    #[test]
    fn extremes_stay_in_range() {
        let mut random = Random::seeded(1);
        for n in [1, 2, u64::from(u32::MAX), 1 << 52] {
            for exponent in [0.0, 0.99, 1.0, 50.0, 1000.0] {
                let zipf = Zipf::new(n, exponent);
                assert!((0..1_000).all(|_| zipf.sample(&mut random) < n), "n {n}, exponent {exponent}");
            }
        }
    }
}
