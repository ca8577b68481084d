//! The last write of one thread to each place of the file.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::stamp::Stamp;

/// Non-overlapping pieces of the file by their start, each with the last write to it.
#[derive(Debug, Default)]
pub(crate) struct WriteLog {
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    last: Write,
}

/// A write that has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The stamp contains the time when the write began.
    pub(crate) stamp: Stamp,
    /// When the write completed, on the same clock.
    pub(crate) done_ns: u64,
}

impl WriteLog {
    /// Records a write. It replaces earlier writes of its range.
    pub(crate) fn record(&mut self, range: Range<u64>, last: Write) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        while let Some((&start, _)) = self.pieces.range(range.clone()).next() {
            self.pieces.remove(&start);
        }
        self.pieces.insert(range.start, Piece { end: range.end, last });
    }

    /// Splits the piece around `at` in two.
    fn split(&mut self, at: u64) {
        if let Some((_, piece)) = self.pieces.range_mut(..at).next_back()
            && piece.end > at
        {
            let rest = *piece;
            piece.end = at;
            self.pieces.insert(at, rest);
        }
    }

    /// Returns the pieces within `range`, in order, each cut to `range`.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Write)> + '_ {
        let reaches_in = |piece: &Piece| piece.end > range.start && !range.is_empty();
        let around = self.pieces.range(..range.start).next_back().filter(|(_, piece)| reaches_in(piece));
        let pieces = around.into_iter().chain(self.pieces.range(range.clone()));
        pieces.map(move |(&start, piece)| (start.max(range.start)..piece.end.min(range.end), piece.last))
    }

    /// Returns the first byte past all writes.
    pub(crate) fn end(&self) -> u64 {
        self.pieces.last_key_value().map_or(0, |(_, piece)| piece.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::random::Random;

    fn write(version: u64) -> Write {
        Write { stamp: Stamp { version, thread: 0, group: 0 }, done_ns: version }
    }

    #[test]
    fn agrees_with_an_array() {
        let (mut log, mut array) = (WriteLog::default(), [0; 100]);
        let mut random = Random::seeded(3);
        for version in 1..2_000 {
            let start = random.below(100);
            let range = start..start + random.below(101 - start);
            array[range.start as usize..range.end as usize].fill(version);
            log.record(range, write(version));
            let start = random.below(100);
            let looked_at = start..start + random.below(101 - start);
            let mut found = [0; 100];
            for (piece, last) in log.within(looked_at.clone()) {
                assert!(!piece.is_empty() && piece.start >= looked_at.start && piece.end <= looked_at.end);
                found[piece.start as usize..piece.end as usize].fill(last.stamp.version);
            }
            let looked_at = looked_at.start as usize..looked_at.end as usize;
            assert_eq!(found[looked_at.clone()], array[looked_at]);
            assert_eq!(log.end(), array.iter().rposition(|&version| version != 0).map_or(0, |last| last as u64 + 1));
        }
    }
}
