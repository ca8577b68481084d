//! Estimates how often each page was used lately, in little memory: a counting Bloom filter with
//! minimal increment. After a fixed number of uses, all counters are halved, so that old uses count
//! less. The number of uses is halved, too, and counting continues from the halved number. The
//! method comes from the paper on [W-TinyLFU](crate::w_tiny_lfu).

/// Counters for each page of the cache.
const COUNTERS_A_PAGE: usize = 16;

/// The counters that stand for a page.
const HASHES: usize = 4;

/// A counter has four bits.
const COUNT_MAX: u8 = 15;

/// The counters are first halved after `USES_A_PAGE * room` uses, where `room` is the number of
/// pages of the cache. After that, they are halved each time after half as many uses.
const USES_A_PAGE: usize = 10;

pub(crate) struct Counts {
    counters: Vec<u8>,
    uses: usize,
    uses_max: usize,
}

impl Counts {
    /// Creates counts for a cache of `room` pages, one at least.
    pub(crate) fn new(room: usize) -> Self {
        Self { counters: vec![0; COUNTERS_A_PAGE * room], uses: 0, uses_max: USES_A_PAGE * room }
    }

    /// Counts a use of the page.
    pub(crate) fn add(&mut self, page: u32) {
        let (count, places) = (self.of(page), self.places(page));
        if count < COUNT_MAX {
            for place in places {
                let counter = &mut self.counters[place];
                // A counter that is larger already stands for other pages, too, and isn't raised.
                // Two of the places may be equal.
                *counter = (*counter).max(count + 1);
            }
        }
        self.uses += 1;
        if self.uses == self.uses_max {
            self.uses /= 2;
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
        }
    }

    /// Estimates how often the page was used. The estimate is seldom too low.
    pub(crate) fn of(&self, page: u32) -> u8 {
        self.places(page).map(|place| self.counters[place]).into_iter().min().unwrap_or(0)
    }

    fn places(&self, page: u32) -> [usize; HASHES] {
        let mut hash = u64::from(page) + 1;
        [(); HASHES].map(|()| {
            // SplitMix64.
            hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = hash;
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            (mixed % self.counters.len() as u64) as usize
        })
    }
}
