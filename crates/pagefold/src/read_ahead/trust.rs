//! How far readers are believed: what becomes of the pages that are read ahead.

/// A wasted page is made up for by so many read ahead.
const WASTE_WEIGHT: i64 = 4;
/// Pages to the good that count, at most: four of the largest windows can be wasted then.
const CREDIT_MAX: i64 = WASTE_WEIGHT * 4 * 256;
/// So far below zero there is more doubt, and so far above there is less.
const DOUBTED: i64 = -WASTE_WEIGHT * 128;
const TRUSTED: i64 = CREDIT_MAX / 2;
const DOUBT_MAX: u32 = 6;

/// What is made of waste.
#[derive(Debug)]
pub(super) struct Trust {
    /// How much less is believed, and read.
    pub(super) doubt: u32,
    /// Pages read ahead, less those that were wasted, which weigh more.
    credit: i64,
    /// What there was of both when that was last reckoned.
    reckoned: (u64, u64),
}

impl Default for Trust {
    fn default() -> Self {
        Self { doubt: 0, credit: CREDIT_MAX, reckoned: (0, 0) }
    }
}

impl Trust {
    /// Reckons with so many pages that were read ahead so far, and wasted.
    pub(super) fn reckon(&mut self, all_read: u64, all_wasted: u64) {
        let read = all_read.saturating_sub(self.reckoned.0).cast_signed();
        let wasted = all_wasted.saturating_sub(self.reckoned.1).cast_signed();
        self.reckoned = (all_read, all_wasted);
        let credit = self.credit.saturating_add(read).saturating_sub(wasted.saturating_mul(WASTE_WEIGHT));
        self.credit = if credit < DOUBTED {
            self.doubt = (self.doubt + 1).min(DOUBT_MAX);
            0
        } else if self.doubt > 0 && credit > TRUSTED {
            self.doubt /= 2;
            0
        } else {
            credit.min(CREDIT_MAX)
        };
    }
}
