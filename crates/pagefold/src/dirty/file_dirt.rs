//! What a file stores about its dirty pages. `dirty_part` has the functions.

use sync::lock::{Mutex, OnceCell};
use sync::{Arc, Weak};

use crate::dirty::device::{Device, DirtyPart, Flushed};

/// A file's counts of its dirty pages.
#[derive(Default)]
pub(crate) struct FileDirt {
    pub(crate) parts: Mutex<Vec<Arc<DirtyPart>>>,
    /// The file itself, and its device. Set once the file is opened for writing.
    pub(crate) home: OnceCell<(Weak<dyn Flushed>, Arc<Device>)>,
}
