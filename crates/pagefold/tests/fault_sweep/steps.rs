//! The steps of a writer, and their effects on the file's bytes.

use pagefold::io::Backend;
use pagefold::{Advice, Error, File};

use crate::support::{assert_same, bytes_on, version};

/// A step of a writer. Written bytes are those of the step's version.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Write(u64, usize),
    Change(u64),
    SetLen(u64),
    Sync,
    SyncRange(u64, u64),
    /// Evicts all pages, so that they must be read again.
    Forget,
}

impl Step {
    pub(crate) fn take(self, file: &File, number: u64) -> Result<(), Error> {
        match self {
            Self::Write(offset, len) => file.write_at(&version(number, offset, len), offset),
            Self::Change(page) => {
                let mut guard = file.page_mut_at(page * 4096)?;
                let len = guard.len() / 2;
                guard[..len].copy_from_slice(&version(number, page * 4096, len));
                Ok(())
            }
            Self::SetLen(len) => file.set_len(len),
            Self::Sync => file.sync(),
            Self::SyncRange(from, to) => file.sync_range(from..to),
            Self::Forget => file.advise(0..u64::MAX, Advice::DontNeed),
        }
    }

    /// Checks that the bytes which a successful sync has written are on the disk.
    pub(crate) fn check_disk(self, disk: &impl Backend, expected: &[u8]) {
        match self {
            Self::Sync => assert_same(&bytes_on(disk, "new"), expected, "synced"),
            Self::SyncRange(from, to) => {
                let end = expected.len().min(to as usize);
                let mut there = bytes_on(disk, "new");
                there.truncate(end);
                assert_same(&there[from as usize..], &expected[from as usize..end], "synced in a range");
            }
            _ => {}
        }
    }

    /// The step's effects on the bytes, in order. Each of them takes place as a whole or not at
    /// all.
    pub(crate) fn pieces(self, number: u64) -> Vec<Piece> {
        match self {
            Self::Write(offset, len) => {
                let end = offset + len as u64;
                let page_end = |at: u64| end.min((at / 4096 + 1) * 4096);
                let starts = std::iter::successors(Some(offset), |&at| Some(page_end(at)).filter(|&at| at < end));
                // A write behind the end first makes the file longer.
                let gap = Piece::Lengthen { from: offset, to: page_end(offset) };
                let put = |at| Piece::Put { offset: at, bytes: version(number, at, (page_end(at) - at) as usize) };
                [gap].into_iter().chain(starts.map(put)).collect()
            }
            Self::Change(page) => vec![Piece::Change { page, number }],
            Self::SetLen(len) => vec![Piece::SetLen(len)],
            Self::Sync | Self::SyncRange(..) | Self::Forget => Vec::new(),
        }
    }

    /// The contents that the file may have after the step: unchanged first, then with one piece
    /// done, and so on. The last one is that of a completed step.
    pub(crate) fn outcomes(self, before: &[u8], number: u64) -> Vec<Vec<u8>> {
        let mut outcomes = vec![before.to_vec()];
        for piece in self.pieces(number) {
            let mut after = outcomes.last().unwrap().clone();
            piece.make(&mut after);
            outcomes.push(after);
        }
        outcomes
    }
}

/// A part of a step.
pub(crate) enum Piece {
    /// If the file ends before `from`, makes it `to` bytes long.
    Lengthen {
        from: u64,
        to: u64,
    },
    Put {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Changes the first half of page `page`, or of the file's part of it.
    Change {
        page: u64,
        number: u64,
    },
    SetLen(u64),
}

impl Piece {
    pub(crate) fn make(&self, content: &mut Vec<u8>) {
        match self {
            Self::Lengthen { from, to } if content.len() < *from as usize => content.resize(*to as usize, 0),
            Self::Lengthen { .. } => {}
            Self::Put { offset, bytes } => {
                let offset = *offset as usize;
                content.resize(content.len().max(offset + bytes.len()), 0);
                content[offset..][..bytes.len()].copy_from_slice(bytes);
            }
            Self::Change { page, number } => {
                let start = *page as usize * 4096;
                let len = content.len().saturating_sub(start).min(4096) / 2;
                if len > 0 {
                    content[start..][..len].copy_from_slice(&version(*number, start as u64, len));
                }
            }
            Self::SetLen(len) => content.resize(*len as usize, 0),
        }
    }
}
