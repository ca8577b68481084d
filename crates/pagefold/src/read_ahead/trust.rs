//! Decides how readily streams are believed, given how many of the pages read ahead were wasted.

/// This many pages read ahead make up for one wasted page.
const WASTE_WEIGHT: i64 = 4;
/// The most credit, in pages. It lets four of the largest windows be wasted.
const CREDIT_MAX: i64 = WASTE_WEIGHT * 4 * 256;
/// If the credit falls below `DOUBTED`, doubt grows; if it rises above `TRUSTED`, doubt shrinks.
const DOUBTED: i64 = -WASTE_WEIGHT * 128;
const TRUSTED: i64 = CREDIT_MAX / 2;
const DOUBT_MAX: u32 = 6;

/// The doubt that follows from waste.
#[derive(Debug)]
pub(super) struct Trust {
    /// This many more continuations are needed before a stream is believed, and the largest window
    /// is halved this many times.
    pub(super) doubt: u32,
    /// The number of pages read ahead, less `WASTE_WEIGHT` × the number of wasted ones. At most
    /// `CREDIT_MAX`; reset to 0 when `doubt` changes.
    credit: i64,
    /// The pages read ahead and wasted up to the last update.
    reckoned: (u64, u64),
}

impl Default for Trust {
    fn default() -> Self {
        Self { doubt: 0, credit: CREDIT_MAX, reckoned: (0, 0) }
    }
}

impl Trust {
    /// Updates credit and doubt. `all_read` counts the pages read ahead so far, and `all_wasted`
    /// those of them that were wasted.
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
