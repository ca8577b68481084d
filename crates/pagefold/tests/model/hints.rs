//! Advice, queries whether a page is in memory, and charging pages to other groups.

use pagefold::{Advice, Error};
use test_disks::Call;

use crate::support::assert_same;
use crate::world::World;

const ADVICE: [Advice; 6] =
    [Advice::DontNeed, Advice::WillNeed, Advice::Sequential, Advice::Normal, Advice::Random, Advice::Cold];
/// How much room the background reclaimer may make in a group right after a call was refused.
const MOMENT: u64 = 64 * 4096;

impl World {
    pub(crate) fn advise(&mut self) {
        if self.random.one_in(8) {
            return self.page_out();
        }
        let Some((number, file)) = self.pick(false) else { return };
        let start = self.offset(number);
        let range = start..start.saturating_add(self.random.below(200_000));
        let advice = ADVICE[self.random.below(ADVICE.len() as u64) as usize];
        if let Err(error) = file.advise(range, advice) {
            assert_eq!(advice, Advice::WillNeed, "{error}");
            assert!(!matches!(error, Error::LimitReached { .. }), "advice needs no memory: {error}");
            self.tolerate(&error);
        }
    }

    /// What leaves memory is on the disk.
    fn page_out(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let number = self.open[at].number;
        let start = self.offset(number);
        let range = start..start + 1 + self.random.below(200_000);
        // For a range past the end, the call does nothing and reports nothing.
        if start < self.bytes(number).len() as u64
            && self.told_as_it_should(at, |file| file.advise(range.clone(), Advice::PageOut))
        {
            self.seen.ranges_paged_out += 1;
            self.range_is_on_disk(number, range);
        }
    }

    /// Looks whether a page is in memory.
    pub(crate) fn look(&mut self) {
        let Some((number, file)) = self.pick(false) else { return };
        let page = self.offset(number) / 4096;
        // A call that failed, and a future that was dropped, leave reads behind that they requested
        // and didn't wait for. The flusher may perform these during the look.
        let reads_alone = self.reads_alone && self.faulty.under_way() == 0;
        let (reads, misses) = (self.faulty.calls_of(Call::Read), file.stats().misses);
        let found = file.try_page_at(page * 4096);
        if reads_alone {
            assert_eq!(file.stats().misses, misses, "a look loads no page");
            // If the page has a readahead mark, the next pages are read.
            assert!(
                found.is_some() || self.faulty.calls_of(Call::Read) == reads,
                "a look at page {page} of f{number}, which isn't there, reads"
            );
        }
        if let Some(found) = found {
            let bytes = self.bytes(number);
            let range = page as usize * 4096..bytes.len().min((page as usize + 1) * 4096);
            assert_same(&found, &bytes[range], &format!("f{number}, page {page} in memory"));
            self.seen.pages_in_memory += 1;
        }
    }

    /// Charges pages to another group.
    pub(crate) fn recharge(&mut self) {
        let Some((number, file)) = self.pick(false) else { return };
        let to = self.groups[self.random.below(self.groups.len() as u64) as usize].clone();
        let start = self.offset(number);
        let result = if self.random.one_in(4) {
            file.group().hand_over(&to)
        } else {
            file.charge_to(start..start + self.random.below(200_000), &to)
        };
        match result {
            Ok(bytes) => {
                assert!(bytes <= to.max(), "{bytes} bytes in a group of {}", to.max());
                self.seen.pages_recharged += bytes / 4096;
            }
            Err(error @ Error::LimitReached { .. }) => {
                assert!(to.charged() + MOMENT > to.max(), "{error}");
                self.seen.recharges_refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
}
