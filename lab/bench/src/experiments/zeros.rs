//! Very long files of zeros, without a disk, and without anything that their readers share. The
//! first word of each page may be another number.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use pagefold::{File, Group, Pagefold};
use sync::SharedBytes;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// The first word of a page, by its number.
type Word = fn(u64) -> u64;

/// A file is called by a number, which tells it from others: `/7`.
struct Zeros(Word);

struct Zero {
    number: u64,
    word: Word,
}

/// Bytes of each.
const LEN: u64 = 1 << 34;

impl Backend for Zeros {
    fn name(&self) -> &'static str {
        "zeros"
    }

    fn open(&self, path: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        number.map(|number| Box::new(Zero { number, word: self.0 }) as _).ok_or(IoError::BAD_FILE)
    }
}

impl BackingFile for Zero {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: self.number }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(LEN)
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let mut done = 0;
        for slice in into {
            slice.zero_from(0);
            let first = offset + done as u64;
            for page in first.div_ceil(PAGE)..(first + slice.len() as u64).div_ceil(PAGE) {
                match (self.word)(page) {
                    0 => {}
                    word => slice.copy_from((page * PAGE - first) as usize, &word.to_ne_bytes()),
                }
            }
            done += slice.len();
        }
        Ok(done)
    }
}

/// Creates a Pagefold over such files. Its budget has room for `pages` pages, and for free frames
/// that CPUs keep, partly used extents, files and groups.
pub(crate) fn manager(pages: u64) -> Pagefold {
    manager_of(pages, |_| 0)
}

/// The same, with that word at the beginning of each page.
pub(crate) fn manager_of(pages: u64, word: Word) -> Pagefold {
    let budget = pages * PAGE + (256 << 20);
    Pagefold::builder().memory(budget).backend(Zeros(word)).build().expect("a budget that is large enough")
}

/// Creates `count` groups, each with a limit of `max` pages if there is one.
pub(crate) fn groups(manager: &Pagefold, count: usize, max: Option<u64>) -> Vec<Group> {
    let group = |number| {
        let group = manager.group(&format!("group {number}"));
        let group = match max {
            Some(pages) => group.max(pages * PAGE),
            None => group,
        };
        group.build().expect("room for a group")
    };
    (0..count).map(group).collect()
}

/// The file with a number.
pub(crate) fn open(group: &Group, number: usize) -> File {
    group.open(format!("/{number}")).expect("the file is there")
}
