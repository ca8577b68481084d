//! Files of zeros, as long as one likes, without a disk and without anything that their readers share.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use sync::SharedBytes;

/// A file is called by a number, which tells it from others: `/7`.
pub(crate) struct Zeros;

struct Zero {
    number: u64,
}

/// Bytes of each.
const LEN: u64 = 1 << 34;

impl Backend for Zeros {
    fn name(&self) -> &'static str {
        "zeros"
    }

    fn open(&self, path: &Path, _: Access) -> Result<Box<dyn BackingFile>, IoError> {
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        number.map(|number| Box::new(Zero { number }) as _).ok_or(IoError::BAD_FILE)
    }
}

impl BackingFile for Zero {
    fn identity(&self) -> Identity {
        Identity { device: 0, inode: self.number }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(LEN)
    }

    fn read(&self, _: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        into.iter().for_each(|slice| slice.zero_from(0));
        Ok(into.iter().map(SharedBytes::len).sum())
    }
}
