//! Reuse intervals: after how many loads of its group a page is used again.

/// A mean reuse interval in loads, in one byte. Intervals below 16 are exact; of longer ones, only
/// the first four binary digits are kept. 0 stands for an unknown interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval(u8);

/// Digits after the first one.
const DIGITS: u32 = 3;

impl Interval {
    pub(crate) const UNKNOWN: Self = Self(0);
    /// Bits that an interval takes.
    pub(crate) const BITS: u32 = u8::BITS;
    /// The longest interval, in loads.
    const MAX: u64 = 15 << 30;

    /// Rounds `loads` (at least 1) up or down at random: `chance` is any number whose lower bits
    /// are evenly distributed. So a mean moves on average even if each of its changes is smaller
    /// than a rounding step.
    pub(crate) fn rounded(loads: u64, chance: u64) -> Self {
        let place = |loads: u64| loads.ilog2().saturating_sub(DIGITS);
        let loads = loads.clamp(1, Self::MAX);
        let loads = (loads + (chance & ((1 << place(loads)) - 1))).min(Self::MAX);
        let place = place(loads);
        Self((place << DIGITS) as u8 + (loads >> place) as u8)
    }

    /// Returns the interval in loads, or `None` if it is unknown.
    pub(crate) fn loads(self) -> Option<u64> {
        let place = (self.0 >> DIGITS).saturating_sub(1);
        (self != Self::UNKNOWN).then(|| u64::from(self.0 - (place << DIGITS)) << place)
    }

    /// Returns the mean after a refault that came `loads` loads after the page's last known use.
    /// The new interval has a weight of one eighth. A first interval is doubled, because short
    /// intervals are observed more often than long ones.
    pub(crate) fn after_refault(self, loads: u64, chance: u64) -> Self {
        let mean = self.loads().map_or(2 * loads, |mean| (7 * mean + loads) / 8);
        Self::rounded(mean, chance)
    }

    /// Returns the mean after reclaim found the page used `uses` times in `loads` loads. The new
    /// interval has a weight of one half.
    pub(crate) fn after_uses(self, loads: u64, uses: u32, chance: u64) -> Self {
        let interval = loads.max(1) / u64::from(uses.max(1));
        Self::rounded(self.loads().map_or(interval, |mean| u64::midpoint(mean, interval)), chance)
    }

    /// Returns the interval, in loads, that a page of main is expected to have. The last known use
    /// of the page was `age` loads ago.
    ///
    /// | the page's age | the expected interval |
    /// |---|---|
    /// | < mean | the age |
    /// | mean ≤ age < 2 × mean | the mean |
    /// | ≥ 2 × mean: the page is late | the age |
    /// | any, if no mean is known | the age |
    pub(crate) fn expected(self, age: u64) -> u64 {
        match self.loads() {
            Some(mean) if age < 2 * mean => age.min(mean),
            _ => age,
        }
    }

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// Returns the interval whose bits are the lowest of `bits`.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_survives_its_byte_within_an_eighth() {
        assert_eq!(Interval::UNKNOWN.loads(), None);
        for loads in (1..5000).chain([1 << 20, (1 << 33) - 1, Interval::MAX, u64::MAX]) {
            let exact = loads.min(Interval::MAX);
            for chance in [0, 1, 12345, u64::MAX] {
                let interval = Interval::rounded(loads, chance);
                assert_eq!(Interval::from_bits(interval.bits() | 0x700), interval);
                let rounded = interval.loads().unwrap();
                assert!(rounded.abs_diff(exact) * 8 <= exact, "{loads} with {chance}: {rounded}");
                assert!(exact >= 16 || rounded == exact, "{loads}: {rounded}");
            }
        }
        assert_eq!(Interval::rounded(0, 0).loads(), Some(1));
    }

    #[test]
    fn rounding_is_right_on_average() {
        let sum: u64 = (0..64).map(|chance| Interval::rounded(1_000, chance).loads().unwrap()).sum();
        assert!(sum.abs_diff(64_000) < 64, "{sum}");
    }

    #[test]
    fn means_move_towards_what_was_seen() {
        let loads = |interval: Interval| interval.loads().unwrap();
        let first = Interval::UNKNOWN.after_refault(6, 0);
        assert_eq!((loads(first), loads(first.after_refault(4, 0))), (12, 11));
        assert_eq!((loads(first.after_uses(4, 1, 0)), loads(first.after_uses(4, 2, 0))), (8, 7));
        assert_eq!(loads(Interval::UNKNOWN.after_uses(9, 3, 0)), 3);
        assert_eq!(Interval::UNKNOWN.after_uses(0, 0, 0), Interval::rounded(1, 0));
    }

    #[test]
    fn a_page_isnt_late_before_twice_its_interval() {
        let ten = Interval::rounded(10, 0);
        assert_eq!([5, 10, 19, 20, 90].map(|age| ten.expected(age)), [5, 10, 10, 20, 90]);
        assert_eq!(Interval::UNKNOWN.expected(7), 7);
    }
}
